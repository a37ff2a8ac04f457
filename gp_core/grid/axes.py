"""Where things are: the cells of the map, and the blocks that the statistics are kept in.

A map has ny x nx square cells; `layer[iy, ix]` grows with y and x. The statistics live on a second, coarser
lattice of blocks whose size follows the kernel, not the cells. Block (j, i) covers
[i h_x, (i + 1) h_x) x [j h_y, (j + 1) h_y) in world coordinates: the lattice is the same for every map with
the same kernel, so that maps merge and a window moves without resampling anything.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from gp_core.arrays import Array, as_vector, integer_at_least, positive


@dataclass(frozen=True)
class Grid:
    """Square cells of a map; cell (iy, ix) has its centre at origin + (ix + 1/2, iy + 1/2) resolution.

    origin: (x, y) of the corner of cell (0, 0) with the smallest coordinates, in metres
    shape: (ny, nx), number of cells
    resolution: side of a cell, in metres
    """

    origin: tuple[float, float]
    shape: tuple[int, int]
    resolution: float

    def __post_init__(self) -> None:
        origin = as_vector(self.origin, "Grid: origin", 2)
        if len(self.shape) != 2:
            raise ValueError(f"Grid: shape must be (ny, nx), got {self.shape}")
        ny, nx = (integer_at_least(n, 1, "Grid: shape") for n in self.shape)
        object.__setattr__(self, "origin", (float(origin[0]), float(origin[1])))
        object.__setattr__(self, "shape", (ny, nx))
        object.__setattr__(self, "resolution", positive(self.resolution, "Grid: resolution"))

    @property
    def x(self) -> Array:
        """(nx,) x of the cell centres."""
        return self.origin[0] + (np.arange(self.shape[1], dtype=np.float64) + 0.5) * self.resolution

    @property
    def y(self) -> Array:
        """(ny,) y of the cell centres."""
        return self.origin[1] + (np.arange(self.shape[0], dtype=np.float64) + 0.5) * self.resolution

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """(x_min, y_min, x_max, y_max) of the area that the cells cover."""
        ny, nx = self.shape
        x, y = self.origin
        return x, y, x + nx * self.resolution, y + ny * self.resolution

    @property
    def centers(self) -> Array:
        """(ny, nx, 2) x and y of the cell centres."""
        return np.stack(np.meshgrid(self.x, self.y), axis=-1)

    def moved(self, cells_y: int, cells_x: int) -> Grid:
        """Deprecated name of `shift`."""
        warnings.warn(
            "Grid.moved is deprecated and will be removed in version 0.3: use Grid.shift",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.shift(cells_y, cells_x)

    def shift(self, cells_y: int, cells_x: int) -> Grid:
        """The grid of the same size, shifted by whole cells."""
        x, y = self.origin
        return Grid(
            (x + cells_x * self.resolution, y + cells_y * self.resolution), self.shape, self.resolution
        )


@dataclass(frozen=True)
class Axis:
    """The blocks along one axis that a map touches: block `first` to `first + count - 1`.

    spacing: h, side of a block along this axis, in metres
    first: index of the first block in the world lattice
    count: number of blocks
    """

    spacing: float
    first: int
    count: int

    @staticmethod
    def covering(low: float, high: float, spacing: float) -> Axis:
        """The blocks that [low, high] touches."""
        first = int(np.floor(low / spacing))
        last = max(first, int(np.ceil(high / spacing)) - 1)
        return Axis(spacing, first, last - first + 1)

    @property
    def middles(self) -> Array:
        """(count,) coordinates of the middles of the blocks."""
        return (np.arange(self.first, self.first + self.count, dtype=np.float64) + 0.5) * self.spacing

    def locate(self, x: Any) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Array]:
        """Block index (counted from `first`) and position t in [-1, 1) inside the block, for each x."""
        u = np.asarray(x, dtype=np.float64) * (1.0 / self.spacing)
        block = np.floor(u)
        return block.astype(np.int64) - self.first, 2.0 * (u - block) - 1.0
