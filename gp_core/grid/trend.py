"""The prior mean: known, an unknown constant, or an unknown plane (universal kriging).

With z = H beta + f + noise, beta flat, S = K + R and H the basis functions at the points,

    beta = (H' S^-1 H)^-1 H' S^-1 z,    mean = f^ + (h - H^) beta,    variance += u' (H' S^-1 H)^-1 u,

where f^ and H^ are the zero-mean predictions from z and from the columns of H, and u = h - H^ at the point
asked for: nothing near data, which fix the surface by themselves, and the whole uncertainty of beta far away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.axes import Grid
from gp_core.grid.statistics import SQUARES, Statistics

Trend = Literal["constant", "plane"]
FUNCTIONS = {"constant": 1, "plane": 3}


@dataclass(frozen=True)
class TrendBasis:
    """The basis functions of the trend: the first k = `count` of 1, x and y about a centre.

    count: 0, 1 or 3
    center: (x, y)
    """

    count: int
    center: tuple[float, float]

    @staticmethod
    def over(grid: Grid, mean: float | Trend) -> TrendBasis:
        """The basis for the given prior mean, about the centre of a grid."""
        x_min, y_min, x_max, y_max = grid.bounds
        count = FUNCTIONS[mean] if isinstance(mean, str) else 0
        return TrendBasis(count, (0.5 * (x_min + x_max), 0.5 * (y_min + y_max)))

    def at(self, x: Array, y: Array) -> Array:
        """(k, 3, N) values and derivatives by x and by y at points (N,)."""
        out = np.zeros((self.count, 3, x.size))
        if self.count:
            out[0, 0] = 1.0
        if self.count == 3:
            out[1, 0], out[1, 1] = x - self.center[0], 1.0
            out[2, 0], out[2, 2] = y - self.center[1], 1.0
        return out

    def on_cells(self, grid: Grid) -> Array:
        """(k, 3, ny, nx) values and derivatives by x and by y at the cells of a grid."""
        x, y = (a.ravel() for a in np.meshgrid(grid.x, grid.y))
        return self.at(x, y).reshape(-1, 3, *grid.shape)

    def moments(self, s: Statistics) -> list[Array]:
        """k times (J, I, m, m), see `trend_moments`."""
        return trend_moments(self.count, s, self.center)

    def block_coefficients(self, beta: Array, s: Statistics) -> Array:
        """(J, I, m, m) monomial coefficients on every block of the trend with coefficients beta (k,)."""
        out = np.zeros((s.y.count, s.x.count, s.orders.heights, s.orders.heights))
        out[..., 0, 0] = beta[0]
        if beta.size == 3:
            x, y = s.x.middles - self.center[0], s.y.middles - self.center[1]
            out[..., 0, 0] += beta[1] * x + beta[2] * y[:, None]
            out[..., 0, 1] = 0.5 * s.x.spacing * beta[1]
            out[..., 1, 0] = 0.5 * s.y.spacing * beta[2]
        return out


@dataclass(frozen=True)
class TrendEstimate:
    """Generalised least squares estimate of the trend.

    beta: (k,) coefficients of the basis functions
    covariance: (k, k)
    information: sum of the weights of the points that it was estimated from; 0 if there is no estimate yet
    """

    beta: Array
    covariance: Array
    information: float

    @staticmethod
    def none(count: int) -> TrendEstimate:
        """Zero coefficients, before the first estimate."""
        return TrendEstimate(np.zeros(count), np.zeros((count, count)), 0.0)

    def add_to(self, means: Array, variances: Array, h: Array) -> tuple[Array, Array]:
        """Mean and variances (3, ...) with the trend.

        means: (1 + k, 3, ...) zero-mean predictions f^ and H^
        variances: (3, ...) of f^
        h: (k, 3, ...) basis functions
        """
        u = h - means[1:]
        mean: Array = means[0] + np.tensordot(self.beta, u, 1)
        return mean, variances + np.einsum("ka...,kl,la...->a...", u, self.covariance, u)


def trend_moments(count: int, s: Statistics, center: tuple[float, float]) -> list[Array]:
    """Moments (J, I, m, m) that `heights` would have if the heights were 1, x, y about the centre.

    x = x_c + h s / 2 inside a block, so that x's moments are those of the weights, shifted by one.
    """
    out = []
    W, m = s.weights, s.orders.heights
    if count:
        out.append(W[..., :m, :m])
    if count == 3:
        x = ((np.arange(s.x.count) + s.x.first + 0.5) * s.x.spacing - center[0])[None, :, None, None]
        y = ((np.arange(s.y.count) + s.y.first + 0.5) * s.y.spacing - center[1])[:, None, None, None]
        out.append(x * W[..., :m, :m] + 0.5 * s.x.spacing * W[..., :m, 1 : m + 1])
        out.append(y * W[..., :m, :m] + 0.5 * s.y.spacing * W[..., 1 : m + 1, :m])
    return out


def trend_products(count: int, s: Statistics, center: tuple[float, float]) -> Array:
    """(J, I, 1 + count, 1 + count) sums of Y Y' / r over the points of each block, Y = (z, 1, x, y)."""
    n_y, n_x = s.weights.shape[:2]
    out = np.empty((n_y, n_x, 1 + count, 1 + count))
    out[..., 0, 0] = s.totals[..., SQUARES]
    if count:
        out[..., 0, 1] = s.heights[..., 0, 0]
        out[..., 1, 1] = s.weights[..., 0, 0]
    if count == 3:
        x = (s.x.middles - center[0])[None, :]
        y = (s.y.middles - center[1])[:, None]
        g, k = 0.5 * s.x.spacing, 0.5 * s.y.spacing
        W, H = s.weights, s.heights
        out[..., 0, 2] = x * H[..., 0, 0] + g * H[..., 0, 1]
        out[..., 0, 3] = y * H[..., 0, 0] + k * H[..., 1, 0]
        out[..., 1, 2] = x * W[..., 0, 0] + g * W[..., 0, 1]
        out[..., 1, 3] = y * W[..., 0, 0] + k * W[..., 1, 0]
        out[..., 2, 2] = x**2 * W[..., 0, 0] + 2.0 * g * x * W[..., 0, 1] + g**2 * W[..., 0, 2]
        out[..., 3, 3] = y**2 * W[..., 0, 0] + 2.0 * k * y * W[..., 1, 0] + k**2 * W[..., 2, 0]
        out[..., 2, 3] = (
            x * y * W[..., 0, 0] + x * k * W[..., 1, 0] + y * g * W[..., 0, 1] + g * k * W[..., 1, 1]
        )
    for a in range(1 + count):
        for b in range(a):
            out[..., a, b] = out[..., b, a]
    return out
