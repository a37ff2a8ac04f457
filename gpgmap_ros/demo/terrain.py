"""Bare ground at rover size: real relief from the SRTM tile in matplotlib's sample data, with rocks on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import cbook
from scipy.ndimage import zoom

from gpgmap_ros.arrays import Array

RELIEF_FILE = "jacksboro_fault_dem.npz"
# The tile's ridges are kilometres apart. Shrunk by 1 : 250 they are a rover's hills: 74 m cells become 0.3 m.
SHRINK = 250.0
TILE_CELL = 83.0  # metres: the mean of the tile's 74 m (x) and 93 m (y)
FLATTEN = 0.5  # the tile is mountain country; a rover keeps to gentler slopes
ROCKS_PER_SQUARE_METRE = 0.35
ROCK_RADIUS = (0.08, 0.6)  # metres
ROCK_SIZE_EXPONENT = 2.2  # many small ones, few large ones


@dataclass(frozen=True)
class Terrain:
    """Heights on a fine grid: `heights[iy, ix]` at x = ix * resolution, y = iy * resolution."""

    heights: Array
    resolution: float

    @property
    def size(self) -> tuple[float, float]:
        """Extent along x and y in metres."""
        rows, columns = self.heights.shape
        return (columns - 1) * self.resolution, (rows - 1) * self.resolution

    def height_at(self, x: Array | float, y: Array | float) -> Array:
        """Heights between the grid's nodes, bilinear."""
        rows, columns = self.heights.shape
        u = np.clip(np.asarray(x) / self.resolution, 0, columns - 1.001)
        v = np.clip(np.asarray(y) / self.resolution, 0, rows - 1.001)
        i, j = v.astype(int), u.astype(int)
        s, t = u - j, v - i
        h = self.heights
        return np.asarray(
            (1 - t) * ((1 - s) * h[i, j] + s * h[i, j + 1])
            + t * ((1 - s) * h[i + 1, j] + s * h[i + 1, j + 1])
        )


def rover_terrain(rng: np.random.Generator, size: float = 40.0, resolution: float = 0.05) -> Terrain:
    """A square of real relief, `size` metres wide, with rocks of our own making."""
    tile: Any = cbook.get_sample_data(RELIEF_FILE)
    relief = np.asarray(tile["elevation"], dtype=np.float64)
    cell = TILE_CELL / SHRINK
    count = int(np.ceil(size / cell)) + 4
    corner = ((relief.shape[0] - count) // 2, (relief.shape[1] - count) // 2)
    # row 0 of the tile is its northern edge; ours grow northwards
    part = relief[::-1][corner[0] : corner[0] + count, corner[1] : corner[1] + count] / SHRINK * FLATTEN
    nodes = round(size / resolution) + 1
    fine = zoom(part, cell / resolution, order=3, mode="nearest")[:nodes, :nodes]
    heights = fine - fine.mean()
    add_rocks(heights, resolution, rng)
    return Terrain(heights, resolution)


def add_rocks(heights: Array, resolution: float, rng: np.random.Generator) -> None:
    """Put half-buried ellipsoids on the ground, in place."""
    rows, columns = heights.shape
    area = rows * columns * resolution**2
    low, high = ROCK_RADIUS
    for _ in range(round(area * ROCKS_PER_SQUARE_METRE)):
        # inverse transform sampling of p(r) ~ r^-exponent on [low, high]
        power = 1.0 - ROCK_SIZE_EXPONENT
        radius = (low**power + rng.random() * (high**power - low**power)) ** (1.0 / power)
        row, column = int(rng.integers(rows)), int(rng.integers(columns))
        reach = int(np.ceil(radius / resolution))
        i = np.arange(max(row - reach, 0), min(row + reach + 1, rows))
        j = np.arange(max(column - reach, 0), min(column + reach + 1, columns))
        squared = ((i[:, None] - row) ** 2 + (j[None, :] - column) ** 2) * resolution**2
        top = 0.6 * np.sqrt(np.clip(radius**2 - squared, 0.0, None))
        heights[i[0] : i[-1] + 1, j[0] : j[-1] + 1] += top
