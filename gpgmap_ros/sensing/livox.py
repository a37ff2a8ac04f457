"""Livox clouds (CustomMsg): every point with its own time since the first.

The package that defines the type depends on the driver's generation; the layout is the same.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gpgmap_ros.sensing.point_times import MAX_OFFSET

PACKAGES: Final = ("livox_ros_driver2", "livox_ros_driver", "livox_interfaces")
LIVOX_TYPES: Final = tuple(f"{package}/msg/CustomMsg" for package in PACKAGES)
POINT: Final = """uint32 offset_time
float32 x
float32 y
float32 z
uint8 reflectivity
uint8 tag
uint8 line
"""
CLOUD: Final = """std_msgs/Header header
uint64 timebase
uint32 point_num
uint8 lidar_id
uint8[3] rsvd
CustomPoint[] points
"""


def is_livox(message: Any) -> bool:
    return hasattr(message, "timebase")


def read_livox(message: Any, stamp: int) -> tuple[Any, Any]:
    """Points (N, 3) float32 with a return, and their times (N,), seconds after the stamp (nanoseconds).

    Times count from `timebase`, or from the stamp where that is of another clock.
    """
    rows = np.array([(p.x, p.y, p.z, p.offset_time) for p in message.points], dtype=np.float64).reshape(-1, 4)
    xyz = rows[:, :3]
    returned = np.isfinite(xyz).all(axis=1) & (xyz != 0.0).any(axis=1)
    start = (int(message.timebase) - stamp) * 1e-9
    if abs(start) > MAX_OFFSET:
        start = 0.0
    return xyz[returned].astype(np.float32), rows[returned, 3] * 1e-9 + start
