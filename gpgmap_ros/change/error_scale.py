"""How far two surveys of unchanged ground differ, cell by cell: a Student t distribution whose scale depends on place.

    D(x) ~ s(x) t_nu,      s^2 = a v + b + c |g|^2 + d k^2

v: sum of both posterior variances, so that gaps count less; b: error floor of the pair of surveys, which no single
survey knows of; c: squared horizontal error, which matters on slopes g; d: error where the ground bends, with k the
second difference over a cell. The five numbers are those of the largest likelihood. What changed is found with them,
left out, and they are estimated again: changed ground must not hide itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize, special, stats

from gp_core.arrays import Array

TERMS = ("posterior", "floor", "slope", "curvature")
MAX_CELLS = 30_000
"""Cells of a fit; of a larger map some at random, which are spread over it."""
LEAST_NU, MOST_NU = 3.0, 200.0
"""Degrees of freedom: below, single cells would need to differ by metres; above, it is the normal distribution."""
FACTOR_STD = 1.5
"""Standard deviation of log a before the data, which matters only where v is the same in all cells."""
LEAST, MOST = 1e-7, 1e4
"""Bounds of the terms, in shares of the squared spread of all differences."""


@dataclass(frozen=True)
class ErrorScale:
    """factors: (4,) a, b, c, d; nu: degrees of freedom"""

    factors: Array
    nu: float

    def std(self, covariates: Array) -> Array:
        """s (cells,) of covariates (4, cells)."""
        return np.asarray(np.sqrt(self.factors @ covariates))

    def p_values(self, score: Array) -> Array:
        """Probability of a difference this large without change, two-sided. score: D / s"""
        return np.asarray(2.0 * stats.t.sf(np.abs(score), self.nu))

    def normal_scores(self, score: Array) -> Array:
        """The quantiles of D / s as those of a standard normal distribution."""
        u, t = _quantiles(self.nu)
        return np.asarray(np.sign(score) * np.interp(np.abs(score), t, u))

    def from_normal(self, score: Array) -> Array:
        """The inverse of `normal_scores`."""
        u, t = _quantiles(self.nu)
        return np.asarray(np.sign(score) * np.interp(np.abs(score), u, t))

    @property
    def normal_factor(self) -> float:
        """Factor on s with which 1.96 standard deviations hold 95 %, as of a normal distribution."""
        return float(stats.t.ppf(0.975, self.nu) / stats.norm.ppf(0.975))


@lru_cache(maxsize=16)
def _quantiles(nu: float) -> tuple[Array, Array]:
    """Quantiles of the normal and the t distribution at the same probabilities: fields have millions of cells."""
    u = np.linspace(0.0, 8.0, 801)
    t = np.asarray(-special.stdtrit(nu, special.ndtr(-u)), dtype=np.float64)
    t[0] = 0.0
    return u, t


def fit_scale(
    difference: Array, covariates: Array, rng: np.random.Generator, nu: float | None = None
) -> ErrorScale:
    """The most likely scale. difference: (cells,); covariates: (4, cells) of the terms; nu: estimated unless given"""
    if difference.size > MAX_CELLS:
        chosen = rng.choice(difference.size, MAX_CELLS, replace=False)
        difference, covariates = difference[chosen], covariates[:, chosen]
    spread = max(float(np.median(np.abs(difference))) / 0.6745, 1e-9)
    typical = np.maximum(np.median(covariates, axis=1), 1e-12 * spread**2)
    terms, squares = covariates / typical[:, None], (difference / spread) ** 2
    posterior = np.log(typical[0] / spread**2)

    def cost(values: Array) -> tuple[float, Array]:
        total, slope = student_cost(values, terms, squares)
        off = values[0] - posterior
        slope[0] += off / FACTOR_STD**2
        return total + 0.5 * off**2 / FACTOR_STD**2, slope

    low, high = np.log(LEAST), np.log(MOST)
    start = np.append(np.clip([posterior, *np.log([0.3, 0.2, 0.1])], low, high), np.log(nu or 6.0))
    of_nu = (LEAST_NU, MOST_NU) if nu is None else (nu, nu)
    bounds = [(low, high)] * len(terms) + [tuple(np.log(of_nu))]
    found = optimize.minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return ErrorScale(np.exp(found.x[:-1]) * spread**2 / typical, float(np.exp(found.x[-1])))


def fit_tail(values: Array, rng: np.random.Generator) -> tuple[float, float]:
    """Scale and degrees of freedom of the most likely t distribution of values (N,) about 0."""
    if values.size > MAX_CELLS:
        values = rng.choice(values, MAX_CELLS, replace=False)
    spread = max(float(np.median(np.abs(values))) / 0.6745, 1e-12)
    squares, terms = (values / spread) ** 2, np.ones((1, values.size))
    bounds = [(-3.0, 3.0), (np.log(LEAST_NU), np.log(MOST_NU))]
    found = optimize.minimize(
        student_cost, [0.0, np.log(8.0)], (terms, squares), jac=True, method="L-BFGS-B", bounds=bounds
    )
    return spread * float(np.exp(0.5 * found.x[0])), float(np.exp(found.x[1]))


def student_cost(values: Array, terms: Array, squares: Array) -> tuple[float, Array]:
    """Negative log likelihood, without constants, and its derivative by log theta and log nu.

    values: (K + 1,) log theta and log nu; terms: (K, N), s^2 = theta' terms; squares: (N,) of the differences
    """
    theta, nu = np.exp(values[:-1]), np.exp(values[-1])
    s2 = theta @ terms
    ratio, n = squares / s2, len(squares)
    weight = (nu + 1.0) / (nu + ratio)
    total = 0.5 * np.log(s2).sum() + 0.5 * (nu + 1.0) * np.log1p(ratio / nu).sum()
    total += n * (special.gammaln(0.5 * nu) - special.gammaln(0.5 * (nu + 1.0)) + 0.5 * np.log(nu))
    by_theta = 0.5 * terms @ ((1.0 - weight * ratio) / s2) * theta
    by_nu = 0.5 * np.log1p(ratio / nu).sum() - 0.5 * (weight * ratio).sum() / nu
    by_nu += 0.5 * n * (special.digamma(0.5 * nu) - special.digamma(0.5 * (nu + 1.0)) + 1.0 / nu)
    return float(total), np.append(by_theta, by_nu * nu)
