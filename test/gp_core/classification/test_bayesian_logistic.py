"""Bayesian logistic regression: the Gaussian process with the same kernel, MAP, the predictive integral."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import expit, ndtr
from sklearn.datasets import load_iris

from gp_core.basis import GaussianBasis, PolynomialBasis, SigmoidBasis
from gp_core.classification import BayesianLogisticRegression, GaussianProcessClassifier, LogisticRegression
from gp_core.classification.links import LINKS
from gp_core.classification.weights import feature_weights, laplace_weights
from gp_core.kernels import Constant, Linear

both_links = pytest.mark.parametrize("link", ["logit", "probit"])


def data(n=50, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (X @ [1.5, -1.0] + 0.5 + rng.logistic(size=n) > 0).astype(int)


@both_links
@pytest.mark.parametrize("variance", [0.3, 10.0])
def test_it_is_the_gaussian_process_with_a_linear_kernel(link, variance):
    X, y = data()
    queries = np.random.default_rng(1).normal(scale=3, size=(30, 2))
    weights = BayesianLogisticRegression(prior_covariance=variance, link=link).fit(X, y)
    process = GaussianProcessClassifier(
        variance * Linear() + Constant(variance), link=link, inference="laplace", optimizer=None
    ).fit(X, y)
    assert weights.log_marginal_likelihood_value_ == pytest.approx(
        process.log_marginal_likelihood_value_, abs=1e-8
    )
    for ours, theirs in zip(
        weights.predict_latent(queries, return_std=True),
        process.predict_latent(queries, return_std=True),
        strict=True,
    ):
        assert_allclose(ours, theirs, atol=1e-6)
    assert_allclose(weights.predict_proba(queries), process.predict_proba(queries), atol=1e-8)


def test_the_mode_is_penalised_logistic_regression():
    X, y = data()
    bayesian = BayesianLogisticRegression(PolynomialBasis(1, intercept=False), prior_covariance=0.5).fit(X, y)
    penalised = LogisticRegression(2.0, fit_intercept=False).fit(X, y)
    assert_allclose(bayesian.weights_mean_, penalised.coef_[0], atol=1e-6)
    # The covariance is the inverse of the penalised information.
    p = penalised.predict_proba(X)[:, 1]
    information = (X.T * (p * (1 - p))) @ X + 2.0 * np.eye(2)
    assert_allclose(bayesian.weights_covariance_, np.linalg.inv(information), rtol=1e-6)


@both_links
def test_the_predictive_probability_is_the_integral(link):
    X, y = data()
    model = BayesianLogisticRegression(link=link).fit(X, y)
    queries = np.array([[0.0, 0.0], [4.0, -2.0], [-30.0, 10.0]])
    mean, std = model.predict_latent(queries, return_std=True)
    squash = {"logit": expit, "probit": ndtr}[link]
    expected = [
        quad(
            lambda t, m=m, s=s: squash(m + s * t) * np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi),
            -12,
            12,
            limit=200,
        )[0]
        for m, s in zip(mean, std, strict=True)
    ]
    assert_allclose(model.predict_proba(queries)[:, 1], expected, atol=1e-8)
    sampled = model.predict_proba(queries, method="sampling", n_samples=50_000, random_state=0)
    assert_allclose(sampled[:, 1], expected, atol=0.01)


def test_averaging_over_the_weights_is_less_certain_than_the_mode():
    X, y = data(20)
    model = BayesianLogisticRegression(prior_covariance=10.0).fit(X, y)
    far = 50.0 * np.random.default_rng(0).normal(size=(20, 2))
    averaged = model.predict_proba(far)[:, 1]
    plugged = expit(model.predict_latent(far))
    assert (np.abs(averaged - 0.5) < np.abs(plugged - 0.5)).all()


@both_links
def test_the_evidence_slope_and_its_maximum(link):
    X, y = data()
    prior = np.diag([4.0, 1.0, 0.5])

    def evidence(log_scale):
        scaled = np.exp(log_scale) * prior
        model = BayesianLogisticRegression(prior_mean=[0.1, 0.0, -0.3], prior_covariance=scaled, link=link)
        return model.fit(X, y).posteriors_[0]

    for at in [-1.0, 0.7]:
        expected = (evidence(at + 1e-5).log_evidence - evidence(at - 1e-5).log_evidence) / 2e-5
        assert evidence(at).slope == pytest.approx(expected, rel=1e-5, abs=1e-7)
    learned = BayesianLogisticRegression(
        prior_mean=[0.1, 0.0, -0.3], prior_covariance=prior, link=link, optimizer="lbfgs"
    ).fit(X, y)
    best = np.log(learned.prior_scale_)
    assert learned.log_marginal_likelihood_value_ == pytest.approx(evidence(best).log_evidence, abs=1e-9)
    assert all(evidence(best + d).log_evidence < evidence(best).log_evidence for d in (-0.2, 0.2))


def test_a_singular_prior_pins_a_weight():
    X, y = data()
    model = BayesianLogisticRegression(prior_mean=[0.0, 0.7, 0.0], prior_covariance=[1.0, 0.0, 1.0]).fit(X, y)
    assert model.weights_mean_[1] == pytest.approx(0.7, abs=1e-12)
    assert_allclose(model.weights_covariance_[1], 0.0, atol=1e-15)


def test_separable_classes_have_a_proper_posterior():
    X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array(["a", "a", "b", "b"])
    model = BayesianLogisticRegression(prior_covariance=1e4).fit(X, y)
    assert np.isfinite(model.weights_mean_).all()
    assert model.score(X, y) == 1.0


def test_several_classes_one_against_the_rest():
    X, y = load_iris(return_X_y=True)
    model = BayesianLogisticRegression(prior_covariance=10.0, optimizer="lbfgs").fit(X, y)
    assert model.weights_mean_.shape == (3, 5)
    assert model.weights_covariance_.shape == (3, 5, 5)
    assert model.prior_scale_.shape == (3,)
    assert model.predict_latent(X[:4]).shape == (4, 3)
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-12)
    assert model.score(X, y) > 0.93


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"link": "loglog"}, "link must be one of"),
        ({"optimizer": "adam"}, "optimizer must be"),
        ({"prior_mean": [0.0, 1.0]}, "prior_mean must be a number or have shape"),
        ({"prior_covariance": -1.0}, "negative variance"),
        ({"prior_covariance": 0.0}, "positive semi-definite and not 0"),
        ({"prior_covariance": [[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]}, "positive semi-definite"),
        ({"max_iter": 0}, "max_iter must be >= 1"),
    ],
)
def test_wrong_options_are_named(options, message):
    X, y = data(10)
    with pytest.raises(ValueError, match=message):
        BayesianLogisticRegression(**options).fit(X, y)


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize(
    "basis",
    [
        GaussianBasis([[-1.0], [0.5], [2.0]], 0.8, centers_bounds=(-5.0, 5.0)),
        SigmoidBasis([[1.0], [-0.5]], [0.2, 0.1], weights_bounds=(-9.0, 9.0), biases_bounds=(-9.0, 9.0)),
    ],
)
def test_the_gradient_by_learned_features_is_a_finite_difference(link, basis):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 1))
    y = np.where(X[:, 0] + 0.4 * rng.normal(size=30) > 0.2, 1.0, -1.0)
    size = basis(X).shape[1]

    def evidence(trial):
        Phi = trial(X)
        return Phi, laplace_weights(Phi, y, LINKS[link], np.full(size, 0.3), 1.2 * np.eye(size))

    Phi, q = evidence(basis)
    gradient = basis.theta_vjp(X, feature_weights(Phi, y, LINKS[link], q))
    step = 1e-5
    numeric = [
        (
            evidence(basis.with_theta(basis.theta + step * e))[1].log_evidence
            - evidence(basis.with_theta(basis.theta - step * e))[1].log_evidence
        )
        / (2.0 * step)
        for e in np.eye(basis.n_theta)
    ]
    assert basis.n_theta > 0
    np.testing.assert_allclose(gradient, numeric, atol=1e-6)


def test_type_2_maximum_likelihood_moves_the_features_to_where_the_labels_change():
    rng = np.random.default_rng(1)
    X = rng.uniform(-4.0, 4.0, (200, 1))
    y = np.abs(X[:, 0] - 1.5) < 1.0
    start = GaussianBasis([[0.0]], 2.0, intercept=True, centers_bounds=(-5.0, 5.0))
    fixed = BayesianLogisticRegression(start, prior_covariance=10.0).fit(X, y)
    learned = BayesianLogisticRegression(start, prior_covariance=10.0, optimizer="lbfgs").fit(X, y)
    assert learned.log_marginal_likelihood_value_ > fixed.log_marginal_likelihood_value_ + 10.0
    assert learned.score(X, y) > 0.95
    assert np.ravel(learned.basis_.centers)[0] == pytest.approx(1.5, abs=0.2)
