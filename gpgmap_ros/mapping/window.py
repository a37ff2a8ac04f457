"""What a terrain map remembers, in another window, without some places, or on its way to a file: without loss.

The engine keeps moments of the points in each block of a lattice that is the same for every window (gp_core.grid).
Another window is therefore a choice of blocks, and forgetting empties some. This module is the only one that looks
inside the engine; everything else uses its public names.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid, GridGP
from gp_core.grid.layers import MeanLayers
from gp_core.grid.statistics import Statistics
from gp_core.kernels import RBF

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


EXPECTED_NOISE_VARIANCE = 0.1**2
"""Square metres, of one point: the lattice is made for it. Every point comes with a variance of its own, which in a
dense cloud is about this, because what its points have in common counts in full for each of them (mapping/noise.py)."""


@lru_cache(maxsize=4)
def prototype(length_scale: float, relief_std: float, resolution: float) -> GridGP:
    """A process with the tables of its kernel, which take a while to compute: made once, shared by every window."""
    kernel = relief_std**2 * RBF(length_scale)
    return GridGP(Grid((0.0, 0.0), (1, 1), resolution), kernel, EXPECTED_NOISE_VARIANCE)


def process_on(grid: Grid, mean: float, length_scale: float, relief_std: float) -> GridGP:
    """A process without points: f ~ GP(mean, relief_std^2 RBF(length_scale)) on the cells of `grid`."""
    gp = copy.copy(prototype(length_scale, relief_std, grid.resolution))
    gp.mean = mean
    gp._grid = grid
    x, y = gp._axes(grid)
    gp._statistics = Statistics(x, y, mean)
    gp._rebuild()
    return gp


def blocks_of(gp: GridGP) -> Blocks:
    s = gp._statistics
    at = np.nonzero(s.weights[..., 0, 0] > 0.0)
    index = np.column_stack([at[0] + s.y.first, at[1] + s.x.first]).astype(np.int64)
    spacing = np.array([s.x.spacing, s.y.spacing])
    return Blocks(index, spacing, s.reference, s.weights[at], s.heights[at], s.totals[at])


def fill(gp: GridGP, blocks: Blocks) -> None:
    """Give a process without points those of the blocks that its window touches.

    ValueError where the blocks are of another lattice: their kernel was another.
    """
    s = gp._statistics
    if not np.allclose(blocks.spacing, [s.x.spacing, s.y.spacing], rtol=1e-9):
        raise ValueError(
            f"statistics on a lattice of {blocks.spacing.tolist()} m do not fit one of "
            f"{[s.x.spacing, s.y.spacing]} m: the length scale, relief or resolution was another"
        )
    rows, columns = blocks.index[:, 0] - s.y.first, blocks.index[:, 1] - s.x.first
    inside = (rows >= 0) & (rows < s.y.count) & (columns >= 0) & (columns < s.x.count)
    at = (rows[inside], columns[inside])
    part = Statistics(s.x, s.y, blocks.reference)
    part.weights[at], part.heights[at] = blocks.weights[inside], blocks.heights[inside]
    part.totals[at] = blocks.totals[inside]
    s.add(part)  # which also counts the heights from the process's own reference
    gp._changed |= part.weights[..., 0, 0] > 0.0


def forget(gp: GridGP, xy: Array) -> None:
    """Empty the blocks that positions (N, 2) are in."""
    s = gp._statistics
    index = np.floor(xy / [s.x.spacing, s.y.spacing]).astype(np.int64) - [s.x.first, s.y.first]
    inside = (index >= 0).all(axis=1) & (index[:, 0] < s.x.count) & (index[:, 1] < s.y.count)
    at = (index[inside, 1], index[inside, 0])
    for array in s.arrays:
        array[at] = 0.0
    gp._changed[at] = True


def surface_of(gp: GridGP, blocks: Blocks, count: int = 5) -> Array:
    """(K, count, count) the posterior mean on each block as a polynomial: sum over a and b of out[a, b] t^a s^b.

    Without `blocks.reference`; s and t run from -1 to 1 over the block along x and y.
    """
    s = gp._statistics
    gp._solve()
    nodes = -np.cos(np.pi * (np.arange(count) + 0.5) / count)
    x, y = (
        ((axis.first + np.arange(axis.count))[:, None] + 0.5 * (nodes + 1.0)).ravel() * axis.spacing
        for axis in (s.x, s.y)
    )
    layers = MeanLayers(gp._means, y, x)
    layers.draw(np.ones_like(gp._means.stale), gp._workers)
    values = layers.layers[0, 0].reshape(s.y.count, count, s.x.count, count)
    rows, columns = blocks.index[:, 0] - s.y.first, blocks.index[:, 1] - s.x.first
    to_monomials = np.linalg.inv(np.vander(nodes, count, increasing=True))
    return np.asarray(to_monomials @ values[rows, :, columns, :] @ to_monomials.T)


def limit_weights(gp: GridGP, most: float) -> None:
    """Let old points count less where a block's points weigh more than `most` (1 / m^2) together.

    Only blocks that have just changed can do so: they are solved again anyway.
    """
    s = gp._statistics
    weight = s.weights[..., 0, 0]
    over = np.nonzero(weight > most)
    if len(over[0]):
        factor = most / weight[over]
        for array in s.arrays:
            array[over] *= factor.reshape(-1, *[1] * (array.ndim - 2))


def mean_height(gp: GridGP) -> float | None:
    """Mean of the heights, each point weighted by its precision; None without points."""
    s = gp._statistics
    weight = float(s.weights[..., 0, 0].sum())
    return s.reference + float(s.heights[..., 0, 0].sum()) / weight if weight > 0.0 else None
