"""What a terrain map remembers, moved to another window, cut out or put on file: block by block, without loss.

The engine keeps moments of the points in each block of a lattice that is the same for every window (gp_core.grid).
Moving is therefore copying blocks, and forgetting is emptying some.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import GridGP
from gp_core.grid.statistics import SQUARES, Statistics

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Blocks:
    """The blocks that have points in them.

    index: (K, 2) row and column in the lattice; spacing: (2,) its edges along x and y in metres
    reference: what is subtracted from the heights
    weights, heights, totals: (K, ...) moments, see gp_core.grid.statistics
    """

    index: NDArray[np.int64]
    spacing: Array
    reference: float
    weights: Array
    heights: Array
    totals: Array

    def relative_to(self, reference: float) -> Blocks:
        """The same points with heights counted from another reference: z - z_1 = (z - z_0) + shift."""
        shift = self.reference - reference
        order = self.heights.shape[-1]
        totals = self.totals.copy()
        totals[:, SQUARES] += 2.0 * shift * self.heights[:, 0, 0] + shift**2 * self.weights[:, 0, 0]
        heights = self.heights + shift * self.weights[:, :order, :order]
        return Blocks(self.index, self.spacing, reference, self.weights, heights, totals)

    @property
    def mean_height(self) -> float:
        """Mean of the heights, each point weighted by its precision."""
        return self.reference + float(self.heights[:, 0, 0].sum() / self.weights[:, 0, 0].sum())


def blocks_of(gp: GridGP) -> Blocks:
    s = gp.statistics
    rows, columns = np.nonzero(s.weights[..., 0, 0] > 0.0)
    index = np.column_stack([rows + s.y.first, columns + s.x.first]).astype(np.int64)
    at = (rows, columns)
    spacing = np.array([s.x.spacing, s.y.spacing])
    return Blocks(index, spacing, s.reference, s.weights[at], s.heights[at], s.totals[at])


def blocks_at(gp: GridGP, xy: Array) -> NDArray[np.int64]:
    """Row and column (N, 2) in the lattice of the blocks that positions (N, 2) are in."""
    s = gp.statistics
    return np.floor(xy[:, ::-1] / np.array([s.y.spacing, s.x.spacing])).astype(np.int64)


def without(blocks: Blocks, index: NDArray[np.int64]) -> Blocks:
    """`blocks` but for those at the given rows and columns (M, 2) of the lattice."""
    if not len(blocks.index) or not len(index):
        return blocks
    low = np.minimum(blocks.index.min(axis=0), index.min(axis=0))
    width = np.maximum(blocks.index.max(axis=0), index.max(axis=0))[1] - low[1] + 1
    keys, gone = ((part - low) @ np.array([width, 1]) for part in (blocks.index, index))
    keep = ~np.isin(keys, gone)
    return Blocks(
        blocks.index[keep], blocks.spacing, blocks.reference,
        blocks.weights[keep], blocks.heights[keep], blocks.totals[keep],
    )  # fmt: skip


def filled(empty: GridGP, blocks: Blocks) -> GridGP:
    """`empty`, a process without points, with those of the blocks that its window touches.

    ValueError where the blocks are of another lattice: their kernel was another.
    """
    s = empty.statistics
    if not np.allclose(blocks.spacing, [s.x.spacing, s.y.spacing], rtol=1e-9):
        raise ValueError(
            f"statistics on a lattice of {blocks.spacing.tolist()} m do not fit one of "
            f"{[s.x.spacing, s.y.spacing]} m: the length scale was another"
        )
    moved = blocks.relative_to(s.reference)
    rows, columns = moved.index[:, 0] - s.y.first, moved.index[:, 1] - s.x.first
    inside = (rows >= 0) & (rows < s.y.count) & (columns >= 0) & (columns < s.x.count)
    at = (rows[inside], columns[inside])
    donor = copy.copy(empty)
    donor.statistics = Statistics(s.x, s.y, s.reference)
    donor.statistics.weights[at] = moved.weights[inside]
    donor.statistics.heights[at] = moved.heights[inside]
    donor.statistics.totals[at] = moved.totals[inside]
    empty.merge(donor)
    return empty
