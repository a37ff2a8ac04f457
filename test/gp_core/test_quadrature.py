"""Integrals against Gaussians, compared with closed forms and with scipy's adaptive quadrature."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit, log_expit, log_ndtr, ndtr

from gp_core.quadrature import gaussian_expectation, tilted_moments

SCALES = [1e-8, 1e-2, 1.0, 5.0, 100.0, 1e4]


def adaptive(log_factor, mean, std, moment=lambda f: 1.0):
    """∫ moment(f) exp(log_factor(f)) N(f; mean, std²) df with breakpoints where anything can happen."""

    def integrand(f):
        return moment(f) * np.exp(log_factor(f) - 0.5 * ((f - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))

    special = np.concatenate(
        [mean + std * np.array([-40, -12, -6, -3, 0, 3, 6, 12, 40]), [-40, -8, 0, 8, 40]]
    )
    edges = np.unique(special)
    return sum(quad(integrand, a, b, epsabs=0, epsrel=1e-12, limit=200)[0] for a, b in pairwise(edges))


@pytest.mark.parametrize("std", SCALES)
@pytest.mark.parametrize("offset", [-8.0, -1.5, 0.0, 0.3, 4.0])
def test_expectation_of_the_logistic_function_equals_adaptive_quadrature(std, offset):
    mean = offset * std
    expected = adaptive(log_expit, mean, std)
    result = gaussian_expectation(expit, np.array([mean]), np.array([std**2]))[0]
    assert result == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("std", SCALES)
@pytest.mark.parametrize("offset", [-8.0, -1.5, 0.0, 0.3, 4.0])
def test_expectation_of_the_probit_function_equals_its_closed_form(std, offset):
    mean = offset * std
    result = gaussian_expectation(ndtr, np.array([mean]), np.array([std**2]))[0]
    assert result == pytest.approx(ndtr(mean / np.sqrt(1 + std**2)), abs=1e-9)


def test_expectations_of_polynomials_are_the_gaussian_moments():
    mean, variance = np.array([-3.0, 0.0, 250.0]), np.array([4.0, 1e-4, 900.0])
    moments = gaussian_expectation(lambda f: np.stack([np.ones_like(f), f, f**2]), mean, variance)
    assert moments[0] == pytest.approx(1.0, rel=1e-14)
    assert moments[1] == pytest.approx(mean, rel=1e-12, abs=1e-12)
    assert moments[2] == pytest.approx(mean**2 + variance, rel=1e-12)


def test_without_variance_the_expectation_is_the_value_at_the_mean():
    mean = np.array([-700.0, 0.0, 3.0])
    assert gaussian_expectation(expit, mean, np.zeros(3)) == pytest.approx(expit(mean), rel=1e-12)


@pytest.mark.parametrize("std", [1e-2, 1.0, 5.0, 100.0, 1e3])
@pytest.mark.parametrize("offset", [-10.0, -6.0, -1.0, 0.0, 2.0])
def test_tilted_moments_of_the_probit_equal_their_closed_form(std, offset):
    mean, variance = np.array([offset * std]), np.array([std**2])
    z = mean / np.sqrt(1 + variance)
    ratio = np.exp(-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
    expected_mean = mean + variance * ratio / np.sqrt(1 + variance)
    expected_variance = variance - variance**2 * ratio * (z + ratio) / (1 + variance)
    # The mode may be rough: the closed-form mean lies within the density's bulk.
    log_z, tilted_mean, tilted_variance = tilted_moments(log_ndtr, expected_mean, mean, variance)
    assert log_z == pytest.approx(log_ndtr(z), abs=1e-9)
    assert tilted_mean == pytest.approx(expected_mean, abs=1e-8 * std)
    assert tilted_variance == pytest.approx(expected_variance, rel=1e-6)


@given(
    offset=st.floats(-20, 20),
    log_std=st.floats(-6, 6),
)
def test_expectation_of_a_monotone_function_stays_within_its_range_and_is_symmetric(offset, log_std):
    std = np.exp(log_std)
    mean, variance = np.array([offset * std, -offset * std]), np.full(2, std**2)
    up, down = gaussian_expectation(expit, mean, variance)
    assert 0.0 <= up <= 1.0
    assert up + down == pytest.approx(1.0, abs=1e-9)
