"""The table of pose sources: a new one is a file in this folder and a row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpgmap_ros.sensing.lidar_inertial_source import LidarInertialSource
from gpgmap_ros.sensing.lidar_source import LidarSource
from gpgmap_ros.sensing.messages import frame_transforms, imu_measurement, pose_measurement
from gpgmap_ros.sensing.odometry_source import OdometrySource
from gpgmap_ros.sensing.pose_source import PoseSource
from gpgmap_ros.sensing.source_setup import SourceSetup
from gpgmap_ros.sensing.still_source import StillSource
from gpgmap_ros.sensing.tf_source import TfSource

SOURCES: Mapping[str, Callable[[SourceSetup], PoseSource]] = {
    "tf": TfSource,
    "odometry": OdometrySource,
    "lidar": LidarSource,
    "lidar_inertial": LidarInertialSource,
    "still": StillSource,
}
DESCRIPTIONS: Mapping[str, str] = {
    "tf": "/tf",
    "odometry": "the odometry topic",
    "lidar": "LiDAR odometry",
    "lidar_inertial": "LiDAR-inertial odometry",
    "still": "none: the sensor stands still",
}
"""Where the poses of each source come from, in words."""


def make_source(name: str, setup: SourceSetup) -> PoseSource:
    """The pose source of that name; ValueError with the names that there are."""
    if name not in SOURCES:
        raise ValueError(f"pose_source '{name}' is unknown: choose one of {', '.join(SOURCES)}")
    return SOURCES[name](setup)


def insert_message(source: PoseSource, message: Any, topic: str) -> None:
    """Insert a decoded message of /tf, /tf_static, a pose topic or an IMU.

    ValueError where a part of it can't be used, once all others are inserted.
    """
    if hasattr(message, "linear_acceleration"):
        source.insert_imu(imu_measurement(message, topic))
        return
    if not hasattr(message, "transforms"):
        source.insert_pose(pose_measurement(message, topic))
        return
    wrong: ValueError | None = None
    for item in frame_transforms(message, topic.endswith("tf_static"), topic):
        try:
            if isinstance(item, tuple):
                raise item[2]
            source.insert_transform(item)
        except ValueError as error:
            wrong = error
    if wrong is not None:
        raise wrong


__all__ = ["DESCRIPTIONS", "SOURCES", "SourceSetup", "insert_message", "make_source"]
