"""What a number in a message or a file may be: a pose on one planet, a stamp that ROS can carry, a finite height.

A checksum says that a file is as it was written, not that what was written makes sense.
"""

from __future__ import annotations

import numpy as np

from gpgmap_ros.arrays import Array

FARTHEST = 1e7
"""Metres; a pose beyond it is an error, and the map could not tell centimetres there."""
LATEST = (1 << 31) * 1_000_000_000
"""Nanoseconds: the seconds of a ROS stamp have 31 bits."""


def check_pose(T: Array, name: str) -> Array:
    """`T` if it is a rigid transform between places on one planet; else a ValueError."""
    T = np.asarray(T, dtype=np.float64)
    if T.shape != (4, 4):
        raise ValueError(f"{name} must be a finite 4 x 4 matrix")
    pose: Array = check_poses(T[None], name)[0]
    return pose


def check_poses(T: Array, name: str) -> Array:
    """`T` (K, 4, 4) if each is a rigid transform between places on one planet; else a ValueError."""
    T = np.asarray(T, dtype=np.float64)
    if T.ndim != 3 or T.shape[1:] != (4, 4) or not np.isfinite(T).all():
        raise ValueError(f"{name} must be a finite 4 x 4 matrix")
    if not len(T):
        return T
    R = T[:, :3, :3]
    # the size first: the product of huge numbers would overflow
    rotates = np.abs(R).max() <= 1.001 and (
        np.abs(R.transpose(0, 2, 1) @ R - np.eye(3)).max() <= 1e-4 and (np.linalg.det(R) > 0.0).all()
    )
    if not rotates:
        raise ValueError(f"{name} does not rotate: its upper left part is not a rotation matrix")
    if (away := np.abs(T[:, :3, 3]).max()) > FARTHEST:
        raise ValueError(f"{name} is {away:.3g} m away: at most {FARTHEST:.0e} m can be mapped")
    if np.abs(T[:, 3] - [0.0, 0.0, 0.0, 1.0]).max() > 1e-9:
        raise ValueError(f"{name} is not a rigid transform: its last row is not 0, 0, 0, 1")
    return T


def check_stamp(value: object, name: str) -> int:
    """Nanoseconds from 0 to what ROS can carry; else a ValueError."""
    if type(value) is not int or not 0 <= value < LATEST:
        raise ValueError(f"{name} is not a stamp: integer nanoseconds below {LATEST:.2e} are expected")
    return value


def check_number(value: object, name: str, low: float = -FARTHEST, high: float = FARTHEST) -> float:
    """A finite number in [low, high]; else a ValueError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}")
    return float(value)
