"""Every derivative against central differences."""

import numpy as np
import pytest
from kernel_list import CASES, DIFFERENTIABLE, NAMES, D, points

from gp_core.kernels import RBF, Columns, EditDistance, Exponential, Matern, Metric, SetIntersection, White

STEP = 1e-6
SMOOTH_NAMES = [case.name for case in DIFFERENTIABLE]


def by_theta(kernel, X, Z):
    theta = kernel.theta
    sides = [
        (kernel.with_theta(theta + STEP * e)(X, Z) - kernel.with_theta(theta - STEP * e)(X, Z)) / (2.0 * STEP)
        for e in np.eye(len(theta))
    ]
    return np.stack(sides, axis=-1) if sides else np.zeros((len(X), len(X if Z is None else Z), 0))


def size(array):
    return max(1.0, float(np.abs(array).max(initial=0.0)))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.parametrize("with_z", [False, True])
def test_gradient_by_theta(case, with_z):
    X = points(6)
    Z = np.concatenate([points(3, seed=1), X[:2]]) if with_z else None
    expected = by_theta(case.kernel, X, Z)
    np.testing.assert_allclose(case.kernel.gradient_theta(X, Z), expected, atol=2e-8 * size(expected))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.parametrize("with_z", [False, True])
def test_theta_vjp_is_the_contraction_of_the_gradient(case, with_z):
    X = points(40)
    Z = np.concatenate([points(30, seed=1), X[:2]]) if with_z else None
    dense = case.kernel.gradient_theta(X, Z)
    W = np.random.default_rng(2).normal(size=dense.shape[:2])
    expected = np.einsum("ij,ijp->p", W, dense)
    np.testing.assert_allclose(case.kernel.theta_vjp(X, W, Z), expected, atol=1e-10 * size(dense))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_upper_triangular_weights_may_skip_half_of_the_work(case, monkeypatch):
    monkeypatch.setattr("gp_core.kernels.stationary._BLOCK_ENTRIES", 100)  # several blocks of rows
    X = points(40)
    W = np.triu(np.random.default_rng(2).normal(size=(40, 40)))
    value, gradient = case.kernel._contract(X, None, W, upper=True)
    assert value == pytest.approx(np.sum(W * case.kernel(X)), rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(gradient, case.kernel.theta_vjp(X, W), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=SMOOTH_NAMES)
def test_gradients_by_inputs(case):
    X, Z = points(5), points(4, seed=1)
    k = case.kernel
    by_x, by_z, mixed = k.gradient_x(X, Z), k.gradient_z(X, Z), k.gradient_xz(X, Z)
    assert by_x.shape == (5, 4, D)
    assert mixed.shape == (5, 4, D, D)
    for d in range(D):
        e = STEP * np.eye(D)[d]
        np.testing.assert_allclose(
            by_x[..., d], (k(X + e, Z) - k(X - e, Z)) / (2 * STEP), atol=1e-7 * size(by_x)
        )
        np.testing.assert_allclose(
            by_z[..., d], (k(X, Z + e) - k(X, Z - e)) / (2 * STEP), atol=1e-7 * size(by_z)
        )
        numeric = (k.gradient_x(X, Z + e) - k.gradient_x(X, Z - e)) / (2 * STEP)
        np.testing.assert_allclose(mixed[..., d], numeric, atol=1e-6 * size(mixed))


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=SMOOTH_NAMES)
def test_gradient_covariance_at_a_point(case):
    X = points(5)
    diagonal = case.kernel.gradient_xz(X)[range(5), range(5)]
    np.testing.assert_allclose(case.kernel.gradient_xz_diag(X), diagonal, rtol=1e-10, atol=1e-12)
    # the limit of separated points
    nearly = np.stack([case.kernel.gradient_xz(x[None], x[None] + 1e-7)[0, 0] for x in X])
    tolerance = 0.1 if "1.2" in case.name else 1e-5  # nu near 1: the curvature bends sharply at 0
    np.testing.assert_allclose(diagonal, nearly, atol=tolerance * size(diagonal))


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=SMOOTH_NAMES)
def test_joint_covariance_of_values_and_gradients_is_semidefinite(case):
    X = points(4)
    K, G, H = case.kernel(X), case.kernel.gradient_x(X), case.kernel.gradient_xz(X)
    n = len(X)
    cross = G.transpose(0, 2, 1).reshape(n * D, n)  # gradients against values
    joint = np.block([[K, cross.T], [cross, H.transpose(0, 2, 1, 3).reshape(n * D, n * D)]])
    np.testing.assert_allclose(joint, joint.T, atol=1e-12 * size(joint))
    assert np.linalg.eigvalsh(joint)[0] > -1e-9 * size(joint)


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=SMOOTH_NAMES)
def test_input_vjp_is_the_contraction_of_the_gradient(case):
    X, Z = points(7), points(5, seed=1)
    W = np.random.default_rng(2).normal(size=(7, 5))
    expected = np.einsum("ij,ijd->id", W, case.kernel.gradient_x(X, Z))
    np.testing.assert_allclose(case.kernel._input_vjp(X, Z, W), expected, atol=1e-11 * size(expected))


@pytest.mark.parametrize(
    "kernel",
    [
        Exponential(),
        Matern(nu=0.5),
        Matern(nu=1.0),
        White(),
        2.0 * Exponential() + RBF(),
        RBF() * Matern(nu=0.5),
        Metric(Exponential(), 2.0),
        Columns(Exponential(), 0),
    ],
    ids=str,
)
def test_rough_kernels_refuse_a_derivative_and_say_why(kernel):
    X = points(3)
    for ask in (kernel.gradient_x, kernel.gradient_z, kernel.gradient_xz, kernel.gradient_xz_diag):
        with pytest.raises(ValueError, match=r"no derivative"):
            ask(X)


@pytest.mark.parametrize(("kernel", "X"), [(SetIntersection(), [{1}, {2}]), (EditDistance(), ["a", "b"])])
def test_kernels_on_objects_refuse_a_derivative(kernel, X):
    with pytest.raises(ValueError, match="no derivative"):
        kernel.gradient_x(X)


def test_theta_vjp_refuses_weights_of_another_shape():
    with pytest.raises(ValueError, match=r"shape of the kernel matrix \(3, 3\)"):
        RBF().theta_vjp(points(3), np.ones((3, 2)))
