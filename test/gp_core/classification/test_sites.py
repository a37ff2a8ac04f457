"""The iteration for sites: with Gaussian factors its solution is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.arrays import Array
from gp_core.classification.posterior import LatentPosterior, Marginals, prior_times_sites
from gp_core.classification.sites import Cavity, Projection, solve_sites
from gp_core.kernels import RBF

NOISE = np.array([0.1, 0.4, 0.2, 2.0, 0.3])
Y = np.array([0.3, -1.0, 0.5, 2.0, 0.1])


@pytest.fixture
def kernel_matrix() -> Array:
    return RBF(1.0)(np.linspace(0.0, 3.0, 5)[:, None])


def uninformed(K: Array) -> LatentPosterior:
    """Where nothing has been learned."""
    w, zero = np.full(len(K), 1e-3), np.zeros(len(K))
    return LatentPosterior(zero, zero, w, prior_times_sites(K, w), 0.0, None, False, 0)


def gaussian_factors(y: Array, noise: Array) -> Projection:
    """Moments of N(y; f, noise) times the cavity."""

    def project(cavity: Cavity, q: Marginals) -> tuple[Array, Array]:
        variance = 1.0 / (1.0 / cavity.variance + 1.0 / noise)
        return variance * (cavity.mean / cavity.variance + y / noise), variance

    return project


def test_gaussian_factors_are_their_own_sites(kernel_matrix: Array) -> None:
    sites = solve_sites(
        kernel_matrix, uninformed(kernel_matrix), gaussian_factors(Y, NOISE), tol=1e-9, max_iter=200
    )
    assert sites.converged
    np.testing.assert_allclose(sites.w, 1.0 / NOISE, rtol=1e-6)
    np.testing.assert_allclose(sites.nu, Y / NOISE, rtol=1e-6)


def test_the_posterior_is_that_of_the_regression(kernel_matrix: Array) -> None:
    K = kernel_matrix
    sites = solve_sites(K, uninformed(K), gaussian_factors(Y, NOISE), tol=1e-9, max_iter=200)
    gain = K @ np.linalg.inv(K + np.diag(NOISE))
    np.testing.assert_allclose(sites.posterior.mean, gain @ Y, atol=1e-7)
    np.testing.assert_allclose(sites.posterior.variance, np.diagonal(K - gain @ K), atol=1e-7)
    latent = sites.latent_posterior(-3.0)
    np.testing.assert_allclose(latent.mean, gain @ Y, atol=1e-7)
    assert (latent.log_evidence, latent.converged) == (-3.0, True)


def test_the_cavity_of_a_point_is_the_posterior_from_the_others(kernel_matrix: Array) -> None:
    K = kernel_matrix
    sites = solve_sites(K, uninformed(K), gaussian_factors(Y, NOISE), tol=1e-9, max_iter=200)
    others = np.arange(1, 5)
    k, C = K[0, others], K[np.ix_(others, others)] + np.diag(NOISE[others])
    assert sites.cavity.mean[0] == pytest.approx(k @ np.linalg.solve(C, Y[others]), abs=1e-7)
    assert sites.cavity.variance[0] == pytest.approx(K[0, 0] - k @ np.linalg.solve(C, k), abs=1e-7)


def test_too_few_sweeps_are_told(kernel_matrix: Array) -> None:
    sites = solve_sites(
        kernel_matrix, uninformed(kernel_matrix), gaussian_factors(Y, NOISE), tol=1e-9, max_iter=1
    )
    assert not sites.converged
    assert sites.iterations == 1


def test_a_function_that_is_zero_somewhere_is_no_obstacle(kernel_matrix: Array) -> None:
    K = kernel_matrix
    K[0], K[:, 0] = 0.0, 0.0
    sites = solve_sites(K, uninformed(K), gaussian_factors(Y, NOISE), tol=1e-6, max_iter=200)
    assert sites.converged
    assert abs(sites.posterior.mean[0]) < 1e-6


def test_moments_that_are_not_finite_are_an_error(kernel_matrix: Array) -> None:
    def project(cavity: Cavity, q: Marginals) -> tuple[Array, Array]:
        return np.full(5, np.nan), q.variance

    with pytest.raises(ValueError, match="not finite"):
        solve_sites(kernel_matrix, uninformed(kernel_matrix), project, tol=1e-9, max_iter=10)
