"""Clouds of a LiDAR that goes through a hall, as arrays and as messages; for measuring LiDAR odometry under load."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

Array = NDArray[np.float64]
NOISE = 0.02


@lru_cache(maxsize=1)
def _hall() -> Array:
    """Points on the walls, the floor and the pillars of a hall of 20 x 14 x 6 m."""
    rng = np.random.default_rng(1)
    planes = [([-10, -7, 0], [20, 0, 0], [0, 14, 0])]
    boxes = [(-10.0, -7.0, 20.0, 14.0), *((x, y, 1.0, 1.0) for x, y in rng.uniform([-9, -6], [8, 5], (4, 2)))]
    for x, y, width, depth in boxes:
        planes += [
            ([x, y, 0], [width, 0, 0], [0, 0, 6]), ([x, y + depth, 0], [width, 0, 0], [0, 0, 6]),
            ([x, y, 0], [0, depth, 0], [0, 0, 6]), ([x + width, y, 0], [0, depth, 0], [0, 0, 6]),
        ]  # fmt: skip
    parts = []
    for origin, a, b in planes:
        count = int(300.0 * np.linalg.norm(np.cross(a, b)))
        parts.append(
            np.array(origin) + rng.random((count, 1)) * np.array(a) + rng.random((count, 1)) * np.array(b)
        )
    return np.concatenate(parts)


def hall_scan(step: int, points: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """(N, 3) what the sensor sees after some steps of 0.1 m and 1 degree."""
    R = Rotation.from_euler("z", step, degrees=True).as_matrix()
    seen = _hall()[rng.choice(len(_hall()), points)]
    local = (seen - [-4.0 + 0.1 * step, 0.0, 1.5]) @ R
    ranges = np.linalg.norm(local, axis=1, keepdims=True)
    return np.asarray(local * (1.0 + rng.normal(0.0, NOISE, (points, 1)) / ranges), dtype=np.float32)


def hall_cloud(points: NDArray[np.float32], stamp: int) -> Any:
    """A message with the attributes of a sensor_msgs/PointCloud2."""
    header = SimpleNamespace(
        stamp=SimpleNamespace(sec=stamp // 10**9, nanosec=stamp % 10**9), frame_id="lidar"
    )
    fields = [SimpleNamespace(name=name, offset=4 * i, datatype=7, count=1) for i, name in enumerate("xyz")]
    return SimpleNamespace(
        header=header, height=1, width=len(points), point_step=12, row_step=12 * len(points), fields=fields,
        is_bigendian=False, is_dense=True, data=points.astype("<f4").tobytes(),
    )  # fmt: skip
