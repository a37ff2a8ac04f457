"""Clouds of a Livox sensor over DDS: the node listens for the type that the driver sends, and maps it deskewed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("livox_ros_driver2", reason="the messages of Livox are not installed: run `make setup`")

from client import RosClient
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import TransformStamped
from grid_map_msgs.msg import GridMap
from livox_ros_driver2.msg import CustomMsg, CustomPoint
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from rclpy.serialization import serialize_message
from tf2_msgs.msg import TFMessage

from gpgmap_ros.nodes import cloud_inputs
from gpgmap_ros.nodes.cloud_inputs import CloudInputs
from gpgmap_ros.nodes.health import Warnings
from gpgmap_ros.sensing import CloudError, decode_cloud
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

SMALL = (
    *("-p", "mapping.size_x:=4.0", "-p", "mapping.size_y:=4.0", "-p", "mapping.resolution:=0.2"),
    *("-p", "mapping.kernel:=rbf"),
)
START = 1_000 * NANOSECONDS
HEIGHT, RISE = 1.5, 0.2
"""Metres: a sensor over level ground that rises within each scan, and sinks again before the next."""


def cloud(stamp: int, points: np.ndarray, offsets: np.ndarray) -> CustomMsg:
    message = CustomMsg(timebase=stamp, point_num=len(points), lidar_id=1)
    message.header.frame_id = "livox_frame"
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp, NANOSECONDS)
    message.points = [
        CustomPoint(offset_time=int(t), x=float(x), y=float(y), z=float(z), reflectivity=9, tag=16, line=2)
        for t, (x, y, z) in zip(offsets, points, strict=True)
    ]
    return message


def seen_while_rising(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points, each from where the sensor is at its own time; and these times, nanoseconds."""
    offsets = np.sort(rng.integers(0, 100_000_000, 400))
    ground = rng.uniform(-2.0, 2.0, (400, 2))
    return np.column_stack([ground, -HEIGHT - RISE * offsets * 1e-8]), offsets


class RisingSensor:
    """The driver of a Livox sensor, and who knows its poses."""

    def __init__(self, client: RosClient) -> None:
        self._client, self._rng, self._next = client, np.random.default_rng(0), 0
        self._clouds = client.node.create_publisher(CustomMsg, "/points", qos_profile_sensor_data)
        self._tf = client.node.create_publisher(TFMessage, "/tf", QoSProfile(depth=100))

    def publish(self) -> None:
        begin = START + self._next * NANOSECONDS // 5
        self._next += 1
        for after, height in ((0, HEIGHT), (NANOSECONDS // 10, HEIGHT + RISE)):
            item = TransformStamped(child_frame_id="livox_frame")
            item.header.frame_id = "odom"
            item.header.stamp.sec, item.header.stamp.nanosec = divmod(begin + after, NANOSECONDS)
            item.transform.translation.z, item.transform.rotation.w = height, 1.0
            self._tf.publish(TFMessage(transforms=[item]))
        self._clouds.publish(cloud(begin, *seen_while_rising(self._rng)))
        self._client.spin_for(0.1)


def test_clouds_of_a_livox_driver_are_mapped(client: RosClient, start_node: Any) -> None:
    node = start_node(*SMALL)
    maps = client.listen(GridMap, "/mapping_node/grid_map", 10)
    diagnostics = client.listen(DiagnosticArray, "/diagnostics", 10)
    drive = RisingSensor(client)

    def used() -> int:
        values = {v.key: v.value for m in diagnostics for s in m.status for v in s.values}
        return int(values.get("clouds used", 0))

    client.spin_until(lambda: drive.publish() or (used() >= 5 and maps), "clouds of a Livox sensor in a map")
    assert "'/points' carries livox_ros_driver2/msg/CustomMsg" in node.tail(80)
    last = maps[-1]
    elevation = np.array(last.data[last.layers.index("elevation")].data)
    # points that are not deskewed are 10 cm too low
    assert np.nanmean(elevation) == pytest.approx(0.0, abs=0.02)


def test_bytes_are_decoded_as_the_objects_are() -> None:
    rng = np.random.default_rng(3)
    message = cloud(START, rng.normal(size=(101, 3)), np.sort(rng.integers(0, 10**8, 101)))
    message.points[4].x = message.points[4].y = message.points[4].z = 0.0  # no return
    data = serialize_message(message)
    expected, found = decode_cloud(message), decode_cloud(data)
    assert (found.stamp, found.frame_id, found.size) == (START, "livox_frame", 101)
    assert len(found.points) == 100
    np.testing.assert_array_equal(found.points, expected.points)
    np.testing.assert_array_equal(found.times, expected.times)
    for end in (0, 3, 12, 40, len(data) - 5):
        with pytest.raises(CloudError, match="Livox"):
            decode_cloud(data[:end])
    assert decode_cloud(serialize_message(CustomMsg())).size == 0


def test_a_type_whose_package_is_missing_is_named_with_the_remedy(
    client: RosClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_inputs, "message_class_of", lambda name: None)
    client.node.create_publisher(CustomMsg, "/points", qos_profile_sensor_data)
    other = RosClient(client.domain_id)
    try:
        inputs = CloudInputs(other.node, Warnings(other.node), ["points"], lambda message, topic: None)
        other.spin_until(lambda: inputs.follow_types(), "the type of the publisher")
        (text,) = inputs.follow_types().values()
        assert "the package livox_ros_driver2 is not installed" in text
        assert "PointCloud2 (xfer_format: 0)" in text
        inputs.destroy()
    finally:
        other.close()


def test_the_doctor_sees_a_running_livox_sensor(client: RosClient, start: Any, executables: Path) -> None:
    drive = RisingSensor(client)
    doctor = start("doctor", str(executables / "gpgmap"), "doctor", "--live", "--seconds", "6")
    client.spin_until(lambda: drive.publish() or not doctor.running(), "the doctor to end", 120.0)
    found = doctor.tail(50)
    assert re.search(r"/points: \d+\.\d Hz, 400 points, frame 'livox_frame'", found), found
    assert "odom <- livox_frame" in found
