"""Which way is up in the frame of the map, and how well that is known.

`first_level` makes the frame of a drive by LiDAR odometry level where it begins. `LevelTracker` keeps it level: its
registrations drift, the vertical of an IMU does not. `FrameTilt` measures the tilt of a frame that others give.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing.ground_level import find_level
from gpgmap_ros.sensing.imu import ACCELEROMETER_BIAS, GRAVITY, Vertical

UNKNOWN_STD: Final = np.deg2rad(15.0)
"""Standard deviation of the vertical where neither an IMU nor the ground gives it: sensors are mounted upright."""
MAX_DISAGREEMENT: Final = np.deg2rad(25.0)
"""Angle between the vertical of an IMU and the normal of the ground beyond which axes differ rather than slopes."""
CORRELATION: Final = 10.0
"""Seconds within which errors of the vertical by an IMU are alike."""
ENOUGH: Final = 10
"""Clouds after which the tilt of a frame is known."""


@dataclass(frozen=True)
class FirstLevel:
    """The vertical where a drive begins.

    T_level_sensor: (4, 4) rotation; std: radians about each horizontal axis; source: imu, ground or none
    tilt: radians between the sensor's z axis and the vertical; problem: what is wrong with it, empty where nothing is
    """

    T_level_sensor: Array = field(repr=False)
    std: float
    source: str
    tilt: float
    problem: str = ""

    def __str__(self) -> str:
        names = {
            "imu": "that of the IMU",
            "ground": "the normal of the ground",
            "none": "the sensor's own z axis",
        }
        return (
            f"the vertical of the map is {names[self.source]}, known to {np.degrees(self.std):.1f} deg;"
            f" the sensor is tilted by {np.degrees(self.tilt):.0f} deg"
        )


def first_level(
    points: Array, vertical: Vertical | None, mounted: bool, R_base_sensor: Array | None
) -> FirstLevel:
    """The vertical for a scan (N, 3): by the IMU, else by the ground, else by the mount.

    vertical: by the IMU, in the axes of the sensor; mounted: whether these axes are known or taken to be the IMU's
    R_base_sensor: (3, 3) rotation of the sensor on the robot, None where it is not known
    """
    upright = np.eye(3) if R_base_sensor is None else R_base_sensor
    ground = find_level(points @ upright.T, np.random.default_rng(0))
    problem = ""
    if vertical is not None:
        normal = None if ground is None else upright.T @ ground.T_level_sensor[2, :3]
        between = 0.0 if normal is None else float(np.arccos(np.clip(normal @ vertical.up, -1.0, 1.0)))
        if between > MAX_DISAGREEMENT:
            problem = (
                f"the vertical of the IMU and the normal of the ground are {np.degrees(between):.0f} deg apart:"
                " the axes of the IMU do not match those of the LiDAR; give their mount on /tf_static"
            )
        if mounted or not problem:
            R = level_rotation(vertical.up)
            return FirstLevel(_transform(R), vertical.std, "imu", _tilt(R), problem)
    if ground is not None:
        R = ground.T_level_sensor[:3, :3] @ upright
        return FirstLevel(_transform(R), ground.std, "ground", _tilt(R), problem)
    return FirstLevel(_transform(upright), UNKNOWN_STD, "none", _tilt(upright), problem)


def level_rotation(up: Array) -> Array:
    """(3, 3) the smallest rotation that takes the unit vector `up` to the z axis."""
    axis, cosine = np.cross(up, [0.0, 0.0, 1.0]), float(np.clip(up[2], -1.0, 1.0))
    size = float(np.linalg.norm(axis))
    if size < 1e-9:
        return np.eye(3) if cosine > 0.0 else np.diag([1.0, -1.0, -1.0])
    return np.asarray(Rotation.from_rotvec(axis / size * np.arccos(cosine)).as_matrix())


class LevelTracker:
    """A slow tilt of the odometry's frame, about where the sensor is, that keeps it level (a Kalman filter).

    std: of the vertical about each horizontal axis when the drive begins, radians; T_map_odom: (4, 4) the tilt so far
    """

    def __init__(self, std: float) -> None:
        self.T_map_odom = np.eye(4)
        self._variance = std**2

    @property
    def std(self) -> float:
        return float(np.sqrt(self._variance))

    def drift(self, variance: float) -> None:
        """Registration has added an error to roll and pitch: rad^2."""
        self._variance += variance

    def correct(self, T_odom_sensor: Array, vertical: Vertical, seconds: float) -> None:
        """vertical: by the IMU, in the axes of the sensor; seconds: since it was last used"""
        T = self.T_map_odom @ T_odom_sensor
        up = T[:3, :3] @ vertical.up
        constant = (
            ACCELEROMETER_BIAS / GRAVITY
        ) ** 2  # known never better than that, however often it is used
        noise = max(vertical.std**2 - constant, 1e-8) * max(CORRELATION / max(seconds, 1e-3), 1.0)
        excess = max(self._variance - constant, 0.0)
        gain = excess / (excess + noise)
        C = np.eye(4)
        C[:3, :3] = Rotation.from_rotvec(
            gain * Rotation.from_matrix(level_rotation(up)).as_rotvec()
        ).as_matrix()
        C[:3, 3] = T[:3, 3] - C[:3, :3] @ T[:3, 3]
        self.T_map_odom = C @ self.T_map_odom
        self._variance -= gain * excess


class FrameTilt:
    """Tilt of a given frame against gravity, by the vertical of the IMU at the last clouds."""

    def __init__(self) -> None:
        self._ups: deque[Array] = deque(maxlen=5 * ENOUGH)
        self._std = 0.0

    def add(self, up_map: Array, std: float) -> None:
        """up_map: (3,) the vertical by the IMU in the axes of the map; std: of it, radians"""
        self._ups.append(up_map)
        self._std = std

    def clear(self) -> None:
        self._ups.clear()

    @property
    def known(self) -> bool:
        return len(self._ups) >= ENOUGH

    @property
    def tilt(self) -> float:
        """Radians."""
        mean = np.mean(self._ups, axis=0)
        return float(np.arctan2(np.hypot(mean[0], mean[1]), mean[2]))

    @property
    def std(self) -> float:
        """Radians."""
        return self._std


def _transform(R: Array) -> Array:
    T = np.eye(4)
    T[:3, :3] = R
    return T


def _tilt(R_level_sensor: Array) -> float:
    return float(np.arccos(np.clip(R_level_sensor[2, 2], -1.0, 1.0)))
