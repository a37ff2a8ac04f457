"""A kernel at many offsets, and the splines that it is interpolated and projected with."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import BSpline, CubicSpline

from gp_core.grid.markov.offsets import covariances, interpolate
from gp_core.grid.markov.splines import inner_products, slope_products
from gp_core.kernels import Matern


@pytest.mark.parametrize("n", [5, 64, 1001])
def test_the_interpolation_is_that_of_scipy(n: int) -> None:
    knots = np.linspace(0.0, 1.0, n)
    values = np.exp(-3.0 * knots) + np.sin(9.0 * knots)
    at = np.concatenate([[0.0, 1.0], knots, np.random.default_rng(0).uniform(size=200)])
    np.testing.assert_allclose(
        interpolate(values, at), CubicSpline(knots, values)(at), rtol=1e-12, atol=1e-13
    )


def test_a_cubic_is_interpolated_exactly() -> None:
    knots, at = np.linspace(0.0, 1.0, 9), np.linspace(0.0, 1.0, 200).reshape(10, 20)
    cubic = np.polynomial.Polynomial([1.0, -2.0, 3.0, -5.0])
    np.testing.assert_allclose(interpolate(cubic(knots), at), cubic(at), atol=1e-13)


def test_covariances_of_an_isotropic_kernel_are_its_values() -> None:
    kernel = Matern(0.7, nu=1.25)
    x, y = np.linspace(-2.0, 3.0, 41), np.linspace(-1.0, 1.5, 23)
    dx, dy = np.meshgrid(x, y)
    exact = kernel(np.stack([dx.ravel(), dy.ravel()], axis=-1), np.zeros((1, 2)))[:, 0].reshape(dx.shape)
    np.testing.assert_allclose(covariances(kernel, x, y), exact, atol=1e-10)


def test_products_of_splines_are_the_quintic_spline() -> None:
    quintic = BSpline.basis_element(np.arange(-3.0, 4.0), extrapolate=False)
    lags = np.arange(-2.0, 3.0)
    np.testing.assert_allclose(inner_products(), quintic(lags), atol=1e-15)
    np.testing.assert_allclose(slope_products(), -quintic.derivative(2)(lags), atol=1e-15)
