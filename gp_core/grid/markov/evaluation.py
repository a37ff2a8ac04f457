"""From coefficients and their covariances to height and slope: at the cells of a map, and at any point."""

from __future__ import annotations

import numpy as np

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid.axes import Axis
from gp_core.grid.markov.elimination import neighbour
from gp_core.grid.markov.prior import MarkovPrior
from gp_core.grid.markov.splines import DEGREE, ORDER, slopes, weights

VALUE_AND_SLOPES = 3
"""Height, d/dx and d/dy."""


def axis_weights(at: Array, axis: Axis) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Array]:
    """Block (N,) of each coordinate (N,), and values and slopes (N, 2, 3) of the splines there.

    Outside the window the nearest block answers, at its edge.
    """
    block, t = axis.locate(at)
    inside = np.clip(block, 0, axis.count - 1)
    t = np.where(block < inside, -1.0, np.where(block > inside, 1.0, t))
    return inside.astype(np.int64), np.stack([weights(t), slopes(t, axis.spacing)], axis=1)


def unresolved_at(prior: MarkovPrior, w_y: Array, w_x: Array) -> Array:
    """(3, ...) what the splines lack of the prior variance of height and slopes; it depends on the place in the block.

    w_y, w_x: values and slopes (..., 2, 3) of the splines, which broadcast against each other
    """
    near = prior.near
    y, x = _autocorrelation(w_y), _autocorrelation(w_x)
    totals = (prior.variance, *prior.gradient_variance)
    pairs = ((y[..., 0, :], x[..., 0, :]), (y[..., 0, :], x[..., 1, :]), (y[..., 1, :], x[..., 0, :]))
    return np.stack([np.maximum(total - ((b @ near) * c).sum(-1), 0.0)
                     for total, (b, c) in zip(totals, pairs, strict=True)])  # fmt: skip


def _autocorrelation(w: Array) -> Array:
    """(..., 5) with sum_p w_p w_(p + d) for d = -2 ... 2."""
    out = np.zeros((*w.shape[:-1], 2 * DEGREE + 1))
    for p in range(ORDER):
        for q in range(ORDER):
            out[..., DEGREE + q - p] += w[..., p] * w[..., q]
    return out


@compiled(fastmath={"contract"})
def at_cells(block_y, w_y, block_x, w_x, first, last, means, covariances, out_mean, out_variance):  # type: ignore[no-untyped-def]
    """Fill the cells of columns first ... last - 1 of the layers (K, 3, ny, nx) and (3, ny, nx).

    block_y, block_x: (ny,), (nx,); w_y, w_x: (ny, 2, 3), (nx, 2, 3)
    """
    w = np.empty((VALUE_AND_SLOPES, ORDER, ORDER))
    for iy in range(block_y.size):
        for ix in range(first, last):
            _functionals(w_y[iy], w_x[ix], w)
            for a in range(VALUE_AND_SLOPES):
                for k in range(means.shape[0]):
                    out_mean[k, a, iy, ix] = _mean(w[a], means[k], block_y[iy], block_x[ix])
                out_variance[a, iy, ix] = _variance(w[a], covariances, block_y[iy], block_x[ix])


@compiled(fastmath={"contract"})
def at_points(block_y, w_y, block_x, w_x, means, covariances, out_mean, out_variance):  # type: ignore[no-untyped-def]
    """The same at points (N,): (K, 3, N) and (3, N)."""
    w = np.empty((VALUE_AND_SLOPES, ORDER, ORDER))
    for n in range(block_y.size):
        _functionals(w_y[n], w_x[n], w)
        for a in range(VALUE_AND_SLOPES):
            for k in range(means.shape[0]):
                out_mean[k, a, n] = _mean(w[a], means[k], block_y[n], block_x[n])
            out_variance[a, n] = _variance(w[a], covariances, block_y[n], block_x[n])


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
def _variance(w, covariances, j, i):  # type: ignore[no-untyped-def]
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
