"""Gaussians: against scipy's density, against samples, and against each other."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from gp_core import Gaussian
from gp_core.gaussian import mean_of

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(4, 4))
ONE = Gaussian(RNG.normal(size=4), ROOT @ ROOT.T)
OTHER = Gaussian(RNG.normal(size=4), [1.0, 2.0, 3.0, 4.0])


def test_density():
    x = RNG.normal(size=(5, 4))
    expected = multivariate_normal(ONE.mean, ONE.covariance).logpdf(x)
    np.testing.assert_allclose(ONE.log_density(x), expected)
    assert ONE.log_density(x[0]) == pytest.approx(expected[0])


def test_sum_mean_and_transformation_have_the_moments_of_samples():
    rng = np.random.default_rng(1)
    a, b = ONE.sample(200_000, rng), OTHER.sample(200_000, rng)
    A = RNG.normal(size=(2, 4))
    for found, draws in (
        (ONE, a),
        (ONE + OTHER, a + b),
        (mean_of([ONE, OTHER]), (a + b) / 2.0),
        ((ONE + OTHER) / 2, (a + b) / 2.0),
        (ONE - OTHER, a - b),
        (2 * -ONE - [1.0, 2.0, 3.0, 4.0], -2.0 * a - [1.0, 2.0, 3.0, 4.0]),
        (3.0 * ONE + 1.0, 3.0 * a + 1.0),
        (ONE.transform(A, [1.0, 2.0]), a @ A.T + [1.0, 2.0]),
        (ONE.marginal([2, 0]), a[:, [2, 0]]),
    ):
        size = float(np.abs(found.covariance).max())
        np.testing.assert_allclose(draws.mean(axis=0), found.mean, atol=0.02 * np.sqrt(size))
        np.testing.assert_allclose(np.cov(draws.T), found.covariance, atol=0.03 * size)
    np.testing.assert_allclose(ONE.std, np.sqrt(np.diag(ONE.covariance)))


def test_marginal_times_conditional_is_the_joint():
    x = RNG.normal(size=4)
    given = [3, 1]
    conditional = ONE.conditional(given, x[given])
    joint = ONE.marginal(given).log_density(x[given]) + conditional.log_density(x[[0, 2]])
    assert joint == pytest.approx(ONE.log_density(x))


def test_a_singular_gaussian_can_be_sampled_and_has_no_density():
    flat = Gaussian([0.0, 0.0], [[1.0, 1.0], [1.0, 1.0]])
    draws = flat.sample(10, np.random.default_rng(0))
    np.testing.assert_allclose(draws[:, 0], draws[:, 1], atol=1e-7)
    assert flat.conditional([0], [2.0]).mean == pytest.approx([2.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Gaussian([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "negative eigenvalue"),
        (lambda: Gaussian([0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (lambda: Gaussian([0.0], [1.0, 2.0]), "1 variances"),
        (lambda: Gaussian([np.nan], 1.0), "NaN"),
        (lambda: ONE + Gaussian([0.0], 1.0), "can't be added"),
        (lambda: ONE.marginal([4]), "from 0 to 3"),
        (lambda: ONE.marginal([0, 0]), "different"),
        (lambda: ONE.conditional([0, 1, 2, 3], np.zeros(4)), "none is left"),
        (lambda: ONE.conditional([0], [1.0, 2.0]), "shape"),
        (lambda: ONE.transform(np.eye(3)), "4 columns"),
        (lambda: mean_of([]), "at least one"),
        (lambda: ONE / 0, "divided by 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_old_name_of_transform_warns():
    with pytest.warns(DeprecationWarning, match="use Gaussian.transform"):
        old = ONE.transformed(np.eye(len(ONE)))
    np.testing.assert_array_equal(old.mean, ONE.mean)


def test_what_is_no_number_scales_nothing():
    for call in (lambda: ONE * OTHER, lambda: ONE / OTHER):
        with pytest.raises(TypeError, match="unsupported operand"):
            call()


def test_constants_on_either_side():
    shift = np.array([1.0, 2.0])
    x = Gaussian([1.0, 0.0], 2.0)
    np.testing.assert_allclose((shift + x).mean, [2.0, 2.0])
    np.testing.assert_allclose((shift - x).mean, [0.0, 2.0])
    np.testing.assert_allclose((1.0 - x).covariance, x.covariance)


def test_the_arrays_of_the_caller_stay_writeable():
    mean, covariance = np.zeros(2), np.eye(2)
    x = Gaussian(mean, covariance)
    mean[0] = covariance[0, 0] = 9.0
    assert x.mean[0] == 0.0
    assert x.covariance[0, 0] == 1.0


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda x: Gaussian([], 1.0), "mean is empty"),
        (lambda x: x.log_density([0.0, 0.0, 0.0]), "x must have shape"),
        (lambda x: Gaussian([0.0], 1.0).log_density([0.5, 1.0]), "x must have shape"),
        (lambda x: Gaussian([0.0, 0.0], [[1.0, 1.0], [1.0, 1.0]]).log_density([0.0, 0.0]), "singular"),
        (lambda x: x + np.ones(3), "the constant must be a number or have shape"),
        (lambda x: x.transform([[1.0, 1.0]], [1.0, 2.0]), "b must be a number or have shape"),
        (lambda x: x.sample(3, 0), "rng must be a numpy Generator"),
    ],
    ids=["empty", "too long", "two of one", "singular", "constant", "b", "rng"],
)
def test_what_makes_no_sense_is_a_clear_error(call, reason):
    with pytest.raises(ValueError, match=reason):
        call(Gaussian([1.0, 0.0], 2.0))
