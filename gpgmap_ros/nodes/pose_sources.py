"""Where a cloud's pose comes from: /tf, or an odometry topic. Both answer T_map_sensor at a stamp, or say why not."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from tf2_msgs.msg import TFMessage

from gpgmap_ros.config import Config
from gpgmap_ros.geometry import Array
from gpgmap_ros.nodes.health import HeldPoses, RefusedLoops, Warnings, incompatible_qos_warning
from gpgmap_ros.nodes.messages import nanoseconds, pose_of, transform_of
from gpgmap_ros.nodes.tf2_buffer import Tf2Buffer
from gpgmap_ros.stamp_quarantine import StampQuarantine
from gpgmap_ros.transform_buffer import (
    TransformBuffer,
    TransformLoop,
    TransformTree,
    TransformUnavailable,
    frame_name,
)

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

    def held(self) -> list[HeldPoses]:
        """Poses that were not used because of their stamps, by input."""

    def loops(self) -> RefusedLoops:
        """Transforms that were refused because they would have closed a loop of frames."""

    def forget(self) -> None:
        """Forget all poses, as after a jump back in time."""

    def destroy(self) -> None:
        """End the subscriptions."""


# Best effort suits every publisher. Sensor data's depth of 5 is 25 ms of fast odometry: a busy executor takes longer.
ODOMETRY_QOS = QoSProfile(depth=100, reliability=ReliabilityPolicy.BEST_EFFORT)
COVARIANCES_KEPT = 500  # ten seconds of fast odometry, as long as poses are kept


class PoseInlet:
    """Puts poses into a tree of transforms as soon as their stamps are credible; the others are counted and named."""

    def __init__(self, node: Node, tree: TransformTree) -> None:
        self._clock, self._tree = node.get_clock(), tree
        self._quarantine, self.held = StampQuarantine(), HeldPoses()

    def insert(
        self, topic: str, parent: str, child: str, stamp: int, T: Array, extra: Any = None
    ) -> list[Any]:
        """Take in T_parent_child; returns the stamp and `extra` of each pose that came into use by it."""
        now = self._clock.now().nanoseconds or None  # simulated time is 0 before it begins
        admission = self._quarantine.admit(f"'{parent}' <- '{child}'", stamp, (T, extra), now)
        if admission.why:
            self.held.add(topic, f"'{parent}' <- '{child}'", admission.why, bool(admission.poses))
        if admission.restarted:
            self._tree.forget_frame(child)
        for item in admission.poses:
            self._tree.insert(parent, child, item.stamp, item.pose[0])
        return [(item.stamp, item.pose[1]) for item in admission.poses]

    def forget(self) -> None:
        self._quarantine.clear()
        self._tree.clear()


class Transforms:
    """The transform tree of the running system, kept up to date from /tf and /tf_static."""

    def __init__(self, node: Node, warnings: Warnings) -> None:
        self._node, self._warnings = node, warnings
        self.tree: TransformTree = Tf2Buffer(tf2_ros) if tf2_ros is not None else TransformBuffer()
        self.inlet, self.loops = PoseInlet(node, self.tree), RefusedLoops()
        qos = QoSProfile(depth=100)
        static_qos = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._subscriptions = []
        for topic, profile, static in (("/tf", qos, False), ("/tf_static", static_qos, True)):
            name = node.resolve_topic_name(topic)  # several robots remap it
            self._subscriptions.append(
                node.create_subscription(
                    TFMessage,
                    topic,
                    lambda message, static=static, name=name: self._insert(message, static, name),
                    profile,
                    event_callbacks=incompatible_qos_warning(
                        warnings, name, "transforms must be sent reliably"
                    ),
                )
            )

    def forget(self) -> None:
        self.inlet.forget()

    def destroy(self) -> None:
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)

    def _insert(self, message: TFMessage, static: bool, topic: str) -> None:
        for item in message.transforms:
            parent, child = frame_name(item.header.frame_id), frame_name(item.child_frame_id)
            stamp = nanoseconds(item.header.stamp)
            try:
                T_parent_child = transform_of(item.transform)
                if static:
                    self.tree.insert(parent, child, stamp, T_parent_child, static=True)
                else:
                    self.inlet.insert(topic, parent, child, stamp, T_parent_child)
            except ValueError as error:
                if isinstance(error, TransformLoop):
                    self.loops.add(topic, str(error))
                self._warnings.warn("bad transform", f"{topic}: '{parent}' <- '{child}' ignored: {error}")


class TfPoseSource:
    """T_map_sensor straight from the transform tree; the mount too, where the tree has a `base_frame`."""

    def __init__(self, node: Node, warnings: Warnings, config: Config) -> None:
        self._transforms, self._config = Transforms(node, warnings), config
        self._sensor = config.base_frame

    def interrupt(self) -> None:
        self._transforms.tree.interrupt()

    def newest(self) -> int | None:
        return self._transforms.tree.newest(self._config.map_frame, self._sensor)

    def held(self) -> list[HeldPoses]:
        return [self._transforms.inlet.held]

    def loops(self) -> RefusedLoops:
        return self._transforms.loops

    def sensor_pose(self, sensor_frame: str, stamp: int, timeout: float) -> SensorPose:
        self._sensor = sensor_frame
        T_map_sensor = self._transforms.tree.lookup(self._config.map_frame, sensor_frame, stamp, timeout)
        try:
            mount = self._transforms.tree.lookup(self._config.base_frame, sensor_frame, stamp, 0.0)
        except TransformUnavailable:
            mount = None
        return SensorPose(T_map_sensor, T_base_sensor=mount)

    def forget(self) -> None:
        self._transforms.forget()

    def destroy(self) -> None:
        self._transforms.destroy()


class OdometryPoseSource:
    """T_map_base interpolated from nav_msgs/Odometry; where the sensor has a frame of its own, its mount from /tf."""

    _BASE = "(odometry)"  # stands for the robot in the buffer, whatever the messages call it; no frame has this name

    def __init__(self, node: Node, warnings: Warnings, config: Config) -> None:
        self._node, self._warnings, self._map_frame = node, warnings, config.map_frame
        self._transforms, self._poses = Transforms(node, warnings), TransformBuffer()
        self._inlet = PoseInlet(node, self._poses)
        self._covariances: deque[tuple[int, Array]] = deque(maxlen=COVARIANCES_KEPT)
        self._base_frame = ""
        name = node.resolve_topic_name("odometry")
        self._subscription = node.create_subscription(
            Odometry,
            "odometry",
            self._insert,
            ODOMETRY_QOS,
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
            mount = self._transforms.tree.lookup(self._base_frame, sensor_frame, stamp, timeout)
        return SensorPose(T_map_base @ mount, self._covariance_at(stamp), mount)

    def interrupt(self) -> None:
        self._poses.interrupt()
        self._transforms.tree.interrupt()

    def newest(self) -> int | None:
        return self._poses.newest(self._map_frame, self._BASE)

    def held(self) -> list[HeldPoses]:
        return [self._inlet.held, self._transforms.inlet.held]

    def loops(self) -> RefusedLoops:
        return self._transforms.loops

    def _covariance_at(self, stamp: int) -> Array | None:
        """Of the message nearest in time: between two it hardly changes."""
        kept = list(self._covariances)
        return min(kept, key=lambda item: abs(item[0] - stamp))[1] if kept else None

    def forget(self) -> None:
        self._inlet.forget()
        self._covariances.clear()
        self._transforms.forget()

    def destroy(self) -> None:
        self._node.destroy_subscription(self._subscription)
        self._transforms.destroy()

    def _insert(self, message: Odometry) -> None:
        frame, base = frame_name(message.header.frame_id), frame_name(message.child_frame_id)
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
        topic = self._subscription.topic_name
        for known_at, known in self._inlet.insert(topic, frame, self._BASE, stamp, T_map_base, covariance):
            # all zero is how a driver says that it does not know
            if known.any():
                self._covariances.append((known_at, known))


def pose_source_of(node: Node, warnings: Warnings, config: Config) -> PoseSource:
    source = TfPoseSource if config.pose_source == "tf" else OdometryPoseSource
    return source(node, warnings, config)
