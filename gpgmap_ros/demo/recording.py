"""The drive as a rosbag2: /points and /tf (odom -> base_link -> lidar), as a robot would have recorded it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from rosbags.typesys import get_typestore

from gpgmap_ros.demo.drive import Frame, sensor_mount
from gpgmap_ros.geometry import Array, quaternion_of
from gpgmap_ros.io.bags import STORE, Stamped
from gpgmap_ros.sensing.pointcloud2 import IS_BIGENDIAN, xyz_bytes, xyz_fields

POINTS_TOPIC, TF_TOPIC, TF_STATIC_TOPIC = "/lidar/points", "/tf", "/tf_static"
ODOM_FRAME, BASE_FRAME, LIDAR_FRAME = "odom", "base_link", "lidar"
START = 1_700_000_000 * 1_000_000_000  # nanoseconds: the drive's invented date


def drive_messages(frames: Iterable[Frame]) -> Iterator[Stamped]:
    types = get_typestore(STORE).types
    yield Stamped(TF_STATIC_TOPIC, START, tf_message(types, START, BASE_FRAME, LIDAR_FRAME, sensor_mount()))
    for frame in frames:
        stamp = START + round(frame.time * 1e9)
        yield Stamped(TF_TOPIC, stamp, tf_message(types, stamp, ODOM_FRAME, BASE_FRAME, frame.T_odom_base))
        yield Stamped(POINTS_TOPIC, stamp, cloud_message(types, stamp, frame.points))


def header(types: Any, stamp: int, frame_id: str) -> Any:
    time = types["builtin_interfaces/msg/Time"](sec=stamp // 10**9, nanosec=stamp % 10**9)
    return types["std_msgs/msg/Header"](stamp=time, frame_id=frame_id)


def tf_message(types: Any, stamp: int, parent: str, child: str, T_parent_child: Array) -> Any:
    translation = types["geometry_msgs/msg/Vector3"](*(float(value) for value in T_parent_child[:3, 3]))
    rotation = types["geometry_msgs/msg/Quaternion"](
        *(float(value) for value in quaternion_of(T_parent_child))
    )
    transform = types["geometry_msgs/msg/Transform"](translation=translation, rotation=rotation)
    stamped = types["geometry_msgs/msg/TransformStamped"](
        header=header(types, stamp, parent), child_frame_id=child, transform=transform
    )
    return types["tf2_msgs/msg/TFMessage"](transforms=[stamped])


def cloud_message(types: Any, stamp: int, points: Array) -> Any:
    field = types["sensor_msgs/msg/PointField"]
    data = np.frombuffer(xyz_bytes(points), dtype=np.uint8)
    return types["sensor_msgs/msg/PointCloud2"](
        header=header(types, stamp, LIDAR_FRAME),
        height=1,
        width=len(points),
        fields=[field(name=name, offset=offset, datatype=7, count=1) for name, offset in xyz_fields()],
        is_bigendian=IS_BIGENDIAN,
        point_step=12,
        row_step=12 * len(points),
        data=data,
        is_dense=True,
    )
