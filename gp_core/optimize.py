"""The one bounded optimiser of the package: L-BFGS-B with restarts, shared by every model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gp_core.arrays import Array

Objective = Callable[[Array], tuple[float, Array]]
Value = Callable[[Array], float]
RESTART_RANGE = 5.0
"""Where a bound is infinite a restart is drawn within this distance of the start."""
_FLAT = 1e-5
"""Projected gradient, relative to the value, below which a line search can fail for rounding alone."""


@dataclass(frozen=True)
class Run:
    """What one run of the optimiser found.

    x: the best point (P,)
    value: the objective there
    gradient: its gradient there (P,)
    converged: whether the run met its tolerance, or stopped for rounding where the objective is flat
    message: why it stopped
    iterations: how many it took
    out_of_iterations: whether it was ended by max_iterations
    """

    x: Array
    value: float
    gradient: Array
    converged: bool
    message: str
    iterations: int
    out_of_iterations: bool


@dataclass(frozen=True)
class Optimum(Run):
    """What a minimisation found: its best run, and what it says of the others.

    evaluations: objective calls over all runs
    run_values: final value of each run, the given start first: different values mean local optima
    at_bound: (P,) bool, coordinates that ended on a bound
    bounds: (P, 2) the box
    """

    evaluations: int
    run_values: tuple[float, ...]
    at_bound: np.ndarray[tuple[int], np.dtype[np.bool_]]
    bounds: Array

    def find_active_bounds(self, slope: float) -> list[int]:
        """Coordinates on a bound beyond which the objective still falls, by more than `slope` per unit."""
        outward = np.where(
            self.x - self.bounds[:, 0] < self.bounds[:, 1] - self.x, self.gradient, -self.gradient
        )
        return [int(i) for i in np.flatnonzero(self.at_bound & (outward > slope))]


def minimize(
    objective: Objective,
    start: Array | None,
    bounds: Array,
    *,
    n_restarts: int = 0,
    rng: np.random.Generator | None = None,
    max_iterations: int = 200,
    tolerance: float = 1e-6,
    restarts: Array | None = None,
    candidates: Array | None = None,
    value: Value | None = None,
) -> Optimum:
    """min over x in the box of objective(x), which returns value and gradient.

    A point where the objective raises ValueError (a covariance that can't be factorised) or is not finite
    counts as infinitely bad; the search steps back from it. If the start itself is such a point and no
    restart is better, that ValueError is raised.

    A run that ends above one of the candidates was not worth its start (a plateau, a scale far from the data): a
    further run begins at the best candidate.

    start: (P,), moved into the box if it is outside; None for the best candidate
    bounds: (P, 2), may hold infinities
    n_restarts: further runs from points drawn uniformly
    rng: source of the restarts; required if n_restarts > 0
    tolerance: on the projected gradient and, times 1e-3, on the relative decrease
    restarts: (P, 2) the box that restarts are drawn from; `bounds` unless given
    candidates: (C, P) points that may be better starts
    value: the objective without its gradient, for the candidates
    """
    if n_restarts > 0 and rng is None:
        raise ValueError("restarts are random: pass rng, a numpy.random.Generator")
    guarded = _Guarded(objective)
    best_candidate = _best_candidate(guarded, value, candidates)
    if start is None:
        if best_candidate is None:
            raise guarded.failure or ValueError("the objective is not finite at any candidate: give a start")
        start = best_candidate[1]
    start = np.clip(np.asarray(start, dtype=np.float64), bounds[:, 0], bounds[:, 1])
    runs = [_run(guarded, start, bounds, max_iterations, tolerance)]
    if best_candidate is not None and best_candidate[0] < runs[0].value:
        runs.append(_run(guarded, best_candidate[1], bounds, max_iterations, tolerance))
    if rng is not None:
        box = _restart_box(start, bounds) if restarts is None else restarts
        for _ in range(n_restarts):
            runs.append(_run(guarded, rng.uniform(box[:, 0], box[:, 1]), bounds, max_iterations, tolerance))
    best = min(runs, key=lambda run: run.value)
    if not np.isfinite(best.value):
        raise guarded.failure or ValueError("the objective is not finite at any start: check data and bounds")
    slack = 1e-8 * np.maximum(1.0, np.abs(best.x))
    return Optimum(
        **vars(best),
        evaluations=guarded.evaluations,
        run_values=tuple(run.value for run in runs),
        at_bound=(best.x - bounds[:, 0] <= slack) | (bounds[:, 1] - best.x <= slack),
        bounds=bounds,
    )


class _Guarded:
    """The objective with failures turned into a large finite value that a line search steps back from."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.evaluations = 0
        self.failure: ValueError | None = None

    def __call__(self, x: Array) -> tuple[float, Array]:
        self.evaluations += 1
        try:
            value, gradient = self.objective(x)
        except ValueError as error:
            self.failure = self.failure or error
            return np.inf, np.zeros_like(x)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return np.inf, np.zeros_like(x)
        return float(value), gradient

    def evaluate(self, value: Value, x: Array) -> float:
        """value(x), infinite where it fails."""
        self.evaluations += 1
        try:
            return float(value(x))
        except ValueError as error:
            self.failure = self.failure or error
            return np.inf


def _run(objective: _Guarded, start: Array, bounds: Array, max_iterations: int, tolerance: float) -> Run:
    value, gradient = objective(start)
    if start.size == 0 or not np.isfinite(value):
        return Run(start, value, gradient, bool(np.isfinite(value)), "nothing to optimise", 0, False)
    # L-BFGS-B can't step back from inf, so a failed point is shown to it as clearly worse than the start.
    wall = abs(value) * 10.0 + 1e6
    seen: list[tuple[float, Array, Array]] = [(value, start, gradient)]

    def finite(x: Array) -> tuple[float, Array]:
        # The first question is for the start, which has been answered.
        value, gradient = seen[0][::2] if np.array_equal(x, seen[0][1]) else objective(x)
        if not np.isfinite(value):
            return wall, gradient
        if value < seen[0][0]:
            seen[0] = (value, x.copy(), gradient.copy())
        return value, gradient

    from scipy import optimize  # here, since a map that learns nothing need not import it

    result = optimize.minimize(
        finite,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=optimize.Bounds(bounds[:, 0], bounds[:, 1]),
        options={"maxiter": max_iterations, "gtol": tolerance, "ftol": tolerance * 1e-3},
    )
    value, x, gradient = seen[0]  # the best point seen, also when a wall ended the run
    projected = np.clip(x - gradient, bounds[:, 0], bounds[:, 1]) - x
    flat = bool(np.abs(projected).max() <= _FLAT * max(1.0, abs(value)))
    converged = bool(result.success) or (result.status != 1 and flat)  # 1: out of iterations
    return Run(x, value, gradient, converged, str(result.message), int(result.nit), result.status == 1)


def _best_candidate(
    objective: _Guarded, value: Value | None, candidates: Array | None
) -> tuple[float, Array] | None:
    """The candidate with the smallest finite value, and that value."""
    best: tuple[float, Array] | None = None
    for x in () if candidates is None else candidates:
        found = objective(x)[0] if value is None else objective.evaluate(value, x)
        if np.isfinite(found) and (best is None or found < best[0]):
            best = found, x
    return best


def _restart_box(start: Array, bounds: Array) -> Array:
    width = bounds[:, 1] - bounds[:, 0]
    reach = np.where(np.isfinite(width), width, RESTART_RANGE)
    return np.clip(np.stack([start - reach, start + reach], axis=1), bounds[:, :1], bounds[:, 1:])
