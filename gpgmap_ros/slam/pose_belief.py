"""A pose with its covariance: moved along odometry, compared with another, fused with another.

Errors are those of nav_msgs/Odometry: dt of the position and w of the orientation, both along the axes of the frame in
which the pose stands. A frame that is rigidly attached at T_a_b errs by dt + w x (R_a t_ab), and by w.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.geometry import Array, inverse


@dataclass(frozen=True, eq=False)
class PoseBelief:
    """T: (4, 4) mean; covariance: (6, 6) over (x, y, z, roll, pitch, yaw)."""

    T: Array
    covariance: Array

    def move(self, T_a_b: Array, added: Array | None = None) -> PoseBelief:
        """The pose of b, which stands at T_a_b in this one. added: (6, 6) what the way from a to b adds, in a's axes"""
        x, y, z = self.T[:3, :3] @ T_a_b[:3, 3]
        M = np.eye(6)
        M[:3, 3:] = [[0.0, z, -y], [-z, 0.0, x], [y, -x, 0.0]]
        covariance = M @ self.covariance @ M.T
        if added is not None:
            covariance = covariance + rotate_covariance(added, self.T)
        return PoseBelief(self.T @ T_a_b, covariance)

    def in_frame(self, T_map_frame: Array) -> PoseBelief:
        """The same pose seen from a frame that stands at T_map_frame."""
        T_frame_map = inverse(T_map_frame)
        return PoseBelief(T_frame_map @ self.T, rotate_covariance(self.covariance, T_frame_map))

    def error_to(self, other: PoseBelief) -> Array:
        """(6,) what takes this mean to the other's."""
        turn = Rotation.from_matrix(other.T[:3, :3] @ self.T[:3, :3].T).as_rotvec()
        return np.concatenate([other.T[:3, 3] - self.T[:3, 3], turn])

    def mahalanobis_sq(self, other: PoseBelief) -> float:
        """Squared distance of both means, in standard deviations of their difference."""
        error = self.error_to(other)
        return float(error @ np.linalg.solve(self.covariance + other.covariance, error))

    def fuse(self, other: PoseBelief) -> PoseBelief:
        """Both together, as independent measurements of one pose."""
        gain = np.linalg.solve(self.covariance + other.covariance, self.covariance).T
        error = gain @ self.error_to(other)
        T = self.T.copy()
        T[:3, :3] = Rotation.from_rotvec(error[3:]).as_matrix() @ T[:3, :3]
        T[:3, 3] += error[:3]
        covariance = (np.eye(6) - gain) @ self.covariance
        return PoseBelief(T, 0.5 * (covariance + covariance.T))

    @property
    def position_std(self) -> float:
        """Metres, along the worst horizontal axis."""
        return float(np.sqrt(np.linalg.eigvalsh(self.covariance[:2, :2])[-1]))


def rotate_covariance(covariance: Array, T: Array) -> Array:
    """(6, 6) along the axes of the frame a, where T is T_a_b and the covariance is along those of b."""
    R = np.zeros((6, 6))
    R[:3, :3] = R[3:, 3:] = T[:3, :3]
    return np.asarray(R @ covariance @ R.T)


def average_beliefs(beliefs: Sequence[PoseBelief]) -> PoseBelief:
    """Measurements whose errors may be the same: the mean by information, no more certain than their average.

    This is covariance intersection (Julier and Uhlmann, 1997) with equal weights.
    """
    first = beliefs[0]
    information = [np.linalg.inv(belief.covariance) for belief in beliefs]
    total = np.sum(information, axis=0)
    parts = [each @ first.error_to(belief) for each, belief in zip(information, beliefs, strict=True)]
    error = np.linalg.solve(total, np.sum(parts, axis=0))
    T = first.T.copy()
    T[:3, :3] = Rotation.from_rotvec(error[3:]).as_matrix() @ T[:3, :3]
    T[:3, 3] += error[:3]
    return PoseBelief(T, np.linalg.inv(total / len(beliefs)))
