"""The sparse classifier: the exact variational one where every point is an inducing point, and near it elsewhere."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_moons

from gp_core import GaussianProcessClassifier, SparseGaussianProcessClassifier
from gp_core.classification.gp_binary import LatentPrior
from gp_core.classification.links import LINKS
from gp_core.classification.sparse_gp import SparseModel
from gp_core.kernels import RBF, EditDistance, Matern
from gp_core.regression import ConstantMean, LinearMean
from gp_core.regression.means import as_mean

X, Y = make_moons(80, noise=0.25, random_state=0)
SIGNS = np.where(Y == 1, 1.0, -1.0)
Q = np.random.default_rng(1).uniform(-2.0, 3.0, (30, 2))


@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize("mean", [None, 0.8])
def test_with_all_points_it_is_the_exact_variational_posterior(link, mean):
    options = {"link": link, "mean": mean, "optimizer": None}
    exact = GaussianProcessClassifier(3.0 * RBF(0.7), inference="variational", **options).fit(X, Y)
    sparse = SparseGaussianProcessClassifier(3.0 * RBF(0.7), n_inducing=80, **options).fit(X, Y)
    assert sparse.lower_bound_ == pytest.approx(exact.log_marginal_likelihood_value_, abs=1e-3)
    for ours, theirs in zip(
        sparse.predict_latent(Q, return_std=True), exact.predict_latent(Q, return_std=True), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=5e-3)
    np.testing.assert_allclose(sparse.predict_proba(Q), exact.predict_proba(Q), atol=1e-3)


def test_fewer_points_bound_the_evidence_from_below_and_more_come_closer():
    exact = GaussianProcessClassifier(3.0 * RBF(0.7), inference="variational", optimizer=None).fit(X, Y)
    values = [
        SparseGaussianProcessClassifier(3.0 * RBF(0.7), n_inducing=n, optimizer=None, random_state=0)
        .fit(X, Y)
        .lower_bound_
        for n in (3, 10, 30)
    ]
    assert values[0] < values[1] < values[2] <= exact.log_marginal_likelihood_value_ + 1e-3
    assert values[2] == pytest.approx(exact.log_marginal_likelihood_value_, abs=1.0)


@pytest.mark.parametrize("kernel", [2.0 * RBF([0.7, 1.2]), 2.0 * Matern(0.9) + 0.5 * RBF(2.0)])
@pytest.mark.parametrize("mean", [None, ConstantMean(0.3), LinearMean([0.2, -0.1], 0.1)])
@pytest.mark.parametrize("link", ["logit", "probit"])
def test_the_gradient_of_the_bound_is_a_finite_difference(kernel, mean, link):
    prior = LatentPrior(kernel, as_mean(mean))
    Z = X[::7]

    def best(theta):
        model = SparseModel(prior.with_theta(theta), Z)
        return model, model.fit(X, SIGNS, LINKS[link], None, tol=1e-11, max_iter=300)

    model, bound = best(prior.theta)
    gradient = model.gradient(X, SIGNS, LINKS[link], bound.q)
    step = 1e-4
    numeric = [
        (best(prior.theta + step * e)[1].value - best(prior.theta - step * e)[1].value) / (2.0 * step)
        for e in np.eye(prior.n_theta)
    ]
    np.testing.assert_allclose(gradient, numeric, atol=1e-4)


def test_it_learns_what_the_exact_one_learns():
    rng = np.random.default_rng(3)
    points = rng.uniform(0.0, 6.0, (600, 2))
    f = 3.0 * np.sin(points[:, 0]) * np.cos(0.7 * points[:, 1])
    labels = rng.uniform(size=600) < 1.0 / (1.0 + np.exp(-f))
    exact = GaussianProcessClassifier(1.0 * RBF(1.0), inference="variational", link="logit").fit(
        points, labels
    )
    sparse = SparseGaussianProcessClassifier(1.0 * RBF(1.0), n_inducing=60, link="logit", random_state=0)
    sparse.fit(points, labels)
    np.testing.assert_allclose(sparse.kernel_.theta, exact.kernel_.theta, atol=0.15)
    queries = rng.uniform(0.0, 6.0, (500, 2))
    gap = np.abs(sparse.predict_proba(queries) - exact.predict_proba(queries))
    assert gap.mean() < 0.01
    assert gap.max() < 0.06


def test_many_points_learned_by_a_part_of_them():
    rng = np.random.default_rng(4)
    points = rng.uniform(0.0, 6.0, (20_000, 2)) * [1.0, 1e3]  # units of their own
    p = 1.0 / (1.0 + np.exp(-3.0 * np.sin(points[:, 0]) * np.cos(0.7e-3 * points[:, 1])))
    model = SparseGaussianProcessClassifier(n_inducing=40, n_learning=1000, random_state=0)
    model.fit(points, rng.uniform(size=20_000) < p)
    assert np.abs(model.predict_proba(points)[:, 1] - p).mean() < 0.03


def test_several_classes_and_objects():
    iris, labels = load_iris(return_X_y=True)
    model = SparseGaussianProcessClassifier(n_inducing=25, random_state=0).fit(iris, labels)
    assert model.score(iris, labels) > 0.95
    assert len(model.kernel_) == len(model.mean_) == 3
    np.testing.assert_allclose(model.predict_proba(iris).sum(axis=1), 1.0)
    words = ["kitten", "mitten", "sitting", "fitting", "house", "mouse", "horse", "hose"]
    kinds = ["ing"] * 4 + ["se"] * 4
    text = SparseGaussianProcessClassifier(4.0 * EditDistance(), n_inducing=8, optimizer=None).fit(
        words, kinds
    )
    assert list(text.predict(["bitten", "morse"])) == ["ing", "se"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_inducing": 0}, "n_inducing must be >= 1"),
        ({"n_learning": 0}, "n_learning must be >= 1"),
        ({"link": "cloglog"}, "link must be one of"),
        ({"optimizer": "adam"}, 'optimizer must be "lbfgs" or None'),
        ({"kernel": "rbf"}, "gp_core kernel"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        SparseGaussianProcessClassifier(**options).fit(X, Y)
