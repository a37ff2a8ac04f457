"""Points out of a sensor_msgs/PointCloud2 (and into one), without copying more than the coordinates.

Works on anything with the fields of the message: rclpy's, a bag reader's. Where `sensor_msgs_py` is installed (a
robot) it does the decoding; elsewhere `structured_points` follows the same contract. Sizes are checked before either
looks at the bytes, because a cloud from the network may say anything.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from sensor_msgs_py import point_cloud2 as _ros  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # not on PyPI
    _ros = None

# sensor_msgs/PointField datatype -> NumPy type code
DATATYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
COORDINATES = ("x", "y", "z")


class CloudError(ValueError):
    """A cloud that does not keep to its own description: what is wrong with it."""


def read_xyz(message: Any) -> NDArray[np.float64]:
    """Coordinates (N, 3) of the returns: those not finite, or at the sensor itself (no return), are left out."""
    return read_returns(message)[0]


def read_returns(message: Any, field: str | None = None) -> tuple[NDArray[np.float64], NDArray[Any] | None]:
    """Coordinates (N, 3) of the returns, as `read_xyz`, and their values (N,) of another field, None without one."""
    check_layout(message)
    names = [*COORDINATES, *([field] if field else [])]
    if message.width * message.height == 0:
        return np.empty((0, 3)), None
    read = _ros.read_points if ros_can_read(message) else structured_points
    points = read(message, names)
    xyz = np.empty((points.size, 3))
    for column, name in enumerate(COORDINATES):
        xyz[:, column] = points[name].reshape(-1)
    # One reduction decides: NaN or infinity anywhere makes the sum so, and zero means all three are zero.
    size = np.abs(xyz).sum(axis=1)
    returned = np.isfinite(size) & (size > 0.0)
    return xyz[returned], points[field].reshape(-1)[returned] if field else None


def ros_can_read(message: Any) -> bool:
    """sensor_msgs_py takes only rclpy's own class (not a bag reader's) and rows without padding at their end."""
    if _ros is None or not isinstance(message, _ros.PointCloud2):
        return False
    return bool(message.height == 1 or message.row_step == message.width * message.point_step)


def check_layout(message: Any) -> None:
    """Refuse a cloud whose sizes, offsets or types contradict each other."""
    width, height, step, row = (
        int(getattr(message, n)) for n in ("width", "height", "point_step", "row_step")
    )
    fields = {item.name: item for item in message.fields}
    missing = [name for name in COORDINATES if name not in fields]
    if missing:
        raise CloudError(
            f"no field {', '.join(map(repr, missing))}; it has {', '.join(map(repr, fields)) or 'none'}"
        )
    for name in COORDINATES:
        item = fields[name]
        if item.datatype not in DATATYPES:
            raise CloudError(f"field '{name}' has the unknown datatype {item.datatype}")
        if item.count not in (0, 1):  # some drivers write 0 where they mean 1
            raise CloudError(f"field '{name}' has {item.count} elements, expected 1")
        size = np.dtype(DATATYPES[item.datatype]).itemsize
        if item.offset < 0 or item.offset + size > step:
            raise CloudError(f"field '{name}' at byte {item.offset} reaches beyond point_step {step}")
    if width < 0 or height < 0 or step <= 0:
        raise CloudError(f"width {width}, height {height}, point_step {step} describe no cloud")
    if height > 1 and row < width * step:
        raise CloudError(f"row_step {row} is less than width {width} times point_step {step}")
    needed = (height - 1) * row + width * step if height > 1 else width * height * step
    if len(message.data) < needed:
        raise CloudError(f"{len(message.data)} bytes of data, but {width} x {height} points need {needed}")


def structured_points(message: Any, field_names: list[str]) -> NDArray[np.void]:
    """The named fields as a structured array (N,) that shares the message's memory where the rows are contiguous."""
    fields = {item.name: item for item in message.fields}
    order = ">" if message.is_bigendian else "<"
    dtype = np.dtype(
        {
            "names": field_names,
            "formats": [order + DATATYPES[fields[name].datatype] for name in field_names],
            "offsets": [fields[name].offset for name in field_names],
            "itemsize": message.point_step,
        }
    )
    width, height, row = message.width, message.height, message.row_step
    data = np.frombuffer(message.data, dtype=np.uint8)
    if height > 1 and row != width * message.point_step:
        rows = np.lib.stride_tricks.as_strided(data, (height, width * message.point_step), (row, 1))
        data = np.ascontiguousarray(rows).reshape(-1)
    return data[: width * height * message.point_step].view(dtype)


def xyz_fields() -> list[tuple[str, int]]:
    """Name and offset of the fields of an unorganised cloud with float32 x, y, z and no padding."""
    return [(name, 4 * index) for index, name in enumerate(COORDINATES)]


def xyz_bytes(xyz: NDArray[np.floating]) -> bytes:
    """Coordinates (N, 3) as the data of such a cloud."""
    return np.ascontiguousarray(xyz, dtype=np.float32).tobytes()


IS_BIGENDIAN = sys.byteorder == "big"
