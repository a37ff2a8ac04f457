"""LiDAR odometry in the running node: a map from clouds alone, the transform it publishes, and loss of track."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("small_gicp")

from client import RosClient
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import TransformStamped
from grid_map_msgs.msg import GridMap
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import PointCloud2, PointField
from tf2_msgs.msg import TFMessage

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "sensing"))
from rooms import pose, room, scan

from gpgmap_ros.geometry import Array, inverse
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

STEP = 0.1
"""Metres between two clouds."""
PARAMETERS = (
    *("-p", "pose_source:=lidar", "-p", "lidar.publish_tf:=true", "-p", "mapping.resolution:=0.2"),
    *("-p", "mapping.size_x:=8.0", "-p", "mapping.size_y:=8.0"),
)


LOST_AFTER = 5.0
"""Seconds after which a cloud counts as lost on its way: the topic of a sensor is not reliable."""


class HallDrive:
    """Publishes what a LiDAR sees on its way through a hall; after `lose`, next to nothing.

    It moves on when the pose of its last cloud has come: how far it gets from cloud to cloud does not depend on how
    fast this machine is.
    """

    def __init__(self, client: RosClient) -> None:
        self._client, self._begins = client, 0
        self._poses = client.listen(TFMessage, "/tf", QoSProfile(depth=100))
        self._clouds = client.node.create_publisher(PointCloud2, "/points", qos_profile_sensor_data)
        self._rng = np.random.default_rng(0)
        self._next, self._blind = 0, False

    def true_pose(self, k: int) -> Array:
        """Of the cloud `k`."""
        way = max(k - self._begins, 0)
        return pose(-4.0 + STEP * way, 0.0, 1.0 * way)

    def lose(self) -> None:
        self._blind = True

    def publish(self) -> None:
        if not self._poses:
            self._begins = self._next  # it stands until the node has heard it
        points = scan(room(self._rng), self.true_pose(self._next), self._rng).astype("<f4")
        if self._blind:
            points = points[:20]
        message = PointCloud2(height=1, width=len(points), point_step=12, row_step=12 * len(points))
        message.header.frame_id = "lidar"
        stamp = 1_000 * NANOSECONDS + self._next * NANOSECONDS // 10
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp, NANOSECONDS)
        message.fields = [PointField(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
        message.data = points.tobytes()
        self._clouds.publish(message)
        self._next += 1
        deadline = time.monotonic() + (LOST_AFTER if self._poses and not self._blind else 0.1)
        while time.monotonic() < deadline and not (self._poses and sent_pose(self._poses[-1])[2] >= stamp):
            self._client.spin_for(0.02)


class Status:
    """The node's status in /diagnostics."""

    def __init__(self, client: RosClient) -> None:
        self._messages = client.listen(DiagnosticArray, "/diagnostics", 10)

    def latest(self) -> Any:
        found = [s for m in self._messages for s in m.status if s.name.endswith(": mapping")]
        return found[-1] if found else None

    def values(self) -> dict[str, str]:
        status = self.latest()
        return {} if status is None else {item.key: item.value for item in status.values}

    def used(self) -> int:
        return int(self.values().get("clouds used", 0))


def sent_pose(message: TFMessage) -> tuple[str, str, int, Array]:
    (item,) = message.transforms
    moved = item.transform.translation
    stamp = item.header.stamp.sec * NANOSECONDS + item.header.stamp.nanosec
    return item.header.frame_id, item.child_frame_id, stamp, np.array([moved.x, moved.y, moved.z])


def test_clouds_alone_become_a_map_and_lost_track_is_said(client: RosClient, start_node: Any) -> None:
    start_node(*PARAMETERS)
    status, maps = Status(client), client.listen(GridMap, "/mapping_node/grid_map", 10)
    transforms = client.listen(TFMessage, "/tf", QoSProfile(depth=100))
    drive = HallDrive(client)
    client.spin_until(lambda: drive.publish() or (status.used() >= 8 and maps), "clouds in a map")
    assert status.values()["poses from"] == "LiDAR odometry"
    assert maps[-1].header.frame_id == "odom"
    poses = [sent_pose(message) for message in transforms]
    assert {item[:2] for item in poses} == {("odom", "lidar")}, "no mount is known"
    first, last = poses[0], poses[-1]
    numbers = [round((item[2] - 1_000 * NANOSECONDS) * 10 / NANOSECONDS) for item in (first, last)]
    expected = inverse(drive.true_pose(numbers[0])) @ drive.true_pose(numbers[1])
    np.testing.assert_allclose(last[3] - first[3], expected[:3, 3], atol=0.06)

    drive.lose()
    client.spin_until(
        lambda: (
            drive.publish()
            or (status.latest().level == DiagnosticStatus.WARN and "lost track" in status.latest().message)
        ),
        "a warning that track is lost",
    )
    assert "100 needed" in status.latest().message
    assert int(status.values()["clouds dropped: lost_track"]) >= 1


def test_with_a_mount_the_transform_is_the_robots(client: RosClient, start_node: Any) -> None:
    qos = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    mount = TransformStamped(child_frame_id="lidar")
    mount.header.frame_id = "base_link"
    mount.transform.translation.z, mount.transform.rotation.w = 0.5, 1.0
    static = client.node.create_publisher(TFMessage, "/tf_static", qos)
    static.publish(TFMessage(transforms=[mount]))
    start_node(*PARAMETERS)
    transforms = client.listen(TFMessage, "/tf", QoSProfile(depth=100))
    drive = HallDrive(client)

    def robot_is_known() -> bool:
        drive.publish()
        return any(sent_pose(message)[1] == "base_link" for message in transforms)

    client.spin_until(robot_is_known, "odom -> base_link")
    height = next(sent_pose(m)[3][2] for m in transforms if sent_pose(m)[1] == "base_link")
    assert height == pytest.approx(-0.5, abs=0.06), "the frame begins at the sensor"
