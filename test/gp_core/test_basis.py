"""Basis functions: values by formula, derivatives by central differences."""

import numpy as np
import pytest

from gp_core.basis import GaussianBasis, PolynomialBasis, SigmoidBasis

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 2))
CENTERS = RNG.normal(size=(3, 2))
BASES = [
    PolynomialBasis(0),
    PolynomialBasis(1),
    PolynomialBasis(3),
    PolynomialBasis(2, intercept=False),
    GaussianBasis(CENTERS, 0.7),
    GaussianBasis(CENTERS, 0.7, intercept=True, centers_bounds=(-9.0, 9.0)),
    GaussianBasis(CENTERS, 0.7, width_bounds="fixed", centers_bounds=(-9.0, 9.0)),
    SigmoidBasis(CENTERS, (0.1, 0.2, 0.3)),
    SigmoidBasis(CENTERS, (0.1, 0.2, 0.3), True, (-9.0, 9.0), (-9.0, 9.0)),
]


def test_polynomial_features_are_all_monomials():
    a, b = X.T
    np.testing.assert_allclose(PolynomialBasis(2)(X), np.stack([a**0, a, b, a**2, a * b, b**2], axis=1))


def test_gaussian_features():
    phi = GaussianBasis(CENTERS, 0.7, intercept=True)(X)
    assert phi.shape == (6, 4)
    np.testing.assert_array_equal(phi[:, 0], 1.0)
    assert phi[1, 3] == pytest.approx(np.exp(-0.5 * np.sum((X[1] - CENTERS[2]) ** 2) / 0.49))


def test_sigmoid_features():
    phi = SigmoidBasis.at([0.5, 1.5], width=0.2)(X[:, :1])
    np.testing.assert_allclose(phi[:, 1], 1.0 / (1.0 + np.exp(-(X[:, 0] - 1.5) / 0.2)))


@pytest.mark.parametrize("basis", BASES, ids=repr)
def test_gradient_by_inputs(basis):
    step = 1e-6
    for d in range(2):
        e = step * np.eye(2)[d]
        numeric = (basis(X + e) - basis(X - e)) / (2.0 * step)
        np.testing.assert_allclose(basis.gradient_x(X)[:, :, d], numeric, atol=1e-7)


@pytest.mark.parametrize("basis", BASES, ids=repr)
def test_gradient_by_theta(basis):
    W = RNG.normal(size=basis(X).shape)
    step = 1e-6
    numeric = [
        np.sum(
            W * (basis.with_theta(basis.theta + step * e)(X) - basis.with_theta(basis.theta - step * e)(X))
        )
        / (2.0 * step)
        for e in np.eye(basis.n_theta)
    ]
    np.testing.assert_allclose(basis.theta_vjp(X, W), numeric, atol=1e-7)
    dense = basis.gradient_theta(X)
    assert dense.shape == (*W.shape, basis.n_theta)
    np.testing.assert_allclose(np.einsum("nf,nfp->p", W, dense), basis.theta_vjp(X, W), atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PolynomialBasis(-1), ">= 0"),
        (lambda: PolynomialBasis(0, intercept=False), "no features"),
        (lambda: GaussianBasis([1.0, 2.0]), r"\(F, D\)"),
        (lambda: GaussianBasis([[1.0]], width=0.0), "width must be > 0"),
        (lambda: SigmoidBasis([[1.0], [2.0]], (0.0,)), "one per feature"),
        (lambda: GaussianBasis([[1.0]])(X), "inputs"),
        (lambda: SigmoidBasis([[1.0]])(X), "inputs"),
        (lambda: GaussianBasis(CENTERS)([[np.nan, 0.0]]), "NaN"),
    ],
)
def test_bad_parameters_and_points_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
