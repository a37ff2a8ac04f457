"""A survey's map with few enough cells for pictures and for the report, collected window by window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.layers import reported_layers
from gpgmap_ros.report.content import MOST_CELLS, shrunk
from gpgmap_ros.viz.rendering import (
    STYLES,
    certainty,
    colour_layer,
    layer_values,
    png,
    relief_shade,
    shade_pixels,
)

SHADE, CERTAIN = "shade", "certain"
"""What pictures with relief need besides the layers: its shade, and how well it is known."""


class Overview:
    """Means over squares of `factor` x `factor` cells. grid: of these squares; layers: by name, NaN where unknown"""

    def __init__(self, grid: Grid) -> None:
        rows, columns = grid.shape
        self.factor = 1
        while rows * columns / self.factor**2 > MOST_CELLS:
            self.factor *= 2
        shape = (-(-rows // self.factor), -(-columns // self.factor))
        self.grid = Grid(grid.origin, shape, grid.resolution * self.factor)
        self.layers: dict[str, NDArray[np.float32]] = {
            name: np.full(shape, np.nan, dtype=np.float32) for name in (*reported_layers(), SHADE, CERTAIN)
        }

    @property
    def certainty(self) -> NDArray[np.float32]:
        """Share of the relief's shade that is shown in each square, 0 where nothing is known."""
        return np.nan_to_num(self.layers[CERTAIN])

    def add(self, part: GPGMap, rows: slice, columns: slice) -> None:
        """Add a window of the map. One need not begin at a whole square: what both sides know is averaged in order."""
        pad = rows.start % self.factor
        for name, whole in self.layers.items():
            layer = self._values(part, name)
            if pad:
                layer = np.vstack([np.full((pad, layer.shape[1]), np.nan, dtype=np.float32), layer])
            small = shrunk(layer, self.factor)
            y, x = rows.start // self.factor, columns.start // self.factor
            there = whole[y : y + small.shape[0], x : x + small.shape[1]]
            there[...] = np.where(np.isfinite(small), small, there)

    @staticmethod
    def _values(part: GPGMap, name: str) -> NDArray[np.float32]:
        if name == SHADE:
            return relief_shade(part["gradient_x"], part["gradient_y"])
        return certainty(part) if name == CERTAIN else layer_values(part, name)

    def write_pictures(self, folder: RunFolder) -> None:
        """One PNG for each layer of the report."""
        for name in reported_layers():
            pixels = colour_layer(self.layers[name], STYLES[name])
            if STYLES[name].shaded:
                pixels = shade_pixels(pixels, self.layers[SHADE], certain=self.certainty)
            png(pixels, folder.layers / f"{name}.png")
