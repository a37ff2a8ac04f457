"""A drive that comes back to where it began, over made relief, with odometry that drifts on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates
from scipy.spatial.transform import Rotation

from gpgmap_ros.geometry import apply, inverse

Array = NDArray[np.float64]

SECOND = 1_000_000_000
CELL = 0.25
"""Metres between the nodes of the relief."""


@dataclass(frozen=True)
class Step:
    """One cloud: stamp; points (N, 3) in the robot's frame; where odometry says that it was, and where it was."""

    stamp: int
    points: Array
    T_odom_robot: Array
    T_world_robot: Array


@dataclass(frozen=True)
class ReturningDrive:
    """A circle and a bit more. drift_yaw: radians, and drift_scale: share, that odometry errs by on each metre."""

    radius: float = 9.0
    laps: float = 1.25
    step: float = 0.6
    reach: float = 5.0
    density: float = 40.0
    noise: float = 0.02
    drift_yaw: float = 0.004
    drift_scale: float = 0.01
    start: int = 1_700_000_000 * SECOND
    seed: int = 5

    def relief(self, xy: Array) -> Array:
        return np.asarray(
            map_coordinates(fractal(self.seed), (xy[:, ::-1] / CELL + 128.0).T, order=3, mode="grid-wrap")
        )

    def pose(self, way: float) -> Array:
        """T_world_robot after so many metres: on the circle, a metre above the ground, upright."""
        angle = way / self.radius
        T = np.eye(4)
        T[:3, :3] = Rotation.from_euler("z", angle + np.pi / 2).as_matrix()
        T[:2, 3] = self.radius * np.cos(angle), self.radius * np.sin(angle)
        T[2, 3] = float(self.relief(T[None, :2, 3])[0]) + 1.0
        return T

    def __iter__(self) -> Iterator[Step]:
        rng = np.random.default_rng(self.seed)
        T_odom, before = np.eye(4), None
        count = int(self.laps * 2.0 * np.pi * self.radius / self.step)
        for k in range(count):
            T_world = self.pose(k * self.step)
            if before is not None:
                motion = inverse(before) @ T_world
                motion[:3, 3] *= 1.0 + self.drift_scale
                turn = Rotation.from_euler("z", self.drift_yaw * self.step).as_matrix()
                motion[:3, :3] = motion[:3, :3] @ turn
                T_odom = T_odom @ motion
            before = T_world
            n = int(self.density * np.pi * self.reach**2)
            r, a = self.reach * np.sqrt(rng.uniform(size=n)), rng.uniform(-np.pi, np.pi, n)
            xy = T_world[:2, 3] + np.column_stack([r * np.cos(a), r * np.sin(a)])
            world = np.column_stack([xy, self.relief(xy) + rng.normal(scale=self.noise, size=n)])
            stamp = self.start + round(k * 0.1 * SECOND)
            yield Step(stamp, apply(inverse(T_world), world), T_odom.copy(), T_world)


def fractal(seed: int, size: int = 256, slope: float = 2.0, relief: float = 1.0) -> Array:
    """Gaussian relief with the amplitude spectrum f^-slope."""
    rng = np.random.default_rng(seed)
    f = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.fftfreq(size)[None, :])
    f[0, 0] = np.inf
    z = np.fft.ifft2(np.fft.fft2(rng.normal(size=(size, size))) * f**-slope).real
    return relief * z / z.std()


PARAMETERS = {
    "mapping.resolution": 0.25,
    "mapping.size_x": 12.0,
    "mapping.size_y": 12.0,
    "mapping.length_scale": 1.0,
    "mapping.relief_std": 1.0,
    "noise.height_std": 0.02,
    "filter.min_range": 0.2,
    "filter.max_height": 20.0,
    "filter.min_height": -20.0,
    "gate.enabled": False,
    "submap.size": 16.0,
    "submap.resolution": 0.25,
    "submap.max_distance": 5.0,
    "closure.min_path": 25.0,
    "closure.drift_rotation": 0.02,
    "closure.threads": 1,
}
"""Settings that fit the drive."""
