"""Between ROS messages and plain values. Values are cast to Python's own types: rclpy writes others as rubbish."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from nav_msgs.msg import MapMetaData
from numpy.typing import NDArray
from sensor_msgs.msg import Image
from std_msgs.msg import Header

from gpgmap_ros.geometry import Array, transform_from
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.images import image_from_layer, layer_from_image
from gpgmap_ros.transform_buffer import NANOSECONDS


def nanoseconds(stamp: Any) -> int:
    return int(stamp.sec) * NANOSECONDS + int(stamp.nanosec)


def time_message(stamp: int) -> Time:
    return Time(sec=int(stamp // NANOSECONDS), nanosec=int(stamp % NANOSECONDS))


def header(gpgmap: GPGMap) -> Header:
    return Header(stamp=time_message(gpgmap.stamp), frame_id=gpgmap.frame_id)


def transform_of(transform: Any) -> Array:
    """geometry_msgs/Transform as a matrix; ValueError where it is none."""
    t, q = transform.translation, transform.rotation
    return transform_from([t.x, t.y, t.z], [q.x, q.y, q.z, q.w])


def pose_of(pose: Any) -> Array:
    """geometry_msgs/Pose as a matrix; ValueError where it is none."""
    p, q = pose.position, pose.orientation
    return transform_from([p.x, p.y, p.z], [q.x, q.y, q.z, q.w])


def image_message(gpgmap: GPGMap, layer: str) -> Image:
    """One layer as 32FC1, north up, NaN where unknown."""
    pixels = image_from_layer(gpgmap.layers[layer])
    rows, columns = pixels.shape
    message = Image(header=header(gpgmap), height=int(rows), width=int(columns), encoding="32FC1")
    message.is_bigendian = 0
    message.step = int(columns * pixels.itemsize)
    message.data = byte_array(pixels.astype("<f4", copy=False))
    return message


def layer_of(message: Image) -> NDArray[np.float32]:
    """The inverse of `image_message`, for whoever receives one."""
    pixels = np.frombuffer(message.data, dtype=">f4" if message.is_bigendian else "<f4")
    return layer_from_image(pixels.reshape(message.height, message.width))


def map_info_message(gpgmap: GPGMap) -> MapMetaData:
    """Cell size, number of cells, and the pose of the corner of cell (0, 0)."""
    rows, columns = gpgmap.grid.shape
    x, y = gpgmap.grid.origin
    message = MapMetaData(resolution=float(gpgmap.grid.resolution), width=int(columns), height=int(rows))
    message.map_load_time = time_message(gpgmap.stamp)
    message.origin.position.x, message.origin.position.y = float(x), float(y)
    message.origin.orientation.w = 1.0
    return message


def byte_array(values: NDArray[Any]) -> array.array[int]:
    """What rclpy takes without copying element by element (bytes and ndarray cost a thousand times as much)."""
    data = array.array("B")
    data.frombytes(memoryview(np.ascontiguousarray(values)).cast("B"))
    return data
