"""Prior of a pose before the maps are compared: by odometry, by the pose graph, by GNSS.

A search over all poses finds some that fit by chance, the more the more poses it tries, and asks for evidence beyond
that. Who knows roughly where to look tries fewer, and may believe on less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.arrays import Array
from gpgmap_ros.closure.chi_square import quantile
from gpgmap_ros.closure.registration.registration_map import RegistrationMap

Floats = NDArray[np.floating[Any]] | float

SEARCH_LIMIT = quantile(0.999, 3)
"""Squared Mahalanobis distance within which poses are searched; where a refined one may end: acceptance.py."""


@dataclass(frozen=True)
class PosePrior:
    """A guess at the pose of the source's frame in the target's, and how far it may be off.

    T_target_source: (4, 4) rigid
    covariance: (6, 6) over (x, y, z, roll, pitch, yaw), along the target's axes, as of a Registration
    ValueError for what is no pose or no covariance.
    """

    T_target_source: Array
    covariance: Array

    def __post_init__(self) -> None:
        T, S = (np.asarray(value, dtype=np.float64) for value in (self.T_target_source, self.covariance))
        if T.shape != (4, 4) or not np.isfinite(T).all():
            raise ValueError("the prior pose must be a finite 4 x 4 transform")
        if not np.allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-4) or np.linalg.det(T[:3, :3]) < 0.0:
            raise ValueError("the prior pose does not rotate: its upper left part is no rotation matrix")
        if S.shape != (6, 6) or not np.isfinite(S).all() or not np.allclose(S, S.T, rtol=1e-6, atol=1e-12):
            raise ValueError("the prior covariance must be 6 x 6, finite and symmetric")
        if np.linalg.eigvalsh(S[np.ix_([0, 1, 5], [0, 1, 5])])[0] <= 0.0:
            raise ValueError("the prior covariance of x, y and yaw is not positive definite")
        object.__setattr__(self, "T_target_source", T)
        object.__setattr__(self, "covariance", S)


@dataclass(frozen=True)
class SearchPrior:
    """A prior in the terms of the search.

    mean: (3,) the middle of the source in the target, x and y in cells from the target's middle, and yaw
    covariance: (3, 3) of these
    """

    mean: Array
    covariance: Array

    def mahalanobis_sq(
        self, x: Floats, y: Floats, yaw: Floats, step: float = 0.0, turn: float = 0.0
    ) -> Array:
        """Squared Mahalanobis distances of poses, which may be rounded to steps of so many cells and radians."""
        rounding = np.diag([step**2, step**2, turn**2]) / 4.0
        inverse = np.linalg.inv(self.covariance + rounding)
        off = yaw - self.mean[2]
        d = np.stack(
            np.broadcast_arrays(x - self.mean[0], y - self.mean[1], (off + np.pi) % (2.0 * np.pi) - np.pi)
        )
        return np.asarray(np.einsum("i...,ij,j...->...", d, inverse, d))

    @property
    def yaw_width(self) -> float:
        """Radians to either side of the mean that are searched."""
        return float(np.sqrt(SEARCH_LIMIT * self.covariance[2, 2]))

    def log_poses(self, distance: float, radius: float, cells_each: float) -> float:
        """log of the number of independent poses that are as probable as one at this squared distance, at least 0.

        radius: of the maps; cells_each: area of an independent cell
        """
        volume = (2.0 * np.pi) ** 1.5 * np.sqrt(np.linalg.det(self.covariance))
        each = cells_each * np.sqrt(cells_each) / radius
        return max(float(np.log(volume / each)), 0.0) + 0.5 * distance


def make_search_prior(prior: PosePrior, source: RegistrationMap, target: RegistrationMap) -> SearchPrior:
    """The prior at the middle of the source: an error (dt, w) moves it by dt + w x lever."""
    T, h = prior.T_target_source, target.resolution
    lever = T[:3, :3] @ source.middle
    x, y, z = lever
    M = np.zeros((3, 6))
    M[0, [0, 4, 5]] = 1.0, z, -y
    M[1, [1, 3, 5]] = 1.0, -z, x
    M[2, 5] = 1.0
    M[:2] /= h
    centre = (lever + T[:3, 3])[:2]
    yaw = np.arctan2(T[1, 0] - T[0, 1], T[0, 0] + T[1, 1])
    mean = np.array([*((centre - target.middle[:2]) / h), yaw])
    return SearchPrior(mean, M @ prior.covariance @ M.T)
