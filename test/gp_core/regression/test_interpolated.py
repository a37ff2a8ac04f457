"""Structured kernel interpolation: against the GP with the kernel W K_UU W' written out, and against the exact GP."""

import warnings

import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from gp_core import GaussianProcessRegressor, InterpolatedGaussianProcessRegressor
from gp_core.kernels import (
    RBF,
    Columns,
    Linear,
    Matern,
    Metric,
    Periodic,
    RationalQuadratic,
    Wendland,
    exp,
)
from gp_core.regression import InducingGrid


def problem(D, n=60):
    rng = np.random.default_rng(D)
    X = rng.uniform(-2.0, 2.0, (n, D))
    return X, np.sin(X).sum(axis=1) + 0.1 * rng.normal(size=n), rng.uniform(-1.9, 1.9, (9, D))


SIZES = {1: (12,), 2: (6, 7), 3: (4, 5, 3)}


def fixed(kernel, D, **options):
    return InterpolatedGaussianProcessRegressor(
        kernel, noise_variance=0.05, grid_size=SIZES[D], optimizer=None, **options
    )


@pytest.mark.parametrize("D", [1, 2, 3])
def test_weights_interpolate_linearly(D):
    X, _, _ = problem(D)
    grid = InducingGrid.over(X, SIZES[D])
    W = grid.weights(X)
    assert W.shape == (60, np.prod(SIZES[D]))
    np.testing.assert_allclose(W.sum(axis=1), 1.0)
    values = np.random.default_rng(0).normal(size=SIZES[D])
    np.testing.assert_allclose(W @ values.ravel(), RegularGridInterpolator(grid.axes, values)(X), atol=1e-10)
    np.testing.assert_allclose(W @ grid.points, X, atol=1e-10)  # linear functions are reproduced
    assert grid.weights(np.full((1, D), 50.0)).sum() == 0.0


KERNELS = [
    2.0 * RBF(1.0),
    Matern(1.5, nu=2.5),
    0.5 * RationalQuadratic(1.0) + Wendland(3.0),
    Periodic(1.0, 3.0),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("D", [1, 2, 3])
def test_it_is_the_process_with_the_interpolated_kernel(kernel, D):
    X, y, Q = problem(D)
    model = fixed(kernel, D).fit(X, y)
    U = model.grid_.points
    W, Wq = model.grid_.weights(X).toarray(), model.grid_.weights(Q).toarray()
    K = kernel(U) + model._posterior.jitter * np.eye(len(U))
    A = W @ K @ W.T + 0.05 * np.eye(60)
    cross = Wq @ K @ W.T
    np.testing.assert_allclose(model.predict(Q), cross @ np.linalg.solve(A, y), rtol=1e-6, atol=1e-8)
    covariance = Wq @ K @ Wq.T - cross @ np.linalg.solve(A, cross.T)
    np.testing.assert_allclose(model.predict(Q, return_cov=True)[1], covariance, atol=1e-7)
    np.testing.assert_allclose(model.predict(Q, return_std=True)[1] ** 2, np.diag(covariance), atol=1e-7)
    noisy = model.predict(Q, return_std=True, include_noise=True)[1]
    np.testing.assert_allclose(noisy**2, np.diag(covariance) + 0.05, atol=1e-7)
    expected = multivariate_normal(np.zeros(60), A).logpdf(y)
    assert model.log_marginal_likelihood() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("D", [1, 2])
def test_likelihood_gradient_against_differences(D):
    X, y, _ = problem(D)
    model = fixed(2.0 * Matern(1.0, nu=1.5), D).fit(X, y)
    _, gradient = model.log_marginal_likelihood(model.theta_, eval_gradient=True)
    step = 1e-5
    numeric = [
        (
            model.log_marginal_likelihood(model.theta_ + step * e)
            - model.log_marginal_likelihood(model.theta_ - step * e)
        )
        / (2.0 * step)
        for e in np.eye(3)
    ]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-6)


def test_a_finer_grid_tends_to_the_exact_process():
    X, y, Q = problem(1)
    exact = GaussianProcessRegressor(RBF(1.0), noise_variance=0.05, optimizer=None).fit(X, y)
    errors = []
    for nodes in (8, 16, 32, 64):
        model = InterpolatedGaussianProcessRegressor(
            RBF(1.0), noise_variance=0.05, grid_size=nodes, optimizer=None
        ).fit(X, y)
        errors.append(np.abs(model.predict(Q) - exact.predict(Q)).max())
    assert errors[-1] < 2e-3
    assert errors[-1] < 0.1 * errors[0]
    np.testing.assert_allclose(
        model.predict(Q, return_std=True)[1], exact.predict(Q, return_std=True)[1], rtol=0.02
    )


def test_hyperparameters_are_learned_in_the_scale_of_the_data():
    X, y, Q = problem(1)
    exact = GaussianProcessRegressor().fit(X, y)
    model = InterpolatedGaussianProcessRegressor(grid_size=80).fit(X * 1e4, y * 1e-3)
    np.testing.assert_allclose(model.predict(Q * 1e4) * 1e3, exact.predict(Q), atol=0.02)
    assert model.optimum_.converged


