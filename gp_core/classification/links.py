"""Links: the likelihood p(y | f) of a label y ∈ {-1, +1} given the latent value f, and its integrals.

Both links are symmetric and log-concave, p(y | f) = s(y f). A link gives log p with its first three
derivatives in f, and three Gaussian integrals: the class probability, the moments of the tilted density
(expectation propagation) and the expected log likelihood with its derivatives (variational inference).
All are finite and accurate far into both tails.

Shapes: N data points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import erfcx, expit, log_expit, log_ndtr, ndtr

from gp_core.arrays import Array
from gp_core.irls import Rows, irls
from gp_core.parallel import map_blocks
from gp_core.quadrature import gaussian_expectation, tilted_moments

_QUERIES = 256
"""Integrals at a time: their nodes stay in the cache."""


@dataclass(frozen=True)
class Derivatives:
    """log p(y | f) and its derivatives in f at N points.

    log_p: (N,) log p.
    d1: (N,) ∂ log p.
    w: (N,) -∂² log p, never negative.
    d3: (N,) ∂³ log p.
    """

    log_p: Array
    d1: Array
    w: Array
    d3: Array


@dataclass(frozen=True)
class Expected:
    """Averages over f = m + s t with t ~ N(0, 1), at N points.

    log_p: (N,) E log p(y | f)
    d1: (N,) E ∂ log p, the derivative of E log p in m
    w: (N,) -E ∂² log p; -s w is the derivative of E log p in s
    wt: (N,) -E t ∂² log p
    wtt: (N,) -E t² ∂² log p
    """

    log_p: Array
    d1: Array
    w: Array
    wt: Array
    wtt: Array


class Link(Protocol):
    """What inference needs to know about p(y | f)."""

    def log_p(self, y: Array, f: Array) -> Array:
        """log p(y | f), elementwise."""

    def derivatives(self, y: Array, f: Array) -> Derivatives:
        """log p(y | f) with its first three derivatives in f, elementwise."""

    def probability(self, f: Array) -> Array:
        """p(y = +1 | f), elementwise."""

    def class_probability(self, mean: Array, variance: Array) -> Array:
        """∫ p(y = +1 | f) N(f; mean, variance) df (N,)."""

    def tilted(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        """log Z (N,), mean (N,) and variance (N,) of p(y | f) N(f; mean, variance) / Z."""

    def expected(self, y: Array, mean: Array, variance: Array) -> Expected:
        """log p and its derivatives averaged over N(mean, variance)."""


@dataclass(frozen=True)
class Logit:
    """p(y | f) = 1 / (1 + exp(-y f))."""

    def log_p(self, y: Array, f: Array) -> Array:
        """log p(y | f), elementwise."""
        result: Array = log_expit(y * f)
        return result

    def derivatives(self, y: Array, f: Array) -> Derivatives:
        """log p(y | f) with its first three derivatives in f (Rasmussen & Williams 3.15), elementwise."""
        z = y * f
        right, wrong = expit(z), expit(-z)
        w = right * wrong
        return Derivatives(log_expit(z), y * wrong, w, y * w * (right - wrong))

    def probability(self, f: Array) -> Array:
        """p(y = +1 | f), elementwise."""
        result: Array = expit(f)
        return result

    def class_probability(self, mean: Array, variance: Array) -> Array:
        """∫ σ(f) N(f; mean, variance) df (N,), by quadrature: there is no closed form."""
        blocks = [slice(start, start + _QUERIES) for start in range(0, len(mean), _QUERIES)]
        parts = map_blocks(
            lambda rows: gaussian_expectation(self.probability, mean[rows], variance[rows]), blocks
        )
        return np.concatenate(parts) if parts else np.zeros(0)

    def tilted(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        """log Z, mean and variance (N,) of σ(y f) N(f; mean, variance) / Z, by quadrature around the mode."""

        def value(f: Array, rows: Rows) -> Array:
            result: Array = log_expit(y[rows] * f) - 0.5 * (f - mean[rows]) ** 2 / variance[rows]
            return result

        def direction(f: Array, rows: Rows) -> tuple[Array, Array]:
            wrong = expit(-y[rows] * f)
            slope = y[rows] * wrong - (f - mean[rows]) / variance[rows]
            step = slope / (wrong * (1.0 - wrong) + 1.0 / variance[rows])
            return step, slope * step

        # The mode only places the panels: a rough one will do.
        mode = irls(value, direction, mean, tol=1e-3).state
        return tilted_moments(lambda f: log_expit(y[:, None] * f), mode, mean, variance)

    def expected(self, y: Array, mean: Array, variance: Array) -> Expected:
        """log p and its derivatives averaged over N(mean, variance), by quadrature."""

        def parts(z: Array) -> tuple[Array, Array, Array]:
            wrong = expit(-z)
            return log_expit(z), wrong, wrong * expit(z)

        return _expected(parts, y, mean, variance)


@dataclass(frozen=True)
class Probit:
    """p(y | f) = Φ(y f), the Gaussian's distribution function."""

    def log_p(self, y: Array, f: Array) -> Array:
        """log p(y | f), elementwise."""
        result: Array = log_ndtr(y * f)
        return result

    def derivatives(self, y: Array, f: Array) -> Derivatives:
        """log p(y | f) with its first three derivatives in f (Rasmussen & Williams 3.16), elementwise."""
        z = y * f
        hazard, w, slope = _hazard(z)
        return Derivatives(log_ndtr(z), y * hazard, w, -y * slope)

    def probability(self, f: Array) -> Array:
        """p(y = +1 | f), elementwise."""
        result: Array = ndtr(f)
        return result

    def class_probability(self, mean: Array, variance: Array) -> Array:
        """∫ Φ(f) N(f; mean, variance) df = Φ(mean / √(1 + variance)) (N,) (Rasmussen & Williams 3.82)."""
        return self.probability(mean / np.sqrt(1.0 + variance))

    def tilted(self, y: Array, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        """log Z, mean and variance (N,) of Φ(y f) N(f; mean, variance) / Z (Rasmussen & Williams 3.58)."""
        z = y * mean / np.sqrt(1.0 + variance)
        hazard, w, _ = _hazard(z)
        tilted_mean = mean + y * variance * hazard / np.sqrt(1.0 + variance)
        # v - v² w / (1 + v), written so that it can't become negative: w < 1.
        tilted_variance = variance * (1.0 + variance * (1.0 - w)) / (1.0 + variance)
        return log_ndtr(z), tilted_mean, tilted_variance

    def expected(self, y: Array, mean: Array, variance: Array) -> Expected:
        """log p and its derivatives averaged over N(mean, variance), by quadrature."""

        def parts(z: Array) -> tuple[Array, Array, Array]:
            hazard, w, _ = _hazard(z)
            return log_ndtr(z), hazard, w

        return _expected(parts, y, mean, variance)


def _expected(
    parts: Callable[[Array], tuple[Array, Array, Array]], y: Array, mean: Array, variance: Array
) -> Expected:
    """Averages of log s(z), its derivative and minus its second derivative over z = y f."""
    centre, std = (y * mean)[:, None], np.sqrt(np.maximum(variance, 1e-300))[:, None]

    def integrands(z: Array) -> Array:
        log_p, d1, w = parts(z)
        t = (z - centre) / std
        return np.stack([log_p, d1, w, w * t, w * t**2])

    log_p, d1, w, wt, wtt = gaussian_expectation(integrands, y * mean, variance)
    return Expected(log_p, y * d1, w, y * wt, wtt)


def _hazard(z: Array) -> tuple[Array, Array, Array]:
    """h = φ(z) / Φ(z), w = h (z + h) = -h' and w' = h - w (z + 2h), elementwise.

    Below z = -30 these differences cancel; there the expansion of h in 1/z is accurate to 1e-12.
    """
    hazard: Array = np.sqrt(2.0 / np.pi) / erfcx(-z / np.sqrt(2.0))
    w = hazard * (z + hazard)
    slope = hazard - w * (z + 2.0 * hazard)
    far = z < -30.0
    if np.any(far):
        x = -z[far]
        t = x**-2.0
        # h = x + 1/x - 2/x³ + 10/x⁵ - 74/x⁷ + 706/x⁹ - ...; w and w' are its derivatives.
        w[far] = 1.0 - t * (1.0 - t * (6.0 - t * (50.0 - t * (518.0 - t * 6354.0))))
        slope[far] = -(t / x) * (2.0 - t * (24.0 - t * (300.0 - t * (4144.0 - t * 63540.0))))
    return hazard, w, slope


LINKS: dict[str, Link] = {"logit": Logit(), "probit": Probit()}
