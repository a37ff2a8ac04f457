"""Kernel density, kernel PCA and the support vector machine against scikit-learn, scipy and statsmodels."""

import numpy as np
import pytest
import sklearn.decomposition
import sklearn.neighbors
from scipy.integrate import quad
from scipy.stats import gaussian_kde, kstest
from sklearn.datasets import load_iris, make_moons
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks
from statsmodels.nonparametric.kernel_density import KDEMultivariate

from gp_core import KernelDensity, KernelPCA, SupportVectorClassifier
from gp_core.kernels import (
    RBF,
    EditDistance,
    Epanechnikov,
    Exponential,
    Linear,
    Matern,
    RationalQuadratic,
    SetIntersection,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)) * [1.0, 3.0]
Q = RNG.normal(size=(15, 2)) * [1.0, 3.0]


@parametrize_with_checks([KernelDensity(), KernelPCA(2), SupportVectorClassifier(tol=1e-9)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("kernel", "name"), [(RBF(0.7), "gaussian"), (Exponential(0.7), "exponential")])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_density_is_scikit_learns(kernel, name, d):
    points, queries = RNG.normal(size=(40, d)), RNG.normal(size=(10, d))
    theirs = sklearn.neighbors.KernelDensity(bandwidth=0.7, kernel=name).fit(points)
    ours = KernelDensity(kernel).fit(points)
    np.testing.assert_allclose(ours.score_samples(queries), theirs.score_samples(queries), rtol=1e-6)
    assert ours.score(queries) == pytest.approx(theirs.score(queries), rel=1e-6)


def test_scotts_rule_is_scipys_where_inputs_are_independent():
    points = RNG.normal(size=(200, 1)) * 1e4
    queries = np.linspace(-2e4, 2e4, 9)[:, None]
    theirs = gaussian_kde(points[:, 0], bw_method=200 ** (-1.0 / 5.0) * np.sqrt(199 / 200))
    np.testing.assert_allclose(
        KernelDensity().fit(points).score_samples(queries), theirs.logpdf(queries[:, 0]), rtol=1e-8
    )


@pytest.mark.parametrize("kernel", [RBF(0.5), Matern(0.5), RationalQuadratic(0.5, 3.0), Exponential(0.3)])
def test_a_density_integrates_to_one(kernel):
    model = KernelDensity(kernel).fit([[0.0], [1.0], [1.5]])
    total = quad(
        lambda x: float(np.exp(model.score_samples([[x]])[0])), -300.0, 300.0, points=[0, 1, 1.5], limit=500
    )
    assert total[0] == pytest.approx(1.0, abs=1e-4)


def test_the_bandwidth_by_left_out_likelihood_is_statsmodels():
    theirs = KDEMultivariate(X, "cc", bw="cv_ml")
    ours = KernelDensity(RBF([0.5, 1.5]), optimizer="loo").fit(X)
    np.testing.assert_allclose(ours.kernel_.length_scale, theirs.bw, rtol=2e-2)
    keep = [
        KernelDensity(ours.kernel_).fit(np.delete(X, i, axis=0)).score_samples(X[i : i + 1])[0]
        for i in range(60)
    ]
    assert ours.loo_log_likelihood_ == pytest.approx(np.mean(keep))


@pytest.mark.parametrize("kernel", [RBF(0.5), Exponential(0.3)])
def test_draws_follow_the_density(kernel):
    model = KernelDensity(kernel).fit([[0.0], [4.0]])
    draws = model.sample(4000, random_state=1)
    near = draws[draws[:, 0] < 2.0, 0]
    assert abs(len(near) - 2000) < 200
    grid = np.linspace(-4.0, 2.0, 3001)
    density = np.exp(model.score_samples(grid[:, None]))
    cdf = np.cumsum(density) / density.sum()
    assert kstest(near, lambda x: np.interp(x, grid, cdf)).pvalue > 1e-3


def test_a_weight_of_the_density_is_a_point_repeated():
    counts = RNG.integers(0, 4, len(X))
    weighted = KernelDensity().fit(X, sample_weight=counts)
    repeated = KernelDensity().fit(np.repeat(X, counts, axis=0))
    np.testing.assert_allclose(weighted.kernel_.length_scale, repeated.kernel_.length_scale)
    np.testing.assert_allclose(weighted.score_samples(Q), repeated.score_samples(Q))
    theirs = sklearn.neighbors.KernelDensity(bandwidth=0.7).fit(X, sample_weight=counts + 0.5)
    ours = KernelDensity(RBF(0.7)).fit(X, sample_weight=counts + 0.5)
    np.testing.assert_allclose(ours.score_samples(Q), theirs.score_samples(Q), rtol=1e-6)


def test_draws_follow_the_weights_of_points():
    model = KernelDensity(RBF(0.1)).fit([[0.0], [4.0]], sample_weight=[0.9, 0.1])
    assert abs(np.mean(model.sample(4000, random_state=1) < 2.0) - 0.9) < 0.03


def test_the_bandwidth_of_weighted_points_is_the_best_for_those_left_out():
    weights = RNG.uniform(0.0, 3.0, 60)

    def left_out(kernel):
        densities = [
            KernelDensity(kernel)
            .fit(np.delete(X, i, axis=0), sample_weight=np.delete(weights, i))
            .score_samples(X[i : i + 1])[0]
            for i in range(60)
        ]
        return np.average(densities, weights=weights)

    model = KernelDensity(RBF([0.5, 1.5]), optimizer="loo").fit(X, sample_weight=weights)
    assert model.loo_log_likelihood_ == pytest.approx(left_out(model.kernel_))
    for factor in ([0.9, 1.0], [1.1, 1.0], [1.0, 0.9], [1.0, 1.1]):
        assert left_out(RBF(np.multiply(model.kernel_.length_scale, factor))) < model.loo_log_likelihood_
    same = KernelDensity(RBF([0.5, 1.5]), optimizer="loo").fit(X, sample_weight=1e-3 * weights)
    np.testing.assert_allclose(same.kernel_.length_scale, model.kernel_.length_scale, rtol=1e-4)


@pytest.mark.parametrize("kernel", [RBF(1.5), Linear(), Matern([1.0, 2.0])])
def test_components_are_scikit_learns(kernel):
    theirs = sklearn.decomposition.KernelPCA(2, kernel="precomputed").fit(kernel(X))
    ours = KernelPCA(2, kernel).fit(X)
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-8)
    expected = theirs.transform(kernel(Q, X))
    got = ours.transform(Q)
    np.testing.assert_allclose(got * np.sign(got[0]), expected * np.sign(expected[0]), atol=1e-8)
    np.testing.assert_allclose(np.sum(ours.transform(X) ** 2, axis=0), ours.eigenvalues_)


