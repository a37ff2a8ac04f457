"""Every kernel against its formula in a naive loop, and against scikit-learn's."""

import numpy as np
import pytest
import sklearn.gaussian_process.kernels as sk
from kernel_list import ARD, CASES, NAMES, naive, points

from gp_core.kernels import (
    RBF,
    Exponential,
    Linear,
    Matern,
    Metric,
    Polynomial,
    RationalQuadratic,
    full_metric,
)
from gp_core.kernels.bessel import LARGE_ORDER


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_matches_the_naive_loop(case):
    X, Z = points(6), points(4, seed=1)
    np.testing.assert_allclose(case.kernel(X, Z), naive(case, X, Z), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(case.kernel(X), naive(case, X), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_diagonal_is_that_of_the_gram_matrix(case):
    X = points(6)
    np.testing.assert_allclose(case.kernel.diag(X), np.diag(case.kernel(X)), rtol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_points_that_coincide_are_handled(case):
    X = np.repeat(points(2), 2, axis=0)
    np.testing.assert_allclose(case.kernel(X), naive(case, X), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_logarithm(case):
    X, Z = points(5), points(4, seed=1)
    K = case.kernel(X, Z)
    if (K <= 0.0).any():
        if (K < 0.0).any():
            with pytest.raises(ValueError, match="negative values"):
                case.kernel.log(X, Z)
        return
    np.testing.assert_allclose(case.kernel.log(X, Z), np.log(K), rtol=1e-8, atol=1e-12)


def test_logarithm_does_not_underflow():
    far = np.array([[0.0], [1e4]])
    for kernel in (RBF(1.0), Matern(1.0), Matern(1.0, nu=0.7), Exponential(1.0), 2.0 * RBF(1.0) * RBF(2.0)):
        assert kernel(far)[0, 1] == 0.0
        assert np.isfinite(kernel.log(far)).all()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (RBF(ARD), sk.RBF(ARD)),
        (Matern(ARD, nu=0.5), sk.Matern(ARD, nu=0.5)),
        (Matern(0.7, nu=1.5), sk.Matern(0.7, nu=1.5)),
        (Matern(0.7, nu=2.5), sk.Matern(0.7, nu=2.5)),
        (Matern(0.7, nu=1.1), sk.Matern(0.7, nu=1.1)),
        (Matern(0.7, nu=4.2), sk.Matern(0.7, nu=4.2)),
        (RationalQuadratic(0.7, alpha=1.3), sk.RationalQuadratic(0.7, alpha=1.3)),
        (Linear() + 0.25, sk.DotProduct(0.5)),
        (Polynomial(3, 0.25), sk.DotProduct(0.5) ** 3),
        (2.0 * RBF(0.7) * Linear(), sk.ConstantKernel(2.0) * sk.RBF(0.7) * sk.DotProduct(0.0)),
    ],
    ids=str,
)
def test_matches_scikit_learn(ours, theirs):
    X, Z = points(8), points(5, seed=1)
    np.testing.assert_allclose(ours(X, Z), theirs(X, Z), rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(ours(X), theirs(X), rtol=1e-9, atol=1e-14)


def test_matern_for_large_order_joins_the_bessel_form_and_tends_to_the_rbf():
    X = np.linspace(0.0, 4.0, 50)[:, None]
    below, above = Matern(nu=LARGE_ORDER - 1e-6)(X), Matern(nu=LARGE_ORDER + 1e-6)(X)
    np.testing.assert_allclose(below, above, rtol=1e-7)
    np.testing.assert_allclose(Matern(nu=1e7)(X), RBF()(X), atol=1e-6)


@pytest.mark.parametrize("nu", [0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 7.7, 30.0, 150.0])
def test_matern_is_finite_from_tiny_to_huge_distances(nu):
    X = np.concatenate([[0.0], 10.0 ** np.arange(-300.0, 100.0, 4.0)])[:, None]
    kernel = Matern(nu=nu)
    K = kernel(X, X[:1])
    assert np.isfinite(K).all()
    assert (np.diff(K[:, 0]) <= 1e-12).all()
    assert np.isfinite(kernel.theta_vjp(X, np.ones((len(X), 1)), X[:1])).all()


def test_full_metric_is_the_metric_asked_for():
    M = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, 0.2], [0.0, 0.2, 0.5]])
    np.testing.assert_allclose(full_metric(RBF(), M).matrix(3), M, atol=1e-12)
    X, Z = points(4), points(3, seed=1)
    difference = X[:, None] - Z[None]
    s = np.einsum("ijd,de,ije->ij", difference, M, difference)
    np.testing.assert_allclose(full_metric(Matern(nu=2.5), M)(X, Z), Matern(nu=2.5).profile(np.sqrt(s)))


def test_diagonal_metric_is_ard():
    X, Z = points(4), points(3, seed=1)
    np.testing.assert_allclose(Metric(Matern(1.0), ARD)(X, Z), Matern(ARD)(X, Z), rtol=1e-12)


def test_polynomial_of_degree_two_is_the_lectures_feature_map():
    x, z = np.array([[0.3, -1.2]]), np.array([[2.0, 0.7]])

    def phi(p):
        return np.array([p[0] ** 2, p[1] ** 2, np.sqrt(2.0) * p[0] * p[1]])

    assert Polynomial(2, 0.0)(x, z)[0, 0] == pytest.approx(phi(x[0]) @ phi(z[0]))
