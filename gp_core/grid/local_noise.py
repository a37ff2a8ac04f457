"""Noise that differs from place to place: grass, stones and steps scatter more than a bare slope.

Each block b has its own factor s_b on the noise variances of its points, s_b ~ scaled inverse chi-square with nu_0
degrees of freedom about s_0. Given the map, the squares q_b = E sum (z - f)^2 / r of its n_b points follow from the
statistics, and

    s_b | z ~ scaled inverse chi-square,   nu_b = nu_0 + n_b,   about (nu_0 s_0 + q_b) / nu_b,

with nu_0 and s_0 chosen so that they make the squares of all blocks most likely (empirical Bayes). A point measured
in the block then follows a Student t distribution of nu_b degrees, whose tails are as heavy as the noise of the map
varies. Taking the map and the factors in turns is expectation maximisation (Dempster, Laird and Rubin, 1977).

What is left of misfit is taken out by points that were held out: the share of them that lies within each interval is
what the interval is worth (Kuleshov, Fenner and Ermon, 2018).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import digamma, gammaln

from gp_core.arrays import Array
from gp_core.grid.axes import Axis
from gp_core.grid.interpolation import MOMENTS, ORDER
from gp_core.grid.mean_tiles import MeanField
from gp_core.grid.statistics import COUNT, SQUARES, Statistics, overlap
from gp_core.grid.tiles import SAFE_DEGREE, SAFE_ORDER, lower_degree
from gp_core.optimize import minimize


@dataclass
class LocalNoise:
    """Factors on the noise variances of the points, by block of a window of the lattice.

    x, y: the axes
    shape, scale: nu_0 and s_0, which hold for places without points; infinite and 1 before anything was learned
    factor: (J, I) by which the variances in the block are multiplied
    degrees: (J, I) degrees of freedom of that knowledge
    levels: (M,) levels of the intervals that just hold each of the points held out, growing; empty if there were none
    """

    x: Axis
    y: Axis
    shape: float = np.inf
    scale: float = 1.0
    factor: Array = field(init=False, repr=False)
    degrees: Array = field(init=False, repr=False)
    levels: Array = field(default_factory=lambda: np.zeros(0), repr=False)

    def __post_init__(self) -> None:
        size = (self.y.count, self.x.count)
        self.factor, self.degrees = np.full(size, self.scale), np.full(size, self.shape)

    def moved(self, x: Axis, y: Axis) -> LocalNoise:
        """The same in another window."""
        out = LocalNoise(x, y, self.shape, self.scale, levels=self.levels)
        (to_x, from_x), (to_y, from_y) = overlap(x, self.x), overlap(y, self.y)
        out.factor[to_y, to_x] = self.factor[from_y, from_x]
        out.degrees[to_y, to_x] = self.degrees[from_y, from_x]
        return out

    def nominal(self, level: float) -> float:
        """Level at which to ask for an interval so that it holds the given share of points."""
        M = self.levels.size
        if M == 0:
            return level
        # As many of M + 1 gaps: a new point is as likely to fall into any of them.
        share = np.arange(M + 2) / (M + 1)
        return float(np.interp(level, share, np.concatenate([[0.0], self.levels, [1.0]])))

    def at(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Factor and degrees (N,) at points; those of a place without points outside the window."""
        column, row = self.x.locate(x)[0], self.y.locate(y)[0]
        inside = (column >= 0) & (column < self.x.count) & (row >= 0) & (row < self.y.count)
        factor, degrees = np.full(x.shape, self.scale), np.full(x.shape, self.shape)
        at = row[inside], column[inside]
        factor[inside], degrees[inside] = self.factor[at], self.degrees[at]
        return factor, degrees


def learned_noise(noise: LocalNoise, s: Statistics, squares: Array) -> LocalNoise:
    """The factors that the squares (J, I) of the present residuals, over the present variances, ask for."""
    out = LocalNoise(s.x, s.y)
    count = s.totals[..., COUNT]
    some = count > 0.0
    total = squares[some] * noise.factor[some]  # over the variances as they were given
    out.shape, out.scale = _spread(count[some], total)
    out.factor[:], out.degrees[:] = out.scale, out.shape
    out.degrees[some] += count[some]
    out.factor[some] = (out.shape * out.scale + total) / out.degrees[some]
    return out


