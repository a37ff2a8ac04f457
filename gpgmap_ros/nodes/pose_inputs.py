"""Subscriptions that fill a pose source: /tf, /tf_static and, where the source uses it, odometry."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from nav_msgs.msg import Odometry
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription
from sensor_msgs.msg import Imu
from tf2_msgs.msg import TFMessage

from gpgmap_ros.config import Config
from gpgmap_ros.nodes.health import RefusedLoops, Warnings, incompatible_qos_warning
from gpgmap_ros.nodes.input_qos import overridable
from gpgmap_ros.nodes.tf2_buffer import Tf2Buffer
from gpgmap_ros.sensing import SourceSetup, TransformBuffer, make_source
from gpgmap_ros.sensing.messages import (
    PoseMeasurement,
    frame_transforms,
    imu_measurement,
    pose_measurement,
)
from gpgmap_ros.sensing.transform_buffer import TransformLoop, TransformTree, frame_name

try:
    import tf2_ros
except ImportError:  # not on PyPI: the project's own buffer keeps the same contract
    tf2_ros = None

# Best effort suits every publisher. Sensor data's depth of 5 is 25 ms of fast odometry: a busy executor takes longer.
ODOMETRY_QOS = QoSProfile(depth=100, reliability=ReliabilityPolicy.BEST_EFFORT)
IMU_QOS = QoSProfile(depth=400, reliability=ReliabilityPolicy.BEST_EFFORT)  # a second of a fast one
TF_QOS = QoSProfile(depth=100)
STATIC_TF_QOS = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)


def make_tree() -> TransformTree:
    """A buffer of transforms: tf2's where it is installed."""
    return Tf2Buffer(tf2_ros) if tf2_ros is not None else TransformBuffer()


class PoseInputs:
    """The pose source of the configuration, kept up to date from the topics of the running system.

    source: gives the poses of clouds; loops: transforms that were refused because they would have closed a loop
    """

    def __init__(self, node: Node, warnings: Warnings, config: Config) -> None:
        self._node, self._warnings, self._map_frame = node, warnings, config.map_frame
        self._odometry_topic = node.resolve_topic_name("odometry")
        self._imu_topic = node.resolve_topic_name("imu")
        clock = node.get_clock()
        setup = SourceSetup.live(
            config.map_frame,
            config.base_frame,
            lambda: clock.now().nanoseconds,
            make_tree,
            self._odometry_topic,
            math.radians(config.imu.max_tilt),
            lambda: config.imu.enabled and node.count_publishers(self._imu_topic) > 0,
        )
        self.source, self.loops = make_source(config.pose_source, setup), RefusedLoops()
        self._subscriptions: list[Subscription] = []
        for topic, qos, static in (("/tf", TF_QOS, False), ("/tf_static", STATIC_TF_QOS, True)):
            name = node.resolve_topic_name(topic)  # several robots remap it
            self._subscribe(
                TFMessage,
                topic,
                partial(self._insert_transforms, static=static, topic=name),
                qos,
                "transforms must be sent reliably",
            )
        if config.imu.enabled:
            self._subscribe(Imu, "imu", self._insert_imu, IMU_QOS, "match the publisher's QoS")
        if self.source.uses_odometry:
            self._subscribe(
                Odometry, "odometry", self._insert_odometry, ODOMETRY_QOS, "match the publisher's QoS"
            )

    def problems(self) -> dict[str, str]:
        """What is wrong with the poses now: kind -> text."""
        found = self.source.problems()
        for held in self.source.held:
            found |= held.problems()
        return found | self.loops.problems()

    def destroy(self) -> None:
        """End the subscriptions."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)

    def _subscribe(
        self, message_class: type, topic: str, callback: Callable[[Any], None], qos: QoSProfile, remedy: str
    ) -> None:
        events = incompatible_qos_warning(self._warnings, self._node.resolve_topic_name(topic), remedy)
        self._subscriptions.append(
            self._node.create_subscription(
                message_class, topic, callback, **overridable(qos), event_callbacks=events
            )
        )

    def _insert_transforms(self, message: TFMessage, static: bool, topic: str) -> None:
        for item in frame_transforms(message, static, topic):
            if isinstance(item, tuple):
                self._refuse(topic, *item)
                continue
            try:
                self.source.insert_transform(item)
            except ValueError as error:
                if isinstance(error, TransformLoop):
                    self.loops.add(topic, str(error))
                self._refuse(topic, item.parent, item.child, error)

    def _refuse(self, topic: str, parent: str, child: str, error: ValueError) -> None:
        self._warnings.warn("bad transform", f"{topic}: '{parent}' <- '{child}' ignored: {error}")

    def _insert_imu(self, message: Imu) -> None:
        try:
            self.source.insert_imu(imu_measurement(message, self._imu_topic))
        except ValueError as error:
            self._warnings.warn("bad imu", f"'{self._imu_topic}': a sample was ignored: {error}")

    def _insert_odometry(self, message: Odometry) -> None:
        frame, base = frame_name(message.header.frame_id), frame_name(message.child_frame_id)
        if frame != self._map_frame:
            self._warnings.warn(
                "odometry frame",
                f"odometry is in frame '{frame}', the map in '{self._map_frame}': set map_frame to '{frame}'",
            )
            return
        try:
            pose = pose_measurement(message, self._odometry_topic)
        except ValueError as error:
            self._warnings.warn("bad odometry", f"odometry ignored: {error}")
            return
        self.source.insert_pose(PoseMeasurement(pose.stamp, pose.T, pose.covariance, base, pose.topic))
