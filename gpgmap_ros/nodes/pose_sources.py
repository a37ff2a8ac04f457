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
from gpgmap_ros.nodes.health import Warnings, incompatible_qos_warning
from gpgmap_ros.nodes.messages import nanoseconds, pose_of, transform_of
from gpgmap_ros.transform_buffer import TransformBuffer, TransformUnavailable

try:
    import tf2_ros
except ImportError:  # not on PyPI: the project's own buffer keeps the same contract
    tf2_ros = None


class PoseSource(Protocol):
    """Where the sensor was."""

    def sensor_pose(self, sensor_frame: str, stamp: int, timeout: float) -> Array:
        """T_map_sensor at a stamp in nanoseconds, waiting up to `timeout` seconds; else TransformUnavailable."""

    def forget(self) -> None:
        """Forget all poses, as after a jump back in time."""

    def destroy(self) -> None:
        """End the subscriptions."""


class Transforms:
    """The transform tree of the running system, kept up to date from /tf and /tf_static."""

    def __init__(self, node: Node, warnings: Warnings) -> None:
        self._node, self._warnings = node, warnings
        self._buffer = TransformBuffer()
        qos = QoSProfile(depth=100)
        static_qos = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._subscriptions = [
            node.create_subscription(
                TFMessage,
                topic,
                lambda message, static=static: self._insert(message, static),
                profile,
                event_callbacks=incompatible_qos_warning(warnings, topic, "transforms must be sent reliably"),
            )
            for topic, profile, static in (("/tf", qos, False), ("/tf_static", static_qos, True))
        ]

    def lookup(self, target: str, source: str, stamp: int, timeout: float) -> Array:
        return self._buffer.lookup(target, source, stamp, timeout)

    def forget(self) -> None:
        self._buffer.clear()

    def destroy(self) -> None:
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)

    def _insert(self, message: TFMessage, static: bool) -> None:
        for item in message.transforms:
            parent, child = item.header.frame_id.lstrip("/"), item.child_frame_id.lstrip("/")
            try:
                self._buffer.insert(
                    parent, child, nanoseconds(item.header.stamp), transform_of(item.transform), static
                )
            except ValueError as error:
                self._warnings.warn("bad transform", f"/tf: '{parent}' <- '{child}' ignored: {error}")


class Tf2Transforms:
    """The same answers from tf2_ros, where it is installed."""

    def __init__(self, node: Node) -> None:
        self._buffer = tf2_ros.Buffer()
        self._listener = tf2_ros.TransformListener(self._buffer, node)

    def forget(self) -> None:
        self._buffer.clear()

    def destroy(self) -> None:
        self._listener.unregister()

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


def transforms_of(node: Node, warnings: Warnings) -> Transforms | Tf2Transforms:
    return Tf2Transforms(node) if tf2_ros is not None else Transforms(node, warnings)


class TfPoseSource:
    """T_map_sensor straight from the transform tree."""

    def __init__(self, node: Node, warnings: Warnings, map_frame: str) -> None:
        self._transforms, self._map_frame = transforms_of(node, warnings), map_frame

    def sensor_pose(self, sensor_frame: str, stamp: int, timeout: float) -> Array:
        return self._transforms.lookup(self._map_frame, sensor_frame, stamp, timeout)

    def forget(self) -> None:
        self._transforms.forget()

    def destroy(self) -> None:
        self._transforms.destroy()


class OdometryPoseSource:
    """T_map_base interpolated from nav_msgs/Odometry; where the sensor has a frame of its own, its mount from /tf."""

    _BASE = "odometry"  # stands for the robot in the buffer, whatever the messages call it

    def __init__(self, node: Node, warnings: Warnings, map_frame: str) -> None:
        self._node, self._warnings, self._map_frame = node, warnings, map_frame
        self._transforms = transforms_of(node, warnings)
        self._poses = TransformBuffer()
        self._base_frame = ""
        name = node.resolve_topic_name("odometry")
        self._subscription = node.create_subscription(
            Odometry,
            "odometry",
            self._insert,
            qos_profile_sensor_data,
            event_callbacks=incompatible_qos_warning(warnings, name, "match the publisher's QoS"),
        )

    def sensor_pose(self, sensor_frame: str, stamp: int, timeout: float) -> Array:
        try:
            T_map_base = self._poses.lookup(self._map_frame, self._BASE, stamp, timeout)
        except TransformUnavailable as error:
            if error.reason != "unknown_frame":
                raise
            topic = self._subscription.topic_name
            text = f"no usable odometry on '{topic}' yet: is it published, and in frame '{self._map_frame}'?"
            raise TransformUnavailable("no_odometry", text) from None
        if sensor_frame == self._base_frame:
            return T_map_base
        return T_map_base @ self._transforms.lookup(self._base_frame, sensor_frame, stamp, timeout)

    def forget(self) -> None:
        self._poses.clear()
        self._transforms.forget()

    def destroy(self) -> None:
        self._node.destroy_subscription(self._subscription)
        self._transforms.destroy()

    def _insert(self, message: Odometry) -> None:
        frame, base = message.header.frame_id.lstrip("/"), message.child_frame_id.lstrip("/")
        if frame != self._map_frame:
            self._warnings.warn(
                "odometry frame",
                f"odometry is in frame '{frame}', the map in '{self._map_frame}': set map_frame to '{frame}'",
            )
            return
        try:
            T_map_base = pose_of(message.pose.pose)
        except ValueError as error:
            self._warnings.warn("bad odometry", f"odometry ignored: {error}")
            return
        self._base_frame = base
        self._poses.insert(frame, self._BASE, nanoseconds(message.header.stamp), T_map_base)


def pose_source_of(node: Node, warnings: Warnings, kind: str, map_frame: str) -> PoseSource:
    source = TfPoseSource if kind == "tf" else OdometryPoseSource
    return source(node, warnings, map_frame)
