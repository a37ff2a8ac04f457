"""A GPGMap: what is known of the terrain at one moment, as layers on a grid in a gravity-aligned frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid, GridPosterior
from gpgmap_ros.config import Config
from gpgmap_ros.mapping.layers import Layer, LayerSettings, LayerStack, read_only

LEAST_VARIANCE = 1e-8
"""Square metres (and of the gradient): less is round-off of the engine's single precision."""


@dataclass(frozen=True, eq=False)
class GPGMap:
    """Layers `layer[iy, ix]` (float32, y and x growing with the index; NaN where unknown) and where they lie.

    grid: cells of the layers; frame_id: frame of the grid's coordinates; stamp: of the newest data, nanoseconds.
    layers: elevation, variance, gradient_x, gradient_y, gradient_x_variance, gradient_y_variance are given; the others
    (`gpgmap.layers` lists them) are computed when they are asked for.
    config: limits for traversability and gradient_visual.
    Variances are known everywhere: far from data they are the prior's.
    """

    grid: Grid
    layers: Mapping[str, Layer] = field(repr=False)
    frame_id: str = "map"
    stamp: int = 0
    config: Config = field(default_factory=Config, repr=False)

    def __post_init__(self) -> None:
        settings = LayerSettings(self.grid.resolution, self.config.traversability, self.config.visual)
        object.__setattr__(self, "layers", LayerStack(self.layers, settings))

    def __getitem__(self, name: str) -> Layer:
        return self.layers[name]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Mask of the cells whose elevation is known."""
        return np.isfinite(self.layers["elevation"])


def gpgmap_of(
    posterior: GridPosterior, unknown: NDArray[np.bool_], frame_id: str, stamp: int, config: Config
) -> GPGMap:
    """The posterior as a map; elevation and gradient are NaN in the cells that are `unknown`."""
    layers = {
        "elevation": masked(posterior.mean, unknown),
        "variance": np.maximum(posterior.variance, LEAST_VARIANCE),
        "gradient_x": masked(posterior.gradient[..., 0], unknown),
        "gradient_y": masked(posterior.gradient[..., 1], unknown),
        "gradient_x_variance": np.maximum(posterior.gradient_variance[..., 0], LEAST_VARIANCE),
        "gradient_y_variance": np.maximum(posterior.gradient_variance[..., 1], LEAST_VARIANCE),
    }
    stack = {name: read_only(layer) for name, layer in layers.items()}
    return GPGMap(posterior.grid, stack, frame_id, stamp, config)


def masked(layer: NDArray[np.float64], unknown: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.where(unknown, np.nan, layer)