def _spread(count: Array, squares: Array) -> tuple[float, float]:
    """nu_0 and s_0 under which sums of squares (K,) of so many residuals (K,) are most likely."""

    def cost(x: Array) -> tuple[float, Array]:
        a, c = np.exp(x)  # nu_0 / 2 and nu_0 s_0 / 2
        n, q = 0.5 * count, 0.5 * squares
        value = a * np.log(c) - (a + n) * np.log(c + q) + gammaln(a + n) - gammaln(a)
        by_a = np.log(c) - np.log(c + q) + digamma(a + n) - digamma(a)
        by_c = a / c - (a + n) / (c + q)
        return -value.mean(), -np.array([a * by_a.mean(), c * by_c.mean()])

    typical = max(float(squares.sum() / count.sum()), 1e-12)
    bounds = np.log([[0.1, 1e3], [1e-6 * typical, 1e4 * typical]])
    found = minimize(cost, np.log([2.0, 2.0 * typical]), bounds)
    a, c = np.exp(found.x)
    return 2.0 * float(a), float(c / a)


def residual_squares(s: Statistics, coefficients: Array) -> Array:
    """(J, I) sum (z - z_0 - f)^2 / r over the points of each block, for f with monomial coefficients (J, I, 6, 6).

    f = p + q with p of degree 3, whose squares the moments hold exactly; q is so small that they hold its products
    well enough.
    """
    lower = lower_degree(np.eye(ORDER), SAFE_DEGREE)
    p = lower @ coefficients @ lower.T
    q = coefficients.copy()
    q[..., :SAFE_ORDER, :SAFE_ORDER] -= p
    W, H = s.weights, s.heights
    squares = s.totals[..., SQUARES] - 2.0 * (H[..., :SAFE_ORDER, :SAFE_ORDER] * p).sum((-2, -1))
    squares += (W * _product(p, p)).sum((-2, -1))
    squares += (W * (2.0 * _product(p, q) + _product(q, q))).sum((-2, -1)) - 2.0 * (H * q).sum((-2, -1))
    positive: Array = np.maximum(squares, 0.0)
    return positive


def _product(p: Array, q: Array) -> Array:
    """(..., 7, 7) product of polynomials (..., n, n) and (..., m, m), reduced to degree 6 where it is higher."""
    n, m = p.shape[-1], q.shape[-1]
    out = np.zeros((*p.shape[:-2], n + m - 1, n + m - 1))
    for a in range(n):
        for b in range(n):
            out[..., a : a + m, b : b + m] += p[..., a : a + 1, b : b + 1] * q
    if n + m - 1 > MOMENTS:
        lower = lower_degree(np.eye(n + m - 1), MOMENTS - 1)
        out = lower @ out @ lower.T
    return np.asarray(out)


def block_coefficients(tiles: MeanField) -> Array:
    """(K, J, I, 6, 6) monomial coefficients of the mean of every right-hand side on the blocks of the window."""
    t, model = tiles.tiling, tiles.model
    sides = []
    for axis in (model.y, model.x):
        core = axis.polynomials.reshape(axis.blocks, ORDER, -1)[axis.halo : axis.halo + axis.core]
        sides.append(core.reshape(axis.core * ORDER, -1))
    images = sides[0] @ tiles.eta @ sides[1].T
    n_y, n_x, K = tiles.eta.shape[:3]
    blocks = images.reshape(n_y, n_x, K, model.y.core, ORDER, model.x.core, ORDER).transpose(
        2, 0, 3, 1, 5, 4, 6
    )
    blocks = blocks.reshape(K, n_y * model.y.core, n_x * model.x.core, ORDER, ORDER)
    first_y, first_x = t.y.first - t.first_y * model.y.core, t.x.first - t.first_x * model.x.core
    return np.ascontiguousarray(blocks[:, first_y : first_y + t.y.count, first_x : first_x + t.x.count])
