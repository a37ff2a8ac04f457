"""The Newton iteration on problems whose answer is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import expit, log_expit

from gp_core.irls import irls


def quadratic(A, b):
    """ψ(x) = b'x - x'Ax/2, one problem."""

    def value(x, rows):
        return np.array([b @ x[0] - 0.5 * x[0] @ A @ x[0]])

    def direction(x, rows):
        gradient = b - A @ x[0]
        step = np.linalg.solve(A, gradient)
        return step[None], np.array([gradient @ step])

    return value, direction


def tilted(mean, variance):
    """ψ(f) = log σ(f) - (f - mean)²/2variance for a batch; Newton overshoots when the variance is large."""

    def value(f, rows):
        return log_expit(f) - 0.5 * (f - mean[rows]) ** 2 / variance[rows]

    def direction(f, rows):
        slope = expit(-f) - (f - mean[rows]) / variance[rows]
        step = slope / (expit(f) * expit(-f) + 1 / variance[rows])
        return step, slope * step

    return value, direction


def test_a_quadratic_takes_one_step():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    A, b = root @ root.T + np.eye(5), rng.normal(size=5)
    result = irls(*quadratic(A, b), np.zeros((1, 5)))
    assert result.converged.all()
    assert result.iterations == 2  # the second direction confirms
    np.testing.assert_allclose(result.state[0], np.linalg.solve(A, b), rtol=1e-12)


@given(offset=st.floats(-30, 30), log_std=st.floats(-3, 7))
def test_the_stationary_point_is_found_where_a_full_newton_step_diverges(offset, log_std):
    std = np.exp(log_std)
    mean, variance = np.array([offset * std]), np.array([std**2])
    result = irls(*tilted(mean, variance), mean, tol=1e-20)

    def slope(f):
        return expit(-f) - (f - mean[0]) / variance[0]

    expected = brentq(slope, mean[0] - std, mean[0] + variance[0] + std, xtol=1e-13, rtol=1e-14)
    curvature = expit(expected) * expit(-expected) + std**-2.0
    assert result.converged.all()
    # To the rounding of the objective, seen through a parabola.
    assert abs(result.state[0] - expected) * np.sqrt(curvature) <= 1e-7 * max(1.0, np.sqrt(-result.value[0]))


def test_a_batch_gives_what_each_problem_gives_alone():
    rng = np.random.default_rng(1)
    mean, variance = rng.normal(scale=50, size=20), rng.gamma(1.0, 300.0, size=20)
    together = irls(*tilted(mean, variance), mean)
    alone = [irls(*tilted(mean[i : i + 1], variance[i : i + 1]), mean[i : i + 1]) for i in range(20)]
    np.testing.assert_array_equal(together.state, np.concatenate([r.state for r in alone]))
    assert together.iterations == max(r.iterations for r in alone)


def test_the_objective_never_decreases():
    mean, variance = np.array([-1000.0]), np.array([1e4])
    value, direction = tilted(mean, variance)
    accepted = []

    def watched(f, rows):
        accepted.append(value(f, rows)[0])
        return direction(f, rows)

    irls(value, watched, mean)
    assert len(accepted) > 2
    assert np.all(np.diff(accepted) > 0)


def test_running_out_of_iterations_is_reported():
    mean, variance = np.array([-1000.0, 0.0]), np.array([1e4, 1e-6])
    result = irls(*tilted(mean, variance), mean, max_iter=3)
    assert result.converged.tolist() == [False, True]
    assert result.iterations == 3


def test_an_infinite_trial_is_backed_away_from():
    # ψ(x) = log x - x/1000 on x > 0: from x = 1000 + δ the full step leaves the domain.
    def value(x, rows):
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.log(x) - x / 1000.0

    def direction(x, rows):
        slope = 1 / x - 1e-3
        return slope * x**2, slope**2 * x**2

    result = irls(value, direction, np.array([2500.0]))
    assert result.converged.all()
    assert result.state[0] == pytest.approx(1000.0, rel=1e-4)