def test_linear_components_are_those_of_pca_and_objects_have_some_too():
    got = np.abs(KernelPCA(2, Linear()).fit_transform(X))
    np.testing.assert_allclose(got, np.abs(sklearn.decomposition.PCA(2).fit_transform(X)), atol=1e-9)
    sets = [{1, 2}, {2, 3}, {1, 2, 3}, {7, 8}, {8, 9}]
    z = KernelPCA(1, SetIntersection()).fit_transform(sets)[:, 0]
    assert (np.sign(z[:3]) == -np.sign(z[3])).all()


@pytest.mark.parametrize("data", [make_moons(80, noise=0.2, random_state=0), load_iris(return_X_y=True)])
def test_the_machine_is_scikit_learns(data):
    points, labels = data
    ours = SupportVectorClassifier(RBF(0.8), C=2.0, tol=1e-8).fit(points, labels)
    theirs = SVC(C=2.0, gamma=0.5 / 0.8**2, tol=1e-8).fit(points, labels)
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    np.testing.assert_allclose(ours.decision_function(points), theirs.decision_function(points), atol=1e-6)
    np.testing.assert_array_equal(ours.predict(points), theirs.predict(points))


def test_weights_of_points_are_scikit_learns():
    points, labels = make_moons(80, noise=0.2, random_state=0)
    weights = np.random.default_rng(0).uniform(0.0, 2.0, 80)
    ours = SupportVectorClassifier(RBF(0.8), tol=1e-8).fit(points, labels, sample_weight=weights)
    theirs = SVC(gamma=0.5 / 0.8**2, tol=1e-8).fit(points, labels, sample_weight=weights)
    np.testing.assert_allclose(ours.decision_function(points), theirs.decision_function(points), atol=1e-6)


