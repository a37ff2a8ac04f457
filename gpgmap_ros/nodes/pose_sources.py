"""Where a cloud's pose comes from: /tf, or an odometry topic. Both answer T_map_sensor at a stamp, or say why not."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import rclpy.duration
import rclpy.time
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from tf2_msgs.msg import TFMessage

from gpgmap_ros.geometry import Array
from gpgmap_ros.nodes.messages import nanoseconds, pose_of, transform_of
from gpgmap_ros.transform_buffer import TransformBuffer, TransformUnavailable

try:
    import tf2_ros
except ImportError:  # not on PyPI: the project's own buffer keeps the same contract
    tf2_ros = None


class PoseSource(Protocol):
    """Answers T_map_sensor at a stamp in nanoseconds, waiting up to `timeout` seconds; else TransformUnavailable."""

    def sensor_pose(self, sensor_frame: str, stamp: int, timeout: float) -> Array: ...


class Transforms:
    """The transform tree of the running system, kept up to date from /tf and /tf_static."""

    def __init__(self, node: Node) -> None:
        self._logger = node.get_logger()
        self._buffer = TransformBuffer()
        qos = QoSProfile(depth=100)
        static_qos = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        node.create_subscription(TFMessage, "/tf", lambda message: self._insert(message, False), qos)
        node.create_subscription(
            TFMessage, "/tf_static", lambda message: self._insert(message, True), static_qos
        )

    def lookup(self, target: str, source: str, stamp: int, timeout: float) -> Array:
        return self._buffer.lookup(target, source, stamp, timeout)

    def _insert(self, message: TFMessage, static: bool) -> None:
        for item in message.transforms:
            parent, child = item.header.frame_id.lstrip("/"), item.child_frame_id.lstrip("/")
            try:
                self._buffer.insert(
                    parent, child, nanoseconds(item.header.stamp), transform_of(item.transform), static
                )
            except ValueError as error:
                self._logger.warning(
                    f"/tf: transform '{parent}' <- '{child}' ignored: {error}", throttle_duration_sec=5.0
                )


class Tf2Transforms:
    """The same answers from tf2_ros, where it is installed."""

    def __init__(self, node: Node) -> None:
        self._buffer = tf2_ros.Buffer()
        self._listener = tf2_ros.TransformListener(self._buffer, node)

    def lookup(self, target: str, source: str, stamp: int, timeout: float) -> Array:
        if target == source:
            return np.eye(4)
        try:
            found = self._buffer.lookup_transform(
                target,
                source,
                rclpy.time.Time(nanoseconds=stamp),
                rclpy.duration.Duration(nanoseconds=round(timeout * 1e9)),
            )
            return transform_of(found.transform)
        except tf2_ros.LookupException as error:
            raise TransformUnavailable("unknown_frame", str(error)) from error
        except tf2_ros.ConnectivityException as error:
            raise TransformUnavailable("not_connected", str(error)) from error
        except (tf2_ros.ExtrapolationException, tf2_ros.InvalidArgumentException, ValueError) as error:
            past = "past" in str(error)
            raise TransformUnavailable("too_early" if past else "too_late", str(error)) from error


def transforms_of(node: Node) -> Transforms | Tf2Transforms:
    return Tf2Transforms(node) if tf2_ros is not None else Transforms(node)


class TfPoseSource:
    """T_map_sensor straight from the transform tree."""

    def __init__(self, node: Node, map_frame: str) -> None:
        self._transforms, self._map_frame = transforms_of(node), map_frame

    def sensor_pose(self, sensor_frame: str, stamp: int, timeout: float) -> Array:
        return self._transforms.lookup(self._map_frame, sensor_frame, stamp, timeout)


class OdometryPoseSource:
    """T_map_base interpolated from nav_msgs/Odometry; where the sensor has a frame of its own, its mount from /tf."""

    _BASE = "odometry"  # stands for the robot in the buffer, whatever the messages call it

    def __init__(self, node: Node, map_frame: str) -> None:
        self._logger, self._map_frame = node.get_logger(), map_frame
        self._transforms = transforms_of(node)
        self._poses = TransformBuffer()
        self._base_frame = ""
        self._topic = node.create_subscription(
            Odometry, "odometry", self._insert, qos_profile_sensor_data
        ).topic_name

    def sensor_pose(self, sensor_frame: str, stamp: int, timeout: float) -> Array:
        try:
            T_map_base = self._poses.lookup(self._map_frame, self._BASE, stamp, timeout)
        except TransformUnavailable as error:
            if error.reason == "unknown_frame":
                text = f"no usable odometry on '{self._topic}' yet: is it published, and in frame '{self._map_frame}'?"
                raise TransformUnavailable("no_odometry", text) from None
            raise
        if sensor_frame == self._base_frame:
            return T_map_base
        return T_map_base @ self._transforms.lookup(self._base_frame, sensor_frame, stamp, timeout)

    def _insert(self, message: Odometry) -> None:
        frame, base = message.header.frame_id.lstrip("/"), message.child_frame_id.lstrip("/")
        if frame != self._map_frame:
            self._logger.error(
                f"odometry is in frame '{frame}', the map in '{self._map_frame}': set map_frame to '{frame}'",
                throttle_duration_sec=5.0,
            )
            return
        try:
            T_map_base = pose_of(message.pose.pose)
        except ValueError as error:
            self._logger.warning(f"odometry ignored: {error}", throttle_duration_sec=5.0)
            return
        self._base_frame = base
        self._poses.insert(frame, self._BASE, nanoseconds(message.header.stamp), T_map_base)


def pose_source_of(node: Node, kind: str, map_frame: str) -> PoseSource:
    return TfPoseSource(node, map_frame) if kind == "tf" else OdometryPoseSource(node, map_frame)
