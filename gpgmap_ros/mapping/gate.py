"""The innovation gate: points that contradict the map wait until others confirm them.

A point contradicts the surface (mean f, variance v, gradient g, at the point's own x and y) if its height z, of
variance r, is too far from it both in standard deviations and in metres:

    |z - f| > threshold sqrt(v + r)   and   |z - f| > tolerance + |g| length_scale

The second term allows for edges that the map cannot draw as sharp as they are. In each cell, points are compared as a
group: a cloud disputes the cell if more of its points there contradict than agree. When `confirmations` clouds in a
row that see the cell dispute it and say the same, the world has changed: the cell is released, its points pass and
what the map remembers there must be forgotten. Until then contradicting points are held back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid, GridPosterior
from gpgmap_ros.config import GateConfig

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Surface:
    """The map as it was last solved. known: (ny, nx) cells to compare with; stamp: of the newest data, nanoseconds."""

    posterior: GridPosterior
    known: Mask
    stamp: int

    def cells(self, xy: Array) -> tuple[NDArray[np.int64], Mask]:
        """Flat index (N,) of the cells that positions (N, 2) are in, and whether they are known (index 0 elsewhere)."""
        index, inside = flat_cells(self.posterior.grid, xy)
        known = inside & self.known.ravel()[index]
        return np.where(known, index, 0), known

    def gradient_at(self, xy: Array) -> Array:
        """Gradient (N, 2) at positions (N, 2), NaN where it is not known."""
        index, known = self.cells(xy)
        gradient = self.posterior.gradient.reshape(-1, 2)[index]
        gradient[~known] = np.nan
        return gradient


def flat_cells(grid: Grid, xy: Array) -> tuple[NDArray[np.int64], Mask]:
    """Flat index (N,) of the cells that positions are in, and whether they are on the grid (index 0 elsewhere)."""
    index = np.floor((xy - np.array(grid.origin)) / grid.resolution).astype(np.int64)
    inside = (index >= 0).all(axis=1) & (index[:, 0] < grid.shape[1]) & (index[:, 1] < grid.shape[0])
    return np.where(inside, index[:, 1] * grid.shape[1] + index[:, 0], 0), inside


@dataclass(frozen=True)
class Verdict:
    """passed: (N,) points to fuse; released: (K, 2) centres of the cells whose past must be forgotten before that."""

    passed: Mask
    released: Array


class InnovationGate:
    """Remembers, for each cell of the map's present window, how often in a row it was disputed, and at which height."""

    def __init__(self, config: GateConfig, length_scale: float) -> None:
        self.config = config
        self._length_scale = length_scale
        self._grid: Grid | None = None
        self._count: NDArray[np.int32] = np.zeros((0, 0), dtype=np.int32)
        self._height: Array = np.zeros((0, 0))

    @property
    def disputed(self) -> int:
        """Cells that wait for confirmation."""
        return int(np.count_nonzero(self._count))

    def judge(self, xyz: Array, variance: Array, surface: Surface, grid: Grid) -> Verdict:
        """Sort points (N, 3) with variances (N,) of their heights.

        surface: what they are compared with; cells released here are no longer known in it
        grid: the map's present window; the surface may be of an earlier one
        """
        self._align(grid)
        on_surface, known = surface.cells(xyz[:, :2])
        index, inside = flat_cells(grid, xyz[:, :2])
        contradicts = known & inside & self._contradicts(xyz, variance, surface, on_surface)
        agrees = known & inside & ~contradicts
        released = self._released(index, contradicts, agrees, xyz[:, 2], variance)
        passed = ~contradicts | released.ravel()[index]
        iy, ix = np.nonzero(released)
        centres = np.column_stack([grid.x[ix], grid.y[iy]])
        self._unlearn(surface, centres)
        return Verdict(passed, centres)

    def _contradicts(self, xyz: Array, variance: Array, surface: Surface, index: NDArray[np.int64]) -> Mask:
        posterior, width = surface.posterior, surface.posterior.grid.shape[1]
        centres = np.column_stack([posterior.grid.x[index % width], posterior.grid.y[index // width]])
        gradient = posterior.gradient.reshape(-1, 2)[index]
        offset = xyz[:, :2] - centres
        expected = (
            posterior.mean.ravel()[index] + gradient[:, 0] * offset[:, 0] + gradient[:, 1] * offset[:, 1]
        )
        innovation = np.abs(xyz[:, 2] - expected)
        std = np.sqrt(posterior.variance.ravel()[index] + variance)
        unsharp = np.hypot(gradient[:, 0], gradient[:, 1]) * self._length_scale
        config = self.config
        return (innovation > config.threshold * std) & (innovation > config.tolerance + unsharp)

    def _released(
        self, index: NDArray[np.int64], contradicts: Mask, agrees: Mask, z: Array, variance: Array
    ) -> Mask:
        """Count one more cloud in every cell it sees; mask (ny, nx) of the cells confirmed often enough."""
        shape = self._count.shape

        def per_cell(points: Mask, values: Array | None = None) -> Array:
            weights = None if values is None else values[points]
            return np.bincount(index[points], weights, minlength=self._count.size).reshape(shape)

        against, for_it = per_cell(contradicts), per_cell(agrees)
        disputed = against > for_it
        self._count[(for_it > 0) & ~disputed] = 0
        number = np.maximum(against, 1.0)
        height = per_cell(contradicts, z) / number
        noise = np.sqrt(per_cell(contradicts, variance) / number)
        same = np.abs(height - self._height) <= self.config.tolerance + self.config.threshold * noise
        self._count[disputed] = np.where(same, self._count, 0)[disputed] + 1
        self._height[disputed] = height[disputed]
        released = disputed & (self._count >= self.config.confirmations)
        self._count[released] = 0
        return released

    def _align(self, grid: Grid) -> None:
        """Carry the counts along when the window has moved, by whole cells."""
        if grid == self._grid:
            return
        count, height = np.zeros(grid.shape, dtype=np.int32), np.zeros(grid.shape)
        if self._grid is not None and self._grid.resolution == grid.resolution:
            shift = np.round((np.array(self._grid.origin) - grid.origin) / grid.resolution).astype(int)
            (new_x, old_x), (new_y, old_y) = (
                overlap(new, old, int(by))
                for new, old, by in zip(grid.shape[::-1], self._grid.shape[::-1], shift, strict=True)
            )
            count[new_y, new_x] = self._count[old_y, old_x]
            height[new_y, new_x] = self._height[old_y, old_x]
        self._grid, self._count, self._height = grid, count, height

    @staticmethod
    def _unlearn(surface: Surface, centres: Array) -> None:
        if len(centres):
            index, known = surface.cells(centres)
            surface.known.ravel()[index[known]] = False


def overlap(new: int, old: int, by: int) -> tuple[slice, slice]:
    """Common cells of two windows of `new` and `old` cells, the old one beginning at cell `by` of the new one."""
    first, last = max(0, by), max(min(new, old + by), max(0, by))
    return slice(first, last), slice(first - by, last - by)
