"""Poses as robots send them: a wrong stamp among them, stamp 0, none at all; with the own buffer and with tf2_ros."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_text import wait_for_text
from client import RosClient
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import TransformStamped
from nav_msgs.msg import Odometry
from rclpy.qos import QoSProfile
from scene import CloudSource
from test_node_time import SIMULATED, SMALL, SimulatedClock
from tf2_msgs.msg import TFMessage

from gpgmap_ros.config import Config
from gpgmap_ros.nodes.health import Warnings
from gpgmap_ros.nodes.pose_inputs import PoseInputs
from gpgmap_ros.sensing import Cloud
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

HOUR = 3600 * NANOSECONDS


@pytest.fixture(params=["own buffer", "tf2_ros"])
def transforms(request: pytest.FixtureRequest, ros_environment: dict[str, str], tmp_path: Path) -> str:
    """Lets the node find tf2_ros's stand-in under its name, or not."""
    if request.param == "tf2_ros":
        folder = tmp_path / "modules"
        folder.mkdir()
        (folder / "tf2_ros.py").write_text("from tf2_double import *\n")
        ros_environment["PYTHONPATH"] = f"{folder}:{Path(__file__).parent}"
    return str(request.param)


class Diagnostics:
    """What the node says of its mapping."""

    def __init__(self, client: RosClient) -> None:
        self._messages = client.listen(DiagnosticArray, "/diagnostics", 10)

    def statuses(self) -> list[Any]:
        return [s for message in self._messages for s in message.status if s.name.endswith(": mapping")]

    def value(self, name: str) -> int:
        found = self.statuses()
        return int({item.key: item.value for item in found[-1].values}.get(name, 0)) if found else 0

    def warns(self, text: str) -> bool:
        return any(s.level == DiagnosticStatus.WARN and text in s.message for s in self.statuses())

    def stamp(self) -> int:
        """Seconds of the node's clock when it last spoke."""
        return self._messages[-1].header.stamp.sec if self._messages else 0

    def fine(self) -> bool:
        found = self.statuses()
        return bool(found) and found[-1].level == DiagnosticStatus.OK


class OdometrySource(CloudSource):
    """The pose from an odometry topic."""

    def __init__(self, client: RosClient, start: int = 1_000) -> None:
        super().__init__(client, start=start)
        self._odometry = client.node.create_publisher(Odometry, "/odometry", QoSProfile(depth=100))

    def publish_transform(self) -> None:
        message = Odometry(child_frame_id="lidar")
        message.header.frame_id = "odom"
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(self.stamp, NANOSECONDS)
        message.pose.pose.position.z, message.pose.pose.orientation.w = 1.0, 1.0
        self._odometry.publish(message)


def publish_pose(source: CloudSource, ahead: int) -> None:
    """One pose without a cloud, so much ahead of the others."""
    source.stamp += ahead
    source.publish_transform()
    source.stamp -= ahead


def map_on(client: RosClient, source: CloudSource, diagnostics: Diagnostics, clouds: int) -> None:
    """Publish until so many more clouds are used."""
    wanted = diagnostics.value("clouds used") + clouds
    client.spin_until(
        lambda: source.publish() or diagnostics.value("clouds used") >= wanted, f"{clouds} used clouds"
    )


@pytest.mark.parametrize("pose_source", ["tf", "odometry"])
@pytest.mark.parametrize("ahead", [HOUR, -HOUR], ids=["ahead", "behind"])
def test_one_pose_with_a_wrong_clock_does_not_stop_the_mapping(
    client: RosClient, transforms: str, start_node: Any, pose_source: str, ahead: int
) -> None:
    if pose_source == "odometry" and transforms == "tf2_ros":
        pytest.skip("odometry is kept in the own buffer, wherever transforms are")
    every_pose = ("-p", "qos_overrides./odometry.subscription.reliability:=reliable")
    node = start_node(*SMALL, "-p", f"pose_source:={pose_source}", *every_pose)
    diagnostics = Diagnostics(client)
    source = CloudSource(client) if pose_source == "tf" else OdometrySource(client)
    map_on(client, source, diagnostics, 5)
    publish_pose(source, ahead)
    map_on(client, source, diagnostics, 20)
    assert diagnostics.value("poses quarantined") == 1
    where = "3600.0 s ahead of its neighbours" if ahead > 0 else "3600.0 s behind its neighbours"
    client.spin_until(lambda: diagnostics.warns(where), "a warning that names the pose")
    assert diagnostics.warns("on '/tf', 'odom' <- 'lidar'" if pose_source == "tf" else "on '/odometry'")
    assert "map reset" not in node.tail(100)
    assert diagnostics.value("clouds dropped: too_early") == 0


