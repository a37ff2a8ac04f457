"""Bayesian linear regression: textbook formulas, sequential updates, evidence, learned features."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from gp_core import BayesianLinearRegression, Gaussian, GaussianProcessRegressor
from gp_core.basis import GaussianBasis, PolynomialBasis, SigmoidBasis
from gp_core.kernels import BasisFunctions

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (25, 2))
Y = X @ [1.0, -2.0] + 0.5 + 0.3 * RNG.normal(size=25)
Y2 = np.stack([Y, X[:, 0] ** 2], axis=1)
Q = RNG.uniform(-2.0, 2.0, (6, 2))
S0 = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 0.5]])
M0 = np.array([0.3, -0.2, 0.1])
PRIOR = {"prior_mean": M0, "prior_covariance": S0, "noise_variance": 0.2}
STEP = 1e-6


def test_posterior_by_the_formulas_of_the_lectures():
    Phi = np.hstack([np.ones((25, 1)), X])
    S = np.linalg.inv(np.linalg.inv(S0) + Phi.T @ Phi / 0.2)
    m = S @ (np.linalg.solve(S0, M0) + Phi.T @ Y / 0.2)
    model = BayesianLinearRegression(**PRIOR).fit(X, Y)
    np.testing.assert_allclose(model.weights_mean_, m, rtol=1e-9)
    np.testing.assert_allclose(model.weights_covariance_, S, rtol=1e-8, atol=1e-12)
    phi = np.hstack([np.ones((6, 1)), Q])
    mean, std = model.predict(Q, return_std=True)
    np.testing.assert_allclose(mean, phi @ m, rtol=1e-9)
    np.testing.assert_allclose(std**2, np.einsum("mf,fg,mg->m", phi, S, phi), rtol=1e-8)
    noisy = model.predict(Q, return_std=True, include_noise=True)[1]
    np.testing.assert_allclose(noisy**2, std**2 + 0.2, rtol=1e-9)
    np.testing.assert_allclose(model.predict(Q, return_cov=True)[1], phi @ S @ phi.T, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("noise", [None, "points", "full"])
def test_evidence_is_the_density_of_the_targets(noise):
    known = {
        None: None,
        "points": np.linspace(0.0, 0.5, 25),
        "full": 0.3 * np.exp(-np.abs(X[:, :1] - X[:, 0])),
    }
    Phi = np.hstack([np.ones((25, 1)), X])
    R = 0.2 * np.eye(25)
    if noise:
        R += np.diag(known[noise]) if noise == "points" else known[noise]
    model = BayesianLinearRegression(**PRIOR).fit(X, Y, known[noise])
    expected = multivariate_normal(Phi @ M0, Phi @ S0 @ Phi.T + R).logpdf(Y)
    assert model.log_marginal_likelihood_value_ == pytest.approx(expected, rel=1e-9)
    S = np.linalg.inv(np.linalg.inv(S0) + Phi.T @ np.linalg.solve(R, Phi))
    np.testing.assert_allclose(model.weights_covariance_, S, rtol=1e-7, atol=1e-12)


@given(st.lists(st.integers(1, 24), min_size=1, max_size=5), st.booleans())
@settings(max_examples=25, deadline=None)
def test_sequential_updates_are_the_batch(cuts, several):
    y = Y2 if several else Y
    batch = BayesianLinearRegression(**PRIOR).fit(X, y)
    sequential = BayesianLinearRegression(**PRIOR)
    edges = [0, *sorted(set(cuts)), 25]
    for start, stop in pairwise(edges):
        sequential.partial_fit(X[start:stop], y[start:stop])
    np.testing.assert_allclose(sequential.weights_mean_, batch.weights_mean_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        sequential.weights_covariance_, batch.weights_covariance_, rtol=1e-8, atol=1e-12
    )
    assert sequential.log_marginal_likelihood_value_ == pytest.approx(batch.log_marginal_likelihood_value_)


def test_several_outputs_share_the_covariance():
    model = BayesianLinearRegression(**PRIOR).fit(X, Y2)
    for o in range(2):
        one = BayesianLinearRegression(**PRIOR).fit(X, Y2[:, o])
        np.testing.assert_allclose(model.weights_mean_[:, o], one.weights_mean_, rtol=1e-9)
    assert model.predict(Q, return_std=True)[1].shape == (6, 2)
    assert model.sample_y(Q, 4, random_state=0).shape == (6, 2, 4)


def test_a_singular_prior_is_as_good_as_any():
    """No variance for the second slope: it stays at its prior mean."""
    model = BayesianLinearRegression(prior_mean=M0, prior_covariance=[1.0, 1.0, 0.0], noise_variance=0.2).fit(
        X, Y
    )
    assert model.weights_mean_[2] == pytest.approx(M0[2])
    rank_one = np.outer(M0, M0)
    model = BayesianLinearRegression(prior_covariance=rank_one, noise_variance=0.2).fit(X, Y)
    assert np.linalg.matrix_rank(model.weights_covariance_, tol=1e-10) == 1


def test_samples_have_the_posterior_moments():
    model = BayesianLinearRegression(**PRIOR).fit(X[:5], Y[:5])
    draws = model.sample_y(Q, 20000, random_state=0)
    mean, covariance = model.predict(Q, return_cov=True)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.02)
    np.testing.assert_allclose(np.cov(draws), covariance, atol=0.03)


BASES = [
    PolynomialBasis(2),
    GaussianBasis([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.5]], 0.8, intercept=True, centers_bounds=(-3.0, 3.0)),
    SigmoidBasis([[1.0, 0.5], [-0.5, 1.0]], (0.1, 0.2), True, (-9.0, 9.0), (-9.0, 9.0)),
]


@pytest.mark.parametrize("basis", BASES, ids=lambda b: type(b).__name__)
@pytest.mark.parametrize("y", [Y, Y2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("noise", [None, "points", "counted points", "full"])
def test_gradient_of_the_evidence_against_differences(basis, y, noise):
    known = {
        None: None,
        "points": np.linspace(0.1, 0.5, 25),
        "counted points": np.linspace(0.1, 0.5, 25),
        "full": 0.3 * np.exp(-np.abs(X[:, :1] - X[:, 0])),
    }
    model = BayesianLinearRegression(basis, prior_mean=0.2, noise_variance=0.3)
    start = model._hyperparameters()
    targets = y.reshape(25, -1)
    counts = np.linspace(0.5, 3.0, 25) if noise == "counted points" else np.ones(25)

    def value(theta):
        return model._evidence(start.with_theta(theta), X, targets, known[noise], counts)

    theta = start.theta + 0.1
    numeric = [
        (value(theta + STEP * e)[0] - value(theta - STEP * e)[0]) / (2 * STEP) for e in np.eye(len(theta))
    ]
    np.testing.assert_allclose(value(theta)[1], numeric, rtol=1e-5, atol=1e-5)


def test_learned_features_find_where_the_bumps_are():
    """Type-2 maximum likelihood moves the centres of the features to the structure of the data."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-4.0, 4.0, (80, 1))
    y = 2.0 * np.exp(-0.5 * (x[:, 0] - 2.0) ** 2 / 0.25) - np.exp(-0.5 * (x[:, 0] + 1.0) ** 2 / 0.25)
    y += 0.05 * rng.normal(size=80)
    basis = GaussianBasis([[-0.5], [1.5]], 1.0, centers_bounds=(-4.0, 4.0))
    given = BayesianLinearRegression(basis, noise_variance=0.1).fit(x, y)
    learned = BayesianLinearRegression(basis, noise_variance=0.1, optimizer="lbfgs").fit(x, y)
    assert learned.log_marginal_likelihood_value_ > given.log_marginal_likelihood_value_ + 10.0
    np.testing.assert_allclose(np.sort(np.ravel(learned.basis_.centers)), [-1.0, 2.0], atol=0.1)
    assert learned.basis_.width == pytest.approx(0.5, abs=0.05)
    assert learned.noise_variance_ == pytest.approx(0.0025, rel=0.5)


