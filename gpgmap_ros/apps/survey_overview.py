"""A survey's map with few enough cells for pictures and for the report, collected window by window."""

from __future__ import annotations

from collections.abc import Mapping

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
        self.factor = overview_factor(grid)
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
        """Add a window of the map."""
        self.place(shrink_window(part, rows, self.factor), rows, columns)

    def place(self, small: Mapping[str, NDArray[np.float32]], rows: slice, columns: slice) -> None:
        """Add what `shrink_window` made of a window. Where two share a square, the one placed last counts."""
        y, x = rows.start // self.factor, columns.start // self.factor
        for name, layer in small.items():
            there = self.layers[name][y : y + layer.shape[0], x : x + layer.shape[1]]
            there[...] = np.where(np.isfinite(layer), layer, there)

    def write_pictures(self, folder: RunFolder) -> None:
        """One PNG for each layer of the report."""
        for name in reported_layers():
            pixels = colour_layer(self.layers[name], STYLES[name])
            if STYLES[name].shaded:
                pixels = shade_pixels(pixels, self.layers[SHADE], certain=self.certainty)
            png(pixels, folder.layers / f"{name}.png")


def overview_factor(grid: Grid) -> int:
    """Cells along a square of the overview of a map, so that it has few enough of them."""
    factor = 1
    while grid.shape[0] * grid.shape[1] / factor**2 > MOST_CELLS:
        factor *= 2
    return factor


def shrink_window(part: GPGMap, rows: slice, factor: int) -> dict[str, NDArray[np.float32]]:
    """Means over squares of a window, which need not begin with a whole square. rows: of the whole map"""
    pad = rows.start % factor
    small = {}
    for name in (*reported_layers(), SHADE, CERTAIN):
        layer = _values(part, name)
        if pad:
            layer = np.vstack([np.full((pad, layer.shape[1]), np.nan, dtype=np.float32), layer])
        small[name] = shrunk(layer, factor)
    return small


def _values(part: GPGMap, name: str) -> NDArray[np.float32]:
    if name == SHADE:
        return relief_shade(part["gradient_x"], part["gradient_y"])
    return certainty(part) if name == CERTAIN else layer_values(part, name)
