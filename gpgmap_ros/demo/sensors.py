"""Simulated IMU and GPS on a trajectory that is known, with the errors that such sensors have.

For tests and benchmarks: there is no public recording with clouds, IMU, GPS and a reference that could be kept here.
The figures are those of data sheets of MEMS IMUs, and of single-frequency receivers under open sky.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing.messages import GpsFix, ImuMeasurement

NANOSECONDS = 1_000_000_000
GRAVITY = 9.81
STEP = 1e-3
"""Seconds between the poses that are differentiated."""
PoseAt = Callable[[float], Array]
"""T_world_sensor (4, 4) at a time in seconds."""


@dataclass(frozen=True)
class SimulatedImu:
    """An IMU at the pose of the sensor, turned by R_sensor_imu (3, 3).

    rate: Hz; gyro_noise, accelerometer_noise: standard deviations of a sample, rad/s and m/s^2
    gyro_bias, accelerometer_bias: standard deviations of constant biases along each axis
    vibration: m/s^2, added to the noise of accelerations while the sensor moves
    """

    rate: float = 200.0
    gyro_noise: float = 0.0035
    gyro_bias: float = 0.005
    accelerometer_noise: float = 0.025
    accelerometer_bias: float = 0.1
    vibration: float = 0.5
    frame_id: str = "imu"
    R_sensor_imu: Array | None = None

    def samples(
        self, pose_at: PoseAt, begin: float, end: float, start: int, rng: np.random.Generator
    ) -> Iterator[ImuMeasurement]:
        """Samples from `begin` to `end` seconds. start: nanoseconds of second 0"""
        R_mount = np.eye(3) if self.R_sensor_imu is None else self.R_sensor_imu
        gyro_bias = rng.normal(0.0, self.gyro_bias, 3)
        accelerometer_bias = rng.normal(0.0, self.accelerometer_bias, 3)
        for k in range(round(begin * self.rate), round(end * self.rate)):
            t = k / self.rate
            before, now, after = (pose_at(t + step) for step in (-STEP, 0.0, STEP))
            w = Rotation.from_matrix(before[:3, :3].T @ after[:3, :3]).as_rotvec() / (2.0 * STEP)
            acceleration = (after[:3, 3] - 2.0 * now[:3, 3] + before[:3, 3]) / STEP**2
            moving = float(np.linalg.norm(after[:3, 3] - before[:3, 3])) > 0.05 * STEP
            force = now[:3, :3].T @ (acceleration + np.array([0.0, 0.0, GRAVITY]))
            noise = np.hypot(self.accelerometer_noise, self.vibration if moving else 0.0)
            rates = R_mount.T @ w + gyro_bias + rng.normal(0.0, self.gyro_noise, 3)
            forces = R_mount.T @ force + accelerometer_bias + rng.normal(0.0, noise, 3)
            stamp = start + round(t * NANOSECONDS)
            yield ImuMeasurement(stamp, self.frame_id, _three(rates), _three(forces))


@dataclass(frozen=True)
class SimulatedGps:
    """A receiver whose errors are white noise, a slowly changing offset, outliers, and one stretch that jumps.

    rate: Hz; noise: standard deviation of the white part, metres, half as much again in height
    offset, offset_seconds: standard deviation and correlation time of the slow part (Gauss-Markov)
    outliers: share of the fixes that are off by some `outlier_size`; jump: (3,) first and last second, and metres east
    """

    rate: float = 1.0
    noise: float = 0.8
    offset: float = 0.5
    offset_seconds: float = 30.0
    outliers: float = 0.0
    outlier_size: float = 30.0
    jump: tuple[float, float, float] | None = None
    frame_id: str = "gps"

    def fixes(
        self,
        pose_at: PoseAt,
        to_earth: Callable[[Array], tuple[float, float, float]],
        seconds: float,
        start: int,
        rng: np.random.Generator,
    ) -> Iterator[GpsFix]:
        """to_earth: latitude, longitude and height of a position (3,) in the world: east, north, up"""
        keep = float(np.exp(-1.0 / (self.rate * self.offset_seconds)))
        offset = rng.normal(0.0, self.offset, 3)
        size = np.array([1.0, 1.0, 1.5])
        covariance = np.diag((self.noise**2 + self.offset**2) * size**2)
        for k in range(int(seconds * self.rate)):
            t = k / self.rate
            offset = keep * offset + np.sqrt(1.0 - keep**2) * rng.normal(0.0, self.offset, 3)
            position = pose_at(t)[:3, 3] + size * (offset + rng.normal(0.0, self.noise, 3))
            if rng.random() < self.outliers:
                position = position + rng.normal(0.0, self.outlier_size, 3)
            if self.jump is not None and self.jump[0] <= t <= self.jump[1]:
                position = position + np.array([self.jump[2], 0.0, 0.0])
            stamp = start + round(t * NANOSECONDS)
            yield GpsFix(stamp, self.frame_id, *to_earth(position), covariance, 0)


def _three(values: Array) -> tuple[float, float, float]:
    return (float(values[0]), float(values[1]), float(values[2]))
