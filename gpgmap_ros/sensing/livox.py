"""Livox clouds (CustomMsg): every point with its own time since the first.

The package that defines the type depends on the driver's generation; the layout is the same. Tens of thousands of point
objects a cloud take rclpy and bag readers longer than the scan, so the bytes of a serialised message are read as one
array. ROS 1 bags, whose bytes are packed otherwise, are read through their objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.sensing.point_times import MAX_OFFSET
from gpgmap_ros.sensing.pointcloud2 import CloudError

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
FIELDS: Final = ("offset_time", "x", "y", "z", "reflectivity", "tag", "line")
POINT_SIZE, POINT_STRIDE = 19, 20
"""Bytes of a point in CDR, and from one to the next: each begins at a multiple of four."""
ENCAPSULATION: Final = 4
"""Bytes before the message, from which alignment counts."""


@dataclass(frozen=True)
class Stamp:
    sec: int
    nanosec: int


@dataclass(frozen=True)
class Header:
    stamp: Stamp
    frame_id: str


@dataclass(frozen=True)
class LivoxMessage:
    """The fields of a CustomMsg that are used. points: (N,) structured, offset_time, x, y, z"""

    header: Header
    timebase: int
    points: NDArray[np.void] = field(repr=False)


def is_livox(message: Any) -> bool:
    return hasattr(message, "timebase")


def parse_livox(data: bytes) -> LivoxMessage:
    """A CustomMsg from its CDR bytes; CloudError where they are too few, or none."""
    order = "<" if data[1:2] == b"\x01" else ">"
    body = memoryview(data)[ENCAPSULATION:]

    def number(kind: str, at: int) -> int:
        size = np.dtype(kind).itemsize
        if at + size > len(body):
            raise CloudError(f"{len(data)} bytes are no Livox cloud: it ends in its header")
        return int(np.frombuffer(body[at : at + size], dtype=order + kind)[0])

    stamp, length = Stamp(number("i4", 0), number("u4", 4)), number("u4", 8)
    name_end = 12 + length
    if name_end > len(body):
        raise CloudError(f"{len(data)} bytes are no Livox cloud: its frame_id has {length}")
    frame_id = bytes(body[12 : max(name_end - 1, 12)]).decode("utf-8", "replace")
    at = -(-name_end // 8) * 8
    timebase, count = number("u8", at), number("u4", at + 16)
    begin = at + 20
    needed = (count - 1) * POINT_STRIDE + POINT_SIZE if count else 0
    if begin + needed > len(body):
        raise CloudError(f"{len(data)} bytes of data, but {count} Livox points need {begin + needed}")
    # the last point has no byte behind it
    padded = np.zeros(count * POINT_STRIDE, dtype=np.uint8)
    padded[:needed] = np.frombuffer(body[begin : begin + needed], dtype=np.uint8)
    kind = np.dtype(
        {"names": list(FIELDS[:4]), "formats": [order + code for code in ("u4", "f4", "f4", "f4")],
         "offsets": [0, 4, 8, 12], "itemsize": POINT_STRIDE}
    )  # fmt: skip
    return LivoxMessage(Header(stamp, frame_id), timebase, padded.view(kind))


def read_livox(message: Any, stamp: int) -> tuple[Any, NDArray[np.float64]]:
    """Points (N, 3) float32 with a return, and their times (N,), seconds after the stamp (nanoseconds).

    Times count from `timebase`, or from the stamp where that is of another clock.
    """
    points = message.points
    rows = np.empty((len(points), 4))
    if isinstance(points, np.ndarray) and points.dtype.names:
        for column, name in enumerate(("x", "y", "z", "offset_time")):
            rows[:, column] = points[name]
    elif len(points):
        rows[:] = [(p.x, p.y, p.z, p.offset_time) for p in points]
    xyz = rows[:, :3]
    returned = np.isfinite(xyz).all(axis=1) & (xyz != 0.0).any(axis=1)
    start = (int(message.timebase) - stamp) * 1e-9
    if abs(start) > MAX_OFFSET:
        start = 0.0
    return xyz[returned].astype(np.float32), rows[returned, 3] * 1e-9 + start
