"""What a submap keeps of its points to be fused again under another pose: one weighted point for each cell.

Sums over the cells of a lattice can't be turned onto another one: which part of them would fall into which cell is not
known. A point for each cell of the map can: it lies at the centroid of the cell's points, at their mean height, and
weighs as much as all of them. The mean of heights at their centroid is free of the slope of the ground; what is lost is
relief smaller than a cell, which the map does not show either.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gpgmap_ros.arrays import Array

TILE = 64
"""Cells along an edge of the tiles in which sums are kept: only tiles with points take memory."""
WEIGHT, WEIGHT_X, WEIGHT_Y, WEIGHT_Z, SUMS = range(5)
"""Of a cell: sums of 1 / variance, and of its products with x and y from the cell's middle, in cells, and with z."""


@dataclass(frozen=True)
class PseudoPoints:
    """xyz: (N, 3) in the frame of the submap; variance: (N,) of the heights, as small as the many points they stand for
    make it."""

    xyz: NDArray[np.floating]
    variance: NDArray[np.floating]

    def __len__(self) -> int:
        return len(self.variance)


class CellSums:
    """Sums over the points of each cell of a square around the origin.

    extent: of the square; resolution: edge of a cell
    finest_variance: of the mean height of a cell, at least: what its points have in common does not average out
    """

    def __init__(self, extent: float, resolution: float, finest_variance: float) -> None:
        self._resolution, self._finest = resolution, finest_variance
        tiles = max(int(np.ceil(extent / (resolution * TILE))), 1)
        self._first = -(tiles * TILE) // 2
        self._tile_of: NDArray[np.int32] = np.full((tiles, tiles), -1, dtype=np.int32)
        self._sums = np.zeros((0, TILE, TILE, SUMS))
        self._reference = 0.0

    def add(self, xyz: Array, variance: Array) -> None:
        """Take in points (N, 3) with the variances (N,) of their heights; those outside the square do not count."""
        if not len(xyz):
            return
        if not len(self._sums):
            self._reference = float(np.median(xyz[:, 2]))
        cells = xyz[:, :2] / self._resolution - self._first
        new = _mark_tiles(cells, self._tile_of, len(self._sums))
        if new > len(self._sums):
            self._sums = np.concatenate([self._sums, np.zeros((new - len(self._sums), TILE, TILE, SUMS))])
        _add_points(cells, xyz[:, 2] - self._reference, variance, self._tile_of, self._sums)

    def forget(self, xy: Array, reach: float) -> None:
        """Empty the cells whose middles are within `reach` of the positions (N, 2)."""
        steps = int(np.ceil(reach / self._resolution)) + 1
        offsets = np.arange(-steps, steps + 1)
        cells = xy / self._resolution - self._first
        index = np.floor(cells)[:, None, None, :] + np.stack(np.meshgrid(offsets, offsets), axis=-1)
        near = (
            np.hypot(*np.moveaxis(index + 0.5 - cells[:, None, None, :], -1, 0)) <= reach / self._resolution
        )
        column, row = index[near].astype(np.int64).T
        side = self._tile_of.shape[0] * TILE
        inside = (column >= 0) & (row >= 0) & (column < side) & (row < side)
        column, row = column[inside], row[inside]
        tile = self._tile_of[row // TILE, column // TILE]
        known = tile >= 0
        self._sums[tile[known], row[known] % TILE, column[known] % TILE] = 0.0

    def points(self) -> PseudoPoints:
        """One point for each cell that has some."""
        tile, row, column = np.nonzero(self._sums[..., WEIGHT] > 0.0)
        sums = self._sums[tile, row, column]
        place: NDArray[np.int64] = np.argwhere(self._tile_of >= 0)
        origin = np.zeros((len(self._sums), 2))
        origin[self._tile_of[place[:, 0], place[:, 1]]] = place[:, ::-1] * TILE + self._first
        weight = sums[:, WEIGHT]
        middle = origin[tile] + np.column_stack([column, row]) + 0.5
        xy = (middle + sums[:, [WEIGHT_X, WEIGHT_Y]] / weight[:, None]) * self._resolution
        z = sums[:, WEIGHT_Z] / weight + self._reference
        return PseudoPoints(np.column_stack([xy, z]), np.maximum(1.0 / weight, self._finest))


@compiled()
def _mark_tiles(cells, tile_of, used):  # type: ignore[no-untyped-def]
    """Number the tiles that points (N, 2), in cells, are the first to lie in; returns how many tiles there are now."""
    side = tile_of.shape[0] * TILE
    for n in range(cells.shape[0]):
        column, row = int(np.floor(cells[n, 0])), int(np.floor(cells[n, 1]))
        if 0 <= column < side and 0 <= row < side and tile_of[row // TILE, column // TILE] < 0:
            tile_of[row // TILE, column // TILE] = used
            used += 1
    return used


@compiled()
def _add_points(cells, z, variance, tile_of, sums):  # type: ignore[no-untyped-def]
    """Add points (N, 2), in cells, to the sums of their cells."""
    side = tile_of.shape[0] * TILE
    for n in range(cells.shape[0]):
        column, row = int(np.floor(cells[n, 0])), int(np.floor(cells[n, 1]))
        if 0 <= column < side and 0 <= row < side:
            weight = 1.0 / variance[n]
            own = sums[tile_of[row // TILE, column // TILE], row % TILE, column % TILE]
            own[WEIGHT] += weight
            own[WEIGHT_X] += weight * (cells[n, 0] - column - 0.5)
            own[WEIGHT_Y] += weight * (cells[n, 1] - row - 0.5)
            own[WEIGHT_Z] += weight * z[n]
