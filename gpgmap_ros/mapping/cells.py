"""Which cell each point lies in: of a grid, or of the whole plane or space."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gp_core.grid import Grid
from gpgmap_ros.arrays import Array, Mask


def cell_ids(points: Array, edge: float) -> NDArray[np.int64]:
    """Number (N,) of the cell each point (N, D) is in, counted from 0 in the order in which cells are first met.

    Cells are squares (D = 2) or cubes (D = 3) of the given edge with corners at whole multiples of it, so that the
    same place is in the same cell in every cloud. O(N): with a table of the cells of a plane where that is small, else
    with a hash table.
    """
    if points.shape[1] == 2 and len(points):
        x, y = points[:, 0], points[:, 1]
        first_x, first_y, columns, rows = _extent(x, y, edge)
        if 0.0 < columns * rows <= max(4.0 * len(points), 65536.0):
            ids = np.empty(len(points), dtype=np.int64)
            owner = np.full((int(rows), int(columns)), -1, dtype=np.int32)
            _number_plane(x, y, edge, first_x, first_y, owner, ids)
            return ids
    cells = np.floor(points / edge).astype(np.int64)
    ids = np.empty(len(cells), dtype=np.int64)
    _number(cells, np.full(max(16, 1 << (2 * len(cells)).bit_length()), -1), ids)
    return ids


def first_of_each(ids: NDArray[np.int64]) -> Mask:
    """Mask (N,) of the first point of each cell, for the numbers that `cell_ids` gives."""
    seen = np.maximum.accumulate(ids) if len(ids) else ids
    return np.diff(seen, prepend=-1) > 0


def flat_cells(grid: Grid, xy: Array) -> tuple[NDArray[np.int64], Mask]:
    """Flat index (N,) of the cells that positions are in, and whether they are on the grid (index 0 elsewhere)."""
    index = np.floor((xy - np.array(grid.origin)) / grid.resolution).astype(np.int64)
    inside = (index >= 0).all(axis=1) & (index[:, 0] < grid.shape[1]) & (index[:, 1] < grid.shape[0])
    return np.where(inside, index[:, 1] * grid.shape[1] + index[:, 0], 0), inside


def carry_over(values: NDArray[Any], old: Grid | None, grid: Grid) -> NDArray[Any]:
    """Values of the cells of `old` at the same cells of `grid`, which has moved by whole cells; zero at the others."""
    out = np.zeros(grid.shape, dtype=values.dtype)
    if old is not None and old.resolution == grid.resolution:
        shift = np.round((np.array(old.origin) - grid.origin) / grid.resolution).astype(int)
        (new_x, old_x), (new_y, old_y) = (
            overlap(new, before, int(by))
            for new, before, by in zip(grid.shape[::-1], old.shape[::-1], shift, strict=True)
        )
        out[new_y, new_x] = values[old_y, old_x]
    return out


def overlap(new: int, old: int, by: int) -> tuple[slice, slice]:
    """Common cells of two windows of `new` and `old` cells, the old one beginning at cell `by` of the new one."""
    first, last = max(0, by), max(min(new, old + by), max(0, by))
    return slice(first, last), slice(first - by, last - by)


@compiled()
def _extent(x, y, edge):  # type: ignore[no-untyped-def]
    """First cell along x and y, and how many there are, as floats: a point far away must not overflow."""
    low_x, high_x, low_y, high_y = np.inf, -np.inf, np.inf, -np.inf
    for n in range(x.size):
        low_x, high_x = min(low_x, x[n]), max(high_x, x[n])
        low_y, high_y = min(low_y, y[n]), max(high_y, y[n])
    low_x, low_y = np.floor(low_x / edge), np.floor(low_y / edge)
    return low_x, low_y, np.floor(high_x / edge) - low_x + 1.0, np.floor(high_y / edge) - low_y + 1.0


@compiled()
def _number_plane(x, y, edge, first_x, first_y, owner, ids):  # type: ignore[no-untyped-def]
    """owner: (rows, columns), all -1: the number of each cell that was met."""
    used = 0
    for n in range(x.size):
        i, j = int(np.floor(x[n] / edge) - first_x), int(np.floor(y[n] / edge) - first_y)
        if owner[j, i] < 0:
            owner[j, i] = used
            used += 1
        ids[n] = owner[j, i]


@compiled()
def _number(cells, owner, ids):  # type: ignore[no-untyped-def]
    """owner: the hash table, all -1, a power of two: slot -> the first point of the cell that has it."""
    count, dimensions = cells.shape
    mask = np.uint64(owner.size - 1)
    used = 0
    for n in range(count):
        # odd multipliers spread neighbouring cells, the shift brings their upper bits down
        h = np.uint64(0)
        for d in range(dimensions):
            h = (h ^ np.uint64(cells[n, d])) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(29)
        slot = h & mask
        while True:
            first = owner[slot]
            if first < 0:
                owner[slot] = n
                ids[n] = used
                used += 1
                break
            same = True
            for d in range(dimensions):
                if cells[first, d] != cells[n, d]:
                    same = False
                    break
            if same:
                ids[n] = ids[first]
                break
            slot = (slot + np.uint64(1)) & mask
