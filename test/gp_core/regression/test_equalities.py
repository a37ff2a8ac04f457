"""The equalities of the lectures: one model seen from two sides gives one answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gp_core import (
    BayesianLinearRegression,
    GaussianProcessRegressor,
    KernelRidge,
    LocallyWeightedRegression,
    NadarayaWatson,
    Ridge,
)
from gp_core.basis import GaussianBasis, PolynomialBasis, SigmoidBasis
from gp_core.kernels import RBF, Affine, BasisFunctions, Linear, Matern, Polynomial, White


def problem(seed, n=20, d=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=(6, d))


seeds = st.integers(0, 10_000)
few = settings(max_examples=15, deadline=None)


@given(seeds, st.floats(0.01, 10.0))
@few
def test_kernel_ridge_is_the_mean_of_a_process(seed, alpha):
    X, y, Q = problem(seed)
    for kernel in (2.0 * RBF(0.8), Matern(1.0), Polynomial(2)):
        ridge = KernelRidge(kernel, alpha=alpha).fit(X, y)
        process = GaussianProcessRegressor(kernel, noise_variance=alpha, optimizer=None).fit(X, y)
        np.testing.assert_allclose(ridge.predict(Q), process.predict(Q), rtol=1e-8, atol=1e-10)


@given(seeds, st.floats(0.05, 10.0))
@few
def test_map_of_bayesian_linear_regression_is_ridge(seed, noise):
    X, y, Q = problem(seed)
    basis = PolynomialBasis(2)
    bayes = BayesianLinearRegression(basis, noise_variance=noise).fit(X, y)
    ridge = Ridge(noise, basis=basis, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(bayes.weights_mean_, ridge.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(bayes.predict(Q), ridge.predict(Q), rtol=1e-8, atol=1e-10)


@given(seeds, st.floats(0.05, 10.0))
@few
def test_bayesian_linear_regression_is_a_process_with_the_linear_kernel(seed, noise):
    X, y, Q = problem(seed)
    bayes = BayesianLinearRegression(PolynomialBasis(1, intercept=False), noise_variance=noise).fit(X, y)
    process = GaussianProcessRegressor(Linear(), noise_variance=noise, optimizer=None).fit(X, y)
    for a, b in zip(bayes.predict(Q, return_std=True), process.predict(Q, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    assert bayes.log_marginal_likelihood_value_ == pytest.approx(
        process.log_marginal_likelihood_value_, rel=1e-8
    )


def test_a_general_prior_is_a_process_with_an_affine_kernel_and_a_mean():
    X, y, Q = problem(0)
    S0, m0 = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([0.3, -0.7])
    bayes = BayesianLinearRegression(
        PolynomialBasis(1, intercept=False), prior_mean=m0, prior_covariance=S0, noise_variance=0.2
    ).fit(X, y)
    process = GaussianProcessRegressor(
        Affine(S0), mean=lambda P: P @ m0, noise_variance=0.2, optimizer=None
    ).fit(X, y)
    for a, b in zip(bayes.predict(Q, return_cov=True), process.predict(Q, return_cov=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "basis",
    [
        PolynomialBasis(3),
        GaussianBasis([[0.0, 0.0], [1.0, 1.0]], 0.7, True),
        SigmoidBasis([[1.0, 2.0]], [0.1]),
    ],
    ids=lambda b: type(b).__name__,
)
def test_weight_space_is_function_space(basis):
    X, y, Q = problem(1)
    bayes = BayesianLinearRegression(basis, prior_covariance=1.7, noise_variance=0.3).fit(X, y)
    kernel = 1.7 * BasisFunctions(basis)
    process = GaussianProcessRegressor(kernel, noise_variance=0.3, optimizer=None).fit(X, y)
    white = GaussianProcessRegressor(kernel + White(0.3), noise_variance=0.0, optimizer=None).fit(X, y)
    np.testing.assert_allclose(bayes.predict(Q), process.predict(Q), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(bayes.predict(Q), white.predict(Q), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        bayes.predict(Q, return_std=True, include_noise=True)[1],
        white.predict(Q, return_std=True, include_noise=True)[1],
        rtol=1e-6,
    )


@given(seeds, st.floats(0.2, 2.0))
@few
def test_nadaraya_watson_is_local_regression_of_degree_zero(seed, h):
    X, y, Q = problem(seed)
    for kernel in (RBF(h), Matern(h), RBF([h, 2.0 * h])):
        a = NadarayaWatson(kernel, optimizer=None).fit(X, y).predict(Q)
        b = LocallyWeightedRegression(kernel, degree=0).fit(X, y).predict(Q)
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_many_gaussian_features_tend_to_the_rbf():
    """Features of width w spread densely give an RBF kernel of length scale sqrt(2) w."""
    w, centers = 0.5, np.linspace(-8.0, 8.0, 801)[:, None]
    spacing = 0.02
    x = np.linspace(-1.0, 1.0, 9)[:, None]
    K = spacing / (np.sqrt(np.pi) * w) * BasisFunctions(GaussianBasis(centers, w))
    np.testing.assert_allclose(K(x), RBF(np.sqrt(2.0) * w)(x), atol=1e-9)


def test_the_ellipse_becomes_linear():
    """The ellipse x'Ax = 1 of the plane is a plane in the features of (x'z)^2, so a linear model meets it."""
    X, _, Q = problem(0, n=30)

    def ellipse(P):
        return P[:, 0] ** 2 / 2.25 + P[:, 0] * P[:, 1] / 3.0 + P[:, 1] ** 2 / 0.5 - 1.0

    curved = KernelRidge(Polynomial(2, 0.0) + 1.0, alpha=1e-9).fit(X, ellipse(X))
    np.testing.assert_allclose(curved.predict(Q), ellipse(Q), atol=1e-6)
    straight = KernelRidge(Linear() + 1.0, alpha=1e-9).fit(X, ellipse(X))
    assert np.abs(straight.predict(Q) - ellipse(Q)).max() > 1.0
