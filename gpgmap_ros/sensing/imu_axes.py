"""Whether the axes of an IMU are what they are said to be: its turns against those of the pose source.

Both see the same turns. If the rotation vectors agree only once one of them is rotated, the mount is wrong or missing;
if they agree under no rotation, one of the clocks is wrong, or the rates are not in rad/s.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.geometry import Array

MIN_TURN: Final = np.deg2rad(1.0)
"""Turns between two clouds that are smaller say nothing about axes."""
ENOUGH: Final = 12
"""Turns after which axes are judged."""
MAX_DISAGREEMENT: Final = 0.3
"""Length of the differences over that of the turns, root mean square, below which axes agree."""


class ImuAxes:
    """Compares turns between clouds, both in the axes of the sensor."""

    def __init__(self) -> None:
        self._pairs: deque[tuple[Array, Array]] = deque(maxlen=200)

    def add(self, by_imu: Array, by_poses: Array) -> None:
        """Rotations (3, 3) between the same two clouds."""
        turns = [Rotation.from_matrix(R).as_rotvec() for R in (by_imu, by_poses)]
        if max(float(np.linalg.norm(turn)) for turn in turns) >= MIN_TURN:
            self._pairs.append((turns[0], turns[1]))

    @property
    def judged(self) -> bool:
        return len(self._pairs) >= ENOUGH

    @property
    def agree(self) -> bool:
        """Whether the axes match, once they are judged."""
        return self.judged and self._disagreement(np.eye(3)) <= MAX_DISAGREEMENT

    @property
    def problem(self) -> str:
        """What is wrong and what to do; empty while nothing is known to be."""
        if not self.judged or self.agree:
            return ""
        imu, poses = (np.array(turns) for turns in zip(*self._pairs, strict=True))
        found = Rotation.align_vectors(poses, imu)[0]
        spread = np.linalg.eigvalsh(imu.T @ imu)
        if self._disagreement(found.as_matrix()) > MAX_DISAGREEMENT:
            return (
                "the turns of the IMU are not those of the poses under any mount: its clock is another one, its rates"
                " are not in rad/s, or one of both is wrong"
            )
        angle = np.degrees(found.magnitude())
        text = f"the axes of the IMU do not match: its turns fit after a rotation by {angle:.0f} deg"
        if spread[1] > 0.02 * spread[2]:  # turns about one axis only leave the rotation about it open
            roll, pitch, yaw = found.as_euler("xyz", degrees=True)
            text += f" (roll {roll:.0f}, pitch {pitch:.0f}, yaw {yaw:.0f})"
        return f"{text}; publish the mount of the IMU on /tf_static"

    def _disagreement(self, R: Array) -> float:
        imu, poses = (np.array(turns) for turns in zip(*self._pairs, strict=True))
        size = max(float(np.sum(poses**2)), float(np.sum(imu**2)))
        return float(np.sqrt(np.sum((imu @ R.T - poses) ** 2) / size))
