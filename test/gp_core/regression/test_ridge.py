"""Ridge in both forms and kernel ridge, against scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.linear_model import Ridge as SklearnRidge

from gp_core import KernelRidge, Ridge
from gp_core.basis import PolynomialBasis
from gp_core.kernels import RBF, Linear, Polynomial
from gp_core.linalg import JitterWarning

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4))
Y = X @ [1.0, -2.0, 0.5, 0.0] + 3.0 + 0.1 * RNG.normal(size=30)
Y2 = np.stack([Y, -2.0 * Y + X[:, 1]], axis=1)
Q = RNG.normal(size=(7, 4))


@given(
    n=st.integers(1, 12),
    d=st.integers(1, 12),
    alpha=st.floats(1e-2, 1e2),
    outputs=st.integers(1, 3),
    intercept=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_primal_is_dual_is_scikit_learn(n, d, alpha, outputs, intercept):
    rng = np.random.default_rng(n * 100 + d)
    A, B = rng.normal(size=(n, d)), rng.normal(size=(n, outputs))
    b = B[:, 0] if outputs == 1 else B
    primal = Ridge(alpha, solver="primal", fit_intercept=intercept).fit(A, b)
    dual = Ridge(alpha, solver="dual", fit_intercept=intercept).fit(A, b)
    reference = SklearnRidge(alpha, fit_intercept=intercept).fit(A, b)
    np.testing.assert_allclose(primal.coef_, dual.coef_, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(primal.coef_, reference.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(primal.intercept_, reference.intercept_, rtol=1e-8, atol=1e-10)
    assert Ridge(alpha).fit(A, b).solver_ == ("primal" if d <= n else "dual")


def test_features():
    Phi = PolynomialBasis(2, intercept=False)(X)
    by_basis = Ridge(0.1, basis=PolynomialBasis(2, intercept=False)).fit(X, Y).predict(Q)
    by_hand = SklearnRidge(0.1).fit(Phi, Y).predict(PolynomialBasis(2, intercept=False)(Q))
    np.testing.assert_allclose(by_basis, by_hand, rtol=1e-9)


@pytest.mark.parametrize("y", [Y, Y2])
def test_kernel_ridge_is_scikit_learns(y):
    ours = KernelRidge(RBF(1.5), alpha=0.3).fit(X, y)
    theirs = SklearnKernelRidge(kernel="rbf", gamma=0.5 / 1.5**2, alpha=0.3).fit(X, y)
    np.testing.assert_allclose(ours.predict(Q), theirs.predict(Q), rtol=1e-9)
    np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, rtol=1e-9)


def test_linear_kernel_ridge_is_ridge():
    a = KernelRidge(Linear(), alpha=0.7).fit(X, Y).predict(Q)
    b = Ridge(0.7, fit_intercept=False).fit(X, Y).predict(Q)
    np.testing.assert_allclose(a, b, rtol=1e-10)


def test_polynomial_kernel_ridge_is_ridge_on_the_lectures_features():
    x, q = X[:, :2], Q[:, :2]

    def phi(P):
        return np.stack([P[:, 0] ** 2, P[:, 1] ** 2, np.sqrt(2.0) * P[:, 0] * P[:, 1]], axis=1)

    a = KernelRidge(Polynomial(2, 0.0), alpha=0.7).fit(x, Y).predict(q)
    b = Ridge(0.7, fit_intercept=False).fit(phi(x), Y).predict(phi(q))
    np.testing.assert_allclose(a, b, rtol=1e-9)


def test_without_penalty_least_squares():
    ours = Ridge(0.0).fit(X, Y)
    Phi = np.hstack([np.ones((30, 1)), X])
    expected = np.linalg.lstsq(Phi, Y, rcond=None)[0]
    np.testing.assert_allclose(ours.coef_, expected[1:], rtol=1e-8)
    assert ours.jitter_ == 0.0


def test_dependent_features_without_penalty_get_reported_jitter():
    twice = np.hstack([X, X])
    with pytest.warns(JitterWarning, match="ridge system"):
        ours = Ridge(0.0).fit(twice, Y)
    np.testing.assert_allclose(ours.predict(twice), Ridge(0.0).fit(X, Y).predict(X), atol=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Ridge(-1.0).fit(X, Y), "alpha must be >= 0"),
        (lambda: Ridge(solver="fast").fit(X, Y), "primal"),
        (lambda: KernelRidge(alpha=-1.0).fit(X, Y), "alpha must be >= 0"),
        (lambda: KernelRidge("rbf").fit(X, Y), "gp_core kernel"),
        (lambda: Ridge().fit(X, Y[:-1]), "inconsistent"),
        (lambda: Ridge().fit(X, np.where(Y > 0, np.nan, Y)), "NaN"),
        (lambda: Ridge().fit(X, Y).predict(Q[:, :2]), "2 features"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