def test_a_loop_of_frames_is_refused_and_the_mapping_goes_on(
    client: RosClient, transforms: str, start_node: Any
) -> None:
    start_node(*SMALL)
    diagnostics, source = Diagnostics(client), CloudSource(client)
    publisher = client.node.create_publisher(TFMessage, "/tf", QoSProfile(depth=100))
    map_on(client, source, diagnostics, 5)
    transform = TransformStamped(child_frame_id="odom")
    transform.header.frame_id, transform.transform.rotation.w = "lidar", 1.0
    transform.header.stamp.sec, transform.header.stamp.nanosec = divmod(source.stamp, NANOSECONDS)
    publisher.publish(TFMessage(transforms=[transform]))
    client.spin_until(
        lambda: source.publish() or diagnostics.value("transforms refused") == 1, "the refused transform"
    )
    map_on(client, source, diagnostics, 20)
    text = "on '/tf': the frames would form a loop: 'odom' <- 'lidar' <- 'odom'"
    client.spin_until(lambda: diagnostics.warns(text), "a warning that names the loop")
    assert diagnostics.value("clouds dropped: not_connected") == 0


def test_one_pose_ahead_in_simulated_time(client: RosClient, start_node: Any) -> None:
    start_node(*SIMULATED)
    clock, diagnostics = SimulatedClock(client), Diagnostics(client)
    source = CloudSource(client, start=2_000)

    def step(used: int) -> bool:
        clock.publish(source.stamp / 1e9)
        source.publish()
        return diagnostics.value("clouds used") >= used

    client.spin_until(source._transforms.get_subscription_count, "the node to listen to /tf")
    client.spin_until(
        lambda: clock.publish(source.stamp / 1e9) or diagnostics.stamp() == 2_000,
        "the node's clock to be set",
    )
    # already the first pose is ahead of the clock: it has no neighbours yet
    publish_pose(source, HOUR)
    client.spin_until(lambda: step(5), "clouds used")
    client.spin_until(lambda: diagnostics.warns("3600.0 s ahead of the clock"), "a warning")
    publish_pose(source, HOUR)
    before = diagnostics.value("clouds used")
    client.spin_until(lambda: step(before + 10), "clouds used again")
    assert diagnostics.warns("ahead of its neighbours")
    # the clock jumps back, and poses with it
    source.stamp = 1_000 * NANOSECONDS
    before = diagnostics.value("clouds used")
    client.spin_until(lambda: step(before + 10), "clouds used after the clock was set back")


def test_a_cloud_with_stamp_0_is_refused(client: RosClient, transforms: str, start_node: Any) -> None:
    """And does not get the newest pose; near enough to the others that it is no new recording."""
    node = start_node(*SMALL)
    diagnostics, source = Diagnostics(client), CloudSource(client)
    source.stamp = NANOSECONDS

    def poses_and_old_clouds() -> int:
        source.stamp += NANOSECONDS // 1000
        source.publish_transform()
        source.stamp, stamp = 0, source.stamp
        source.publish_cloud()
        source.stamp = stamp
        client.spin_for(0.05)
        return diagnostics.value("clouds dropped: too_early")

    client.spin_until(poses_and_old_clouds, "a refused cloud")
    assert diagnostics.value("clouds used") == 0
    wait_for_text(node, "cloud dropped (too_early)")


def test_clouds_that_are_never_used_are_a_warning(client: RosClient, start_node: Any) -> None:
    start_node(*SMALL, "-p", "transform_timeout:=0.0")
    diagnostics, source = Diagnostics(client), CloudSource(client)

    def cloud_alone() -> bool:
        source.stamp += NANOSECONDS // 10
        source.publish_cloud()
        client.spin_for(0.1)
        return diagnostics.warns("no cloud was used for")

    client.spin_until(cloud_alone, "a warning")
    assert diagnostics.warns("unknown_frame")
    map_on(client, source, diagnostics, 3)
    client.spin_until(lambda: source.publish() or diagnostics.fine(), "all to be well again")


def test_tf_can_be_remapped(client: RosClient, start_node: Any) -> None:
    """Several robots, each with a tree of its own."""
    node = start_node(*SMALL, "-r", "/tf:=/rover/tf", "-r", "/tf_static:=/rover/tf_static")
    diagnostics, source = Diagnostics(client), CloudSource(client)
    source._transforms = client.node.create_publisher(TFMessage, "/rover/tf", QoSProfile(depth=100))
    map_on(client, source, diagnostics, 3)
    publish_pose(source, HOUR)
    client.spin_until(
        lambda: source.publish() or diagnostics.warns("on '/rover/tf'"), "a warning that names the topic"
    )
    assert node.running()


def test_poses_ahead_by_the_robots_own_clock_are_used(client: RosClient, start_node: Any) -> None:
    """All of them: two computers whose clocks differ."""
    start_node(*SMALL)
    diagnostics, source = Diagnostics(client), CloudSource(client, start=int(time.time()) + 3600)
    map_on(client, source, diagnostics, 10)


def test_a_map_frame_may_be_called_odometry(client: RosClient) -> None:
    config = Config(pose_source="odometry", map_frame="/odometry")
    inputs = PoseInputs(client.node, Warnings(client.node), config)
    message = Odometry(child_frame_id="lidar")
    message.header.frame_id, message.header.stamp.sec = "odometry", 1000
    message.pose.pose.position.x, message.pose.pose.orientation.w = 3.0, 1.0
    inputs._insert_odometry(message)
    cloud = Cloud(1000 * NANOSECONDS, "lidar", np.empty((0, 3)))
    assert inputs.source.locate(cloud).T_map_sensor[0, 3] == 3.0
    inputs.destroy()
