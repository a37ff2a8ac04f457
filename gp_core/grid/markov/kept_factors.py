"""The mean of new data by the factors of older ones: conjugate gradients with the dissection as preconditioner.

From scan to scan the precision of a map changes little: P = P_f + D, with P_f the one that was eliminated and D the
stencil by which the data have grown since. What the change of the data leaves of the normal equations at the present
mean m needs no prior,

    r = d(b) - d(A) m,          A = W' R^-1 W,  b = W' R^-1 z,

and (P_f + D) e = r is solved for the change e of the mean by conjugate gradients preconditioned by P_f^-1. Directions
are sums of P_f^-1 r_i, so that P_f times them is the same sum of the r_i: again no prior is needed. If the information
has grown by a tenth, a step takes the error down by a factor of 40.

P_f^-1 r is that of mean_solution.py.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.markov.front_arrays import Factors
from gp_core.grid.markov.fronts import Plan
from gp_core.grid.markov.mean_solution import add_stencil_product, solve
from gp_core.grid.workers import Workers

_CONVERGED: Final = 0.02
"""Root of e' P e at which the mean is good enough: at no cell is it off by more posterior standard deviations."""
_SAFE: Final = 2.0
"""Times the estimate of what the last step leaves: growth differs from place to place."""
_MOST_STEPS: Final = 16
_TRIED_STEPS: Final = 5
"""Steps after which it is judged by those so far whether they will be enough."""
_LEAST_CURVATURE: Final = 0.5
"""Of P along a step, against P_f: where information was lost since, r' P_f^-1 r is no bound on e' P e any more."""


def improve(
    mean: Array, residual: Array, growth: Array, plan: Plan, factors: Factors, workers: Workers
) -> float | None:
    """Add the solution e of (P_f + D) e = r to the mean (N,); None, and both unchanged, where that takes too long or
    the factors know more than the data.

    Returns the root of r' P_f^-1 r, which is that of e' P e if D is nothing.

    residual: (N,) r; what is left of it is written back
    growth: (N, 13) stencil of D
    """
    r = residual.copy()
    change = np.zeros_like(mean)
    first = before = 0.0
    step = image = grown = change  # grown: D step; image: P_f step
    for taken in range(_MOST_STEPS):
        z = solve(r[None], plan, factors, workers)[0]
        square = float(r @ z)
        if not np.isfinite(square):
            return None
        first = first or square
        z_grown = _times_stencil(growth, z, plan.size[1])
        # z itself is a step whose image under P_f is r: it leaves -D z, which is smaller by the growth of information.
        if _SAFE * float(z @ z_grown) <= _CONVERGED * np.sqrt(max(square, 0.0)):
            mean += change + z
            residual[:] = -z_grown
            return float(np.sqrt(max(first, 0.0)))
        if taken == _TRIED_STEPS and square * (square / first) ** (_MOST_STEPS / taken - 1.0) > _CONVERGED**2:
            return None
        turn = square / before if taken else 0.0
        step, image, grown = z + turn * step, r + turn * image, z_grown + turn * grown
        along_factors = float(step @ image)
        curvature = along_factors + float(step @ grown)
        if not curvature > _LEAST_CURVATURE * along_factors:
            return None
        along = square / curvature
        change = change + along * step
        r -= along * (image + grown)
        before = square
    return None


def _times_stencil(stencil: Array, x: Array, n_x: int) -> Array:
    out = np.zeros_like(x)
    add_stencil_product(stencil, x, n_x, out)
    return out
