"""Local logistic regression: weighted scikit-learn fits as a reference, Nadaraya-Watson, the bandwidth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression as SklearnLogisticRegression

from gp_core.classification import LocalLogisticRegression
from gp_core.classification.logistic_fit import fit_logistic
from gp_core.kernels import RBF, Exponential, Linear, Matern


def moons(n=60, classes=2, seed=0):
    X, y = make_moons(n, noise=0.25, random_state=seed)
    if classes == 3:
        y = np.where(X[:, 0] > 1.0, 2, y)
    return X, y


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kernel", [RBF(0.5), Matern(1.0, nu=1.5)], ids=repr)
def test_every_query_equals_a_weighted_scikit_learn_fit(classes, kernel):
    X, y = moons(classes=classes)
    queries = np.random.default_rng(0).uniform(-1, 2, size=(6, 2))
    alpha = 0.01
    model = LocalLogisticRegression(kernel, alpha=alpha, optimizer=None).fit(X, y)
    found = model.predict_proba(queries)
    features = (X - X.mean(axis=0)) / X.std(axis=0)
    for query, p in zip(queries, found, strict=True):
        weights = kernel(query[None], X)[0]
        reference = SklearnLogisticRegression(C=1 / alpha, tol=1e-10, max_iter=10_000)
        reference.fit(features, y, sample_weight=weights / weights.sum())
        expected = reference.predict_proba((query[None] - X.mean(axis=0)) / X.std(axis=0))[0]
        assert_allclose(p, expected, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_degree_zero_is_nadaraya_watson(classes):
    X, y = moons(classes=classes)
    queries = np.random.default_rng(0).uniform(-1, 2, size=(20, 2))
    kernel = Exponential(0.4)
    model = LocalLogisticRegression(kernel, degree=0, optimizer=None).fit(X, y)
    weights = kernel(queries, X)
    expected = weights @ np.eye(classes)[y] / weights.sum(axis=1, keepdims=True)
    assert_allclose(model.predict_proba(queries), expected, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("degree", [0, 1])
def test_the_gradient_of_the_left_out_likelihood_is_a_finite_difference(classes, degree):
    X, y = moons(25, classes)
    kernel = RBF([0.5, 0.8])
    model = LocalLogisticRegression(kernel, degree=degree, alpha=0.05, optimizer=None).fit(X, y)

    def value(theta):
        return model._left_out(kernel.with_theta(theta), gradient=True)

    _, gradient = value(kernel.theta)
    for j, unit in enumerate(np.eye(2)):
        up, down = value(kernel.theta + 1e-4 * unit)[0], value(kernel.theta - 1e-4 * unit)[0]
        assert gradient[j] == pytest.approx((up - down) / 2e-4, rel=1e-3, abs=1e-4)


def test_the_left_out_likelihood_is_what_refitting_without_each_point_gives():
    X, y = moons(20)
    model = LocalLogisticRegression(RBF(0.6), alpha=0.05, optimizer=None).fit(X, y)
    total = 0.0
    for i in range(20):
        keep = np.arange(20) != i
        other = LocalLogisticRegression(RBF(0.6), alpha=0.05, optimizer=None).fit(X[keep], y[keep])
        # The penalty is in units of the deviation of all points.
        other._centre, other._scale = model._centre, model._scale
        total += np.log(other.predict_proba(X[i : i + 1])[0, y[i]])
    assert model.loo_log_likelihood_ == pytest.approx(total / 20, rel=1e-6)


def test_learning_the_bandwidth_improves_on_its_start():
    X, y = moons(80)
    start = LocalLogisticRegression(RBF(2.0), optimizer=None).fit(X, y)
    learned = LocalLogisticRegression(RBF(2.0)).fit(X, y)
    assert learned.loo_log_likelihood_ > start.loo_log_likelihood_ + 0.1
    assert learned.kernel_.length_scale < 0.5
    assert learned.optimum_.converged


def test_predictions_in_batches_equal_predictions_at_once(monkeypatch):
    X, y = moons(30)
    queries = np.random.default_rng(2).uniform(-1, 2, size=(23, 2))
    model = LocalLogisticRegression(RBF(0.5), optimizer=None).fit(X, y)
    whole = model.predict_proba(queries)
    monkeypatch.setattr("gp_core.classification.local_logistic._BATCH_ENTRIES", 400)
    assert_allclose(model.predict_proba(queries), whole, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    log_scale=st.floats(-5, 3),
    reach=st.floats(0.1, 1e4),
    degree=st.integers(0, 1),
)
def test_probabilities_are_proper_near_and_far_at_any_bandwidth(seed, log_scale, reach, degree):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(15, 2))
    y = np.arange(15) % 3
    model = LocalLogisticRegression(RBF(np.exp(log_scale)), degree=degree, optimizer=None)
    try:
        model.fit(X, y)
    except ValueError as error:
        assert "decays more slowly" in str(error)  # noqa: PT017
        return
    p = model.predict_proba(reach * rng.normal(size=(5, 2)))
    assert np.isfinite(p).all()
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degree": 2}, "degree must be 0 or 1"),
        ({"alpha": 0.0}, "alpha must be > 0"),
        ({"optimizer": "lbfgs"}, 'optimizer must be "loo" or None'),
        ({"kernel": "rbf"}, "kernel must be a gp_core kernel"),
        ({"kernel": Linear()}, "takes negative values"),
        ({"kernel": RBF(1e-4), "optimizer": None}, "decays more slowly"),
        ({"max_iter": 0}, "max_iter must be >= 1"),
    ],
)
def test_wrong_options_are_named(options, message):
    X, y = moons(12)
    with pytest.raises(ValueError, match=message):
        LocalLogisticRegression(**options).fit(X, y)


def test_a_bandwidth_does_not_depend_on_those_tried_before():
    X, y = moons(classes=3)
    model = LocalLogisticRegression(RBF(0.3), optimizer=None).fit(X, y)
    first = model._left_out(RBF(0.3), gradient=True)
    with pytest.raises(ValueError, match="no neighbour"):
        model._left_out(RBF(1e-4), gradient=True)
    model._left_out(RBF(0.02), gradient=False)
    value, slope = model._left_out(RBF(0.3), gradient=True)
    assert value == first[0]
    np.testing.assert_array_equal(slope, first[1])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("distance", [10.0, 100.0])
def test_few_steps_where_a_class_hardly_weighs_anything(classes, distance):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), 20)
    X = 0.1 * rng.normal(size=(len(y), 2)) + distance * np.stack([y == 1, y == 2], axis=1)
    model = LocalLogisticRegression(RBF(0.2 * distance), optimizer=None).fit(X, y)
    Phi, penalty = model._features(X)
    log_k = model.kernel_.log(X, X)
    weights = np.exp(log_k - log_k.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    found = fit_logistic(Phi, y, classes, weights, penalty, start=model._frequencies(weights), tol=1e-20)
    assert found.converged.all()
    assert found.iterations <= 10  # one log-odd at a time it would be thirty and more
    slow = fit_logistic(Phi, y, classes, weights, penalty, tol=1e-20, max_iter=1000)
    assert_allclose(found.value, slow.value, rtol=1e-6, atol=1e-16)


@pytest.mark.parametrize("settings", [{}, {"degree": 0}, {"kernel": RBF(0.4), "optimizer": None}])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_weight_is_a_point_repeated(settings, classes):
    X, y = moons(40, classes)
    counts = np.random.default_rng(0).integers(0, 3, 40)
    Q = np.random.default_rng(1).uniform(-1, 2, size=(10, 2))
    weighted = LocalLogisticRegression(**settings).fit(X, y, sample_weight=counts)
    repeated = LocalLogisticRegression(**settings).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert weighted.loo_log_likelihood_ == pytest.approx(repeated.loo_log_likelihood_, rel=1e-5)
    assert_allclose(weighted.predict_proba(Q), repeated.predict_proba(Q), atol=1e-3)
    plain = LocalLogisticRegression(**settings).fit(X, y).predict_proba(Q)
    assert np.abs(weighted.predict_proba(Q) - plain).max() > 1e-2  # they make a difference


def test_the_gradient_of_the_left_out_likelihood_of_weighted_points():
    X, y = moons(25)
    kernel = RBF([0.5, 0.8])
    model = LocalLogisticRegression(kernel, alpha=0.05, optimizer=None)
    model.fit(X, y, sample_weight=np.random.default_rng(0).uniform(0.0, 3.0, 25))
    gradient = model._left_out(kernel, gradient=True)[1]
    for j, unit in enumerate(np.eye(2)):
        up, down = (
            model._left_out(kernel.with_theta(kernel.theta + h * unit), False)[0] for h in (1e-4, -1e-4)
        )
        assert gradient[j] == pytest.approx((up - down) / 2e-4, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(("weights", "message"), [(-np.ones(12), "negative"), ([1.0], r"\(12,\)")])
def test_bad_weights(weights, message):
    X, y = moons(12)
    with pytest.raises(ValueError, match=message):
        LocalLogisticRegression().fit(X, y, sample_weight=weights)


def test_a_point_without_weight_is_not_there():
    X, y = np.array([[0.0], [1.0], [2.0], [90.0]]), np.array([0, 1, 0, 1])
    model = LocalLogisticRegression(RBF(1.0), degree=0, optimizer=None).fit(X, y, sample_weight=[1, 1, 1, 0])
    assert_allclose(model.predict_proba([[90.0]]), [[1.0, 0.0]], atol=1e-12)
