"""Rooms of planes, and what a LiDAR sees of them, for tests of LiDAR odometry."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation


def plane(
    origin: list[float], a: list[float], b: list[float], count: int, rng: np.random.Generator
) -> np.ndarray:
    """Points on the parallelogram origin + s a + t b."""
    return np.array(origin) + rng.random((count, 1)) * np.array(a) + rng.random((count, 1)) * np.array(b)


def room(rng: np.random.Generator) -> np.ndarray:
    """A hall of 20 x 14 x 6 m with pillars."""
    parts = [
        plane([-10, -7, 0], [20, 0, 0], [0, 14, 0], 6000, rng),
        plane([-10, -7, 0], [20, 0, 0], [0, 0, 6], 3000, rng),
        plane([-10, 7, 0], [20, 0, 0], [0, 0, 6], 3000, rng),
        plane([-10, -7, 0], [0, 14, 0], [0, 0, 6], 2000, rng),
        plane([10, -7, 0], [0, 14, 0], [0, 0, 6], 2000, rng),
    ]
    for x, y in ((-4, -3), (3, 2), (6, -4)):
        parts.append(plane([x, y, 0], [1, 0, 0], [0, 0, 6], 400, rng))
        parts.append(plane([x, y, 0], [0, 1, 0], [0, 0, 6], 400, rng))
    return np.concatenate(parts)


def corridor(rng: np.random.Generator) -> np.ndarray:
    """Two walls, floor and ceiling without ends."""
    return np.concatenate(
        [
            plane([-60, -2, 0], [120, 0, 0], [0, 0, 3], 9000, rng),
            plane([-60, 2, 0], [120, 0, 0], [0, 0, 3], 9000, rng),
            plane([-60, -2, 0], [120, 0, 0], [0, 4, 0], 9000, rng),
        ]
    )


def scan(scene: np.ndarray, T: np.ndarray, rng: np.random.Generator, reach: float = 15.0) -> np.ndarray:
    """What a sensor at T sees of a scene, with 1 cm of noise."""
    points = (scene - T[:3, 3]) @ T[:3, :3]
    points = points[np.linalg.norm(points, axis=1) < reach]
    return points + rng.normal(0.0, 0.01, points.shape)


def pose(x: float, y: float, yaw: float, z: float = 1.5) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = Rotation.from_euler("z", yaw, degrees=True).as_matrix(), (x, y, z)
    return T
