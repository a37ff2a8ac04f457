"""A GPGMap: what is known of the terrain at one moment, as layers on a grid in a gravity-aligned frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid

Layer = NDArray[np.float32]


@dataclass(frozen=True)
class GPGMap:
    """Layers `layer[iy, ix]` (float32, y and x growing with the index; NaN where unknown) and where they lie.

    grid: cells of the layers; frame_id: frame of the grid's coordinates; stamp: of the newest data, nanoseconds.
    layers: elevation, variance, gradient_x, gradient_y, gradient_magnitude, gradient_x_variance, gradient_y_variance.
    Variances are known everywhere: far from data they are the prior's.
    """

    grid: Grid
    layers: Mapping[str, Layer]
    frame_id: str = "map"
    stamp: int = 0

    def __getitem__(self, name: str) -> Layer:
        if name not in self.layers:
            raise KeyError(f"no layer '{name}'; there are {', '.join(self.layers)}")
        return self.layers[name]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Mask of the cells whose elevation is known."""
        return np.isfinite(self.layers["elevation"])
