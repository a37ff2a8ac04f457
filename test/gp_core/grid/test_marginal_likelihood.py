"""The likelihood of points under another prior on the same lattice: its derivatives and its trend."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Grid, Workers
from gp_core.grid.marginal_likelihood import CandidateLikelihood, MarginalLikelihood
from gp_core.grid.observations import Observations, as_points
from gp_core.grid.prior import Prior
from gp_core.grid.solvers import make_prior, make_solver
from gp_core.grid.trend import TrendBasis
from gp_core.kernels import RBF

GRID = Grid((0.0, 0.0), (8, 8), 0.25)
NOISE_STD = 0.03


@pytest.fixture(scope="module")
def prior() -> Prior:
    return make_prior(0.04 * RBF(2.0), None, information=1e3)


@pytest.fixture(scope="module")
def likelihood(prior: Prior) -> CandidateLikelihood:
    """Of points on an inclined plane with noise."""
    workers = Workers(1)
    observations = Observations(GRID, prior.spacing, prior.orders, 5.0, prior.unresolved, None, workers)
    rng = np.random.default_rng(0)
    xy = rng.uniform(0.0, 2.0, (150, 2))
    z = 5.0 + 0.5 * xy[:, 0] - 0.2 * xy[:, 1] + rng.normal(0.0, NOISE_STD, len(xy))
    observations.add(as_points(xy, z, NOISE_STD**2), None)
    basis = TrendBasis.over(GRID, "plane")
    return make_solver(prior, None).candidate_likelihood(observations.statistics, workers, basis, 4)


@pytest.fixture(scope="module")
def found(likelihood: CandidateLikelihood, prior: Prior) -> MarginalLikelihood:
    return likelihood(prior, 1.0)


def test_the_noise_gradient_is_the_derivative_by_the_logarithm_of_the_factor(
    likelihood: CandidateLikelihood, prior: Prior, found: MarginalLikelihood
) -> None:
    ahead, back = (likelihood(prior, float(np.exp(h))).value for h in (1e-3, -1e-3))
    assert found.noise_gradient == pytest.approx((ahead - back) / 2e-3, rel=1e-2, abs=0.02)


def test_the_theta_gradient_is_the_derivative_by_the_kernels_parameters(
    likelihood: CandidateLikelihood, prior: Prior, found: MarginalLikelihood
) -> None:
    kernel = prior.kernel
    direction = np.linspace(1.0, 2.0, kernel.theta.size)
    ahead, back = (
        likelihood(make_prior(kernel.with_theta(theta), prior.spacing, information=1e3), 1.0).value
        for theta in (kernel.theta + 1e-3 * direction, kernel.theta - 1e-3 * direction)
    )
    assert found.theta_gradient @ direction == pytest.approx((ahead - back) / 2e-3, rel=2e-2, abs=0.02)


def test_the_trend_is_the_plane_within_its_covariance(found: MarginalLikelihood) -> None:
    std = np.sqrt(np.diagonal(found.trend_covariance))
    assert found.trend.shape == (3,)
    np.testing.assert_array_less(np.abs(found.trend[1:] - [0.5, -0.2]), 4.0 * std[1:])


def test_true_noise_is_likelier_than_noise_that_is_far_off(
    likelihood: CandidateLikelihood, prior: Prior, found: MarginalLikelihood
) -> None:
    assert found.value > likelihood(prior, 100.0).value
    assert found.value > likelihood(prior, 0.01).value
