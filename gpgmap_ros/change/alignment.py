"""Residual misalignment of two surveys: a small rigid motion, fitted to the ground that did not change.

A survey whose frame is off by t and turned by w about the middle of the shared ground raises its heights by

    J (t, w),      J = (-g_x, -g_y, 1, d_y + g_y d_z, -d_x - g_x d_z, g_x d_y - g_y d_x)

with g the slope of the ground and d the place relative to the middle. The fit is linear in the differences, with
robust weights that changed ground hardly enters; what it does to an error field is known exactly (`FitOperator`), so
that draws of the error after the fit need no covariance of the pose.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gp_core.arrays import Array

PARAMETERS = ("x", "y", "z", "roll", "pitch", "yaw")
PRIOR_CELLS = 3.0
"""Cells by which the frames may be off along x and y, before the data, and by which yaw may move the edges of the
shared ground: holds what a plain does not show."""
PRIOR_WEIGHT = 25.0
"""Heights that the prior counts for: neighbours err together, so that a single one would say too little."""


@dataclass(frozen=True, eq=False)
class FitOperator:
    """p = inverse @ (J W e): the motion that the fit finds in differences e, and what it leaves of them.

    jacobian: (6, cells); weighted: (6, cells), J W; inverse: (6, 6)
    """

    jacobian: Array
    weighted: Array
    inverse: Array

    def motion(self, e: Array) -> Array:
        """(6,) or (n, 6) of differences (cells,) or (n, cells)."""
        return np.asarray(e @ self.weighted.T @ self.inverse.T)

    def without_effect(self) -> FitOperator:
        """A fit that finds no motion in anything: the frames are taken as exact."""
        return FitOperator(self.jacobian, self.weighted, np.zeros_like(self.inverse))

    def remainder(self, e: Array) -> Array:
        """The differences without what the motion explains."""
        return np.asarray(e - self.motion(e) @ self.jacobian)


def make_jacobian(xy: Array, height: Array, gradient: Array) -> Array:
    """(6, cells). xy: (cells, 2) and height (cells,), relative to the middle; gradient: (cells, 2)"""
    (g_x, g_y), (d_x, d_y) = gradient.T, xy.T
    ones = np.ones_like(height)
    return np.stack([-g_x, -g_y, ones, d_y + g_y * height, -d_x - g_x * height, g_x * d_y - g_y * d_x])


def make_operator(jacobian: Array, weights: Array, resolution: float, extent: float) -> FitOperator:
    """The fit with weights (cells,), inverse variances. extent: metres from the middle of the ground to its edges"""
    weighted = jacobian * weights
    reach = PRIOR_CELLS * resolution
    prior = np.array([1.0, 1.0, 0.0, 0.0, 0.0, extent**2]) * PRIOR_WEIGHT / reach**2
    inverse = np.asarray(np.linalg.inv(weighted @ jacobian.T + np.diag(prior)), dtype=np.float64)
    return FitOperator(jacobian, weighted, inverse)
