"""From coefficients and their covariances to height and slope: at the cells of a map, and at any point."""

from __future__ import annotations

from typing import Final

import numpy as np

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid.axes import Axis
from gp_core.grid.markov.normal_equations import NEIGHBOURS, neighbour
from gp_core.grid.markov.splines import DEGREE, ORDER, inner_products, slope_products, slopes, weights

VALUE_AND_SLOPES: Final = 3
"""Height, d/dx and d/dy."""
_LEAST: Final = 0.25
"""Of the splines' variance, that of a point at least: what the splines have in excess is known on average only."""


def axis_weights(at: Array, axis: Axis) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Array]:
    """Block (N,) of each coordinate (N,), and values and slopes (N, 2, 3) of the splines there.

    Outside the window the nearest block answers, at its edge.
    """
    block, t = axis.locate(at)
    inside = np.clip(block, 0, axis.count - 1)
    t = np.where(block < inside, -1.0, np.where(block > inside, 1.0, t))
    return inside.astype(np.int64), np.stack([weights(t), slopes(t, axis.spacing)], axis=1)


def autocorrelation(w: Array) -> Array:
    """(..., 5) with sum_p w_p w_(p + d) for d = -2 ... 2."""
    out = np.zeros((*w.shape[:-1], 2 * DEGREE + 1))
    for p in range(ORDER):
        for q in range(ORDER):
            out[..., DEGREE + q - p] += w[..., p] * w[..., q]
    return out


def excess_pairs(w: Array, spacing: float) -> Array:
    """(N, 2, 5) autocorrelations of values and slopes (N, 2, 3), and (2, 5) their means over a block."""
    return np.concatenate(
        [autocorrelation(w), np.stack([inner_products(), slope_products() / spacing**2])[None]]
    )


@compiled(fastmath={"contract"})
def at_cells(  # type: ignore[no-untyped-def]
    block_y, w_y, pair_y, block_x, w_x, pair_x, strip, column, first, last, stale, spread,
    means, covariances, unresolved, out_mean, out_variance,
):  # fmt: skip
    """Fill the cells of columns first ... last - 1 of the layers (K, 3, ny, nx) and (3, ny, nx).

    stale, spread: (J, I) blocks whose means, and those of them whose variances are out of date; the others are left
        as they are

    block_y, block_x: (ny,), (nx,); w_y, w_x: (ny, 2, 3), (nx, 2, 3) values and slopes
    pair_y, pair_x: (ny + 1, 2, 5), (nx + 1, 2, 5) of `excess_pairs`
    strip, column: (nx,) that answers for the block, and its first coefficient there
    means, covariances: (strips, K, J + 2, C) and (strips, J + 2, C, 13)
    unresolved: (3, J, I) variance that the splines do not carry
    """
    w = np.empty((VALUE_AND_SLOPES, ORDER, ORDER))
    near = np.empty(NEIGHBOURS)
    for iy in range(block_y.size):
        for ix in range(first, last):
            if not stale[block_y[iy], block_x[ix]]:
                continue
            j, i = block_y[iy], column[ix]
            own = covariances[strip[ix]]
            _functionals(w_y[iy], w_x[ix], w)
            for a in range(VALUE_AND_SLOPES):
                for k in range(means.shape[1]):
                    out_mean[k, a, iy, ix] = _mean(w[a], means[strip[ix], k], j, i)
            if not spread[block_y[iy], block_x[ix]]:
                continue
            _average(own, j, i, near)
            for a in range(VALUE_AND_SLOPES):
                known = spline_variance(w[a], own, j, i)
                excess = _excess(a, pair_y[iy], pair_x[ix], pair_y[-1], pair_x[-1], near)
                out_variance[a, iy, ix] = max(known - excess + unresolved[a, j, block_x[ix]], _LEAST * known)


