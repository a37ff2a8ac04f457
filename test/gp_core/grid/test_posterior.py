"""The grid engine against the dense GP."""

from __future__ import annotations

import numpy as np
import pytest
from exact import draw, exact_posterior, points_with_holes

from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF, Matern


@pytest.mark.parametrize("kernel", [2.0 * RBF(0.5), Matern(0.5, nu=2.5)], ids=repr)
def test_posterior_matches_the_dense_gp(kernel):
    rng = np.random.default_rng(0)
    X = points_with_holes(2000, 3.0, rng)
    noise = 0.01
    z = draw(kernel, X, noise, rng)
    grid = Grid((0.0, 0.0), (30, 30), 0.1)
    gp = GridGP(grid, kernel, noise)
    assert gp.update(X, z).used == len(X)
    posterior = gp.posterior()
    exact = exact_posterior(kernel, X, z, noise, grid.centers.reshape(-1, 2))
    sd = np.sqrt(exact.variance)
    error = (posterior.mean.ravel() - exact.mean) / sd
    ratio = np.abs(posterior.variance.ravel() / exact.variance - 1.0)
    g_error = (posterior.gradient.reshape(-1, 2) - exact.gradient) / np.sqrt(exact.gradient_variance)
    print(
        np.sqrt((error**2).mean()),
        np.abs(error).max(),
        np.median(ratio),
        np.quantile(ratio, 0.95),
        np.sqrt((g_error**2).mean()),
    )
    assert np.sqrt((error**2).mean()) < 0.1
    assert np.median(ratio) < 0.02
    assert np.sqrt((g_error**2).mean()) < 0.1


def test_log_marginal_likelihood_matches_the_dense_gp():
    rng = np.random.default_rng(1)
    kernel = 1.5 * RBF(0.5)
    X = points_with_holes(600, 3.0, rng)
    z = draw(kernel, X, 0.01, rng)
    gp = GridGP(Grid((0.0, 0.0), (30, 30), 0.1), kernel, 0.01)
    gp.update(X, z)
    exact = exact_posterior(kernel, X, z, 0.01, X[:1])
    assert gp.log_marginal_likelihood() == pytest.approx(exact.log_likelihood, abs=0.5)