def test_outside_the_grid_the_prior_remains():
    X, y, _ = problem(1)
    model = fixed(2.0 * RBF(1.0), 1, normalize_y=True).fit(X, y)
    mean, std = model.predict([[99.0]], return_std=True)
    assert mean[0] == pytest.approx(y.mean())
    assert std[0] == pytest.approx(np.sqrt(2.0) * y.std())


def test_samples_have_the_moments_of_the_posterior():
    X, y, Q = problem(2)
    model = fixed(RBF(1.0), 2).fit(X, y)
    draws = model.sample_y(Q, 20000, random_state=0)
    mean, covariance = model.predict(Q, return_cov=True)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.03)


def test_as_an_estimator():
    X, y, _ = problem(1)
    model = clone(InterpolatedGaussianProcessRegressor(RBF(1.0), optimizer=None))
    with pytest.raises(NotFittedError):
        model.predict(X)
    search = GridSearchCV(model, {"kernel__length_scale": [0.01, 1.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {"kernel__length_scale": 1.0}
    assert "InterpolatedGaussianProcessRegressor" in search.best_estimator_._repr_html_()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y: fixed(Linear(), 1).fit(X, y), "stationary"),
        (lambda X, y: fixed(RBF(), 1).fit(np.zeros((5, 4)), np.zeros(5)), "1 to 3 inputs"),
        (lambda X, y: fixed(RBF(), 2).fit(X, y), "one per input"),
        (lambda X, y: InterpolatedGaussianProcessRegressor(grid_size=1).fit(X, y), "grid_size must be >= 2"),
        (
            lambda X, y: InterpolatedGaussianProcessRegressor(noise_variance=0.0).fit(X, y),
            "noise_variance must be > 0",
        ),
        (lambda X, y: InterpolatedGaussianProcessRegressor(optimizer="adam").fit(X, y), "lbfgs"),
        (lambda X, y: fixed(RBF(), 1).fit(X, np.stack([y, y], axis=1)), "one model per output"),
        (lambda X, y: fixed(RBF(), 1).fit(X, y).predict(X, True, True), "not both"),
    ],
)
def test_bad_input(call, message):
    X, y, _ = problem(1)
    with pytest.raises(ValueError, match=message):
        call(X, y)


@pytest.mark.parametrize(("D", "nodes"), [(1, 100), (2, 30)])
def test_against_kiss_gp(D, nodes):
    """GPyTorch interpolates by cubic weights, this class by linear ones: on a fine grid both are the exact process."""
    gpytorch = pytest.importorskip("gpytorch")
    torch = pytest.importorskip("torch")
    X, y, Q = problem(D)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, t, likelihood):
            super().__init__(x, t, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.RBFKernel()
            base.lengthscale = 1.0
            self.covar_module = gpytorch.kernels.GridInterpolationKernel(
                base, grid_size=nodes, num_dims=D, grid_bounds=[(-2.1, 2.1)] * D
            )

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.05
    model = Model(torch.tensor(X), torch.tensor(y), likelihood).double().eval()
    likelihood.double().eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = model(torch.tensor(Q))
        mean, std = theirs.mean.numpy(), theirs.stddev.numpy()
    ours = InterpolatedGaussianProcessRegressor(
        RBF(1.0), noise_variance=0.05, grid_size=nodes, optimizer=None
    )
    our_mean, our_std = ours.fit(X, y).predict(Q, return_std=True)
    np.testing.assert_allclose(our_mean, mean, atol=0.01)
    np.testing.assert_allclose(our_std, std, atol=0.01)


def test_outside_the_grid_it_is_the_prior_also_in_draws_and_between_points():
    X, y, _ = problem(1)
    kernel = 1.5 * RBF(1.0)
    gp = fixed(kernel, 1).fit(X, y)
    queries = np.array([[0.0], [20.0], [20.5], [-30.0]])
    mean, covariance = gp.predict(queries, return_cov=True)
    np.testing.assert_allclose(covariance[1:, 1:], kernel(queries[1:]), atol=1e-12)
    np.testing.assert_allclose(covariance[0, 1:], 0.0)
    draws = gp.sample_y(queries, 20_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.04)
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.06)


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(1.0) ** 2,
        exp(RBF(1.0)),
        Metric(Matern(1.0, length_scale_bounds="fixed"), [1.0, 2.0]),
        Columns(RBF(1.0), 0) + Columns(Matern(2.0), 1),
    ],
    ids=lambda k: type(k).__name__,
)
def test_what_is_made_of_stationary_kernels_is_stationary(kernel):
    X, y, queries = problem(2)
    gp = InterpolatedGaussianProcessRegressor(kernel, noise_variance=0.05, grid_size=25, optimizer=None)
    exact = GaussianProcessRegressor(kernel, noise_variance=0.05, optimizer=None).fit(X, y)
    np.testing.assert_allclose(gp.fit(X, y).predict(queries), exact.predict(queries), atol=0.03)


def test_a_grid_that_fits_in_no_memory_is_refused():
    X, y, _ = problem(3)
    with pytest.raises(ValueError, match="gives 1000000 nodes"):
        InterpolatedGaussianProcessRegressor(grid_size=100).fit(X, y)
