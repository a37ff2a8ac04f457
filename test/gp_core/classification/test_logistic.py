"""Logistic regression: scikit-learn as a reference, separable data, weights, many features, errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as SklearnLogisticRegression
from sklearn.preprocessing import scale

from gp_core.basis import PolynomialBasis
from gp_core.classification import LogisticRegression, logistic_fit
from gp_core.classification.logistic_fit import fit_logistic, log_probabilities, weight_sensitivity


def theirs(alpha, **options):
    return SklearnLogisticRegression(C=1.0 / alpha, tol=1e-10, max_iter=10_000, **options)


@pytest.mark.parametrize("alpha", [0.1, 1.0, 50.0])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("load", [load_breast_cancer, load_iris])
def test_weights_equal_scikit_learns(load, alpha, intercept):
    X, y = load(return_X_y=True)
    X = scale(X)
    reference = theirs(alpha, fit_intercept=intercept).fit(X, y)
    model = LogisticRegression(alpha, fit_intercept=intercept).fit(X, y)
    assert_allclose(model.coef_, reference.coef_, atol=2e-4)
    assert_allclose(model.intercept_, reference.intercept_, atol=2e-4)
    assert_allclose(model.predict_proba(X), reference.predict_proba(X), atol=1e-5)
    assert_allclose(model.decision_function(X), reference.decision_function(X), atol=5e-3)
    assert_allclose(model.predict_log_proba(X), np.log(model.predict_proba(X)), rtol=1e-6, atol=1e-12)
    assert model.n_iter_ < 20


def test_the_gradient_vanishes_at_the_fit_on_raw_inputs_with_large_offsets():
    X, y = load_breast_cancer(return_X_y=True)  # scales from 1e-3 to 1e3
    X = X + 1e4
    model = LogisticRegression(1e-2).fit(X, y)
    error = y - model.predict_proba(X)[:, 1]
    assert abs(error.sum()) < 1e-6
    assert_allclose((X - X.mean(axis=0)).T @ error, 1e-2 * model.coef_[0], atol=1e-4)


def test_more_features_than_points():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(25, 120)), rng.integers(0, 3, size=25)
    model, reference = LogisticRegression(2.0).fit(X, y), theirs(2.0).fit(X, y)
    assert_allclose(model.coef_, reference.coef_, atol=1e-5)
    assert_allclose(model.intercept_, reference.intercept_, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_separable_classes_without_a_penalty_stay_finite_and_are_reported(classes):
    X, y = load_iris(return_X_y=True)
    X = np.vstack([X[:50] - 20.0 * c for c in range(classes)])
    y = np.repeat(np.arange(classes), 50)
    with pytest.warns(ConvergenceWarning, match="can be separated"):
        model = LogisticRegression(0.0).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.score(X, y) == 1.0
    assert model.n_iter_ < 80
    assert_allclose(model.predict_proba(X).max(axis=1), 1.0, atol=1e-6)


def test_a_small_penalty_on_separable_classes_gives_the_finite_maximum():
    X, y = np.array([[-1.0], [-0.5], [0.5], [1.0]]), np.array([0, 0, 1, 1])
    model = LogisticRegression(1e-8, tol=1e-16).fit(X, y)
    error = y - model.predict_proba(X)[:, 1]
    assert_allclose(X.T @ error, 1e-8 * model.coef_[0], rtol=0.01)
    assert 10 < model.coef_[0, 0] < 1000


def test_collinear_features_share_the_weight():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1))
    y = (x[:, 0] + rng.normal(size=60) > 0).astype(int)
    single = LogisticRegression(1.0).fit(x, y)
    # |w|² of two halves is half of the square of the whole.
    double = LogisticRegression(2.0).fit(np.hstack([x, x]), y)
    assert_allclose(double.coef_[0], 0.5 * single.coef_[0, 0], rtol=1e-6)
    unpenalised = LogisticRegression(0.0).fit(np.hstack([x, x, np.zeros_like(x)]), y)
    assert_allclose(unpenalised.predict_proba(np.hstack([x, x, x]))[:, 1].sum(), y.sum(), rtol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_constant_input_and_a_copy_change_nothing_without_a_penalty(classes):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 2)), rng.integers(0, classes, 60)
    more = np.column_stack([X, X[:, 0], np.ones(60)])
    expected = LogisticRegression(alpha=0.0).fit(X, y).predict_proba(X)
    found = LogisticRegression(alpha=0.0).fit(more, y).predict_proba(more)
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_inputs_next_to_nothing_are_left_out_without_a_penalty():
    X = np.array([[0.0], [1e-300], [1e-300]])
    found = LogisticRegression(alpha=0.0).fit(X, [0, 1, 2]).predict_proba(X)
    np.testing.assert_allclose(found, 1.0 / 3.0)


def test_a_weight_of_two_is_the_point_twice():
    X, y = load_iris(return_X_y=True)
    weights = np.where(y == 1, 2.0, 1.0)
    weighted = LogisticRegression().fit(X, y, sample_weight=weights)
    repeated = LogisticRegression().fit(np.vstack([X, X[y == 1]]), np.concatenate([y, y[y == 1]]))
    assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)
    dropped = LogisticRegression().fit(X, y, sample_weight=np.where(np.arange(150) % 2, 1.0, 0.0))
    assert_allclose(dropped.coef_, LogisticRegression().fit(X[1::2], y[1::2]).coef_, atol=1e-6)


def test_a_basis_makes_a_circle_linear():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(200, 2))
    y = np.where((X**2).sum(axis=1) < 1.5, "in", "out")
    assert LogisticRegression(0.1).fit(X, y).score(X, y) < 0.8
    assert LogisticRegression(0.01, basis=PolynomialBasis(2, intercept=False)).fit(X, y).score(X, y) > 0.97


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**16), n=st.integers(4, 40), d=st.integers(1, 6), classes=st.integers(2, 4))
def test_the_penalised_objective_has_no_better_neighbour(seed, n, d, classes):
    rng = np.random.default_rng(seed)
    X = 10.0 ** rng.uniform(-3, 3) * rng.normal(size=(n, d))
    y = np.arange(n) % classes
    if classes > n:
        return
    model = LogisticRegression(0.5).fit(X, y)

    def objective(coef, intercept):
        eta = coef @ X.T + intercept[:, None]
        log_p = log_probabilities(eta)
        return log_p[y, np.arange(n)].sum() - 0.25 * (coef**2).sum()

    best = objective(model.coef_, model.intercept_)
    assert best == pytest.approx(model.objective_, rel=1e-9, abs=1e-9)
    for _ in range(5):
        move = 1e-3 * rng.normal(size=model.coef_.shape) * (np.abs(model.coef_).max() + 1e-3)
        shift = 1e-3 * rng.normal(size=len(model.intercept_))
        assert objective(model.coef_ + move, model.intercept_ + shift) <= best + 1e-9


@pytest.mark.parametrize("classes", [2, 3])
def test_sensitivity_to_the_weights_is_a_finite_difference(classes):
    rng = np.random.default_rng(0)
    n, B = 12, 3
    Phi = np.hstack([np.ones((n, 1)), rng.normal(size=(n, 2))])
    codes = np.arange(n) % classes
    weights = rng.uniform(0.2, 1.0, size=(B, n))
    penalty = np.array([0.0, 0.1, 0.1])
    out, out_codes = Phi[:B] + 0.3, codes[:B]

    def log_p(weights):
        w = fit_logistic(Phi, codes, classes, weights, penalty, tol=1e-24).state
        eta = np.einsum("blf,bf->lb", w, out)
        return log_probabilities(eta)[out_codes, np.arange(B)], w

    _, w = log_p(weights)
    S = weight_sensitivity(Phi, codes, classes, weights, penalty, w, out, out_codes)
    for i in range(n):
        step = np.zeros((B, n))
        step[:, i] = 1e-5
        expected = (log_p(weights + step)[0] - log_p(weights - step)[0]) / 2e-5
        assert_allclose(S[:, i], expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1.0}, "alpha must be >= 0"),
        ({"tol": 0.0}, "tol must be > 0"),
        ({"max_iter": 0}, "max_iter must be >= 1"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        LogisticRegression(**options).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -1.0], "negative weight"),
        ([1.0], "must have shape"),
        ([1.0, 0.0], "zero for all classes but one"),
        ([1.0, np.nan], "NaN"),
    ],
)
def test_wrong_weights_are_named(weights, message):
    with pytest.raises(ValueError, match=message):
        LogisticRegression().fit([[0.0], [1.0]], [0, 1], sample_weight=weights)


def test_too_few_steps_are_reported():
    X, y = load_iris(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 steps"):
        LogisticRegression(max_iter=2).fit(X, y)


@pytest.mark.parametrize("alpha", [0.1, 10.0])
def test_conjugate_gradients_find_what_the_factorisation_finds(monkeypatch, alpha):
    X, y = load_digits(return_X_y=True)
    X, y = X[:400, 10:50], y[:400]
    formed = []
    original = logistic_fit._Problem.curvature
    monkeypatch.setattr(logistic_fit._Problem, "curvature", lambda *a: formed.append(a) or original(*a))
    products = LogisticRegression(alpha).fit(X, y)
    assert not formed  # 410 coefficients: the curvature is never formed
    monkeypatch.setattr(logistic_fit, "_DIRECT", 10_000)
    direct = LogisticRegression(alpha).fit(X, y)
    assert formed
    np.testing.assert_allclose(products.coef_, direct.coef_, atol=1e-5 * np.abs(direct.coef_).max())
    assert products.objective_ == pytest.approx(direct.objective_, abs=1e-9)


def test_where_conjugate_gradients_stall_the_factorisation_takes_over(monkeypatch):
    X, y = load_digits(return_X_y=True)
    X, y = X[:300, 10:40], y[:300]
    reference = LogisticRegression(1.0).fit(X, y)
    monkeypatch.setattr(logistic_fit, "_MOST_PRODUCTS", 1)
    np.testing.assert_allclose(LogisticRegression(1.0).fit(X, y).coef_, reference.coef_, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_objective_and_its_gradient_keep_their_digits_where_all_is_certain(classes):
    w = np.array([[[60.0]]] if classes == 2 else [[[-20.0], [-20.0], [40.0]]])
    for code, log_p in ((classes - 1, -np.exp(-60.0) * (classes - 1)), (0, -60.0)):
        problem = logistic_fit._Problem(
            np.ones((1, 1)), np.array([code]), classes, np.ones((1, 1)), np.zeros(1)
        )
        assert_allclose(problem.value(w, np.array([0])), log_p, rtol=1e-12)
        residual = problem.residuals(w, problem.class_shares(w))[0, -1, 0]
        assert_allclose(residual, (classes - 1) * np.exp(-60.0) if code else -1.0, rtol=1e-12)
