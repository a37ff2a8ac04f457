"""Noise variance by block: grass, stones and steps scatter more than a bare slope.

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
from gp_core.compiled import compiled
from gp_core.grid.axes import Axis
from gp_core.grid.interpolation import ORDER
from gp_core.grid.mean_tiles import MeanField
from gp_core.grid.statistics import COUNT, SQUARES, Statistics, overlap
from gp_core.grid.tiles import lower_degree
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

    def copy_to(self, x: Axis, y: Axis) -> LocalNoise:
        """The factors of another window: what both cover is kept, the rest has the prior's."""
        out = LocalNoise(x, y, self.shape, self.scale, levels=self.levels)
        (to_x, from_x), (to_y, from_y) = overlap(x, self.x), overlap(y, self.y)
        out.factor[to_y, to_x] = self.factor[from_y, from_x]
        out.degrees[to_y, to_x] = self.degrees[from_y, from_x]
        return out

    def at(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Factor and degrees (N,) at points; those of a place without points outside the window."""
        column, row = self.x.locate(x)[0], self.y.locate(y)[0]
        inside = (column >= 0) & (column < self.x.count) & (row >= 0) & (row < self.y.count)
        factor, degrees = np.full(x.shape, self.scale), np.full(x.shape, self.shape)
        at = row[inside], column[inside]
        factor[inside], degrees[inside] = self.factor[at], self.degrees[at]
        return factor, degrees


MAX_BLOCKS = 1000
"""From which the prior of the factors is estimated: two numbers need no more."""


def estimate_noise(noise: LocalNoise, s: Statistics, squares: Array, keep_within: float = 0.0) -> LocalNoise:
    """Posterior factors from the sums of squares (J, I) of the present residuals over the present variances.

    keep_within: a factor whose logarithm would change by less stays as it is
    """
    out = LocalNoise(s.x, s.y)
    count = s.totals[..., COUNT]
    some = count > 0.0
    total = squares[some] * noise.factor[some]  # over the variances as they were given
    step = -(-total.size // MAX_BLOCKS)
    out.shape, out.scale = _fit_prior(count[some][::step], total[::step])
    out.factor[:], out.degrees[:] = out.scale, out.shape
    out.degrees[some] += count[some]
    out.factor[some] = (out.shape * out.scale + total) / out.degrees[some]
    if keep_within > 0.0:
        near = some & (np.abs(np.log(out.factor / noise.factor)) < keep_within)
        out.factor[near] = noise.factor[near]
    return out


def _fit_prior(count: Array, squares: Array) -> tuple[float, float]:
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
    """(J, I) sum (z - z_0 - f)^2 / r over the points of each block, for f with monomial coefficients (J, I, m, m).

    Of quintic splines, f^2 has degree 10 and the moments reach degree 6: its part beyond is replaced by the nearest
    polynomial, which is exact up to degree 3 of f and close enough beyond, where a mean is small.
    """
    n = s.orders.weights
    order = _highest_order(coefficients)
    reach = 2 * order - 1
    lower = lower_degree(np.eye(reach), n - 1) if reach > n else np.zeros((n, reach))
    lower = np.ascontiguousarray(lower)
    squares = s.totals[..., SQUARES].copy()
    _add_squares(s.weights, s.heights, coefficients, lower, order, np.empty((n, reach)), squares)
    positive: Array = np.maximum(squares, 0.0)
    return positive


def _highest_order(coefficients: Array) -> int:
    """Number of monomials along an axis that polynomials (J, I, m, m) use."""
    used = np.abs(coefficients).max(axis=(0, 1)) > 0.0
    along = np.flatnonzero(used.any(axis=0) | used.any(axis=1))
    return int(along[-1]) + 1 if along.size else 1


@compiled()
def _add_squares(weights, heights, coefficients, lower, order, half, squares):  # type: ignore[no-untyped-def]
    """squares[j, i] += sum f^2 / r - 2 sum f (z - z_0) / r. lower: (n, 2 order - 1); half: work space of that size"""
    reach = 2 * order - 1
    for j in range(squares.shape[0]):
        for i in range(squares.shape[1]):
            W, H, c = weights[j, i], heights[j, i], coefficients[j, i]
            if W[0, 0] <= 0.0:
                continue
            if reach > W.shape[0]:
                for m in range(W.shape[0]):
                    for b in range(reach):
                        total = 0.0
                        for n in range(W.shape[1]):
                            total += W[m, n] * lower[n, b]
                        half[m, b] = total
            total = 0.0
            for a in range(reach):
                first_a, last_a = max(0, a - order + 1), min(order - 1, a)
                for b in range(reach):
                    first_b, last_b = max(0, b - order + 1), min(order - 1, b)
                    product = 0.0
                    for k in range(first_a, last_a + 1):
                        for n in range(first_b, last_b + 1):
                            product += c[k, n] * c[a - k, b - n]
                    if reach > W.shape[0]:
                        moment = 0.0
                        for m in range(W.shape[0]):
                            moment += lower[m, a] * half[m, b]
                    else:  # the moments have all that is needed
                        moment = W[a, b]
                    total += moment * product
            for a in range(order):
                for b in range(order):
                    total -= 2.0 * H[a, b] * c[a, b]
            squares[j, i] += total


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
