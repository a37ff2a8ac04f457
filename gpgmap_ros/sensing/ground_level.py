"""The vertical without an IMU: the normal of the ground around the sensor.

The ground is the plane that most of the points below the sensor lie on (RANSAC, then least squares). Ground slopes, so
its normal is the vertical only to some degrees; `SLOPE_STD` states that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.geometry import Array

SLOPE_STD: Final = np.deg2rad(5.0)
"""Standard deviation of the ground's slope where a drive begins, about each horizontal axis."""
REACH: Final = 12.0
"""Metres around the sensor."""
THICKNESS: Final = 0.1
"""Metres from the plane within which points belong to the ground."""
MIN_SHARE: Final = 0.2
"""Share of the points below the sensor that must lie on the plane."""
MIN_POINTS: Final = 50
TRIALS: Final = 300
MAX_SAMPLED: Final = 4000


@dataclass(frozen=True)
class Level:
    """Which way is up.

    T_level_sensor: (4, 4) rotation into a frame whose z axis is the ground's normal, with the sensor's heading
    tilt: angle between the sensor's z axis and the normal; std: of the vertical about each horizontal axis; radians
    share: of the points below the sensor that lie on the ground
    """

    T_level_sensor: Array = field(repr=False)
    tilt: float
    std: float
    share: float


def find_level(points: Array, rng: np.random.Generator, max_tilt: float = np.deg2rad(60.0)) -> Level | None:
    """The level of the ground in a scan (N, 3) in the sensor's frame; None where there is no such plane.

    max_tilt: radians between the sensor's z axis and the normal
    """
    near = points[(np.linalg.norm(points, axis=1) < REACH)]
    near = near[near[:, 2] < np.tan(max_tilt) * np.linalg.norm(near[:, :2], axis=1)]  # not above the sensor
    if len(near) < MIN_POINTS:
        return None
    sample = near[rng.choice(len(near), min(len(near), MAX_SAMPLED), replace=False)]
    corners = sample[rng.integers(0, len(sample), (TRIALS, 3))]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normals, axis=1)
    good = length > 1e-6
    normals = normals[good] / length[good, None]
    normals *= np.where(normals[:, 2] < 0.0, -1.0, 1.0)[:, None]
    offsets = -np.einsum("ni,ni->n", normals, corners[good, 0])  # height of the sensor above the plane
    possible = (np.arccos(np.clip(normals[:, 2], -1.0, 1.0)) <= max_tilt) & (offsets > 0.0)
    if not possible.any():
        return None
    normals, offsets = normals[possible], offsets[possible]
    on_plane = np.abs(sample @ normals.T + offsets) < THICKNESS
    best = int(np.argmax(on_plane.sum(axis=0)))
    ground = sample[on_plane[:, best]]
    share = len(ground) / len(sample)
    if share < MIN_SHARE or len(ground) < MIN_POINTS:
        return None
    normal = np.linalg.eigh(np.cov(ground.T))[1][:, 0]
    normal *= np.sign(normal @ normals[best])
    tilt = float(np.arccos(np.clip(normal[2], -1.0, 1.0)))
    T = np.eye(4)
    axis = np.cross(normal, [0.0, 0.0, 1.0])
    if (size := np.linalg.norm(axis)) > 1e-12:
        T[:3, :3] = Rotation.from_rotvec(axis / size * tilt).as_matrix()
    return Level(T, tilt, float(SLOPE_STD), share)
