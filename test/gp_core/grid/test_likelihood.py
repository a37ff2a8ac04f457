"""Likelihood, hyperparameters, trends and samples against the dense GP."""

from __future__ import annotations

import numpy as np
import pytest
from exact import draw, exact_posterior, points_with_holes

from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF, Matern

GRID = Grid((0.0, 0.0), (45, 45), 0.1)


def data(kernel, n: int, noise: float, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = points_with_holes(n, 4.5, rng)
    return X, draw(kernel, X, noise, rng)


@pytest.mark.parametrize(
    "kernel", [1.5 * RBF(0.5), 1.0 * Matern(0.8, nu=2.5), 1.0 * Matern(0.8, nu=1.5)], ids=repr
)
def test_likelihood_and_gradient_match_the_dense_gp(kernel):
    X, z = data(kernel, 900, 0.02)
    gp = GridGP(GRID, kernel, 0.02)
    gp.update(X, z)
    value, gradient = gp.log_marginal_likelihood_gradient()
    exact = exact_posterior(kernel, X, z, 0.02, X[:1]).log_likelihood
    assert value == pytest.approx(exact, abs=0.004 * len(X))
    assert gp.log_marginal_likelihood() == pytest.approx(value)
    step = 1e-3

    def dense(theta, log_noise):
        return exact_posterior(kernel.with_theta(theta), X, z, 0.02 * np.exp(log_noise), X[:1]).log_likelihood

    numeric = [
        (dense(kernel.theta + d, 0.0) - dense(kernel.theta - d, 0.0)) / (2.0 * step)
        for d in step * np.eye(kernel.theta.size)
    ]
    numeric.append((dense(kernel.theta, step) - dense(kernel.theta, -step)) / (2.0 * step))
    # In units of what one standard error of the parameter changes, sqrt(N) is a generous scale.
    np.testing.assert_allclose(gradient, numeric, atol=0.5 * np.sqrt(len(X)))


@pytest.mark.parametrize(
    ("truth", "start", "tolerance"),
    # Of a rough kernel, variance and length are known together rather than each by itself.
    [(0.8 * RBF(0.6), 0.3 * RBF(0.4), 0.1), (0.8 * Matern(0.6, nu=1.5), 0.3 * Matern(0.4, nu=1.5), 0.25)],
    ids=["tiles", "strips"],
)
def test_hyperparameters_are_recovered(truth, start, tolerance):
    rng = np.random.default_rng(1)
    X = rng.uniform(0.0, 4.5, (3000, 2))
    z = draw(truth, X, 0.01, rng)
    gp = GridGP(GRID, start, 0.05)
    gp.update(X, z)
    before = gp.log_marginal_likelihood()
    result = gp.fit_hyperparameters()
    assert result.log_likelihood > result.initial_log_likelihood
    assert gp.log_marginal_likelihood() > before + 100.0
    assert gp.kernel == result.kernel
    scale, length = np.exp(gp.kernel.theta)
    assert length == pytest.approx(0.6, rel=tolerance)
    assert scale == pytest.approx(0.8, rel=0.6)  # one map holds only some fifty independent patches
    assert gp.noise_variance == pytest.approx(0.01, rel=0.1)
    with pytest.raises(ValueError, match="no data"):
        GridGP(GRID, truth, 0.01).fit_hyperparameters()


@pytest.mark.parametrize("kernel", [0.2 * RBF(0.5), 0.2 * Matern(0.5, nu=1.5)], ids=["tiles", "strips"])
@pytest.mark.parametrize("trend", ["constant", "plane"])
def test_trends_match_universal_kriging(trend, kernel):
    rng = np.random.default_rng(2)
    noise = 0.01
    X = points_with_holes(600, 4.5, rng)
    X = X[X[:, 0] < 3.2]  # a wide margin without data, where the trend is all there is
    z = draw(kernel, X, noise, rng) + 100.0 + 0.7 * X[:, 0] - 0.4 * X[:, 1]
    gp = GridGP(GRID, kernel, noise, mean=trend)
    gp.update(X, z)
    p = gp.posterior()
    at = GRID.centers.reshape(-1, 2)

    def basis(points):
        ones = np.ones((len(points), 1))
        return ones if trend == "constant" else np.hstack([ones, points])

    S = kernel(X) + noise * np.eye(len(X))
    H, h, k = basis(X), basis(at), kernel(at, X)
    beta_covariance = np.linalg.inv(H.T @ np.linalg.solve(S, H))
    beta = beta_covariance @ H.T @ np.linalg.solve(S, z)
    mean = h @ beta + k @ np.linalg.solve(S, z - H @ beta)
    u = h - k @ np.linalg.solve(S, H)
    variance = 0.2 - (k * np.linalg.solve(S, k.T).T).sum(1) + np.einsum("nk,kl,nl->n", u, beta_covariance, u)
    error = (p.mean.ravel() - mean) / np.sqrt(variance)
    assert np.sqrt(np.mean(error**2)) < 0.05
    ratio = np.abs(p.variance.ravel() / variance - 1.0)
    assert np.median(ratio) < 0.02
    assert np.quantile(ratio, 0.95) < 0.15


@pytest.mark.parametrize("kernel", [RBF(0.5), Matern(0.6, nu=1.5)], ids=["tiles", "strips"])
def test_samples_have_the_posterior_s_mean_and_covariance(kernel):
    noise = 0.05
    rng = np.random.default_rng(3)
    X = points_with_holes(300, 3.0, rng)
    z = draw(kernel, X, noise, rng)
    grid = Grid((0.0, 0.0), (15, 15), 0.2)
    gp = GridGP(grid, kernel, noise, mean=2.0)
    gp.update(X, z + 2.0)
    n = 600
    samples = gp.sample(n, np.random.default_rng(4))
    assert samples.shape == (n, 15, 15)
    p = gp.posterior()
    standard = (samples - p.mean) / np.sqrt(p.variance)
    assert np.abs(standard.mean(0)).mean() < 3.0 / np.sqrt(n)
    assert standard.var(0).mean() == pytest.approx(1.0, abs=0.05)
    # Neighbours must move together as the dense posterior says.
    at = grid.centers.reshape(-1, 2)
    k = kernel(at, X)
    S = kernel(X) + noise * np.eye(len(X))
    dense = kernel(at) - k @ np.linalg.solve(S, k.T)
    found = np.cov(samples.reshape(n, -1).T)
    scale = np.sqrt(np.diagonal(dense))
    difference = (found - dense) / scale / scale[:, None]
    assert np.sqrt(np.mean(difference**2)) < 2.0 / np.sqrt(n)
    again = gp.sample(2, np.random.default_rng(4))
    assert (again == gp.sample(2, np.random.default_rng(4))).all()
