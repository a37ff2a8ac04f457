"""The one optimiser: bounds, restarts, failures, reproducibility."""

import numpy as np
import pytest

from gp_core.optimize import minimize

BOX = np.array([[-4.0, 4.0]])


def bowl(x):
    return float(np.sum((x - 1.0) ** 2)), 2.0 * (x - 1.0)


def two_valleys(x):
    """Minima near -1 (shallow) and +1 (deep)."""
    return float((x[0] ** 2 - 1.0) ** 2 - 0.3 * x[0]), np.array([4.0 * x[0] * (x[0] ** 2 - 1.0) - 0.3])


def test_finds_the_minimum():
    result = minimize(bowl, np.array([-3.0]), BOX)
    assert result.converged
    assert result.x[0] == pytest.approx(1.0, abs=1e-5)
    assert result.value == pytest.approx(0.0, abs=1e-9)
    assert not result.at_bound.any()


def test_stays_in_the_box_and_says_so():
    result = minimize(bowl, np.array([-9.0]), np.array([[-4.0, 0.5]]))
    assert result.x[0] == 0.5
    assert result.at_bound.all()


def test_restarts_escape_a_local_minimum_reproducibly():
    stuck = minimize(two_valleys, np.array([-1.0]), BOX)
    assert stuck.x[0] < 0.0
    runs = [
        minimize(two_valleys, np.array([-1.0]), BOX, n_restarts=8, rng=np.random.default_rng(0))
        for _ in range(2)
    ]
    assert runs[0].x[0] > 0.0
    assert runs[0].value == runs[1].value
    np.testing.assert_array_equal(runs[0].x, runs[1].x)
    assert runs[0].run_values[0] == stuck.value
    assert len(runs[0].run_values) == 9


def test_restarts_with_infinite_bounds():
    result = minimize(
        two_valleys,
        np.array([-1.0]),
        np.array([[-np.inf, np.inf]]),
        n_restarts=8,
        rng=np.random.default_rng(0),
    )
    assert result.x[0] > 0.0


def test_a_failing_region_is_stepped_back_from():
    def cliff(x):
        if x[0] > 0.5:
            raise ValueError("not positive definite here")
        return bowl(x)

    result = minimize(cliff, np.array([-3.0]), BOX)
    assert result.x[0] <= 0.5
    assert np.isfinite(result.value)
    assert result.value < bowl(np.array([-3.0]))[0]


def test_a_start_that_fails_raises_its_error_unless_a_restart_works():
    def cliff(x):
        if x[0] < 0.0:
            raise ValueError("not positive definite here")
        return bowl(x)

    with pytest.raises(ValueError, match="not positive definite here"):
        minimize(cliff, np.array([-3.0]), BOX)
    result = minimize(cliff, np.array([-3.0]), BOX, n_restarts=5, rng=np.random.default_rng(0))
    assert result.x[0] == pytest.approx(1.0, abs=1e-5)


def test_an_objective_that_is_never_finite_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        minimize(lambda x: (np.nan, np.zeros(1)), np.array([0.0]), BOX)


def test_restarts_need_a_generator():
    with pytest.raises(ValueError, match="Generator"):
        minimize(bowl, np.array([0.0]), BOX, n_restarts=1)


def test_the_best_point_seen_is_returned_however_the_run_ends():
    values = iter([10.0, 1.0, 8.0])

    def erratic(x):
        return next(values, 9.0), np.array([-1.0])

    result = minimize(erratic, np.array([0.0]), BOX)
    assert result.value == 1.0
    assert min(result.run_values) == 1.0


def test_nothing_to_optimise():
    result = minimize(lambda x: (3.0, np.zeros(0)), np.zeros(0), np.zeros((0, 2)))
    assert result.value == 3.0
    assert result.converged


def test_too_few_iterations_are_reported():
    def rosenbrock(x):
        a, b = x
        value = (1.0 - a) ** 2 + 100.0 * (b - a * a) ** 2
        return value, np.array([-2.0 * (1.0 - a) - 400.0 * a * (b - a * a), 200.0 * (b - a * a)])

    box = np.array([[-4.0, 4.0]] * 2)
    assert not minimize(rosenbrock, np.array([-1.2, 1.0]), box, max_iterations=2).converged
    assert minimize(rosenbrock, np.array([-1.2, 1.0]), box).converged
