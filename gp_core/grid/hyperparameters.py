"""Learning the kernel and the noise from the statistics, by the likelihood and its gradient."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.likelihood import evidence
from gp_core.grid.prior import Prior, make_prior
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.tiles import TileSize, make_tile_model
from gp_core.grid.workers import single_threaded_blas
from gp_core.kernels import Kernel
from gp_core.optimize import minimize

NOISE_RANGE = np.log(1e4)
"""The factor on the noise variance is sought within this distance of 1, in logarithms."""


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
    size: TileSize,
    s: Statistics,
    tiles: Mask,
    trend: int,
    center: tuple[float, float],
    fit_noise: bool,
    max_iterations: int,
    coarsest: float,
) -> Fit:
    """Maximise the likelihood of the given tiles over theta (P,) and, with `fit_noise`, the noise factor.

    coarsest: blocks per correlation length below which a kernel is out of bounds for this lattice
    """
    if not tiles.any():
        raise ValueError("there are no data to learn hyperparameters from: update the map first")
    P = prior.kernel.theta.size
    bounds = prior.kernel.bounds
    if fit_noise:
        bounds = np.vstack([bounds, [-NOISE_RANGE, NOISE_RANGE]])

    def objective(x: Array) -> tuple[float, Array]:
        candidate = make_prior(prior.kernel.with_theta(x[:P]), prior.spacing)
        if min(candidate.scale[k] / candidate.spacing[k] for k in (0, 1)) < coarsest:
            raise ValueError(
                "the length scale is too short for this lattice: make a new map with this kernel"
            )
        found = evidence(
            candidate,
            make_tile_model(candidate, size),
            s,
            trend=trend,
            center=center,
            noise_factor=float(np.exp(x[P])) if fit_noise else 1.0,
            tiles=tiles,
        )
        gradient = found.theta_gradient
        if fit_noise:
            gradient = np.append(gradient, found.noise_gradient)
        return -found.value, -gradient

    start = np.append(prior.kernel.theta, 0.0) if fit_noise else prior.kernel.theta
    with single_threaded_blas():
        initial = -objective(start)[0]
        best = minimize(objective, start, bounds, max_iterations=max_iterations, tolerance=1e-5)
    return Fit(
        kernel=prior.kernel.with_theta(best.x[:P]),
        noise_factor=float(np.exp(best.x[P])) if fit_noise else 1.0,
        log_likelihood=-best.value,
        initial_log_likelihood=initial,
        gradient=-best.gradient,
        converged=best.converged,
        message=best.message,
        evaluations=best.evaluations,
        at_bound=best.at_bound,
    )
