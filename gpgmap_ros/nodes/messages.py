"""Between ROS messages and plain values. Values are cast to Python's own types: rclpy writes others as rubbish."""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion, Transform, TransformStamped
from grid_map_msgs.msg import GridMap
from nav_msgs.msg import MapMetaData, OccupancyGrid, Odometry, Path
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import Image, PointCloud2, PointField
from std_msgs.msg import ColorRGBA, Float32MultiArray, Header, MultiArrayDimension, MultiArrayLayout
from tf2_msgs.msg import TFMessage
from visualization_msgs.msg import Marker, MarkerArray

from gpgmap_ros.closure import LoopClosure
from gpgmap_ros.geometry import Array, quaternion_of
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.conversions import (
    grid_map_from_layer,
    grid_map_geometry,
    image_from_layer,
    layer_from_image,
    obstacles_from_layer,
    occupancy_from_layer,
    points_from_layer,
)
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.sensing.pointcloud2 import xyz_fields
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS


def time_message(stamp: int) -> Time:
    return Time(sec=int(stamp // NANOSECONDS), nanosec=int(stamp % NANOSECONDS))


def header(gpgmap: GPGMap) -> Header:
    return Header(stamp=time_message(gpgmap.stamp), frame_id=gpgmap.frame_id)


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
        values.frombytes(grid_map_from_layer(gpgmap[layer]).data.cast("B"))
        message.data.append(Float32MultiArray(layout=MultiArrayLayout(dim=dimensions), data=values))
    return message


def risk_message(gpgmap: GPGMap) -> OccupancyGrid:
    """Risk in percent, 100 (1 - P(traversable)), -1 where unknown."""
    return occupancy_message(gpgmap, occupancy_from_layer(gpgmap["traversability"]))


def obstacles_message(gpgmap: GPGMap) -> OccupancyGrid:
    """100 where the risk is above `traversability.max_risk`, else 0, -1 where unknown."""
    max_risk = gpgmap.config.traversability.max_risk
    return occupancy_message(gpgmap, obstacles_from_layer(gpgmap["traversability"], max_risk))


def occupancy_message(gpgmap: GPGMap, values: NDArray[np.int8]) -> OccupancyGrid:
    """values: flat, in the order of the layer"""
    message = OccupancyGrid(header=header(gpgmap), info=map_info_message(gpgmap))
    cells = array.array("b")
    cells.frombytes(values.data.cast("B"))
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
    pose.pose.pose = pose_message(submap.T_map_submap)
    return grid_map, pose


def closure_message(closure: LoopClosure, stamp: int) -> Odometry:
    """The pose of the later submap's frame in the earlier one's, with its covariance."""
    message = Odometry(child_frame_id=submap_frame(closure.b))
    message.header.stamp, message.header.frame_id = time_message(stamp), submap_frame(closure.a)
    message.pose.pose = pose_message(closure.T_a_b)
    message.pose.covariance = [float(value) for value in closure.covariance.ravel()]
    return message


def path_message(stamps: NDArray[np.int64], poses: Array, frame: str, stamp: int) -> Path:
    """Poses (K, 4, 4) with their own stamps."""
    message = Path(header=Header(stamp=time_message(stamp), frame_id=frame))
    if not len(stamps):
        return message
    quaternions = Rotation.from_matrix(poses[:, :3, :3]).as_quat(canonical=True)
    for when, (x, y, z), (qx, qy, qz, qw) in zip(
        stamps.tolist(), poses[:, :3, 3].tolist(), quaternions.tolist(), strict=True
    ):
        pose = Pose(position=Point(x=x, y=y, z=z), orientation=Quaternion(x=qx, y=qy, z=qz, w=qw))
        header = Header(stamp=time_message(when), frame_id=frame)
        message.poses.append(PoseStamped(header=header, pose=pose))
    return message


def pose_message(T: Array) -> Pose:
    x, y, z = (float(value) for value in T[:3, 3])
    qx, qy, qz, qw = (float(value) for value in quaternion_of(T))
    return Pose(position=Point(x=x, y=y, z=z), orientation=Quaternion(x=qx, y=qy, z=qz, w=qw))


def transform_message(T_parent_child: Array, parent: str, child: str, stamp: Time) -> TFMessage:
    message = TransformStamped(header=Header(stamp=stamp, frame_id=parent), child_frame_id=child)
    set_transform(message.transform, T_parent_child)
    return TFMessage(transforms=[message])


def set_transform(transform: Transform, T: Array) -> None:
    """Write T into a message that is there."""
    t, q = transform.translation, transform.rotation
    t.x, t.y, t.z = T[:3, 3].tolist()
    q.x, q.y, q.z, q.w = quaternion_of(T).tolist()


ANCHOR, ACCEPTED, OVERRULED = (0.2, 0.5, 0.9), (0.1, 0.8, 0.2), (0.9, 0.2, 0.1)
"""Colours of a submap's frame, of a closure in the graph, and of one that something else contradicts."""
MAX_NUMBERS = 500
"""Submaps of which all are numbered: of more only every second, every third ..."""


def closure_markers(
    ids: NDArray[np.int64],
    poses: Array,
    pairs: NDArray[np.int64],
    accepted: NDArray[np.bool_],
    frame: str,
    stamp: int,
    size: float,
) -> MarkerArray:
    """Submaps as numbered dots, closures as lines between them: green in the graph, red out of it.

    ids, poses: (N,) and (N, 4, 4) of the submaps; pairs, accepted: (M, 2) and (M,) of the closures
    size: of a dot, metres
    """
    header = Header(stamp=time_message(stamp), frame_id=frame)
    positions = (Point(x=x, y=y, z=z) for x, y, z in poses[:, :3, 3].tolist())
    place = dict(zip(ids.tolist(), positions, strict=True))

    def marker(namespace: str, number: int, kind: int, colour: tuple[float, float, float]) -> Marker:
        message = Marker(header=header, ns=namespace, id=number, type=kind, action=Marker.ADD)
        message.pose.orientation.w = 1.0
        message.color = ColorRGBA(r=colour[0], g=colour[1], b=colour[2], a=1.0)
        return message

    # without this, lines of closures that are gone would stay
    markers = [Marker(header=header, action=Marker.DELETEALL)]
    dots = marker("submaps", 0, Marker.SPHERE_LIST, ANCHOR)
    dots.scale.x = dots.scale.y = dots.scale.z = float(size)
    dots.points = list(place.values())
    markers.append(dots)
    for number, (namespace, wanted, colour) in enumerate(
        (("closures", True, ACCEPTED), ("overruled", False, OVERRULED))
    ):
        lines = marker(namespace, number, Marker.LINE_LIST, colour)
        lines.scale.x = 0.3 * float(size)
        for a, b in pairs[accepted == wanted]:
            if int(a) in place and int(b) in place:
                lines.points += [place[int(a)], place[int(b)]]
        markers.append(lines)
    for id, position in list(place.items())[:: 1 + len(place) // MAX_NUMBERS]:
        text = marker("numbers", id, Marker.TEXT_VIEW_FACING, ANCHOR)
        text.text, text.scale.z = str(id), float(size)
        text.pose.position.x, text.pose.position.y = position.x, position.y
        text.pose.position.z = position.z + float(size)
        markers.append(text)
    return MarkerArray(markers=markers)


def byte_array(values: NDArray[Any]) -> array.array[int]:
    """What rclpy takes without copying element by element (bytes and ndarray cost a thousand times as much)."""
    data = array.array("B")
    data.frombytes(np.ascontiguousarray(values).data.cast("B"))
    return data
