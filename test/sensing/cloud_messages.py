"""Messages with the fields of sensor_msgs/PointCloud2, made from structured arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpgmap_ros.sensing import pointcloud2


@dataclass
class Field:
    """As sensor_msgs/PointField."""

    name: str
    offset: int
    datatype: int = 7
    count: int = 1


@dataclass
class Cloud:
    """As sensor_msgs/PointCloud2."""

    width: int
    height: int
    fields: list[Field]
    point_step: int
    row_step: int
    data: bytes
    is_bigendian: bool = False
    is_dense: bool = True
    header: Any = field(default=None)


def cloud_of(array: np.ndarray, height: int = 1, row_padding: int = 0) -> Cloud:
    """A structured array as a cloud, its memory layout and byte order as they are."""
    codes = {v: k for k, v in pointcloud2.DATATYPES.items()}
    assert array.dtype.names
    fields, big = [], False
    for name in array.dtype.names:
        kind, offset = array.dtype.fields[name][:2]
        big |= kind.byteorder == ">"
        fields.append(Field(name, offset, codes[kind.str[1:]]))
    width, step = array.size // height, array.dtype.itemsize
    rows = [array[i * width : (i + 1) * width].tobytes() + b"\xff" * row_padding for i in range(height)]
    return Cloud(width, height, fields, step, width * step + row_padding, b"".join(rows), big)
