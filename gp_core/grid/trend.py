"""The prior mean: known, an unknown constant, or an unknown plane (universal kriging).

With z = H beta + f + noise, beta flat, S = K + R and H the basis functions at the points,

    beta = (H' S^-1 H)^-1 H' S^-1 z,    mean = f^ + (h - H^) beta,    variance += u' (H' S^-1 H)^-1 u,

where f^ and H^ are the zero-mean predictions from z and from the columns of H, and u = h - H^ at the point
asked for: nothing near data, which fix the surface by themselves, and the whole uncertainty of beta far away.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.interpolation import ORDER
from gp_core.grid.statistics import SQUARES, Statistics

Trend = Literal["constant", "plane"]
FUNCTIONS = {"constant": 1, "plane": 3}


def basis_functions(count: int, x: Array, y: Array, center: tuple[float, float]) -> Array:
    """(count, 3, N): 1, x, y about the centre (the first `count`), and their derivatives by x and by y."""
    out = np.zeros((count, 3, x.size))
    if count:
        out[0, 0] = 1.0
    if count == 3:
        out[1, 0], out[1, 1] = x - center[0], 1.0
        out[2, 0], out[2, 2] = y - center[1], 1.0
    return out


def trend_coefficients(beta: Array, s: Statistics, center: tuple[float, float]) -> Array:
    """(J, I, 6, 6) monomial coefficients of the trend on every block."""
    out = np.zeros((s.y.count, s.x.count, ORDER, ORDER))
    out[..., 0, 0] = beta[0]
    if beta.size == 3:
        out[..., 0, 0] += beta[1] * (s.x.middles - center[0]) + beta[2] * (s.y.middles - center[1])[:, None]
        out[..., 0, 1] = 0.5 * s.x.spacing * beta[1]
        out[..., 1, 0] = 0.5 * s.y.spacing * beta[2]
    return out


def trend_moments(count: int, s: Statistics, center: tuple[float, float]) -> list[Array]:
    """Moments (J, I, 6, 6) that `heights` would have if the heights were 1, x, y about the centre.

    x = x_c + h s / 2 inside a block, so that x's moments are those of the weights, shifted by one.
    """
    out = []
    W = s.weights
    if count:
        out.append(W[..., :ORDER, :ORDER])
    if count == 3:
        x = ((np.arange(s.x.count) + s.x.first + 0.5) * s.x.spacing - center[0])[None, :, None, None]
        y = ((np.arange(s.y.count) + s.y.first + 0.5) * s.y.spacing - center[1])[:, None, None, None]
        out.append(x * W[..., :ORDER, :ORDER] + 0.5 * s.x.spacing * W[..., :ORDER, 1 : ORDER + 1])
        out.append(y * W[..., :ORDER, :ORDER] + 0.5 * s.y.spacing * W[..., 1 : ORDER + 1, :ORDER])
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
