"""The error of odometry, as a covariance that grows with the distance driven."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gp_core.arrays import Array
from gpgmap_ros.closure.config import ClosureConfig

Path = TypeVar("Path", float, NDArray[np.float64])

PRIOR_TILTS = 4.0
"""Observations that the stated tilt counts for beside those of the closures."""
UNKNOWN_TURN = np.pi**2 / 3.0
"""rad^2: variance of a heading about which nothing is known."""
MIN_PATH = 0.1
"""Metres: no odometry is believed to be better than after so short a path."""


@dataclass(frozen=True)
class Drift:
    """How odometry errs: variances grow with the path.

    position_std: metres per square root of metre; rotation_std: radians per square root of metre
    tilt_std: radians; roll and pitch never err by more, because frames are aligned with gravity
    """

    position_std: float = 0.05
    rotation_std: float = 0.01
    tilt_std: float = np.deg2rad(2.0)

    @classmethod
    def from_config(cls, config: ClosureConfig) -> Drift:
        return cls(config.drift_position, config.drift_rotation, float(np.deg2rad(config.tilt_std)))

    def position_variance(self, path: Path) -> Path:
        """Along each axis, after `path` metres: a number or an array."""
        lateral = self.rotation_std**2 * path**3 / 3.0  # a random turn on the way moves the end sideways
        return self.position_std**2 * path + lateral

    def covariance(self, path: float) -> Array:
        """(6, 6) after `path` metres."""
        position = self.position_variance(path)
        rotation = self.rotation_std**2 * path
        tilt = min(rotation, self.tilt_std**2)
        return np.diag([position] * 3 + [tilt] * 2 + [rotation])

    def equivalent_path(self, path: float, variances: tuple[float, float]) -> float:
        """Metres after which odometry of this drift would be as uncertain as that of a way of `path` metres for which
        variances of position and rotation are stated; no less than `path`.

        What is stated knows the registration of scans, and nothing of what bends them all alike: it makes odometry
        worse, and never better, than this drift.
        """
        position, rotation = variances
        rotation = min(rotation, UNKNOWN_TURN)
        return max(path, position / self.position_std**2, rotation / self.rotation_std**2)

    def rates(self, path: Path) -> tuple[Array, float]:
        """Variances per metre on a way of `path` metres: (..., 3) of roll, pitch and yaw, and of a step.

        Roll and pitch vary less per metre the longer the way is: they are bounded.
        """
        yaw = np.full(np.shape(path), self.rotation_std**2)
        tilt = np.minimum(yaw, self.tilt_std**2 / np.maximum(path, MIN_PATH))
        return np.stack([tilt, tilt, yaw], axis=-1), self.position_std**2


def estimate_tilt_std(stated: float, relative: Array) -> float:
    """Radians by which gravity-aligned frames lean from the vertical.

    stated: between two frames, as configured; relative: (N, 4, 4) poses of one frame in another that closures found
    What is stated holds for any sensor, and is wide. Closures measure it: their roll and pitch are the difference of
    two errors.
    """
    tilts = np.asarray(relative).reshape(-1, 4, 4)[:, 2, :2]
    variance = (PRIOR_TILTS * stated**2 + np.sum(tilts**2)) / (PRIOR_TILTS + tilts.size)
    return float(np.sqrt(0.5 * variance))
