"""Weights as repeated points: a weight of 2 is the point twice, a weight of 0 is no point."""

import numpy as np
import pytest

from gp_core import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    KernelRidge,
    LocallyWeightedRegression,
    LogisticRegression,
    NadarayaWatson,
    Ridge,
)
from gp_core.basis import GaussianBasis, PolynomialBasis
from gp_core.kernels import RBF, EditDistance

MODELS = [
    Ridge(0.3),
    Ridge(0.3, solver="dual", fit_intercept=False),
    Ridge(0.1, basis=PolynomialBasis(2)),
    KernelRidge(RBF(0.7), alpha=0.2),
    BayesianLinearRegression(),
    NadarayaWatson(),
    NadarayaWatson(RBF(0.3), optimizer=None),
    LocallyWeightedRegression(),
    LocallyWeightedRegression(degree=2, span=0.4, robust_iterations=2),
    LocallyWeightedRegression(RBF(0.5), degree=1),
]


def data(outputs, n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    Y = np.stack([np.sin(2.0 * X[:, 0]), X[:, 1] ** 2], axis=1) + 0.1 * rng.normal(size=(n, 2))
    Y[3] += 4.0
    return X, Y[:, 0] if outputs == 1 else Y, rng.integers(0, 4, n)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_weights_are_repeated_points(model, outputs):
    X, Y, counts = data(outputs)
    Q = np.random.default_rng(1).uniform(-2.0, 2.0, (15, 2))
    repeated = model.fit(np.repeat(X, counts, axis=0), np.repeat(Y, counts, axis=0)).predict(Q)
    weighted = model.fit(X, Y, sample_weight=counts.astype(float)).predict(Q)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-6, atol=1e-7)
    assert np.abs(model.fit(X, Y).predict(Q) - weighted).max() > 1e-3  # they make a difference


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_unit_weights_change_nothing(model):
    X, Y, _ = data(1)
    plain = model.fit(X, Y).predict(X)
    np.testing.assert_allclose(model.fit(X, Y, sample_weight=np.ones(len(Y))).predict(X), plain, atol=1e-6)


def test_one_input_on_a_line():
    X, Y, counts = data(1)
    model = LocallyWeightedRegression(span=0.5, robust_iterations=1)
    repeated = model.fit(np.repeat(X[:, :1], counts, axis=0), np.repeat(Y, counts)).predict(X[:, :1])
    weighted = model.fit(X[:, :1], Y, sample_weight=counts).predict(X[:, :1])
    np.testing.assert_allclose(weighted, repeated, rtol=1e-6, atol=1e-7)


def test_the_density_and_the_error_of_left_out_points():
    X, Y, counts = data(1)
    repeated = NadarayaWatson().fit(np.repeat(X, counts, axis=0), np.repeat(Y, counts))
    weighted = NadarayaWatson().fit(X, Y, sample_weight=counts)
    assert weighted.loo_error_ == pytest.approx(repeated.loo_error_, rel=1e-6)
    np.testing.assert_allclose(weighted.target_bandwidth_, repeated.target_bandwidth_, rtol=1e-6)
    t = np.linspace(-2.0, 2.0, 5)
    np.testing.assert_allclose(
        weighted.conditional_density(X, t), repeated.conditional_density(X, t), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda k: KernelRidge(k, alpha=0.1),
        lambda k: NadarayaWatson(k, optimizer=None),
        lambda k: LocallyWeightedRegression(k, degree=0),
    ],
    ids=["kernel ridge", "nadaraya-watson", "loess 0"],
)
def test_weighted_strings(make):
    words, y = ["a", "ab", "abc", "b"], np.array([1.0, 2.0, 3.0, 1.5])
    weighted = make(EditDistance(0.5)).fit(words, y, sample_weight=[1.0, 2.0, 0.0, 1.0]).predict(["ac", "bb"])
    repeated = make(EditDistance(0.5)).fit(["a", "ab", "ab", "b"], [1.0, 2.0, 2.0, 1.5]).predict(["ac", "bb"])
    np.testing.assert_allclose(weighted, repeated, rtol=1e-6)


@pytest.mark.parametrize("model", [*MODELS, LogisticRegression(), BayesianLogisticRegression()], ids=repr)
@pytest.mark.parametrize(
    ("weights", "message"),
    [(np.full(40, -1.0), "negative"), (np.zeros(40), "zero for all"), (np.ones(3), "sample_weight")],
    ids=["negative", "zero", "short"],
)
def test_bad_weights(model, weights, message):
    X, Y, _ = data(1)
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y > 0.0 if hasattr(model, "predict_proba") else Y, sample_weight=weights)


def test_the_evidence_of_a_bayesian_model_counts_points():
    X, Y, counts = data(2)
    noise = np.random.default_rng(2).uniform(0.1, 0.5, len(Y))
    again = {"noise_covariance": np.repeat(noise, counts)}
    repeated = BayesianLinearRegression().fit(
        np.repeat(X, counts, axis=0), np.repeat(Y, counts, axis=0), **again
    )
    weighted = BayesianLinearRegression().fit(X, Y, noise_covariance=noise, sample_weight=counts)
    assert weighted.log_marginal_likelihood_value_ == pytest.approx(repeated.log_marginal_likelihood_value_)
    np.testing.assert_allclose(weighted.weights_covariance_, repeated.weights_covariance_)
    halves = BayesianLinearRegression()
    for rows in (slice(0, 20), slice(20, 40)):
        halves.partial_fit(X[rows], Y[rows], noise[rows], sample_weight=counts[rows])
    np.testing.assert_allclose(halves.weights_mean_, weighted.weights_mean_)
    with pytest.raises(ValueError, match="independent noise"):
        BayesianLinearRegression().fit(X, Y, noise_covariance=np.eye(40), sample_weight=counts + 1)


def test_the_noise_is_learned_from_all_that_counts():
    X, Y, counts = data(1)
    model = BayesianLinearRegression(optimizer="lbfgs")
    repeated = model.fit(np.repeat(X, counts, axis=0), np.repeat(Y, counts)).noise_variance_
    assert model.fit(X, Y, sample_weight=counts).noise_variance_ == pytest.approx(repeated, rel=1e-4)


@pytest.mark.parametrize("optimizer", [None, "lbfgs"])
def test_weights_in_bayesian_logistic_regression_are_repeated_points(optimizer):
    X, Y, counts = data(1)
    labels = np.digitize(Y, [-0.3, 0.4])  # three classes
    basis = GaussianBasis([[-1.0, 0.0], [1.0, 0.0]], width=1.0)
    model = BayesianLogisticRegression(basis, optimizer=optimizer)
    repeated = model.fit(np.repeat(X, counts, axis=0), np.repeat(labels, counts))
    probabilities, evidence = repeated.predict_proba(X), repeated.log_marginal_likelihood_value_
    weighted = model.fit(X, labels, sample_weight=counts)
    np.testing.assert_allclose(weighted.predict_proba(X), probabilities, atol=1e-4)
    assert weighted.log_marginal_likelihood_value_ == pytest.approx(evidence, rel=1e-6)
