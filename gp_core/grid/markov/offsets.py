"""A kernel at many offsets: along one line and interpolated, if the direction makes no difference."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.interpolate import CubicSpline

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
    return np.asarray(CubicSpline(root, along)(np.sqrt(distance / farthest))[np.ix_(at_y, at_x)])


def _at(kernel: Kernel, offsets: Array) -> Array:
    return np.asarray(kernel(offsets, np.zeros((1, 2)))[:, 0])


def _isotropic(kernel: Kernel, reach: float) -> bool:
    distance = reach * np.geomspace(1e-3, 1.0, 7)
    angle = np.array([0.0, 0.7, 0.5 * np.pi, 2.9])
    offsets = np.stack([np.outer(np.cos(angle), distance), np.outer(np.sin(angle), distance)], axis=-1)
    found = _at(kernel, offsets.reshape(-1, 2)).reshape(angle.size, -1)
    return bool(np.allclose(found, found[0], rtol=1e-10, atol=0.0))
