"""A rover that drives in a circle while its LiDAR spins: clouds whose points have times, and the poses between.

For the benchmark and the tests of deskewing. The rover pitches and rolls as on rough ground, and every firing of the
sensor is cast from its own pose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.demo.lidar import SpinningLidar
from gpgmap_ros.demo.terrain import Terrain
from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing import Cloud
from gpgmap_ros.sensing.messages import FrameTransform

NANOSECONDS = 1_000_000_000
START = 1_000 * NANOSECONDS
SENSOR_HEIGHT = 1.8
"""Metres above the ground in the middle of the circle."""
SWAY, SWAY_FREQUENCY = 2.0, 1.0
"""Degrees and Hz of roll and pitch."""


@dataclass(frozen=True)
class CirclingRover:
    """Circle through the middle of a terrain, at constant speed.

    speed: m/s; turn_rate: deg/s; scan_rate: revolutions of the LiDAR per second; pose_rate: poses per second
    """

    terrain: Terrain
    lidar: SpinningLidar
    speed: float = 3.0
    turn_rate: float = 60.0
    scan_rate: float = 10.0
    pose_rate: float = 50.0

    def pose_at(self, seconds: float) -> Array:
        """T_odom_lidar (4, 4)."""
        rate = np.deg2rad(self.turn_rate)
        radius, angle = self.speed / rate, rate * seconds
        width, depth = self.terrain.size
        middle = np.array([0.5 * width, 0.5 * depth])
        sway = SWAY * np.sin(2.0 * np.pi * SWAY_FREQUENCY * seconds + np.array([0.0, 1.0]))
        T = np.eye(4)
        T[:3, :3] = Rotation.from_euler(
            "ZYX", [self.turn_rate * seconds + 90.0, sway[0], sway[1]], degrees=True
        ).as_matrix()
        T[:2, 3] = middle + radius * np.array([np.cos(angle), np.sin(angle)])
        T[2, 3] = float(self.terrain.height_at(*middle)) + SENSOR_HEIGHT
        return T

    def transforms(self, seconds: float) -> Iterator[FrameTransform]:
        """odom -> lidar from before the first cloud to after the last."""
        for k in range(-2, round(seconds * self.pose_rate) + 3):
            t = k / self.pose_rate
            yield FrameTransform("odom", "lidar", START + round(t * NANOSECONDS), self.pose_at(t))

    def clouds(self, seconds: float, rng: np.random.Generator, moving: bool = True) -> Iterator[Cloud]:
        """Clouds stamped at their first point. moving: within a cloud too; else all of it is from its first pose."""
        turns = self.lidar.turns
        offsets = np.arange(turns) / (turns * self.scan_rate)
        for k in range(int(seconds * self.scan_rate)):
            begin = k / self.scan_rate
            poses = np.stack([self.pose_at(begin + (offset if moving else 0.0)) for offset in offsets])
            points, firings = self.lidar.sweep(self.terrain, poses, rng)
            stamp = START + round(begin * NANOSECONDS)
            yield Cloud(stamp, "lidar", points, offsets[firings] if moving else None, size=len(points))
