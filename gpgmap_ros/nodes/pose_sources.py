"""Where a cloud's pose comes from: /tf, or an odometry topic. Both answer T_map_sensor at a stamp, or say why not."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import rclpy.duration
import rclpy.time
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from tf2_msgs.msg import TFMessage

from gpgmap_ros.config import Config
from gpgmap_ros.geometry import Array
from gpgmap_ros.nodes.health import Warnings, incompatible_qos_warning
from gpgmap_ros.nodes.messages import nanoseconds, pose_of, transform_of
from gpgmap_ros.transform_buffer import TransformBuffer, TransformUnavailable

try:
    import tf2_ros
except ImportError:  # not on PyPI: the project's own buffer keeps the same contract
    tf2_ros = None


@dataclass(frozen=True)
class SensorPose:
    """Where a sensor was: its pose, the (6, 6) covariance of that and its mount on the robot, where known."""

    T_map_sensor: Array
    covariance: Array | None = None
    T_base_sensor: Array | None = None


class PoseSource(Protocol):
    """Where the sensor was."""

    def sensor_pose(self, sensor_frame: str, stamp: int, timeout: float) -> SensorPose:
        """At a stamp in nanoseconds, waiting up to `timeout` seconds for it; else TransformUnavailable."""

    def interrupt(self) -> None:
        """End all waiting for poses now: the node is being stopped."""

    def newest(self) -> int | None:
        """Stamp in nanoseconds of the newest pose that is known; None where there is none."""

    def forget(self) -> None:
        """Forget all poses, as after a jump back in time."""

    def destroy(self) -> None:
        """End the subscriptions."""


TF2_WAIT = rclpy.duration.Duration(nanoseconds=50_000_000)
COVARIANCES_KEPT = 500  # ten seconds of fast odometry, as long as poses are kept


class Transforms:
    """The transform tree of the running system, kept up to date from /tf and /tf_static."""

    def __init__(self, node: Node, warnings: Warnings) -> None:
        self._node, self._warnings = node, warnings
        self._buffer = TransformBuffer()
        self._newest: dict[str, int] = {}
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

    def interrupt(self) -> None:
        self._buffer.interrupt()

    def newest(self, target: str, source: str) -> int | None:
        """Stamp of the newest moving transform, of any frame but the target: what moves that is not asked for."""
        return max((stamp for child, stamp in self._newest.items() if child != target), default=None)

    def forget(self) -> None:
        self._buffer.clear()
        self._newest.clear()

    def destroy(self) -> None:
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)

    def _insert(self, message: TFMessage, static: bool) -> None:
        for item in message.transforms:
            parent, child = item.header.frame_id.lstrip("/"), item.child_frame_id.lstrip("/")
            stamp = nanoseconds(item.header.stamp)
            try:
                self._buffer.insert(parent, child, stamp, transform_of(item.transform), static)
                if not static:
                    self._newest[child] = max(self._newest.get(child, stamp), stamp)
            except ValueError as error:
                self._warnings.warn("bad transform", f"/tf: '{parent}' <- '{child}' ignored: {error}")


class Tf2Transforms:
    """The same answers from tf2_ros, where it is installed."""

    def __init__(self, node: Node) -> None:
        self._buffer = tf2_ros.Buffer()
        self._listener = tf2_ros.TransformListener(self._buffer, node)
        self._interruptions = 0

    def interrupt(self) -> None:
        self._interruptions += 1

    def newest(self, target: str, source: str) -> int | None:
        """Stamp of the newest transform between two frames."""
        try:
            return int(self._buffer.get_latest_common_time(target, source).nanoseconds)
        except tf2_ros.TransformException:
            return None

    def forget(self) -> None:
        self._buffer.clear()

    def destroy(self) -> None:
        self._listener.unregister()

    def lookup(self, target: str, source: str, stamp: int, timeout: float) -> Array:
        if target == source:
            return np.eye(4)
        when, interruptions = rclpy.time.Time(nanoseconds=stamp), self._interruptions
        deadline = time.monotonic() + timeout
        # in short pieces: tf2's own waiting can't be interrupted
        while not self._buffer.can_transform(target, source, when, TF2_WAIT):
            if time.monotonic() >= deadline or self._interruptions != interruptions:
                break
        try:
            return transform_of(self._buffer.lookup_transform(target, source, when).transform)
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
    """T_map_sensor straight from the transform tree; the mount too, where the tree has a `base_frame`."""

    def __init__(self, node: Node, warnings: Warnings, config: Config) -> None:
        self._transforms, self._config = transforms_of(node, warnings), config
        self._sensor = config.base_frame

    def interrupt(self) -> None:
        self._transforms.interrupt()

    def newest(self) -> int | None:
        return self._transforms.newest(self._config.map_frame, self._sensor)

    def sensor_pose(self, sensor_frame: str, stamp: int, timeout: float) -> SensorPose:
        self._sensor = sensor_frame
        T_map_sensor = self._transforms.lookup(self._config.map_frame, sensor_frame, stamp, timeout)
        try:
            mount = self._transforms.lookup(self._config.base_frame, sensor_frame, stamp, 0.0)
        except TransformUnavailable:
            mount = None
        return SensorPose(T_map_sensor, T_base_sensor=mount)

    def forget(self) -> None:
        self._transforms.forget()

    def destroy(self) -> None:
        self._transforms.destroy()


class OdometryPoseSource:
    """T_map_base interpolated from nav_msgs/Odometry; where the sensor has a frame of its own, its mount from /tf."""

    _BASE = "odometry"  # stands for the robot in the buffer, whatever the messages call it

    def __init__(self, node: Node, warnings: Warnings, config: Config) -> None:
        self._node, self._warnings, self._map_frame = node, warnings, config.map_frame
        self._transforms = transforms_of(node, warnings)
        self._poses = TransformBuffer()
        self._covariances: deque[tuple[int, Array]] = deque(maxlen=COVARIANCES_KEPT)
        self._base_frame = ""
        self._newest: int | None = None
        name = node.resolve_topic_name("odometry")
        self._subscription = node.create_subscription(
            Odometry,
            "odometry",
            self._insert,
            qos_profile_sensor_data,
            event_callbacks=incompatible_qos_warning(warnings, name, "match the publisher's QoS"),
        )

    def sensor_pose(self, sensor_frame: str, stamp: int, timeout: float) -> SensorPose:
        try:
            T_map_base = self._poses.lookup(self._map_frame, self._BASE, stamp, timeout)
        except TransformUnavailable as error:
            if error.reason != "unknown_frame":
                raise
            topic = self._subscription.topic_name
            text = f"no usable odometry on '{topic}' yet: is it published, and in frame '{self._map_frame}'?"
            raise TransformUnavailable("no_odometry", text) from None
        mount = np.eye(4)
        if sensor_frame != self._base_frame:
            mount = self._transforms.lookup(self._base_frame, sensor_frame, stamp, timeout)
        return SensorPose(T_map_base @ mount, self._covariance_at(stamp), mount)

    def interrupt(self) -> None:
        self._poses.interrupt()
        self._transforms.interrupt()

    def newest(self) -> int | None:
        return self._newest

    def _covariance_at(self, stamp: int) -> Array | None:
        """Of the message nearest in time: between two it hardly changes."""
        kept = list(self._covariances)
        return min(kept, key=lambda item: abs(item[0] - stamp))[1] if kept else None

    def forget(self) -> None:
        self._poses.clear()
        self._covariances.clear()
        self._newest = None
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
        stamp = nanoseconds(message.header.stamp)
        covariance = np.array(message.pose.covariance, dtype=np.float64).reshape(6, 6)
        # all zero is how a driver says that it does not know
        if covariance.any():
            self._covariances.append((stamp, covariance))
        self._poses.insert(frame, self._BASE, stamp, T_map_base)
        self._newest = max(self._newest or stamp, stamp)


def pose_source_of(node: Node, warnings: Warnings, config: Config) -> PoseSource:
    source = TfPoseSource if config.pose_source == "tf" else OdometryPoseSource
    return source(node, warnings, config)
