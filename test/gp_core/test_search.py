"""The search for hyperparameters that every estimator shares."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from gp_core.kernels import RBF
from gp_core.scales import DataScale
from gp_core.search import SearchSettings, check_optimizer, count_iterations, maximize_likelihood


def bump(at):
    """A likelihood of an RBF that is largest where the length scale is `at`."""

    def likelihood(kernel, gradient):
        gap = np.log(kernel.length_scale) - np.log(at)
        return -(gap**2), np.array([-2.0 * gap]) if gradient else np.zeros(0)

    return likelihood


def test_the_maximum_is_found_from_the_model():
    kernel, optimum = maximize_likelihood(RBF(1.0), bump(3.0), SearchSettings(max_iter=50))
    assert kernel.length_scale == pytest.approx(3.0, rel=1e-4)
    assert optimum.converged
    assert count_iterations(optimum) == optimum.iterations >= 1


def test_it_begins_where_the_data_suggest():
    asked = []

    def likelihood(kernel, gradient):
        if gradient:
            asked.append(kernel.length_scale)
        return bump(1000.0)(kernel, gradient)

    X = 1000.0 * np.random.default_rng(0).normal(size=(50, 1))
    maximize_likelihood(RBF(1.0), likelihood, SearchSettings(max_iter=50), DataScale(X), start_from_data=True)
    assert 100.0 < asked[0] < 10_000.0
    asked.clear()
    maximize_likelihood(RBF(1.0), likelihood, SearchSettings(max_iter=50), DataScale(X))
    assert asked[0] == 1.0


def test_no_point_is_evaluated_twice_in_a_row():
    asked = []

    def likelihood(kernel, gradient):
        asked.append(kernel.length_scale)
        return bump(3.0)(kernel, gradient)

    maximize_likelihood(RBF(1.0), likelihood, SearchSettings(max_iter=50))
    assert all(a != b for a, b in pairwise(asked))


@dataclass
class Estimator:
    max_iter: object = 10
    n_restarts_optimizer: object = 2
    random_state: object = 0


def test_settings_of_an_estimator():
    settings = SearchSettings.of(Estimator(), tolerance=1e-3)
    assert (settings.max_iter, settings.n_restarts, settings.tolerance) == (10, 2, 1e-3)
    assert settings.rng is not None
    assert SearchSettings.of(Estimator(n_restarts_optimizer=0)).rng is None
    with pytest.raises(ValueError, match="max_iter must be >= 1"):
        SearchSettings.of(Estimator(max_iter=0))
    with pytest.raises(ValueError, match="n_restarts_optimizer"):
        SearchSettings.of(Estimator(n_restarts_optimizer=-1))


def test_an_unknown_optimizer_is_refused():
    check_optimizer("loo", "loo")
    check_optimizer(None)
    with pytest.raises(ValueError, match="optimizer must be \"lbfgs\" or None, got 'adam'"):
        check_optimizer("adam")
    assert count_iterations(None) == 1
