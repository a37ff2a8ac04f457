"""Where the tiles of a map are, which of them are out of date, and the moments laid out for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid.axes import Axis
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.tiles import HEIGHT_MOMENTS, WEIGHT_MOMENTS, Integers, TileModel

Job = Callable[[], int]
_TILES_PER_JOB: Final = 4
"""Neighbours share a part of the work; few of them let all threads end together."""


@dataclass(frozen=True)
class Tiling:
    """The tiles of one model that cover a window; tile k owns blocks k core ... (k + 1) core - 1.

    y, x: blocks of the window
    first_y, first_x: number of the first tile along each axis
    shape: (tiles along y, tiles along x)
    """

    y: Axis
    x: Axis
    first_y: int
    first_x: int
    shape: tuple[int, int]

    @staticmethod
    def covering(model: TileModel, y: Axis, x: Axis) -> Tiling:
        first_y, first_x = y.first // model.y.core, x.first // model.x.core
        last_y = (y.first + y.count - 1) // model.y.core
        last_x = (x.first + x.count - 1) // model.x.core
        return Tiling(y, x, first_y, first_x, (last_y - first_y + 1, last_x - first_x + 1))


class TileRow(NamedTuple):
    """Tiles in one row of tiles, and where their domains are in the images.

    row, first: block at which the domains start, and the first of them along x
    starts: (T,) further blocks along x to each tile's domain
    span: blocks along x of all domains together
    """

    row: int
    first: int
    starts: np.ndarray[Any, np.dtype[np.int64]]
    span: int


class TileField:
    """Results of all tiles of one model over a window, kept until their data change.

    model: shared tables
    tiling: where the tiles are
    stale: (tiles_y, tiles_x) tiles whose data have changed since they were solved
    empty: (tiles_y, tiles_x) tiles without data in their domain, for which the prior holds
    fallbacks: number of tiles so far that were solved in float64 because float32 failed
    hard: (tiles_y, tiles_x) tiles for which it has failed: they are solved in float64 at once from then on
    """

    def __init__(self, model: TileModel, y: Axis, x: Axis) -> None:
        self.model = model
        self.tiling = Tiling.covering(model, y, x)
        self.stale: Mask = np.zeros(self.tiling.shape, dtype=np.bool_)
        self.empty: Mask = np.ones(self.tiling.shape, dtype=np.bool_)
        self.hard: Mask = np.zeros(self.tiling.shape, dtype=np.bool_)
        self.fallbacks = 0

    def domain(self, j: int, i: int) -> tuple[int, int]:
        """First block (y, x) of a tile's domain, counted from the first block of the window."""
        y, x, t = self.model.y, self.model.x, self.tiling
        return (t.first_y + j) * y.core - y.halo - t.y.first, (t.first_x + i) * x.core - x.halo - t.x.first

    def tiles_touching(self, blocks: Mask) -> Mask:
        """(tiles_y, tiles_x) tiles whose domain contains one of the given blocks (J, I) of the window."""
        total = np.zeros((blocks.shape[0] + 1, blocks.shape[1] + 1), dtype=np.int64)
        total[1:, 1:] = blocks.cumsum(0).cumsum(1)
        starts_y, starts_x = (
            np.array([self.domain(j, 0)[0] for j in range(self.tiling.shape[0])]),
            np.array([self.domain(0, i)[1] for i in range(self.tiling.shape[1])]),
        )
        low_y, high_y = (np.clip(starts_y + n, 0, blocks.shape[0]) for n in (0, self.model.y.blocks))
        low_x, high_x = (np.clip(starts_x + n, 0, blocks.shape[1]) for n in (0, self.model.x.blocks))
        inside = (
            total[high_y[:, None], high_x]
            - total[low_y[:, None], high_x]
            - total[high_y[:, None], low_x]
            + total[low_y[:, None], low_x]
        )
        touched: Mask = inside > 0
        return touched

    def mark(self, blocks: Mask, statistics: Statistics) -> None:
        """Mark the tiles that depend on the given blocks (J, I) as stale."""
        self.stale |= self.tiles_touching(blocks)
        self.find_empty(statistics)

    def find_empty(self, statistics: Statistics) -> None:
        """Find the tiles without data in their domain."""
        self.empty = ~self.tiles_touching(statistics.weights[:, :, 0, 0] > 0.0)

    def inherit(self, old: TileField, left: Mask) -> None:
        """Copy the results of tiles that an earlier window has in common with this one.

        left: (J, I) blocks of the old window whose data are gone: tiles that saw them are stale
        """
        stale = old.stale | old.tiles_touching(left)
        new_y, old_y = _common(
            self.tiling.first_y, self.tiling.shape[0], old.tiling.first_y, old.tiling.shape[0]
        )
        new_x, old_x = _common(
            self.tiling.first_x, self.tiling.shape[1], old.tiling.first_x, old.tiling.shape[1]
        )
        self.stale[:] = True
        self.stale[new_y, new_x] = stale[old_y, old_x]
        self.fallbacks = old.fallbacks
        self.hard[new_y, new_x] = old.hard[old_y, old_x]
        for new, before in zip(self._results(), old._results(), strict=True):
            new[new_y, new_x] = before[old_y, old_x]

    def jobs(self, images: Images, statistics: Statistics, gain: float) -> list[Job]:
        """Jobs that solve all stale tiles, in any order and on any thread; each returns its number of fallbacks."""
        self._forget(self.stale & self.empty)
        self.hard &= ~self.empty
        todo = self.rows(self.stale & ~self.empty)
        self.stale = np.zeros_like(self.stale)
        return [
            partial(self._solve_part, j, part, images, statistics, gain)
            for j, columns in todo
            for part in np.array_split(columns, math.ceil(columns.size / _TILES_PER_JOB))
        ]

    def _forget(self, tiles: Mask) -> None:
        """Reset the given tiles to the prior."""

    def _solve_part(
        self, j: int, columns: Integers, images: Images, statistics: Statistics, gain: float
    ) -> int:
        """Solve tiles of row j; returns the number of fallbacks."""
        easy, failed = columns[~self.hard[j, columns]], columns[self.hard[j, columns]].tolist()
        if easy.size:
            failed += easy[~self._attempt(j, easy, images)].tolist()
        for i in failed:
            self._solve_safely(j, i, images, statistics, gain)
        self.hard[j, failed] = True
        return len(failed)

    def _attempt(self, j: int, columns: Integers, images: Images) -> Mask:
        """Solve tiles of row j in float32; for each whether that was possible, without a result where it was not."""
        raise NotImplementedError

    def _solve_safely(self, j: int, i: int, images: Images, statistics: Statistics, gain: float) -> None:
        """Solve one tile in float64, from tables with which P can't be indefinite."""
        raise NotImplementedError

    def _results(self) -> list[Any]:
        return []

    def row_in(self, images: Images, j: int, columns: Integers) -> TileRow:
        """Where the domains of some tiles of row j are in the images."""
        starts = (columns - columns[0]).astype(np.int64) * self.model.x.core
        row = self.domain(j, 0)[0] - images.first_y
        first = self.domain(0, int(columns[0]))[1] - images.first_x
        return TileRow(row, first, starts, int(starts[-1]) + self.model.x.blocks)

    def rows(self, tiles: Mask) -> list[tuple[int, Integers]]:
        """The given tiles, by row of tiles."""
        return [(int(j), np.flatnonzero(tiles[j]).astype(np.int32)) for j in np.flatnonzero(tiles.any(1))]