def test_the_dual_problem_is_solved():
    points, codes = make_moons(60, noise=0.2, random_state=1)
    model = SupportVectorClassifier(RBF(0.8), C=1.5, tol=1e-9).fit(points, codes)
    a = model.dual_coef_[0]
    assert a.sum() == pytest.approx(0.0, abs=1e-9)
    assert (np.abs(a) <= 1.5 + 1e-9).all()
    margin = np.where(codes == 1, 1.0, -1.0) * model.decision_function(points)
    free = model.support_[np.abs(a) < 1.5 - 1e-6]
    np.testing.assert_allclose(margin[free], 1.0, atol=1e-6)  # on the margin
    assert (np.delete(margin, model.support_) >= 1.0 - 1e-6).all()


def test_words_go_in_as_they_are():
    model = SupportVectorClassifier(EditDistance()).fit(["kitten", "mitten", "house", "mouse"], list("aabb"))
    assert list(model.predict(["bitten", "louse"])) == ["a", "b"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: KernelDensity(Linear()).fit(X), "stationary kernel"),
        (lambda: KernelDensity(RationalQuadratic(1.0, 0.5)).fit(X), "no finite integral over 2 inputs"),
        (lambda: KernelDensity(RationalQuadratic(1.0, 5.0), optimizer="loo").fit(X), "fix the other"),
        (lambda: KernelDensity(optimizer="cv").fit(X), '"loo" or None'),
        (lambda: KernelPCA(0).fit(X), "n_components must be >= 1"),
        (lambda: KernelPCA(2, "rbf").fit(X), "gp_core kernel"),
        (lambda: SupportVectorClassifier(C=0.0).fit(X, X[:, 0] > 0), "C must be > 0"),
        (lambda: KernelDensity().fit(X, sample_weight=-np.ones(60)), "negative weight"),
        (lambda: SupportVectorClassifier().fit(X, X[:, 0] > 0, sample_weight=[1.0]), r"\(60,\)"),
        (lambda: SupportVectorClassifier().fit(X, X[:, 0] > 0, sample_weight=X[:, 0] > 0), "class False"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("d", [1, 40, 1000])
def test_a_density_of_many_inputs(d):
    points = RNG.normal(size=(3, d))
    model = KernelDensity(RBF(1.3)).fit(points)
    theirs = sklearn.neighbors.KernelDensity(bandwidth=1.3).fit(points)
    np.testing.assert_allclose(model.score_samples(points), theirs.score_samples(points), rtol=1e-6)
    assert np.isfinite(model.sample(5, random_state=0)).all()


def test_draws_of_a_compact_density_stay_within_its_reach():
    model = KernelDensity(Epanechnikov(2.0)).fit(np.zeros((1, 2)))
    draws = model.sample(20_000, random_state=0)
    assert np.isfinite(model.score_samples(draws)).all()
    assert np.square(draws / 2.0).sum(axis=1).mean() == pytest.approx(1.0 / 3.0, abs=0.01)


def test_components_have_names():
    frame = KernelPCA(2).set_output(transform="pandas").fit_transform(X)
    assert list(frame.columns) == ["kernelpca0", "kernelpca1"]
