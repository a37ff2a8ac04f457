"""A robot for the tests of the node: publishes the clouds and transforms of a drive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from client import RosClient
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


class Robot:
    """Publishes the clouds and transforms of a drive."""

    def __init__(self, client: RosClient) -> None:
        self._client = client
        self._clouds = client.node.create_publisher(PointCloud2, "/points", 50)
        self._transforms = client.node.create_publisher(TFMessage, "/tf", 100)
        client.spin_until(
            lambda: self._clouds.get_subscription_count() and self._transforms.get_subscription_count(),
            "the node",
        )

    def drive(self, steps: Iterable[Step]) -> None:
        for step in steps:
            transform = TransformStamped(child_frame_id="base_link")
            transform.header.frame_id, transform.header.stamp = "odom", time_message(step.stamp)
            pose = pose_message(step.T_odom_robot)
            t, p = transform.transform.translation, pose.position
            t.x, t.y, t.z = p.x, p.y, p.z
            transform.transform.rotation = pose.orientation
            self._transforms.publish(TFMessage(transforms=[transform]))
            self._clouds.publish(cloud_message(step))
            self._client.spin_for(0.06)


def cloud_message(step: Step) -> PointCloud2:
    data = step.points.astype("<f4").tobytes()
    count = len(step.points)
    message = PointCloud2(height=1, width=count, point_step=12, row_step=12 * count, is_dense=True)
    message.is_bigendian = False
    message.header.frame_id, message.header.stamp = "base_link", time_message(step.stamp)
    message.fields = [PointField(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
    message.data = data
    return message
