"""A kernel at many offsets: along one line and interpolated, if the direction makes no difference."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.linalg import solve_banded

from gp_core.arrays import Array
from gp_core.kernels import Kernel

_KNOTS: Final = 8192
"""Distances at which an isotropic kernel is computed: enough for eleven digits over ten length scales."""


def covariances(kernel: Kernel, x: Array, y: Array) -> Array:
    """(N_y, N_x) k at the offsets (x, y)."""
    if not _isotropic(kernel, max(np.abs(x).max(), np.abs(y).max())):
        dx, dy = np.meshgrid(x, y)
        return _at(kernel, np.stack([dx.ravel(), dy.ravel()], axis=-1)).reshape(dx.shape)
    # Offsets of both signs have the same distance.
    x_once, at_x = np.unique(np.abs(x), return_inverse=True)
    y_once, at_y = np.unique(np.abs(y), return_inverse=True)
    distance = np.hypot(x_once, y_once[:, None])
    farthest = float(distance.max())
    # Knots lie closer together near zero, where a rough kernel has no derivatives.
    root = np.linspace(0.0, 1.0, _KNOTS)
    along = _at(kernel, np.stack([farthest * root**2, np.zeros(_KNOTS)], axis=-1))
    return interpolate(along, np.sqrt(distance / farthest))[np.ix_(at_y, at_x)]


def interpolate(values: Array, at: Array) -> Array:
    """The cubic spline through values (N,) at N even steps from 0 to 1, at any places between.

    The first two pieces are one cubic, and so are the last two. Written out here: scipy.interpolate has the same, and
    takes a tenth of the start of a node to be imported.
    """
    n = values.size
    secant = np.diff(values)
    slope = np.empty(n)  # per step; equal second derivatives on both sides of a knot
    slope[1:-1] = 3.0 * (secant[:-1] + secant[1:])
    slope[0] = 2.5 * secant[0] + 0.5 * secant[1]
    slope[-1] = 2.5 * secant[-1] + 0.5 * secant[-2]
    bands = np.ones((3, n))
    bands[1, 1:-1] = 4.0
    bands[0, 1] = bands[2, -2] = 2.0
    slope = solve_banded((1, 1), bands, slope)
    place = at * (n - 1.0)
    piece = np.clip(place.astype(np.int64), 0, n - 2)
    t = place - piece
    curve = secant - slope[:-1]
    twist = slope[:-1] + slope[1:] - 2.0 * secant
    return np.asarray(
        values[piece] + t * (slope[piece] + t * ((curve - twist)[piece] + t * twist[piece])), dtype=np.float64
    )


def _at(kernel: Kernel, offsets: Array) -> Array:
    return np.asarray(kernel(offsets, np.zeros((1, 2)))[:, 0])


def _isotropic(kernel: Kernel, reach: float) -> bool:
    distance = reach * np.geomspace(1e-3, 1.0, 7)
    angle = np.array([0.0, 0.7, 0.5 * np.pi, 2.9])
    offsets = np.stack([np.outer(np.cos(angle), distance), np.outer(np.sin(angle), distance)], axis=-1)
    found = _at(kernel, offsets.reshape(-1, 2)).reshape(angle.size, -1)
    return bool(np.allclose(found, found[0], rtol=1e-10, atol=0.0))
