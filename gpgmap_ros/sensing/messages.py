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
IMU = "sensor_msgs/msg/Imu"
GPS = "sensor_msgs/msg/NavSatFix"


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


@dataclass(frozen=True)
class ImuMeasurement:
    """What an IMU measures at a stamp (nanoseconds), in the axes of its own frame.

    angular_velocity: rad/s; acceleration: m/s^2, upwards at rest. The orientation of the message is not used: what it
    refers to differs from driver to driver.
    """

    stamp: int
    frame_id: str
    angular_velocity: tuple[float, float, float]
    acceleration: tuple[float, float, float]
    topic: str = ""


@dataclass(frozen=True, eq=False)
class GpsFix:
    """A position on the WGS 84 ellipsoid at a stamp (nanoseconds).

    latitude, longitude: degrees; altitude: metres above the ellipsoid, NaN where unknown
    covariance: (3, 3) of east, north and up, square metres; None where unknown
    status: as in sensor_msgs/NavSatStatus: -1 where there is no fix, -2 where that is unknown
    """

    stamp: int
    frame_id: str
    latitude: float
    longitude: float
    altitude: float
    covariance: Array | None
    status: int
    topic: str = ""


def nanoseconds(stamp: Any) -> int:
    """builtin_interfaces/Time as an integer."""
    return int(stamp.sec) * NANOSECONDS + int(stamp.nanosec)


def newest_stamp(message: Any) -> int:
    """Of a message with a header, or of transforms; 0 for static ones, which are of any time."""
    if hasattr(message, "transforms"):
        return max((nanoseconds(item.header.stamp) for item in message.transforms), default=0)
    return nanoseconds(message.header.stamp)


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


def imu_measurement(message: Any, topic: str) -> ImuMeasurement:
    """A sensor_msgs/Imu. ValueError where the message says that it has no rates or no accelerations."""
    for name in ("angular_velocity", "linear_acceleration"):
        if float(getattr(message, f"{name}_covariance")[0]) == -1.0:
            raise ValueError(f"the IMU does not measure its {name.replace('_', ' ')}")
    w, a = message.angular_velocity, message.linear_acceleration
    return ImuMeasurement(
        nanoseconds(message.header.stamp),
        frame_name(message.header.frame_id),
        (float(w.x), float(w.y), float(w.z)),
        (float(a.x), float(a.y), float(a.z)),
        topic,
    )


def gps_fix(message: Any, topic: str) -> GpsFix:
    """A sensor_msgs/NavSatFix. A covariance that is unknown, zero or not finite is None."""
    covariance = np.array(message.position_covariance, dtype=np.float64).reshape(3, 3)
    known = int(message.position_covariance_type) != 0 and np.isfinite(covariance).all()
    return GpsFix(
        nanoseconds(message.header.stamp),
        frame_name(message.header.frame_id),
        float(message.latitude),
        float(message.longitude),
        float(message.altitude),
        covariance if known and (covariance.diagonal() > 0.0).all() else None,
        int(message.status.status),
        topic,
    )


def frame_transforms(
    message: Any, static: bool, topic: str
) -> Iterator[FrameTransform | tuple[str, str, ValueError]]:
    """The transforms of a tf2_msgs/TFMessage, in order; parent, child and the error for one that is not a transform."""
    for item in message.transforms:
        try:
            yield frame_transform(item, static, topic)
        except ValueError as error:
            yield frame_name(item.header.frame_id), frame_name(item.child_frame_id), error
