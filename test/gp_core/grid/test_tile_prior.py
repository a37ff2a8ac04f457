"""The prior on spline coefficients: what is measured of a kernel, and what the lattice carries of it."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Grid
from gp_core.grid.interpolation import weights
from gp_core.grid.tile_prior import (
    TilePrior,
    blocks_per_length,
    expected_information,
    make_tile_prior,
    measure_kernel,
)
from gp_core.kernels import RBF, Constant, Kernel, Linear, Matern, White


def prior_of(kernel: Kernel, blocks: float = 2.0) -> TilePrior:
    """On a lattice of so many blocks per correlation length."""
    variance, length = measure_kernel(kernel)
    return make_tile_prior(kernel, None, length, variance, blocks, 1e3)


@pytest.fixture(scope="module")
def prior() -> TilePrior:
    return prior_of(4.0 * RBF([0.5, 1.5]))


def test_variance_and_correlation_lengths_are_those_of_the_kernel(prior: TilePrior) -> None:
    assert prior.variance == pytest.approx(4.0)
    np.testing.assert_allclose(prior.correlation_length, [0.5, 1.5], rtol=1e-3)
    np.testing.assert_allclose(prior.spacing, [0.25, 0.75], rtol=1e-3)
    np.testing.assert_allclose(prior.gradient_variance, [4.0 / 0.5**2, 4.0 / 1.5**2], rtol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (Linear(), "stationary"),
        (RBF(1.0) + White(0.1), "White"),
        (RBF(1.0) + Constant(1.0), "does not decay"),
        (RBF(1e-9), "in metres"),
    ],
    ids=["linear", "white", "constant", "tiny"],
)
def test_kernels_that_the_engine_cannot_use_are_refused(kernel: Kernel, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        measure_kernel(kernel)


def test_carried_and_unresolved_variance_make_up_the_whole() -> None:
    prior = prior_of(4.0 * RBF(1.0), 1.0)
    t = np.linspace(-1.0, 1.0, 40, endpoint=False) + 1.0 / 40.0
    carried = prior.resolved_variance(weights(t), weights(t))
    assert prior.variance - carried.mean() == pytest.approx(prior.unresolved, rel=0.02)
    np.testing.assert_allclose(np.diagonal(carried), prior.resolved_variance_at(weights(t), weights(t)))


def test_a_finer_lattice_leaves_less_unresolved() -> None:
    coarse, fine = prior_of(RBF(1.0), 1.2), prior_of(RBF(1.0), 2.4)
    assert 0.0 <= fine.unresolved < 0.01 * coarse.unresolved
    assert (fine.unresolved_gradient < coarse.unresolved_gradient).all()


def test_lags_are_symmetric_cut_and_padded(prior: TilePrior) -> None:
    np.testing.assert_allclose(prior.lags, prior.lags[::-1, ::-1], atol=1e-9)
    R_y, R_x = (n // 2 for n in prior.lags.shape)
    small = prior.lags_within(3, 2)
    np.testing.assert_array_equal(small, prior.lags[R_y - 2 : R_y + 3, R_x - 1 : R_x + 2])
    large = prior.lags_within(R_y + 4, R_x + 4)
    assert large.shape == (2 * R_y + 7, 2 * R_x + 7)
    assert not large[0].any()
    np.testing.assert_array_equal(prior.along_x(3), prior.lags[R_y, R_x : R_x + 3])
    assert prior.along_y(R_y + 5)[-1] == 0.0


def test_only_products_of_one_dimensional_kernels_are_separable(prior: TilePrior) -> None:
    assert prior.separable
    assert not prior_of(RBF(1.0) + RBF(2.0)).separable


def test_rough_kernels_have_no_sufficient_lattice() -> None:
    def blocks(kernel: Kernel, tolerance: float = 0.01) -> float | None:
        variance, length = measure_kernel(kernel)
        return blocks_per_length(kernel, length, variance, tolerance, 1e3)

    assert blocks(Matern(1.0, nu=0.5)) is None
    coarse, fine = blocks(RBF(1.0)), blocks(RBF(1.0), 1e-4)
    assert coarse is not None
    assert fine is not None
    assert 1.0 < coarse < fine < 10.0


def test_the_derivative_by_theta_is_that_of_the_projected_covariance(prior: TilePrior) -> None:
    w = np.random.default_rng(0).normal(size=(7, 5))
    kernel, torus = prior.kernel, prior.torus

    def weighted(theta: np.ndarray) -> float:
        lags = torus.project(torus.spectrum(kernel.with_theta(theta)))
        R_y, R_x = (n // 2 for n in lags.shape)
        return float((w * lags[R_y - 3 : R_y + 4, R_x - 2 : R_x + 3]).sum())

    found = torus.theta_gradient(kernel, w)
    for k, expected in enumerate(found):
        step = 1e-5 * np.eye(len(found))[k]
        slope = (weighted(kernel.theta + step) - weighted(kernel.theta - step)) / 2e-5
        assert slope == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_expected_information_grows_with_precision_within_limits() -> None:
    grid = Grid((0.0, 0.0), (10, 10), 0.1)
    assert expected_information(grid, RBF(0.5), 0.01) == pytest.approx(2.0 * 25.0 / 0.01, rel=1e-3)
    assert expected_information(grid, RBF(0.5), 1e3) == 1e3
    assert expected_information(grid, RBF(0.5), 1e-9) == 1e6