@compiled(fastmath={"contract"})
def at_points(  # type: ignore[no-untyped-def]
    block_y, w_y, pair_y, block_x, w_x, pair_x, strip, column,
    means, covariances, unresolved, out_mean, out_variance,
):  # fmt: skip
    """The same at points (N,): (K, 3, N) and (3, N)."""
    w = np.empty((VALUE_AND_SLOPES, ORDER, ORDER))
    near = np.empty(NEIGHBOURS)
    for n in range(block_y.size):
        j, i = block_y[n], column[n]
        own = covariances[strip[n]]
        _functionals(w_y[n], w_x[n], w)
        _average(own, j, i, near)
        for a in range(VALUE_AND_SLOPES):
            for k in range(means.shape[1]):
                out_mean[k, a, n] = _mean(w[a], means[strip[n], k], j, i)
            known = spline_variance(w[a], own, j, i)
            excess = _excess(a, pair_y[n], pair_x[n], pair_y[-1], pair_x[-1], near)
            out_variance[a, n] = max(known - excess + unresolved[a, j, block_x[n]], _LEAST * known)


@compiled(fastmath={"contract"})
def _average(covariances, j, i, near):  # type: ignore[no-untyped-def]
    """(13,) mean covariance, over the block's coefficients, of those that lie so far apart."""
    for dy in range(ORDER):
        for dx in range(0 if dy == 0 else -DEGREE, ORDER):
            at = neighbour(dy, dx)
            total = 0.0
            for p_y in range(ORDER - dy):
                for p_x in range(max(0, -dx), ORDER - max(0, dx)):
                    total += covariances[j + p_y, i + p_x, at]
            near[at] = total / ((ORDER - dy) * (ORDER - abs(dx)))


@compiled(fastmath={"contract"})
def _excess(a, pair_y, pair_x, mean_y, mean_x, near):  # type: ignore[no-untyped-def]
    """What the splines' variance of height (a = 0), d/dx (1) or d/dy (2) at a point has above its mean over a block.

    A draw from the GP has the same variance everywhere in a block; that of its projection onto splines has a pattern.
    """
    s_y, s_x = (1 if a == 2 else 0), (1 if a == 1 else 0)
    total = 0.0
    for dy in range(ORDER):
        for dx in range(0 if dy == 0 else -DEGREE, ORDER):
            here = pair_y[s_y, DEGREE + dy] * pair_x[s_x, DEGREE + dx]
            mean = mean_y[s_y, DEGREE + dy] * mean_x[s_x, DEGREE + dx]
            total += (1.0 if dy == 0 and dx == 0 else 2.0) * (here - mean) * near[neighbour(dy, dx)]
    return total


@compiled()
def _functionals(w_y, w_x, w):  # type: ignore[no-untyped-def]
    for p in range(ORDER):
        for q in range(ORDER):
            w[0, p, q] = w_y[0, p] * w_x[0, q]
            w[1, p, q] = w_y[0, p] * w_x[1, q]
            w[2, p, q] = w_y[1, p] * w_x[0, q]


@compiled(fastmath={"contract"})
def _mean(w, means, j, i):  # type: ignore[no-untyped-def]
    total = 0.0
    for p in range(ORDER):
        for q in range(ORDER):
            total += w[p, q] * means[j + p, i + q]
    return total


@compiled(fastmath={"contract"})
def spline_variance(w, covariances, j, i):  # type: ignore[no-untyped-def]
    """w' Cov w over the 3 x 3 coefficients of a block; pairs are kept once, so those of two count twice."""
    total = 0.0
    for p_y in range(ORDER):
        for p_x in range(ORDER):
            row = covariances[j + p_y, i + p_x]
            part = 0.5 * w[p_y, p_x] * row[0]
            for q_x in range(p_x + 1, ORDER):
                part += w[p_y, q_x] * row[neighbour(0, q_x - p_x)]
            for q_y in range(p_y + 1, ORDER):
                for q_x in range(ORDER):
                    part += w[q_y, q_x] * row[neighbour(q_y - p_y, q_x - p_x)]
            total += 2.0 * w[p_y, p_x] * part
    return total
