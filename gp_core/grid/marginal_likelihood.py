"""The likelihood of the points under a prior, and its derivatives: the result of every solver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gp_core.arrays import Array
from gp_core.grid.prior import Prior


@dataclass(frozen=True)
class MarginalLikelihood:
    """log p(z) with the trend at its best estimate, and what follows from it.

    value: log p(z)
    trend: (k,) estimated coefficients of 1, x, y about the centre
    trend_covariance: (k, k)
    theta_gradient: (P,) derivative of value by the kernel's theta
    noise_gradient: derivative of value by the logarithm of a factor on all noise variances
    """

    value: float
    trend: Array
    trend_covariance: Array
    theta_gradient: Array = field(repr=False)
    noise_gradient: float


CandidateLikelihood = Callable[[Prior, float], MarginalLikelihood]
"""The likelihood, with gradient, of another prior on the same lattice and a factor on all noise variances."""
