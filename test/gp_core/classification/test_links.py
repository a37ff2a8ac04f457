"""The two likelihoods: derivatives by finite differences, integrals by adaptive quadrature, tails."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit, ndtr

from gp_core.classification.links import LINKS

both_links = pytest.mark.parametrize("name", ["logit", "probit"])
FINITE = st.floats(-1e6, 1e6)


def central(function, x, step):
    return (function(x + step) - function(x - step)) / (2 * step)


@both_links
def test_probabilities_of_the_two_labels_add_up_to_one(name):
    link = LINKS[name]
    f = np.linspace(-6, 6, 25)
    total = np.exp(link.log_p(np.ones(25), f)) + np.exp(link.log_p(-np.ones(25), f))
    np.testing.assert_allclose(total, 1.0, rtol=1e-14)
    np.testing.assert_allclose(
        np.log(link.probability(f)), link.log_p(np.ones(25), f), rtol=1e-12, atol=1e-15
    )


@both_links
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_derivatives_are_finite_differences_of_each_other(name, label):
    link = LINKS[name]
    f = np.concatenate([np.linspace(-8, 8, 41), [-25.0, 25.0]])
    y = np.full_like(f, label)
    at = link.derivatives(y, f)
    step = 1e-5
    np.testing.assert_allclose(at.log_p, link.log_p(y, f), rtol=1e-15)
    np.testing.assert_allclose(at.d1, central(lambda t: link.log_p(y, t), f, step), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        -at.w, central(lambda t: link.derivatives(y, t).d1, f, step), rtol=1e-6, atol=1e-9
    )
    np.testing.assert_allclose(
        at.d3, -central(lambda t: link.derivatives(y, t).w, f, step), rtol=1e-5, atol=1e-9
    )


@both_links
@given(f=FINITE, label=st.sampled_from([-1.0, 1.0]))
def test_derivatives_are_finite_and_log_concave_everywhere(name, f, label):
    at = LINKS[name].derivatives(np.array([label]), np.array([f]))
    assert np.isfinite([at.log_p, at.d1, at.w, at.d3]).all()
    assert at.log_p <= 0.0
    assert 0.0 <= at.w <= 1.0
    assert label * at.d1 >= 0.0


def test_probit_derivatives_are_continuous_where_the_expansion_takes_over():
    z = np.array([-30.0 - 1e-9, -30.0 + 1e-9])
    at = LINKS["probit"].derivatives(np.ones(2), z)
    assert at.w[0] == pytest.approx(at.w[1], rel=1e-10)
    assert at.d3[0] == pytest.approx(at.d3[1], rel=1e-5)


def test_probit_far_in_the_wrong_tail_behaves_like_a_gaussian():
    z = np.array([-1e3, -1e6, -1e9])
    at = LINKS["probit"].derivatives(np.ones(3), z)
    np.testing.assert_allclose(at.log_p, -0.5 * z**2, rtol=1e-4)
    np.testing.assert_allclose(at.d1, -z, rtol=1e-5)
    np.testing.assert_allclose(at.w, 1.0 - z**-2.0, rtol=1e-9)


@both_links
def test_class_probability_is_the_integral(name):
    link = LINKS[name]
    mean, std = np.array([-4.0, 0.5, 3.0]), np.array([2.0, 0.3, 7.0])
    squash = {"logit": expit, "probit": ndtr}[name]
    expected = [
        quad(lambda t, m=m, s=s: squash(m + s * t) * np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi), -12, 12)[0]
        for m, s in zip(mean, std, strict=True)
    ]
    np.testing.assert_allclose(link.class_probability(mean, std**2), expected, atol=1e-8)


@both_links
@given(
    label=st.sampled_from([-1.0, 1.0]),
    offset=st.floats(-6, 6),
    log_std=st.floats(-4, 4),
)
def test_tilted_moments_are_the_derivatives_of_log_z(name, label, offset, log_std):
    """mean = m + v ∂logZ/∂m and variance = v + v² ∂²logZ/∂m²: an identity of every exponential family."""
    link = LINKS[name]
    std = np.exp(log_std)
    y, variance = np.full(3, label), np.full(3, std**2)
    step = 1e-3 * std
    log_z, mean, spread = link.tilted(y, offset * std + step * np.array([-1.0, 0.0, 1.0]), variance)
    slope = (log_z[2] - log_z[0]) / (2 * step)
    assert (mean[1] - offset * std) / std == pytest.approx(std * slope, abs=1e-4)
    assert spread[1] / std**2 == pytest.approx((mean[2] - mean[0]) / (2 * step), rel=1e-3, abs=1e-6)
    assert 0.0 < spread[1] <= std**2 * (1 + 1e-9)
    assert log_z[1] < 0.0


@both_links
@pytest.mark.parametrize("mean", [-3.0, 0.2, 40.0])
@pytest.mark.parametrize("std", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_expected_log_likelihood_is_the_integral_with_its_derivatives(name, mean, std, label):
    link = LINKS[name]

    def expect(function):
        def integrand(t):
            return (
                function(np.array([label]), np.array([mean + std * t]))[0]
                * np.exp(-(t**2) / 2)
                / np.sqrt(2 * np.pi)
            )

        bend = np.clip(-mean / std, -11, 11)
        return quad(integrand, -12, bend, limit=400)[0] + quad(integrand, bend, 12, limit=400)[0]

    at = link.expected(np.array([label]), np.array([mean]), np.array([std**2]))
    assert at.log_p[0] == pytest.approx(expect(link.log_p), rel=1e-7, abs=1e-9)
    assert at.d1[0] == pytest.approx(expect(lambda y, f: link.derivatives(y, f).d1), rel=1e-7, abs=1e-8)
    for power, value in enumerate([at.w, at.wt, at.wtt]):
        expected = expect(lambda y, f, p=power: link.derivatives(y, f).w * ((f - mean) / std) ** p)
        assert value[0] == pytest.approx(expected, rel=1e-6, abs=1e-8)
