"""Drift of the odometry on the way in a submap, from the covariances that the odometry states."""

from __future__ import annotations

import numpy as np

from gpgmap_ros.arrays import Array

MONOTONE = 0.5
"""Of all growth of the heading's variance, what must be left at the end: less has an odometry that does not add up."""


class DriftSum:
    """Adds up what is stated of motions, or of the poses at their ends."""

    def __init__(self) -> None:
        self._sum = np.zeros(2)
        self._poses: tuple[Array, Array] | None = None  # position and covariance of the pose before
        self._turn, self._grown = 0.0, 0.0  # what heading's variance has changed by, and grown by

    def add_motion(self, covariance: Array) -> None:
        """Of a motion by odometry that registers clouds: (6, 6)."""
        self._sum += worst_variances(covariance)

    def add_pose(self, position: Array, covariance: Array | None) -> None:
        """Of a pose that an odometry has added up to: (3,) and (6, 6) along the axes of its frame; None: not stated."""
        if covariance is not None and self._poses is not None:
            added = growth(position - self._poses[0], self._poses[1], covariance)
            self._sum += worst_variances(added)
            self._turn += added[5, 5]
            self._grown += max(added[5, 5], 0.0)
        self._poses = None if covariance is None else (np.array(position), covariance)

    @property
    def variances(self) -> tuple[float, float]:
        """Of position (m^2) and rotation (rad^2) at the end of the way; 0 where nothing is stated."""
        if self._turn < MONOTONE * self._grown:
            return 0.0, 0.0
        return float(self._sum[0]), float(self._sum[1])


def worst_variances(covariance: Array) -> Array:
    """(2,) of position and rotation along their worst axes, of a covariance (6, 6)."""
    blocks = covariance[:3, :3], covariance[3:, 3:]
    return np.array([max(float(np.linalg.eigvalsh(block)[-1]), 0.0) for block in blocks])


def growth(motion: Array, before: Array, now: Array) -> Array:
    """(6, 6) Q by which a motion (3,) makes the covariance `before` of a pose that of the next one, `now`.

    An error of the orientation before moves the position now, so that covariances that add up follow

        C_now = F C_before F' + Q,      F = [I, -[motion]x; 0, I]

    Those that stay as they are, as of a filter that knows where it is or a driver that states one number always, have
    nothing in Q: such odometry says nothing of its drift.
    """
    F = np.eye(6)
    x, y, z = motion
    F[:3, 3:] = [[0.0, z, -y], [-z, 0.0, x], [y, -x, 0.0]]
    return np.asarray(now - F @ before @ F.T)


def rates_of(variances: tuple[float, float], way: Array) -> tuple[float, float]:
    """Variances per metre of a way (K, 3), from those at its end; 0 where one of both is not stated."""
    length = float(np.linalg.norm(np.diff(way, axis=0), axis=1).sum()) if len(way) > 1 else 0.0
    if length <= 0.0 or min(variances) <= 0.0:
        return 0.0, 0.0
    return variances[0] / length, variances[1] / length
