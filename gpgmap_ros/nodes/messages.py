"""Between ROS messages and plain values. Values are cast to Python's own types: rclpy writes others as rubbish."""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from grid_map_msgs.msg import GridMap
from nav_msgs.msg import MapMetaData, OccupancyGrid, Odometry
from numpy.typing import NDArray
from sensor_msgs.msg import Image, PointCloud2, PointField
from std_msgs.msg import Float32MultiArray, Header, MultiArrayDimension, MultiArrayLayout

from gpgmap_ros.geometry import Array, quaternion_of, transform_from
from gpgmap_ros.io.pointcloud2 import xyz_fields
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.conversions import (
    grid_map_from_layer,
    grid_map_geometry,
    image_from_layer,
    layer_from_image,
    occupancy_from_layer,
    points_from_layer,
)
from gpgmap_ros.mapping.submaps import Submap
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
    """One layer, north up: floats as 32FC1 with NaN where unknown, bytes as mono8."""
    pixels = image_from_layer(gpgmap[layer])
    encoding = "mono8" if pixels.dtype == np.uint8 else "32FC1"
    rows, columns = pixels.shape
    message = Image(header=header(gpgmap), height=int(rows), width=int(columns), encoding=encoding)
    message.is_bigendian = 0
    message.step = int(columns * pixels.itemsize)
    message.data = byte_array(pixels if encoding == "mono8" else pixels.astype("<f4", copy=False))
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


def grid_map_message(gpgmap: GPGMap, layers: Sequence[str]) -> GridMap:
    """Several layers in the conventions of grid_map: from the +x,+y corner, column by column, pose at the centre."""
    geometry = grid_map_geometry(gpgmap.grid)
    message = GridMap(header=header(gpgmap), layers=list(layers), basic_layers=["elevation"])
    message.info.resolution = float(geometry.resolution)
    message.info.length_x, message.info.length_y = float(geometry.length_x), float(geometry.length_y)
    message.info.pose.position.x, message.info.pose.position.y = (float(value) for value in geometry.centre)
    message.info.pose.orientation.w = 1.0
    dimensions = [
        MultiArrayDimension(label=label, size=int(size), stride=int(stride))
        for label, size, stride in geometry.dimensions
    ]
    for layer in layers:
        values = array.array("f")
        values.frombytes(memoryview(grid_map_from_layer(gpgmap[layer])).cast("B"))
        message.data.append(Float32MultiArray(layout=MultiArrayLayout(dim=dimensions), data=values))
    return message


def occupancy_message(gpgmap: GPGMap, layer: str) -> OccupancyGrid:
    """A layer of probabilities as risk in percent, -1 where unknown: Nav2's static layer takes it as it is."""
    message = OccupancyGrid(header=header(gpgmap), info=map_info_message(gpgmap))
    cells = array.array("b")
    cells.frombytes(memoryview(occupancy_from_layer(gpgmap[layer])).cast("B"))
    message.data = cells
    return message


def surface_message(gpgmap: GPGMap) -> PointCloud2:
    """The known cells as a cloud in the map's frame."""
    points = points_from_layer(gpgmap["elevation"], gpgmap.grid)
    message = PointCloud2(
        header=header(gpgmap), height=1, width=len(points), point_step=12, row_step=12 * len(points)
    )
    message.fields = [
        PointField(name=name, offset=offset, datatype=PointField.FLOAT32, count=1)
        for name, offset in xyz_fields()
    ]
    message.is_dense = True
    message.is_bigendian = False
    message.data = byte_array(points.astype("<f4", copy=False))
    return message


def submap_frame(number: int) -> str:
    return f"submap_{number}"


def submap_id(frame: str) -> int:
    """The inverse of `submap_frame`."""
    head, _, number = frame.strip("/").rpartition("_")
    if head != "submap" or not number.isdigit():
        raise ValueError(f"frame_id must be that of a submap, as in 'submap_3', got '{frame}'")
    return int(number)


def submap_messages(submap: Submap, map_frame: str, layers: Sequence[str]) -> tuple[GridMap, Odometry]:
    """A finished submap in a frame of its own, and the pose of that frame in the map's."""
    grid_map = grid_map_message(submap.gpgmap, layers)
    grid_map.header.frame_id = submap_frame(submap.id)
    grid_map.header.stamp = time_message(submap.last_stamp)
    pose = Odometry(child_frame_id=submap_frame(submap.id))
    pose.header.stamp, pose.header.frame_id = time_message(submap.first_stamp), map_frame
    position, orientation = pose.pose.pose.position, pose.pose.pose.orientation
    position.x, position.y, position.z = (float(value) for value in submap.T_map_submap[:3, 3])
    orientation.x, orientation.y, orientation.z, orientation.w = (
        float(value) for value in quaternion_of(submap.T_map_submap)
    )
    return grid_map, pose


def byte_array(values: NDArray[Any]) -> array.array[int]:
    """What rclpy takes without copying element by element (bytes and ndarray cost a thousand times as much)."""
    data = array.array("B")
    data.frombytes(memoryview(np.ascontiguousarray(values)).cast("B"))
    return data
