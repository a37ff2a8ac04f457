"""IMU and GPS in the running node: a level map, and where it lies on the earth. Sensors are simulated."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("small_gicp")
pytest.importorskip("pyproj", reason="pyproj is not installed: nothing can be georeferenced")

from child_text import wait_for_text
from client import LATCHED, RosClient
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import Imu, NavSatFix, PointCloud2, PointField
from tf2_msgs.msg import TFMessage

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "sensing"))
from rooms import pose, room, scan
from scipy.spatial.transform import Rotation

from gpgmap_ros.demo.sensors import SimulatedImu
from gpgmap_ros.geometry import Array, transform_from
from gpgmap_ros.sensing.messages import transform_of
from gpgmap_ros.slam.geodesy import UtmZone, load_pyproj

SECOND = 1_000_000_000
START = 1_000 * SECOND
PATIENCE = 5.0
"""Seconds after which a cloud counts as lost on its way: the topic of a sensor is not reliable."""
TILT = transform_from([0.0, 0.0, 0.0], Rotation.from_euler("y", 12.0, degrees=True).as_quat())
"""The sensor looks down."""
LATITUDE, LONGITUDE, HEIGHT = 60.0, 10.3, 40.0
PARAMETERS = (
    *("-p", "pose_source:=lidar", "-p", "gps.publish_tf:=true", "-p", "mapping.resolution:=0.2"),
    *("-p", "mapping.size_x:=8.0", "-p", "mapping.size_y:=8.0", "-p", "submap.max_distance:=2.5"),
    *("-p", "submap.size:=16.0", "-p", "queue_size:=100", "-p", "lidar.publish_tf:=true"),
)


class Robot:
    """Publishes clouds ten times a second with the IMU and GPS between them, and stands until told to drive.

    A cloud is sent when the pose of the one before has come: how far the robot drives does not depend on how fast
    this machine is.
    """

    def __init__(self, client: RosClient) -> None:
        self._client, self._rng = client, np.random.default_rng(0)
        self._leaves = np.inf
        self._poses = client.listen(TFMessage, "/tf", QoSProfile(depth=100))
        make = client.node.create_publisher
        self._clouds = make(PointCloud2, "/points", qos_profile_sensor_data)
        self._imu, self._gps = make(Imu, "/imu", 400), make(NavSatFix, "/gps/fix", 10)
        self._samples = SimulatedImu(rate=100.0, frame_id="lidar").samples(
            self.true_pose, 0.0, 600.0, START, np.random.default_rng(1)
        )
        self._scene = room(self._rng)
        self._zone = UtmZone.around(LATITUDE, LONGITUDE, HEIGHT)
        self._origin = self._zone.forward(np.array([LATITUDE]), np.array([LONGITUDE]))[0]
        self._next = 0
        client.spin_until(
            lambda: all(item.get_subscription_count() for item in (self._clouds, self._imu, self._gps)),
            "the node",
        )

    def drive(self) -> None:
        self._leaves = self._next / 10.0 + 0.5

    def true_pose(self, seconds: float) -> Array:
        """Of the sensor, in a world of east, north and up."""
        t = max(seconds - self._leaves, 0.0)
        t -= float(np.tanh(t))  # no jerk
        return pose(-4.0 * np.cos(0.3 * t), 2.0 * np.sin(0.3 * t), 40.0 * np.sin(0.2 * t)) @ TILT

    def publish(self) -> None:
        seconds = self._next / 10.0
        for _ in range(10):
            self._imu.publish(self._imu_message())
        self._gps.publish(self._fix(seconds))
        self._clouds.publish(self._cloud(seconds))
        self._next += 1
        deadline = time.monotonic() + (PATIENCE if self._poses else 0.1)
        while not self._has_pose_at(seconds) and time.monotonic() < deadline:
            self._client.spin_for(0.02)

    def _has_pose_at(self, seconds: float) -> bool:
        if not self._poses:
            return False
        stamp = self._poses[-1].transforms[0].header.stamp
        return bool((stamp.sec - START // SECOND) + stamp.nanosec / SECOND >= seconds - 1e-3)

    def earth_position(self, seconds: float) -> tuple[float, float, float]:
        position = self.true_pose(seconds)[:3, 3]
        east, north = self._origin + self._zone.scale * position[:2]
        return (*self._zone.inverse(east, north), HEIGHT + float(position[2]))

    def _imu_message(self) -> Imu:
        sample, message = next(self._samples), Imu()
        message.header.frame_id = sample.frame_id
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(sample.stamp, SECOND)
        w, a = message.angular_velocity, message.linear_acceleration
        (w.x, w.y, w.z), (a.x, a.y, a.z) = sample.angular_velocity, sample.acceleration
        return message

    def _fix(self, seconds: float) -> NavSatFix:
        message = NavSatFix(position_covariance_type=2)
        message.header.frame_id = "lidar"
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(
            START + round(seconds * SECOND), SECOND
        )
        message.latitude, message.longitude, message.altitude = self.earth_position(seconds)
        message.latitude += float(self._rng.normal(0.0, 2e-7))
        if self._next % 5 == 4:
            message.latitude += 4.5e-4  # 50 m
        message.position_covariance = [4e-4, 0.0, 0.0, 0.0, 4e-4, 0.0, 0.0, 0.0, 1e-3]
        return message

    def _cloud(self, seconds: float) -> PointCloud2:
        points = scan(self._scene, self.true_pose(seconds), self._rng).astype("<f4")
        message = PointCloud2(height=1, width=len(points), point_step=12, row_step=12 * len(points))
        message.header.frame_id = "lidar"
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(
            START + round(seconds * SECOND), SECOND
        )
        message.fields = [PointField(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
        message.data = points.tobytes()
        return message


def test_the_map_is_level_and_georeferenced(client: RosClient, start_node: Any) -> None:
    node = start_node(*PARAMETERS)
    transforms = client.listen(TFMessage, "/tf_static", LATCHED)
    places = client.listen(NavSatFix, "/mapping_node/geo_pose", 10)
    statuses = client.listen(DiagnosticArray, "/diagnostics", 10)
    robot = Robot(client)
    vertical = "the vertical of the map is that of the IMU, known to 0.6 deg; the sensor is tilted by 1"
    client.spin_until(lambda: robot.publish() or vertical in node.tail(100), "the vertical")
    robot.drive()
    client.spin_until(lambda: robot.publish() or (places and transforms), "a georeference")
    wait_for_text(node, "the map is georeferenced in WGS 84 / UTM zone")

    found = places[-1]
    stamp = found.header.stamp.sec * SECOND + found.header.stamp.nanosec
    latitude, longitude, height = robot.earth_position((stamp - START) / SECOND)
    assert abs(found.latitude - latitude) * 111_000 < 0.3
    assert abs(found.longitude - longitude) * 55_000 < 0.3
    assert abs(found.altitude - height) < 0.5
    (transform,) = transforms[-1].transforms
    assert (transform.header.frame_id, transform.child_frame_id) == ("earth", "map")
    # the map begins where the sensor was when the drive began
    to_ecef = load_pyproj().Transformer.from_crs(4979, 4978, always_xy=True)
    first = robot.earth_position(0.0)
    expected = to_ecef.transform(first[1], first[0], first[2])
    np.testing.assert_allclose(transform_of(transform.transform)[:3, 3], expected, atol=0.6)
    client.spin_until(
        lambda: any(
            value.key == "georeference" and "EPSG:32632, known to" in value.value
            for message in statuses for status in message.status for value in status.values
        ),
        "the georeference in /diagnostics",
    )  # fmt: skip
