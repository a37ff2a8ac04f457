"""Student t distribution, with infinite degrees of freedom for the normal one.

scipy.stats has it too, but takes as long to import as all the rest of the engine.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, ndtr, ndtri, stdtr, stdtrit

from gp_core.arrays import Array


def inside(x: Array, degrees: Array) -> Array:
    """Probability of (-|x|, |x|)."""
    x = np.abs(x)
    normal = np.isinf(degrees)
    below = np.where(normal, ndtr(x), stdtr(np.where(normal, 1.0, degrees), x))
    return np.asarray(2.0 * below - 1.0)


def reach(level: float, degrees: Array) -> Array:
    """x for which (-x, x) has the given probability."""
    normal = np.isinf(degrees)
    at = 0.5 + 0.5 * level
    return np.asarray(np.where(normal, ndtri(at), stdtrit(np.where(normal, 1.0, degrees), at)))


def log_density(x: Array, degrees: Array) -> Array:
    normal = np.isinf(degrees)
    n = np.where(normal, 1.0, degrees)
    tails = gammaln(0.5 * (n + 1.0)) - gammaln(0.5 * n) - 0.5 * np.log(n * np.pi)
    tails = tails - 0.5 * (n + 1.0) * np.log1p(x**2 / n)
    return np.asarray(np.where(normal, -0.5 * (x**2 + np.log(2.0 * np.pi)), tails))


def nominal_level(levels: Array, level: float) -> float:
    """Nominal level of the interval that contains the share `level` of points.

    levels: (M,) of the intervals that just hold each of M points, growing; without any, the level itself
    """
    if levels.size == 0:
        return level
    # As many of M + 1 gaps: a new point is as likely to fall into any of them.
    share = np.arange(levels.size + 2) / (levels.size + 1)
    return float(np.interp(level, share, np.concatenate([[0.0], levels, [1.0]])))