@dataclass
class Images:
    """Moments laid out as images, so that those of a tile are a rectangle.

    first_y, first_x: first block, counted from the window's first one: the images reach past the window
    weights: (7 J', 7 I') float32
    heights: (K, 6 J', 6 I') float64, one per right-hand side
    """

    first_y: int
    first_x: int
    weights: np.ndarray[Any, np.dtype[np.float32]] = field(repr=False)
    heights: Array = field(repr=False)

    @staticmethod
    def covering(fields: list[TileField], right_hand_sides: int) -> Images:
        first_y = min(f.domain(0, 0)[0] for f in fields)
        first_x = min(f.domain(0, 0)[1] for f in fields)
        last_y = max(f.domain(f.tiling.shape[0] - 1, 0)[0] + f.model.y.blocks for f in fields)
        last_x = max(f.domain(0, f.tiling.shape[1] - 1)[1] + f.model.x.blocks for f in fields)
        n_y, n_x = last_y - first_y, last_x - first_x
        return Images(
            first_y,
            first_x,
            np.zeros((WEIGHT_MOMENTS * n_y, WEIGHT_MOMENTS * n_x), dtype=np.float32),
            np.zeros((right_hand_sides, HEIGHT_MOMENTS * n_y, HEIGHT_MOMENTS * n_x)),
        )

    def draw_weights(self, blocks: Mask, statistics: Statistics, gain: float) -> None:
        """Copy the moments of the given blocks (J, I)."""
        _draw(blocks, statistics.weights, gain, -self.first_y, -self.first_x, self.weights, WEIGHT_MOMENTS)

    def draw_heights(self, blocks: Mask, moments: Array, gain: float, k: int) -> None:
        """Copy the moments (J, I, >= 6, >= 6) of right-hand side k of the given blocks."""
        _draw(blocks, moments, gain, -self.first_y, -self.first_x, self.heights[k], HEIGHT_MOMENTS)


def _common(first: int, count: int, old_first: int, old_count: int) -> tuple[slice, slice]:
    """Slices of the numbers that two ranges have in common, in each of them."""
    low, high = max(first, old_first), min(first + count, old_first + old_count)
    high = max(low, high)
    return slice(low - first, high - first), slice(low - old_first, high - old_first)


@compiled()
def _draw(blocks, moments, gain, shift_y, shift_x, image, size):  # type: ignore[no-untyped-def]
    """Copy moments of blocks into an image."""
    for j in range(blocks.shape[0]):
        for i in range(blocks.shape[1]):
            if blocks[j, i]:
                for a in range(size):
                    for b in range(size):
                        image[(j + shift_y) * size + a, (i + shift_x) * size + b] = gain * moments[j, i, a, b]
