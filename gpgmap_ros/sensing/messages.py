"""Stamps, transforms and poses out of ROS messages, as plain numbers.

Works on anything with the attributes of the message: rclpy's classes and a bag reader's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpgmap_ros.geometry import Array, transform_from
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS, frame_name

ODOMETRY = "nav_msgs/msg/Odometry"
POSE_TYPES = (
    ODOMETRY,
    "geometry_msgs/msg/PoseWithCovarianceStamped",
    "geometry_msgs/msg/PoseStamped",
    "geometry_msgs/msg/TransformStamped",
)
"""Types of messages that give the robot's pose, the most informative first."""
TF_TYPES = ("tf2_msgs/msg/TFMessage", "tf/msg/tfMessage")


@dataclass(frozen=True, eq=False)
class FrameTransform:
    """T_parent_child at a stamp (nanoseconds), as on /tf. topic: where it came from, named in warnings."""

    parent: str
    child: str
    stamp: int
    T: Array
    static: bool = False
    topic: str = ""


@dataclass(frozen=True, eq=False)
class PoseMeasurement:
    """Pose of the robot at a stamp (nanoseconds), as odometry gives it.

    covariance: (6, 6), None where unknown; base_frame: the frame whose pose it is, empty where not stated
    """

    stamp: int
    T: Array
    covariance: Array | None = None
    base_frame: str = ""
    topic: str = ""


def nanoseconds(stamp: Any) -> int:
    """builtin_interfaces/Time as an integer."""
    return int(stamp.sec) * NANOSECONDS + int(stamp.nanosec)


def transform_of(transform: Any) -> Array:
    """geometry_msgs/Transform as a matrix; ValueError where it is not one."""
    t, q = transform.translation, transform.rotation
    return transform_from([t.x, t.y, t.z], [q.x, q.y, q.z, q.w])


def pose_of(pose: Any) -> Array:
    """geometry_msgs/Pose as a matrix; ValueError where it is not one."""
    p, q = pose.position, pose.orientation
    return transform_from([p.x, p.y, p.z], [q.x, q.y, q.z, q.w])


def frame_transform(item: Any, static: bool, topic: str) -> FrameTransform:
    """A geometry_msgs/TransformStamped; ValueError where its transform is not one."""
    parent, child = frame_name(item.header.frame_id), frame_name(item.child_frame_id)
    stamp = nanoseconds(item.header.stamp)
    return FrameTransform(parent, child, stamp, transform_of(item.transform), static, topic)


def pose_measurement(message: Any, topic: str) -> PoseMeasurement:
    """The pose in a message of one of POSE_TYPES; ValueError where it is not one."""
    stamp = nanoseconds(message.header.stamp)
    if hasattr(message, "transform"):
        return PoseMeasurement(stamp, transform_of(message.transform), topic=topic)
    pose, covariance = message.pose, None
    if hasattr(pose, "covariance"):
        covariance = np.array(pose.covariance, dtype=np.float64).reshape(6, 6)
        pose = pose.pose
    return PoseMeasurement(stamp, pose_of(pose), covariance, topic=topic)


def frame_transforms(
    message: Any, static: bool, topic: str
) -> Iterator[FrameTransform | tuple[str, str, ValueError]]:
    """The transforms of a tf2_msgs/TFMessage, in order; parent, child and the error for one that is not a transform."""
    for item in message.transforms:
        try:
            yield frame_transform(item, static, topic)
        except ValueError as error:
            yield frame_name(item.header.frame_id), frame_name(item.child_frame_id), error
