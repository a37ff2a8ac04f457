"""SE(3) against scipy's matrix exponential and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm

from gpgmap_ros.closure.graph import lie

ANGLES = [0.0, 1e-9, 1e-3, 0.0299, 0.0301, 0.5, 1.5, 3.0]


def vectors(angle: float) -> np.ndarray:
    xi = np.random.default_rng(0).normal(size=(20, 6))
    xi[:, :3] *= angle / np.linalg.norm(xi[:, :3], axis=1, keepdims=True)
    xi[:, 3:] *= 3.0
    return xi


@pytest.mark.parametrize("angle", ANGLES)
def test_exponential_and_logarithm(angle: float) -> None:
    xi = vectors(angle)
    generator = np.zeros((len(xi), 4, 4))
    generator[:, :3, :3], generator[:, :3, 3] = lie.hat(xi[:, :3]), xi[:, 3:]
    T = lie.exp(xi)
    np.testing.assert_allclose(T, [expm(item) for item in generator], atol=1e-12)
    np.testing.assert_allclose(lie.log(T), xi, atol=1e-11)
    np.testing.assert_allclose(np.linalg.det(T[:, :3, :3]), 1.0)
    np.testing.assert_allclose(lie.inverses(T) @ T, np.tile(np.eye(4), (len(T), 1, 1)), atol=1e-12)


@pytest.mark.parametrize("angle", ANGLES)
def test_derivative_of_the_logarithm(angle: float) -> None:
    xi, step = vectors(angle), 1e-6
    T, found = lie.exp(xi), lie.log_derivative(xi)
    for k in range(6):
        d = np.zeros_like(xi)
        d[:, k] = step
        difference = (lie.log(T @ lie.exp(d)) - lie.log(T @ lie.exp(-d))) / (2.0 * step)
        np.testing.assert_allclose(found[:, :, k], difference, atol=1e-7)


def test_the_adjoint_takes_a_step_to_the_other_side() -> None:
    T, d = lie.exp(vectors(1.2)), 0.1 * vectors(0.7)
    other = np.einsum("nij,nj->ni", lie.adjoint(T), d)
    np.testing.assert_allclose(T @ lie.exp(d), lie.exp(other) @ T, atol=1e-12)
