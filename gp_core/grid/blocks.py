"""The statistics of the non-empty blocks of a map as arrays, to be saved, sent or added to another map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.axes import Axis
from gp_core.grid.moments import MomentOrders
from gp_core.grid.statistics import Statistics


@dataclass(frozen=True)
class Blocks:
    """The blocks of a lattice that have points in them.

    index: (K, 2) row and column in the lattice, which is the same for every window
    spacing: (2,) its edges along x and y in metres
    reference: what is subtracted from the heights
    weights, heights, totals: (K, ...) moments, see gp_core.grid.statistics
    """

    index: np.ndarray[Any, np.dtype[np.int64]]
    spacing: Array
    reference: float
    weights: Array
    heights: Array
    totals: Array

    @property
    def orders(self) -> MomentOrders:
        """Of its moments."""
        return MomentOrders(self.weights.shape[1], self.heights.shape[1])


def blocks_of(s: Statistics) -> Blocks:
    """The blocks with points of a window."""
    at = np.nonzero(s.weights[..., 0, 0] > 0.0)
    index = np.column_stack([at[0] + s.y.first, at[1] + s.x.first]).astype(np.int64)
    spacing = np.array([s.x.spacing, s.y.spacing])
    return Blocks(index, spacing, s.reference, s.weights[at], s.heights[at], s.totals[at])


def statistics_of(blocks: Blocks, x: Axis, y: Axis, orders: MomentOrders) -> Statistics:
    """Statistics of those blocks that a window touches; ValueError where they are of another lattice.

    orders: of the moments that are wanted; blocks may have more
    """
    if not np.allclose(blocks.spacing, [x.spacing, y.spacing], rtol=1e-9):
        raise ValueError(
            f"statistics on a lattice of {blocks.spacing.tolist()} m do not fit one of "
            f"{[x.spacing, y.spacing]} m: the length scale, relief or resolution was another"
        )
    if blocks.orders.weights < orders.weights or blocks.orders.heights < orders.heights:
        raise ValueError(
            f"statistics with moments of {blocks.orders} lack some of {orders}: they were made for another kernel"
        )
    rows, columns = blocks.index[:, 0] - y.first, blocks.index[:, 1] - x.first
    inside = (rows >= 0) & (rows < y.count) & (columns >= 0) & (columns < x.count)
    at = rows[inside], columns[inside]
    out = Statistics(x, y, orders, blocks.reference)
    w, h = orders
    out.weights[at] = blocks.weights[inside, :w, :w]
    out.heights[at] = blocks.heights[inside, :h, :h]
    out.totals[at] = blocks.totals[inside]
    return out