def test_learning_in_weight_space_is_learning_in_function_space():
    """The same evidence, seen as that of a GP with the basis-function kernel."""
    basis = GaussianBasis([[0.0, 1.0], [1.0, 0.0]], 0.8, intercept=True, centers_bounds=(-3.0, 3.0))
    weights = BayesianLinearRegression(basis, noise_variance=0.3, optimizer="lbfgs").fit(X, Y)
    process = GaussianProcessRegressor(
        1.0 * BasisFunctions(basis), noise_variance=0.3, noise_variance_bounds=(1e-5, 1e5)
    ).fit(X, Y)
    assert weights.log_marginal_likelihood_value_ == pytest.approx(
        process.log_marginal_likelihood_value_, abs=1e-3
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BayesianLinearRegression(prior_mean=[1.0]).fit(X, Y), "prior_mean must be"),
        (lambda: BayesianLinearRegression(prior_covariance=np.eye(2)).fit(X, Y), "prior_covariance"),
        (lambda: BayesianLinearRegression(prior_covariance=-np.eye(3)).fit(X, Y), "semi-definite"),
        (lambda: BayesianLinearRegression(noise_variance=0.0).fit(X, Y), "noise_variance must be > 0"),
        (lambda: BayesianLinearRegression("linear").fit(X, Y), "gp_core Basis"),
        (lambda: BayesianLinearRegression(optimizer="em").fit(X, Y), "lbfgs"),
        (lambda: BayesianLinearRegression().fit(X, Y).partial_fit(X, Y2), "to go on"),
        (lambda: BayesianLinearRegression().fit(X, Y).partial_fit(X, np.full(25, np.nan)), "NaN"),
        (
            lambda: BayesianLinearRegression().fit(X, Y).predict(Q, return_std=True, return_cov=True),
            "not both",
        ),
        (lambda: BayesianLinearRegression().fit(X, Y, -np.ones(25)), "negative variance"),
        (lambda: BayesianLinearRegression().fit(X, Y, -2.0 * np.eye(25)), "noise_covariance is not positive"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_covariance_has_the_shape_of_the_gaussian_process():
    Z = X - X.mean(axis=0)
    for targets in (Y, Y2):
        linear = BayesianLinearRegression(noise_variance=0.2).fit(Z, targets)
        process = GaussianProcessRegressor(
            BasisFunctions(PolynomialBasis(1)), noise_variance=0.2, optimizer=None
        ).fit(Z, targets)
        ours, theirs = (model.predict(Q, return_cov=True)[1] for model in (linear, process))
        assert ours.shape == theirs.shape == (6, 6, *targets.shape[1:])
        np.testing.assert_allclose(ours, theirs, atol=1e-8)


def test_functions_before_any_data_come_from_the_prior():
    model = BayesianLinearRegression(**PRIOR)
    draws = model.sample_y(Q, 40_000, random_state=0)
    phi = np.hstack([np.ones((6, 1)), Q])
    np.testing.assert_allclose(draws.mean(axis=1), phi @ M0, atol=0.05)
    np.testing.assert_allclose(np.cov(draws), phi @ S0 @ phi.T, atol=0.25)
    assert not hasattr(model, "weights_mean_")
    two = BayesianLinearRegression(prior_mean=np.zeros((3, 2))).sample_y(Q, 5, random_state=0)
    assert two.shape == (6, 2, 5)


def test_the_weight_posterior_is_an_object_with_draws():
    posterior = BayesianLinearRegression(**PRIOR).fit(X, Y).weight_posterior_
    assert isinstance(posterior, Gaussian)
    draws = posterior.sample(40_000, np.random.default_rng(0)).T
    assert draws.shape == (3, 40_000)
    scale = np.sqrt(np.diagonal(posterior.covariance))
    np.testing.assert_allclose(draws.mean(axis=1), posterior.mean, atol=0.05 * scale.max())
    np.testing.assert_allclose(np.cov(draws), posterior.covariance, atol=0.05 * scale.max() ** 2)
    model = BayesianLinearRegression().fit(X, Y2)
    first, second = model.weight_posterior_
    np.testing.assert_array_equal(np.stack([first.mean, second.mean], axis=1), model.weights_mean_)
    np.testing.assert_array_equal(second.covariance, model.weights_covariance_)
    assert not hasattr(BayesianLinearRegression(), "weight_posterior_")
