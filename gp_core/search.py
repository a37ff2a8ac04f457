"""The search for hyperparameters that all estimators share: the parameters of a model that maximise a likelihood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from gp_core.arrays import Array, integer_at_least
from gp_core.estimators import generator
from gp_core.optimize import Optimum, minimize
from gp_core.parameters import Parametrised
from gp_core.scales import DataScale, search_space

Model = TypeVar("Model", bound=Parametrised)
Likelihood = Callable[[Model, bool], tuple[float, Array]]
"""(model, whether the gradient is asked for) -> log p, and its gradient (P,) by the model's theta if asked for."""


@dataclass(frozen=True)
class SearchSettings:
    """How long and how often to search.

    max_iter: iterations per start
    n_restarts: further starts, drawn at random
    rng: source of the restarts; required if there are any
    tolerance: see `gp_core.optimize.minimize`
    """

    max_iter: int
    n_restarts: int = 0
    rng: np.random.Generator | None = None
    tolerance: float = 1e-6

    @classmethod
    def of(cls, estimator: Any, tolerance: float = 1e-6) -> SearchSettings:
        """Those of an estimator with max_iter, n_restarts_optimizer and random_state, checked."""
        n_restarts = integer_at_least(estimator.n_restarts_optimizer, 0, "n_restarts_optimizer")
        return cls(
            integer_at_least(estimator.max_iter, 1, "max_iter"),
            n_restarts,
            generator(estimator.random_state) if n_restarts else None,
            tolerance,
        )


def maximize_likelihood(
    model: Model,
    likelihood: Likelihood[Model],
    settings: SearchSettings,
    data: DataScale | None = None,
    start_from_data: bool = False,
) -> tuple[Model, Optimum]:
    """The model with the hyperparameters that maximise the likelihood, and how the search went.

    model: with the hyperparameters to begin with
    data: the scale of the data, from which bounds and starts follow; None for the bounds of the model
    start_from_data: begin where the data suggest, not at the model's own hyperparameters
    """

    def negative(theta: Array) -> tuple[float, Array]:
        value, gradient = likelihood(model.with_theta(theta), True)
        return -value, -gradient

    space = None if data is None else search_space(model, data)
    optimum = minimize(
        negative,
        None if start_from_data else model.theta,
        model.bounds if space is None else space.bounds,
        n_restarts=settings.n_restarts,
        rng=settings.rng,
        max_iterations=settings.max_iter,
        tolerance=settings.tolerance,
        restarts=None if space is None else space.restarts,
        candidates=None if space is None else space.candidates,
        value=lambda theta: -likelihood(model.with_theta(theta), False)[0],
    )
    return model.with_theta(optimum.x), optimum


def learn_hyperparameters(
    estimator: Any,
    model: Model,
    likelihood: Likelihood[Model],
    data: DataScale,
    start_from_data: bool = False,
) -> tuple[Model, Optimum | None]:
    """`maximize_likelihood` as an estimator's parameters say; the model itself, and None, where nothing is to learn."""
    if estimator.optimizer is None or not model.n_theta:
        return model, None
    return maximize_likelihood(model, likelihood, SearchSettings.of(estimator), data, start_from_data)


def check_optimizer(optimizer: Any, name: str = "lbfgs") -> None:
    """Refuse an optimizer that is neither `name` nor None."""
    if optimizer not in (name, None):
        raise ValueError(f'optimizer must be "{name}" or None, got {optimizer!r}')


def count_iterations(optimum: Optimum | None) -> int:
    """Iterations of a search as scikit-learn's n_iter_ counts them: at least 1, also where there was none."""
    return 1 if optimum is None else max(1, optimum.iterations)
