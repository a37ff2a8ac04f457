"""A robot for the tests of the node: publishes the clouds and transforms of a drive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import numpy as np
from client import RosClient
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import TransformStamped
from numpy.typing import NDArray
from sensor_msgs.msg import PointCloud2, PointField
from tf2_msgs.msg import TFMessage

from gpgmap_ros.nodes.messages import pose_message, time_message


class Step(Protocol):
    """One cloud: stamp; points (N, 3) in the robot's frame; where odometry says that it was."""

    @property
    def stamp(self) -> int: ...
    @property
    def points(self) -> NDArray[np.float64]: ...
    @property
    def T_odom_robot(self) -> NDArray[np.float64]: ...  # noqa: N802


AHEAD: Final = 40
"""Clouds that may be under way; poses stay in the node's buffer for longer."""


class Robot:
    """Publishes the clouds and transforms of a drive, as fast as the node takes them. namespace: of their topics

    The node is started with `reliable(namespace)`: how much of the drive it sees does not depend on the machine.
    """

    def __init__(self, client: RosClient, namespace: str = "") -> None:
        self._client, self._sent = client, 0
        self._clouds = client.node.create_publisher(PointCloud2, f"{namespace}/points", 200)
        self._transforms = client.node.create_publisher(TFMessage, f"{namespace}/tf", 200)
        self._status = f"{namespace}/mapping_node: mapping".lstrip("/")
        self._diagnostics = client.listen(DiagnosticArray, "/diagnostics", 10)
        client.spin_until(
            lambda: self._clouds.get_subscription_count() and self._transforms.get_subscription_count(),
            "the node",
        )

    def drive(self, steps: Iterable[Step]) -> None:
        """Returns when the node has mapped, or refused, every cloud."""
        for step in steps:
            transform = TransformStamped(child_frame_id="base_link")
            transform.header.frame_id, transform.header.stamp = "odom", time_message(step.stamp)
            pose = pose_message(step.T_odom_robot)
            t, p = transform.transform.translation, pose.position
            t.x, t.y, t.z = p.x, p.y, p.z
            transform.transform.rotation = pose.orientation
            self._transforms.publish(TFMessage(transforms=[transform]))
            self._clouds.publish(cloud_message(step))
            self._sent += 1
            self._wait(AHEAD)
        self._wait(0)

    def _wait(self, ahead: int) -> None:
        self._client.spin_until(
            lambda: self._sent - self._treated() <= ahead, f"{self._sent} clouds to be mapped or refused"
        )

    def _treated(self) -> int:
        """Clouds that the node has mapped or dropped, as it last said."""
        found = [s for m in self._diagnostics for s in m.status if s.name == self._status]
        return sum(
            int(item.value)
            for item in (found[-1].values if found else ())
            if item.key == "clouds used" or item.key.startswith("clouds dropped")
        )


def reliable(namespace: str = "") -> list[str]:
    """Arguments of a node that gets every cloud of a Robot, and its pose however late the machine hands it over."""
    topic = f"qos_overrides.{namespace}/points.subscription"
    values = {f"{topic}.reliability": "reliable", f"{topic}.depth": 200, "queue_size": 200}
    values["transform_timeout"] = 60.0
    return [part for name, value in values.items() for part in ("-p", f"{name}:={value}")]


def cloud_message(step: Step) -> PointCloud2:
    data = step.points.astype("<f4").tobytes()
    count = len(step.points)
    message = PointCloud2(height=1, width=count, point_step=12, row_step=12 * count, is_dense=True)
    message.is_bigendian = False
    message.header.frame_id, message.header.stamp = "base_link", time_message(step.stamp)
    message.fields = [PointField(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
    message.data = data
    return message
