"""A short drive over the demo's terrain, recorded in every format that `gpgmap replay` reads."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be made")

from rosbags.rosbag1 import Writer as Ros1Writer
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
from rosbags.rosbag2 import Writer as Ros2Writer
from rosbags.typesys import Stores, get_typestore

from gpgmap_ros.demo.drive import Frame, base_pose, sensor_mount, start_pose, upright
from gpgmap_ros.demo.lidar import SpinningLidar
from gpgmap_ros.demo.recording import POINTS_TOPIC, START, drive_messages, header
from gpgmap_ros.demo.terrain import Terrain, rover_terrain
from gpgmap_ros.geometry import inverse, quaternion_of
from gpgmap_ros.io.bags import Stamped
from gpgmap_ros.io.recordings import ros1_types

CLOUDS, PERIOD = 24, 0.25
ODOMETRY = "/odometry"


@dataclass(frozen=True)
class Bags:
    """Where the recordings are, and the truth behind them.

    odometry: poses as nav_msgs/Odometry instead of /tf; two_clouds: a second topic with as many points
    """

    sqlite: Path
    mcap: Path
    compressed: Path
    ros1: Path
    odometry: Path
    two_clouds: Path
    terrain: Terrain
    frames: list[Frame]


def frames_of(terrain: Terrain) -> list[Frame]:
    """Once around the demo's loop, in fewer clouds."""
    rng, lidar = np.random.default_rng(3), SpinningLidar()
    centre, T_odom_world = np.array(terrain.size) / 2.0, inverse(start_pose(terrain))
    frames = []
    for index in range(CLOUDS):
        T_world_base = base_pose(terrain, centre, 2.0 * np.pi * index / (CLOUDS - 1))
        points = lidar.scan(terrain, T_world_base @ sensor_mount(), rng)
        frames.append(Frame(index * PERIOD, T_odom_world @ T_world_base, points))
    return frames


def messages_of(frames: list[Frame]) -> list[Stamped]:
    """A recording of its own: the mount is said when it begins."""
    static, *rest = drive_messages(frames)
    return [replace(static, time=rest[0].time), *rest]


def clouds_alone(frames: list[Frame], count: int = 3) -> list[Stamped]:
    """Nothing but clouds, of a sensor that stands: LiDAR odometry follows it at once."""
    standing = [replace(frames[0], time=index * PERIOD) for index in range(count)]
    return [item for item in drive_messages(standing) if item.topic == POINTS_TOPIC]


def later(frames: list[Frame], seconds: float, start: int) -> list[Frame]:
    """The same loop once more, begun at another place: the clock has gone on, the odometry has been restarted."""
    order = [*frames[start:], *frames[1 : start + 1]]
    T_new_odom = inverse(upright(order[0].T_odom_base))
    return [
        Frame(seconds + index * PERIOD, T_new_odom @ frame.T_odom_base, frame.points)
        for index, frame in enumerate(order)
    ]


def record(folder: Path) -> Bags:
    terrain = rover_terrain(np.random.default_rng(11))
    frames = frames_of(terrain)
    messages = list(drive_messages(frames))
    second = [
        Stamped("/other/points", item.time, item.message) for item in messages if item.topic == POINTS_TOPIC
    ]
    bags = Bags(
        folder / "drive", folder / "drive_mcap", folder / "drive_zstd", folder / "drive.bag", folder / "drive_odom",
        folder / "drive_two", terrain, frames,
    )  # fmt: skip
    write_ros2(bags.sqlite, messages)
    write_ros2(bags.mcap, messages, StoragePlugin.MCAP)
    write_ros2(bags.compressed, messages, mode=CompressionMode.MESSAGE)
    write_ros1(bags.ros1, messages)
    write_ros2(bags.odometry, odometry_messages(frames, messages))
    write_ros2(bags.two_clouds, sorted([*messages, *second], key=lambda item: item.time))
    return bags


def write_ros2(
    path: Path, messages: list[Stamped], plugin: Any = StoragePlugin.SQLITE3, mode: Any = None
) -> None:
    store = get_typestore(Stores.ROS2_JAZZY)
    writer = Ros2Writer(path, version=9, storage_plugin=plugin)
    if mode is not None:
        writer.set_compression(mode, CompressionFormat.ZSTD)
    with writer:
        connections: dict[str, Any] = {}
        for item in messages:
            kind = item.message.__msgtype__
            if item.topic not in connections:
                connections[item.topic] = writer.add_connection(item.topic, kind, typestore=store)
            writer.write(connections[item.topic], item.time, store.serialize_cdr(item.message, kind))


def write_ros1(path: Path, messages: list[Stamped]) -> None:
    ros2, ros1 = get_typestore(Stores.ROS2_JAZZY), ros1_types()
    with Ros1Writer(path) as writer:
        connections: dict[str, Any] = {}
        for item in messages:
            kind = item.message.__msgtype__
            if item.topic not in connections:
                connections[item.topic] = writer.add_connection(item.topic, kind, typestore=ros1)
            raw = ros2.cdr_to_ros1(ros2.serialize_cdr(item.message, kind), kind)
            writer.write(connections[item.topic], item.time, raw)


def odometry_messages(frames: list[Frame], messages: list[Stamped]) -> list[Stamped]:
    """Odometry of base_link instead of /tf; the mount stays on /tf_static."""
    types = get_typestore(Stores.ROS2_JAZZY).types
    out = [item for item in messages if item.topic != "/tf"]
    for frame in frames:
        stamp = START + round(frame.time * 1e9)
        position = types["geometry_msgs/msg/Point"](*map(float, frame.T_odom_base[:3, 3]))
        rotation = types["geometry_msgs/msg/Quaternion"](*map(float, quaternion_of(frame.T_odom_base)))
        pose = types["geometry_msgs/msg/Pose"](position=position, orientation=rotation)
        zero = types["geometry_msgs/msg/Vector3"](x=0.0, y=0.0, z=0.0)
        twist = types["geometry_msgs/msg/Twist"](linear=zero, angular=zero)
        message = types["nav_msgs/msg/Odometry"](
            header=header(types, stamp, "odom"),
            child_frame_id="base_link",
            pose=types["geometry_msgs/msg/PoseWithCovariance"](pose=pose, covariance=np.zeros(36)),
            twist=types["geometry_msgs/msg/TwistWithCovariance"](twist=twist, covariance=np.zeros(36)),
        )
        out.append(Stamped(ODOMETRY, stamp, message))
    return sorted(out, key=lambda item: item.time)


def cut(path: Path, to: Path, share: float) -> Path:
    """A copy of which only the first share of bytes is there, as when the battery ran out."""
    if path.is_dir():
        shutil.copytree(path, to)
        (file,) = [item for item in to.iterdir() if item.suffix in (".mcap", ".db3")]
        (to / "metadata.yaml").unlink()
    else:
        shutil.copy(path, to)
        file = to
    data = file.read_bytes()
    file.write_bytes(data[: int(share * len(data))])
    return to
