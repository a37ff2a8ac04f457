"""The one Newton iteration of the package: iteratively reweighted least squares with step halving.

The classifiers maximise a concave log posterior whose curvature is Φ' W Φ plus a prior. One Newton step
weighs the data with W at the current point and solves the weighted least-squares problem; hence the name.
The models differ only in how they evaluate and how they solve, so these two are arguments, and many
independent problems run at once.

Shapes: B problems, each with a state of any shape (...).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.arrays import Array

Rows = NDArray[np.intp]
_EPSILON = 64.0 * float(np.finfo(np.float64).eps)
"""Rounding of an objective that is a long sum, relative to its size."""


@dataclass(frozen=True)
class IRLSResult:
    """Where the iterations ended, problem by problem.

    state: (B, ...) maximisers.
    value: (B,) objective there.
    converged: (B,) whether the Newton decrement fell below the tolerance.
    iterations: Newton directions computed, the most that any problem needed.
    """

    state: Array
    value: Array
    converged: NDArray[np.bool_]
    iterations: int


def irls(
    value: Callable[[Array, Rows], Array],
    direction: Callable[[Array, Rows], tuple[Array, Array]],
    start: Array,
    *,
    tol: float = 1e-10,
    max_iter: int = 100,
    max_halvings: int = 50,
) -> IRLSResult:
    """Maximise B concave functions by x ← x + s (-∇∇ψ)⁻¹ ∇ψ, with s = 1, 1/2, 1/4, ... until ψ grows enough.

    value: (states, rows) -> (B',) objectives ψ of the problems `rows`; -inf or NaN is backed away from.
    direction: (states, rows) -> Newton steps (B', ...) and decrements λ² = ∇ψ' (-∇∇ψ)⁻¹ ∇ψ (B',).
    start: (B, ...) first states, with finite objectives.
    tol: a problem has converged when λ²/2, the gain that Newton's model still promises, is below tol.
    max_iter: the most directions to compute.
    max_halvings: the most halvings of one step; a problem whose step is used up stops where it is.

    A problem's last direction is computed at the state that is returned: what it factorised belongs to it.
    """
    state = start.copy()
    rows = np.arange(len(state))
    current = value(state, rows)
    converged = np.zeros(len(state), dtype=bool)
    last = np.full(len(state), np.inf)
    iterations = 0
    while len(rows) and iterations < max_iter:
        step, decrement = direction(state[rows], rows)
        iterations += 1
        # Where the gain is below the rounding of ψ, Newton runs on for as long as it still makes headway.
        invisible = 0.5 * decrement <= _EPSILON * np.abs(current[rows])
        done = (0.5 * decrement <= tol) | (invisible & (decrement > 0.5 * last[rows]))
        last[rows] = decrement
        converged[rows[done]] = True
        if iterations == max_iter:
            break
        rows, step, decrement = rows[~done], step[~done], decrement[~done]
        moved = _line_search(value, state, current, rows, step, decrement, max_halvings)
        # No step gains anything: as far as rounding can tell, this is the maximum.
        converged[rows[~moved]] = 0.5 * decrement[~moved] <= np.sqrt(tol)
        rows = rows[moved]
    return IRLSResult(state, current, converged, iterations)


def _line_search(
    value: Callable[[Array, Rows], Array],
    state: Array,
    current: Array,
    rows: Rows,
    step: Array,
    decrement: Array,
    max_halvings: int,
) -> NDArray[np.bool_]:
    """Move `state` and `current` in place by the first halved step that gains; tell which problems moved."""
    moved = np.zeros(len(rows), dtype=bool)
    pending = np.arange(len(rows))
    length = 1.0
    for _ in range(max_halvings + 1):
        if not len(pending):
            break
        problems = rows[pending]
        trial = state[problems] + length * step[pending]
        trial_value = value(trial, problems)
        # Armijo: a hundredth of the gain that the slope promises, up to the rounding of ψ.
        slack = _EPSILON * np.abs(current[problems])
        accepted = trial_value - current[problems] >= 0.01 * length * decrement[pending] - slack
        winners = problems[accepted]
        state[winners] = trial[accepted]
        current[winners] = trial_value[accepted]
        moved[pending[accepted]] = True
        pending = pending[~accepted]
        length *= 0.5
    return moved
