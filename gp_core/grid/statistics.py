"""Sufficient statistics: what a map remembers of its points, and all that it remembers.

A point (x, y) with height z and noise variance r lies in one block, at (s, t) in [-1, 1]^2. The block keeps

    weights[a, b] = sum  s_y^a s_x^b / r          a, b = 0 ... 10
    heights[a, b] = sum  s_y^a s_x^b (z - z_0) / r   a, b = 0 ... 5
    totals        = sum  (z - z_0)^2 / r,   number of points,   sum log r

which is lossless for least squares on splines of degree 5: W' R^-1 W, W' R^-1 z and the likelihood follow
exactly. Statistics of the same lattice add, subtract and scale, so that order, batching and merging do not
matter beyond round-off, and forgetting is a factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numba import njit

from gp_core.arrays import Array
from gp_core.grid.axes import Axis
from gp_core.grid.interpolation import MOMENTS, ORDER

SQUARES, COUNT, LOG_VARIANCE = 0, 1, 2
"""Columns of `totals`."""


@dataclass
class Statistics:
    """Moments of the points in each of the J x I blocks of a window of the lattice.

    x, y: the axes
    reference: z_0, subtracted from every height
    weights: (J, I, 11, 11)
    heights: (J, I, 6, 6)
    totals: (J, I, 3)
    """

    x: Axis
    y: Axis
    reference: float = 0.0
    weights: Array = field(init=False, repr=False)
    heights: Array = field(init=False, repr=False)
    totals: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        shape = (self.y.count, self.x.count)
        self.weights = np.zeros((*shape, MOMENTS, MOMENTS))
        self.heights = np.zeros((*shape, ORDER, ORDER))
        self.totals = np.zeros((*shape, 3))

    @property
    def count(self) -> float:
        """Number of points, after forgetting a fractional one."""
        return float(self.totals[..., COUNT].sum())

    def add(self, x: Array, y: Array, z: Array, variance: Array) -> None:
        """Take in points (N,) that lie inside the window."""
        accumulate(
            x, y, z - self.reference, variance,
            self.x.spacing, self.y.spacing, self.x.first, self.y.first,
            self.weights, self.heights, self.totals,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def accumulate(x, y, z, variance, h_x, h_y, first_x, first_y, weights, heights, totals):  # type: ignore[no-untyped-def]
    """Add points to the moments of their blocks."""
    p = np.empty(MOMENTS)
    for n in range(x.size):
        u = x[n] / h_x
        v = y[n] / h_y
        i = int(np.floor(u))
        j = int(np.floor(v))
        s = 2.0 * (u - i) - 1.0
        t = 2.0 * (v - j) - 1.0
        i -= first_x
        j -= first_y
        w = 1.0 / variance[n]
        p[0] = 1.0
        for a in range(1, MOMENTS):
            p[a] = p[a - 1] * s
        power = w
        W = weights[j, i]
        H = heights[j, i]
        for a in range(MOMENTS):
            for b in range(MOMENTS):
                W[a, b] += power * p[b]
            if a < ORDER:
                for b in range(ORDER):
                    H[a, b] += power * z[n] * p[b]
            power *= t
        totals[j, i, 0] += w * z[n] * z[n]
        totals[j, i, 1] += 1.0
        totals[j, i, 2] += np.log(variance[n])
