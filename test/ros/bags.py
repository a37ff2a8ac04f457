"""Small bags of a known scene: a tilted plane seen from a sensor that moves a little."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be made")

from rosbags.typesys import get_typestore

from gpgmap_ros.demo.recording import cloud_message, header, tf_message
from gpgmap_ros.geometry import apply, inverse, transform_from
from gpgmap_ros.io.bags import STORE, Stamped, write_bag

SECOND = 1_000_000_000
START = 1_600_000_000 * SECOND
POINTS, ODOMETRY = "/points", "/odometry"


@dataclass(frozen=True)
class Scene:
    """The plane z = 0.5 + 0.2 x - 0.1 y within `half` metres of the origin; the sensor above it moves and turns."""

    clouds: int = 6
    points: int = 3000
    period: float = 0.2
    mount_x: float = 0.3
    half: float = 1.2

    def height(self, x: Any, y: Any) -> Any:
        return 0.5 + 0.2 * x - 0.1 * y

    def base_pose(self, index: float) -> np.ndarray:
        yaw = 0.1 * index
        return transform_from([0.2 * index, 0.0, 2.0], [0.0, 0.0, np.sin(yaw / 2), np.cos(yaw / 2)])

    def mount(self) -> np.ndarray:
        """T_base_lidar: forward of the base, turned by 90 degrees."""
        return transform_from([self.mount_x, 0.0, 0.0], [0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5)])

    def stamp(self, index: int) -> int:
        return START + round(index * self.period * SECOND)

    def cloud(self, index: int, T_odom_sensor: np.ndarray) -> np.ndarray:
        """Points on the plane around the origin, in the sensor's frame, without noise."""
        rng = np.random.default_rng(index)
        xy = rng.uniform(-self.half, self.half, (self.points, 2))
        world = np.column_stack([xy, self.height(xy[:, 0], xy[:, 1])])
        return apply(inverse(T_odom_sensor), world)


def record_tf(scene: Scene, path: Path, frame: str = "lidar") -> Path:
    """Clouds in the sensor's own frame with poses on /tf and the mount on /tf_static."""
    types = get_typestore(STORE).types
    messages = [Stamped("/tf_static", START, tf_message(types, START, "base_link", "lidar", scene.mount()))]
    for index in range(scene.clouds):
        stamp, T_odom_base = scene.stamp(index), scene.base_pose(index)
        messages.append(Stamped("/tf", stamp, tf_message(types, stamp, "odom", "base_link", T_odom_base)))
        cloud = cloud_message(types, stamp, scene.cloud(index, T_odom_base @ scene.mount()))
        cloud.header.frame_id = frame
        messages.append(Stamped(POINTS, stamp, cloud))
    write_bag(path, messages)
    return path


def record_odometry(scene: Scene, path: Path) -> Path:
    """Odometry twice as often as clouds and between their stamps: the pose of a cloud must be interpolated."""
    types = get_typestore(STORE).types
    messages = []
    for index in range(scene.clouds):
        for offset in (-0.25, 0.25):
            stamp = scene.stamp(index) + round(offset * scene.period * SECOND)
            messages.append(
                Stamped(ODOMETRY, stamp, odometry_message(types, stamp, scene.base_pose(index + offset)))
            )
        stamp = scene.stamp(index)
        cloud = cloud_message(types, stamp, scene.cloud(index, scene.base_pose(index)))
        cloud.header.frame_id = "base_link"
        messages.append(Stamped(POINTS, stamp, cloud))
    write_bag(path, sorted(messages, key=lambda item: item.time))
    return path


def odometry_message(types: Any, stamp: int, T_odom_base: np.ndarray) -> Any:
    transform = tf_message(types, stamp, "odom", "base_link", T_odom_base).transforms[0].transform
    t = transform.translation
    pose = types["geometry_msgs/msg/Pose"](
        position=types["geometry_msgs/msg/Point"](x=t.x, y=t.y, z=t.z), orientation=transform.rotation
    )
    zero = types["geometry_msgs/msg/Vector3"](x=0.0, y=0.0, z=0.0)
    twist = types["geometry_msgs/msg/Twist"](linear=zero, angular=zero)
    return types["nav_msgs/msg/Odometry"](
        header=header(types, stamp, "odom"),
        child_frame_id="base_link",
        pose=types["geometry_msgs/msg/PoseWithCovariance"](pose=pose, covariance=np.zeros(36)),
        twist=types["geometry_msgs/msg/TwistWithCovariance"](twist=twist, covariance=np.zeros(36)),
    )
