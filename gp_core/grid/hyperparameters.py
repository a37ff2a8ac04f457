"""Learning the kernel and the noise from the statistics, by the likelihood and its gradient."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.marginal_likelihood import CandidateLikelihood
from gp_core.grid.prior import Prior
from gp_core.grid.solvers import make_prior
from gp_core.grid.statistics import COUNT, Statistics
from gp_core.grid.workers import single_threaded_blas
from gp_core.kernels import Kernel
from gp_core.optimize import minimize

NOISE_RANGE = np.log(1e4)
"""The factor on the noise variance is sought within this distance of 1, in logarithms."""
THETA_RANGE = np.log(6.0)
"""Likewise theta about its start: the lattice was made for length scales near it."""


@dataclass(frozen=True)
class Fit:
    """What a search for hyperparameters found.

    kernel: the best one
    noise_factor: factor on all noise variances
    log_likelihood: of the points in the tiles used, at the optimum
    initial_log_likelihood: at the start
    gradient: (P,) or (P + 1,) at the optimum
    converged, message: of the optimiser
    evaluations: of the likelihood
    at_bound: (P,) or (P + 1,) parameters that ended on a bound
    """

    kernel: Kernel
    noise_factor: float
    log_likelihood: float
    initial_log_likelihood: float
    gradient: Array = field(repr=False)
    converged: bool
    message: str
    evaluations: int
    at_bound: np.ndarray[tuple[int], np.dtype[np.bool_]]


def fit(
    prior: Prior,
    likelihood: CandidateLikelihood,
    s: Statistics,
    fit_noise: bool,
    max_iterations: int,
    min_blocks_per_length: float,
) -> Fit:
    """Maximise the likelihood over theta (P,) and, with `fit_noise`, the noise factor.

    likelihood: of another prior on the same lattice, as the solver of `prior` makes it
    min_blocks_per_length: blocks per correlation length below which a kernel is out of bounds for this lattice
    """
    if not (s.totals[..., COUNT] > 0.0).any():
        raise ValueError("there are no data to learn hyperparameters from: update the map first")
    kernel = prior.kernel
    P = kernel.theta.size

    def objective(x: Array) -> tuple[float, Array]:
        candidate = make_prior(kernel.with_theta(x[:P]), prior.spacing, information=prior.information)
        if min(candidate.scale[k] / candidate.spacing[k] for k in (0, 1)) < min_blocks_per_length:
            raise ValueError(
                "the length scale is too short for this lattice: make a new map with this kernel"
            )
        found = likelihood(candidate, float(np.exp(x[P])) if fit_noise else 1.0)
        gradient = found.theta_gradient
        if fit_noise:
            gradient = np.append(gradient, found.noise_gradient)
        # Per point, so that the optimiser's first step is of the order of the parameters.
        return -found.value / count, -gradient / count

    count = max(1.0, float(s.totals[..., COUNT].sum()))
    start = np.append(kernel.theta, 0.0) if fit_noise else kernel.theta
    with single_threaded_blas():
        initial = -objective(start)[0] * count
        best = minimize(
            objective, start, _bounds(kernel, fit_noise), max_iterations=max_iterations, tolerance=1e-5
        )
    return Fit(
        kernel=kernel.with_theta(best.x[:P]),
        noise_factor=float(np.exp(best.x[P])) if fit_noise else 1.0,
        log_likelihood=-best.value * count,
        initial_log_likelihood=initial,
        gradient=-best.gradient * count,
        converged=best.converged,
        message=best.message,
        evaluations=best.evaluations,
        at_bound=best.at_bound,
    )


def _bounds(kernel: Kernel, fit_noise: bool) -> Array:
    """(P, 2) or (P + 1, 2) smallest and largest value of each parameter."""
    low = np.maximum(kernel.bounds[:, 0], kernel.theta - THETA_RANGE)
    high = np.minimum(kernel.bounds[:, 1], kernel.theta + THETA_RANGE)
    bounds = np.stack([low, high], axis=1)
    return np.vstack([bounds, [-NOISE_RANGE, NOISE_RANGE]]) if fit_noise else bounds
