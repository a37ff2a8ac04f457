"""Detail below the lattice: what a surface of splines leaves of the points of each block.

On one block quadratic splines are polynomials, and the moments of its points hold the residuals of any polynomial of
the degrees that they have. So relief that the splines can't carry is estimated after them, block by block: given the
splines' mean p, the points of a block show

    z - p = phi(x)' d + noise,      d ~ N(0, ratio C),      phi: the six monomials of degree 0 to 2 together,

in units of the noise variance that the splines were solved with. C is the covariance that the kernel gives the
projection, on these polynomials, of a draw less its own projection on splines (L2, both); it holds nine tenths of their
variance. With L L' = C and the normal matrix M of phi, K = (1 / ratio + L' M L)^-1,

    d^ = L K L' b,        cov(d) = L K L',        b: moments of the residuals,

and an error e of the splines becomes phi' (1 - L K L' M) e at a point: where points are dense, the detail takes it out.

`ratio` is learned, from blocks with several points: the one under which their residuals are most likely, each block
with a scale of its own (Student t). On smooth ground it is nothing, and so is the detail; nothing is shared between
blocks, so that sums stay free of order and only few numbers are computed for each block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid.markov.evaluation import spline_variance
from gp_core.grid.markov.normal_equations import NEIGHBOURS
from gp_core.grid.markov.splines import ORDER, PIECES, weights
from gp_core.grid.statistics import COUNT, Statistics
from gp_core.kernels import Kernel

TERMS: Final = np.array([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0]], dtype=np.int64)
"""Powers of s (along y) and t (along x) of phi."""
_LEGENDRE: Final = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-0.5, 0.0, 1.5]])
_SAMPLES, _BLOCKS = 8, 15
"""Of a block, and blocks of the line on which the prior is computed: of its ends the projection sees 0.43^7."""
_RATIOS: Final = np.exp(np.arange(-8.0, 6.01, 0.5))
_POINTS: Final = 3.0
"""Of a block, at least, for its residuals to tell detail from noise."""
_FEWEST, _MOST = 100, 1500
"""Such blocks from which a ratio is learned, and those that are looked at."""
_DEGREES: Final = 4.0
"""Of the scale of a block."""
_EVIDENCE: Final = 4.0
"""Logarithm of the odds for detail, at least."""
_LEAST: Final = 1e-9
"""Of the mean square, the typical one at least."""


@dataclass(frozen=True)
class DetailPrior:
    """root: (6, 6) L, such that its columns are orthogonal as functions on a block

    shares: (6,) mean square of each over a block; variance: their sum, of phi' d at ratio 1
    """

    root: Array
    shares: Array

    @property
    def variance(self) -> float:
        return float(self.shares.sum())


@dataclass(frozen=True)
class Detail:
    """What a map has learned of its detail.

    ratio: of its prior variance to the kernel's, in units of the noise that the splines were solved with
    growth: times the scatter about the map that the scatter about the splines alone is, typically
    """

    ratio: float
    growth: float


class DetailAt(NamedTuple):
    """Of places (...): how the detail changes what the splines say.

    mean, variance: of the detail; the variance is its mean over the block, see below
    own: variance of the estimate's own error at the place: what a point there adds by the detail to itself
    left: share of the variance that the splines carry which is still there
    pull: covariance of that with the splines' own value, as a share: what a point there adds by the splines to itself

    Polynomials are less certain towards the edges of a block, what they leave is greater in its middle: their sum, of
    which only the first is known by place, is about the same everywhere.
    """

    mean: Array
    variance: Array
    own: Array
    left: Array
    pull: Array


def detail_prior(kernel: Kernel, spacing: tuple[float, float]) -> DetailPrior:
    """spacing: (h_x, h_y)"""
    return _detail_prior(kernel, (float(spacing[0]), float(spacing[1])))


@lru_cache(maxsize=8)
def _detail_prior(kernel: Kernel, spacing: tuple[float, float]) -> DetailPrior:
    n, middle = _SAMPLES * _BLOCKS, _BLOCKS // 2
    at = np.arange(n) // _SAMPLES
    t = (2.0 * np.arange(_SAMPLES) + 1.0) / _SAMPLES - 1.0
    splines = np.zeros((_BLOCKS + ORDER - 1, n))
    for p in range(ORDER):
        splines[at + p, np.arange(n)] = np.tile(weights(t)[:, p], _BLOCKS)
    polynomials = np.polynomial.legendre.legvander(t, ORDER - 1)
    project = np.zeros((ORDER, n))
    project[:, middle * _SAMPLES : (middle + 1) * _SAMPLES] = np.linalg.pinv(polynomials)
    carried = project @ splines.T @ np.linalg.solve(splines @ splines.T, splines)
    lag = np.arange(-(n - 1), n) / _SAMPLES
    x, y = np.meshgrid(lag * spacing[0], lag * spacing[1])
    covariance = kernel(np.column_stack([x.ravel(), y.ravel()]), np.zeros((1, 2))).reshape(x.shape)
    total = np.zeros((ORDER**2, ORDER**2))
    for sign, (one, other) in (
        (1.0, (project, project)), (-1.0, (project, carried)),
        (-1.0, (carried, project)), (1.0, (carried, carried)),
    ):  # fmt: skip
        pairs = np.array([[np.correlate(a, b, "full") for b in other] for a in one])
        # rows (y, x) of one projection, columns of the other
        total += sign * np.einsum("acy,yx,bdx->abcd", pairs, covariance, pairs, optimize=True).reshape(
            total.shape
        )
    few = TERMS @ np.array([ORDER, 1])
    total = 0.5 * (total + total.T)[np.ix_(few, few)]
    # Of Legendre polynomials, made orthonormal: C = U S U', and L = U S^1/2.
    norms = np.sqrt((2.0 * TERMS[:, 0] + 1.0) * (2.0 * TERMS[:, 1] + 1.0))
    values, vectors = np.linalg.eigh(total / (norms[:, None] * norms))
    values = np.maximum(values, 0.0)
    to_monomials = np.kron(_LEGENDRE, _LEGENDRE)[np.ix_(few, few)].T * norms
    return DetailPrior(np.ascontiguousarray(to_monomials @ (vectors * np.sqrt(values))), values)


def compile_detail(kernel: Kernel, spacing: tuple[float, float]) -> None:
    """Compile the loops, and compute the prior, before the first map needs them."""
    prior = detail_prior(kernel, spacing)
    orders = 2 * ORDER - 1, ORDER, ORDER
    W, H, means = (np.zeros((1, 1, order, order)) for order in orders)
    fill_blocks(W, H, means, prior.root, 1.0, np.empty_like(means), np.empty((1, 1)), np.empty((1, 1)))
    block, at = np.zeros(1, dtype=np.int64), np.zeros(1)
    covariances = np.ones((ORDER, ORDER, NEIGHBOURS), dtype=np.float32)  # as surfaces keep them
    out = np.empty((len(DetailAt._fields), 1))
    fill_places(block, at, block, at, W, H, means, covariances, prior.root, prior.shares, 1.0, True, out)


def estimate_detail(s: Statistics, means: Array, squares: Array, prior: DetailPrior) -> Detail | None:
    """The detail that the points show; None where they show none, or are too few.

    means: (J, I, 3, 3) of the splines on the blocks; squares: (J, I) of the residuals, over the noise variances
    """
    count = s.totals[..., COUNT]
    row, column = np.nonzero(count >= _POINTS)
    if row.size < _FEWEST:
        return None
    step = -(-row.size // _MOST)
    at = row[::step], column[::step]
    W, H, c = s.weights[at], s.heights[at], means[at]
    normal = np.array([[W[:, a + e, b + f] for e, f in np.ndindex(ORDER, ORDER)] for a, b in TERMS])
    few = TERMS @ np.array([ORDER, 1])
    right = H[:, TERMS[:, 0], TERMS[:, 1]] - np.einsum("kcn,nc->nk", normal, c.reshape(len(c), -1))
    M = prior.root.T @ normal[:, few].transpose(2, 0, 1) @ prior.root
    values, vectors = np.linalg.eigh(M)
    values = np.maximum(values, 0.0)
    seen = np.einsum("nab,na->nb", vectors, right @ prior.root) ** 2
    n, q = count[at], squares[at]
    if not np.isfinite(q).all() or q.max() <= 0.0:
        return None
    none, scale_without = _log_likelihood(q, n)
    best, found = none + _EVIDENCE, None
    for ratio in _RATIOS:
        gain = 1.0 + ratio * values
        left = np.maximum(q - (ratio * seen / gain).sum(axis=1), 0.0)
        value, scale = _log_likelihood(left, n)
        value -= 0.5 * float(np.log(gain).sum())
        if value > best:
            best, found = value, Detail(float(ratio), scale_without / scale)
    return found


def join_details(details: list[Detail | None]) -> Detail | None:
    """Of a whole from its parts: none unless half of them show some."""
    some = [detail for detail in details if detail is not None]
    if 2 * len(some) < len(details) or not some:
        return None
    ratio, growth = np.exp(np.mean(np.log([[d.ratio, d.growth] for d in some]), axis=0))
    return Detail(float(ratio), float(growth))


def _log_likelihood(squares: Array, count: Array) -> tuple[float, float]:
    """Of squares (N,) of blocks of so many points, each with a scale of its own, at the likeliest typical scale."""
    least = _LEAST * float(squares.sum() / count.sum()) + np.finfo(np.float64).tiny
    scale = max(float(np.median(squares / count)), least)
    for _ in range(30):
        weighted = (_DEGREES + count) * squares / (_DEGREES + squares / scale)
        scale = max(float(weighted.sum() / count.sum()), least)
    value = -0.5 * count * np.log(scale) - 0.5 * (_DEGREES + count) * np.log1p(squares / (_DEGREES * scale))
    return float(value.sum()), scale


@compiled(fastmath={"contract"})
def fill_blocks(weights, heights, means, root, ratio, out, leverage, pull):  # type: ignore[no-untyped-def]
    """Mean detail of every block: monomial coefficients (J, I, 3, 3), and the leverages (J, I) of its points in it.

    pull: (J, I) share that is left of the leverages of its points in the splines, these being even over a block
    """
    size = len(TERMS)
    normal, factor = np.empty((size, ORDER * ORDER)), np.empty((size, size))
    work, d, column = np.empty((size, size)), np.empty(size), np.empty(size)
    for j in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[j, i] = 0.0
            leverage[j, i], pull[j, i] = 0.0, 1.0
            if weights[j, i, 0, 0] <= 0.0:
                continue
            _solve_block(weights[j, i], heights[j, i], means[j, i], root, ratio, normal, factor, work, d)
            for k in range(size):
                out[j, i, TERMS[k, 0], TERMS[k, 1]] = d[k]
                leverage[j, i] += 1.0 - _own_variance(factor, k, column) / ratio
            for k in range(size):
                column[k] = 0.0
                for m in range(size):
                    column[k] += root[m, k] * normal[m, 0]
            _forward(factor, column)
            pull[j, i] -= np.dot(column, column) / weights[j, i, 0, 0]


@compiled(fastmath={"contract"})
def fill_places(  # type: ignore[no-untyped-def]
    block_y, s, block_x, t, weights, heights, means, covariances, root, shares, ratio, pulls, out,
):  # fmt: skip
    """At places (N,): out (5, N), see `DetailAt`.

    block_y, block_x: (N,) their blocks; s, t: (N,) where in them; pulls: whether to compute the last of the five
    """
    size = len(TERMS)
    normal, factor = np.empty((size, ORDER * ORDER)), np.empty((size, size))
    work, d, x, y = np.empty((size, size)), np.empty(size), np.empty(size), np.empty(size)
    powers, left = np.empty((ORDER, ORDER)), np.empty((ORDER, ORDER))
    before, after = np.empty((ORDER, ORDER)), np.empty((ORDER, ORDER))
    last_j, last_i, variance = -1, -1, 0.0
    for n in range(block_y.size):
        j, i = block_y[n], block_x[n]
        some = weights[j, i, 0, 0] > 0.0
        if some and (j != last_j or i != last_i):
            _solve_block(weights[j, i], heights[j, i], means[j, i], root, ratio, normal, factor, work, d)
            last_j, last_i, variance = j, i, 0.0
            for k in range(size):
                variance += shares[k] * _own_variance(factor, k, y)
        for a in range(ORDER):
            for b in range(ORDER):
                powers[a, b] = s[n] ** a * t[n] ** b
        for k in range(size):
            x[k] = 0.0
            for m in range(size):
                x[k] += root[m, k] * powers[TERMS[m, 0], TERMS[m, 1]]
            y[k] = x[k]
        if not some:
            out[0, n], out[3, n], out[4, n] = 0.0, 1.0, 1.0
            out[1, n], out[2, n] = ratio * shares.sum(), ratio * np.dot(x, x)
            continue
        _substitute(factor, y)
        out[1, n], out[2, n] = variance, np.dot(x, y)
        for k in range(size):  # L K L' phi
            x[k] = 0.0
            for m in range(size):
                x[k] += root[k, m] * y[m]
        out[0, n] = 0.0
        left[:] = powers
        for k in range(size):
            out[0, n] += powers[TERMS[k, 0], TERMS[k, 1]] * d[k]
            for a in range(ORDER):
                for b in range(ORDER):
                    left[a, b] -= x[k] * normal[k, ORDER * a + b]
        _to_splines(powers, before)
        _to_splines(left, after)
        whole = spline_variance(before, covariances, j, i)
        out[3, n] = spline_variance(after, covariances, j, i) / whole
        if not pulls:
            out[4, n] = 1.0
            continue
        for p in range(ORDER):
            for q in range(ORDER):
                before[p, q] = 0.5 * (before[p, q] + after[p, q])
        # var((a + b) / 2) = (var a + var b + 2 cov(a, b)) / 4
        out[4, n] = 2.0 * spline_variance(before, covariances, j, i) / whole - 0.5 * (1.0 + out[3, n])


@compiled(fastmath={"contract"})
def _solve_block(weights, heights, means, root, ratio, normal, factor, work, d):  # type: ignore[no-untyped-def]
    """normal: (6, 9) moments of phi and the monomials of a spline; factor: Cholesky of K^-1; d: (6,) the mean detail"""
    size = len(TERMS)
    for k in range(size):
        a, b = TERMS[k]
        total = heights[a, b]
        for e in range(ORDER):
            for f in range(ORDER):
                normal[k, ORDER * e + f] = weights[a + e, b + f]
                total -= weights[a + e, b + f] * means[e, f]
        d[k] = total
    for k in range(size):
        for m in range(size):
            total = 0.0
            for p in range(size):
                total += normal[k, ORDER * TERMS[p, 0] + TERMS[p, 1]] * root[p, m]
            work[k, m] = total
    for k in range(size):
        for m in range(k + 1):
            total = 1.0 / ratio if k == m else 0.0
            for p in range(size):
                total += root[p, k] * work[p, m]
            for p in range(m):
                total -= factor[k, p] * factor[m, p]
            # M has no negative eigenvalue, so no pivot is below 1 / ratio but by rounding.
            factor[k, m] = np.sqrt(max(total, 1.0 / ratio)) if k == m else total / factor[m, m]
    for k in range(size):
        total = 0.0
        for m in range(size):
            total += root[m, k] * d[m]
        work[0, k] = total
    _substitute(factor, work[0])
    for k in range(size):
        total = 0.0
        for m in range(size):
            total += root[k, m] * work[0, m]
        d[k] = total


@compiled(fastmath={"contract"})
def _own_variance(factor, k, x):  # type: ignore[no-untyped-def]
    """Element k of the diagonal of K, K^-1 = factor factor'. x: work space (6,), left undefined"""
    total = 0.0
    for n in range(k, x.size):
        x[n] = 1.0 if n == k else 0.0
        for m in range(k, n):
            x[n] -= factor[n, m] * x[m]
        x[n] /= factor[n, n]
        total += x[n] * x[n]
    return total


@compiled(fastmath={"contract"})
def _forward(factor, x):  # type: ignore[no-untyped-def]
    """Solve factor x = x."""
    for k in range(x.size):
        for m in range(k):
            x[k] -= factor[k, m] * x[m]
        x[k] /= factor[k, k]


@compiled(fastmath={"contract"})
def _substitute(factor, x):  # type: ignore[no-untyped-def]
    """x = K x with K^-1 = factor factor'."""
    _forward(factor, x)
    for k in range(x.size - 1, -1, -1):
        for m in range(k + 1, x.size):
            x[k] -= factor[m, k] * x[m]
        x[k] /= factor[k, k]


@compiled(fastmath={"contract"})
def _to_splines(powers, out):  # type: ignore[no-untyped-def]
    """A functional of monomials (3, 3), as one of the coefficients (3, 3) of the splines on a block."""
    for p in range(ORDER):
        for q in range(ORDER):
            total = 0.0
            for a in range(ORDER):
                for b in range(ORDER):
                    total += PIECES[p, a] * PIECES[q, b] * powers[a, b]
            out[p, q] = total
