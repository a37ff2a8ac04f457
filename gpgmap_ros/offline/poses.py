"""Where the sensor was, from the messages of a recording: the offline side of nodes/pose_sources.py.

Poses are sorted into drives on the way (continuity.py): nothing is interpolated between two of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gpgmap_ros.config import DriveConfig
from gpgmap_ros.geometry import Array, inverse, transform_from
from gpgmap_ros.offline.continuity import Break, Continuity
from gpgmap_ros.transform_buffer import NANOSECONDS, TransformBuffer, TransformUnavailable

HORIZON = 60.0
"""Seconds of poses kept: more than clouds and poses of one moment are ever apart in a recording."""
ODOMETRY = "nav_msgs/msg/Odometry"
POSE_TYPES = (
    ODOMETRY,
    "geometry_msgs/msg/PoseWithCovarianceStamped",
    "geometry_msgs/msg/PoseStamped",
    "geometry_msgs/msg/TransformStamped",
)
"""Messages that say where the robot is, the most telling first."""
TF_TYPES = ("tf2_msgs/msg/TFMessage", "tf/msg/tfMessage")


@dataclass(frozen=True)
class SensorPose:
    """T_map_sensor; covariance (6, 6) of that pose or None; T_base_sensor where the robot's frame is known.

    drive: poses with different numbers are of different drives, and not in one frame
    """

    T_map_sensor: Array
    covariance: Array | None = None
    T_base_sensor: Array | None = None
    drive: int = 0

    @property
    def T_map_robot(self) -> Array:  # noqa: N802
        return (
            self.T_map_sensor
            if self.T_base_sensor is None
            else self.T_map_sensor @ inverse(self.T_base_sensor)
        )


class Poses(Protocol):
    """Filled with the messages of a recording, asked for the pose of a cloud."""

    def insert(self, message: Any, topic: str) -> None:
        """Take in a decoded message; ValueError where what it says is no pose."""

    def at(self, sensor_frame: str, stamp: int) -> SensorPose:
        """TransformUnavailable where it is not known, or not yet."""

    @property
    def breaks(self) -> list[Break]:
        """Between the drives, in order."""

    @property
    def outliers(self) -> int:
        """Poses that were left out because nothing before or after agrees with them."""


def link_of(item: Any) -> tuple[str, str, int, Array]:
    """Parent, child, stamp and T_parent_child of a TransformStamped."""
    parent, child = frame(item.header.frame_id), frame(item.child_frame_id)
    return parent, child, nanoseconds(item.header.stamp), transform_of(item.transform)


def for_each(items: Iterable[Any], do: Callable[[Any], None]) -> None:
    """Do it with all of them; ValueError then, where one of them raised it."""
    wrong: ValueError | None = None
    for item in items:
        try:
            do(item)
        except ValueError as error:
            wrong = error
    if wrong is not None:
        raise wrong


class Transforms:
    """The tree of frames, from /tf and /tf_static."""

    def __init__(self) -> None:
        self.buffer = TransformBuffer(HORIZON)

    def insert(self, message: Any, topic: str) -> None:
        """ValueError, for the last that is wrong, once all others of the message are in."""
        static = topic.endswith("tf_static")
        for_each(message.transforms, lambda item: self.buffer.insert(*link_of(item), static))

    def lookup(self, target: str, source: str, stamp: int) -> Array:
        return self.buffer.lookup(target, source, stamp)


class TfPoses:
    """T_map_sensor straight from the tree of frames; the mount too, where the tree has a `base_frame`.

    sensor_frame: stands for the robot where the tree has no `base_frame`; limits: of the motion within a drive
    """

    def __init__(
        self, map_frame: str, base_frame: str, sensor_frame: str = "", limits: DriveConfig | None = None
    ) -> None:
        self._map_frame, self._base_frame, self._sensor_frame = map_frame, base_frame, sensor_frame
        self._limits = limits or DriveConfig()
        self._transforms = Transforms()
        self._parents: dict[str, str] = {}
        self._chain: dict[str, Continuity] = {}  # of the moving frames between the map and the robot

    def insert(self, message: Any, topic: str) -> None:
        """ValueError, for the last that is wrong, once all others of the message are in."""
        static = topic.endswith("tf_static")
        for_each(message.transforms, lambda item: self._take(*link_of(item), static))

    def _take(self, parent: str, child: str, stamp: int, T: Array, static: bool) -> None:
        buffer = self._transforms.buffer
        if forgotten := buffer.prevent_loop(parent, child, stamp, static):
            self._parents.pop(forgotten, None)
        self._connect(parent, child)
        continuity = self._chain.get(child)
        if static or continuity is None:
            buffer.insert(parent, child, stamp, T, static)
            return
        breaks = len(continuity.breaks)
        usable = continuity.take(stamp, T)
        if len(continuity.breaks) > breaks and continuity.breaks[-1].back:
            buffer.clear()
        for pose in usable:
            buffer.insert(parent, child, pose.stamp, pose.T)

    def at(self, sensor_frame: str, stamp: int) -> SensorPose:
        # each moving frame counts its own drives: the sum changes whenever one of them begins another
        drive = sum(item.drive_at(stamp) for item in self._chain.values())
        T_map_sensor = self._transforms.lookup(self._map_frame, sensor_frame, stamp)
        try:
            mount = self._transforms.lookup(self._base_frame, sensor_frame, stamp)
        except TransformUnavailable:
            mount = None
        return SensorPose(T_map_sensor, T_base_sensor=mount, drive=drive)

    @property
    def breaks(self) -> list[Break]:
        return [item for continuity in self._chain.values() for item in continuity.breaks]

    @property
    def outliers(self) -> int:
        return sum(continuity.outliers for continuity in self._chain.values())

    def _connect(self, parent: str, child: str) -> None:
        """Find the frames between the map and the robot again where a new one has come."""
        if self._parents.get(child) == parent:
            return
        self._parents[child] = parent
        chain = self._up_from(self._base_frame) or self._up_from(self._sensor_frame)
        self._chain = {name: self._chain.get(name) or Continuity(self._limits) for name in chain}

    def _up_from(self, name: str) -> list[str]:
        """The frame and those above it, up to below the map; none where the map is not above it."""
        chain: list[str] = []
        while name != self._map_frame:
            if name in chain or name not in self._parents:
                return []
            chain.append(name)
            name = self._parents[name]
        return chain


class OdometryPoses:
    """Poses of the robot from one topic, interpolated; the sensor's mount from the tree of frames.

    base_frame: the frame whose pose it is; mounted: whether the tree leads from there to the sensor. If not, the
    sensor is taken to be at the base. limits: of the motion within a drive
    """

    _MAP, _BASE = "map", "robot"  # stand-ins: this buffer has these two frames and no others

    def __init__(self, base_frame: str, mounted: bool, limits: DriveConfig | None = None) -> None:
        self._base_frame, self._mounted = base_frame, mounted
        self._transforms, self._poses = Transforms(), TransformBuffer(HORIZON)
        self._continuity = Continuity(limits or DriveConfig())
        self._stamps: list[int] = []
        self._covariances: list[Array] = []

    def insert(self, message: Any, topic: str) -> None:
        if hasattr(message, "transforms"):
            self._transforms.insert(message, topic)
            return
        breaks = len(self._continuity.breaks)
        usable = self._continuity.take(nanoseconds(message.header.stamp), *pose_of(message))
        if len(self.breaks) > breaks and self.breaks[-1].back:
            self._poses.clear()
            self._stamps.clear()
            self._covariances.clear()
        for pose in usable:
            self._poses.insert(self._MAP, self._BASE, pose.stamp, pose.T)
            self._keep_covariance(pose.stamp, pose.extra)

    def _keep_covariance(self, stamp: int, covariance: Array | None) -> None:
        # all zero is how a driver says that it does not know
        if covariance is not None and covariance.any() and (not self._stamps or stamp > self._stamps[-1]):
            self._stamps.append(stamp)
            self._covariances.append(covariance)
            if len(self._stamps) > 1 and stamp - self._stamps[0] > HORIZON * NANOSECONDS:
                del self._stamps[0], self._covariances[0]

    def at(self, sensor_frame: str, stamp: int) -> SensorPose:
        drive = self._continuity.drive_at(stamp)
        T_map_base = self._poses.lookup(self._MAP, self._BASE, stamp)
        mount = np.eye(4)
        if self._mounted and sensor_frame != self._base_frame:
            mount = self._transforms.lookup(self._base_frame, sensor_frame, stamp)
        return SensorPose(T_map_base @ mount, self._covariance_at(stamp), mount, drive)

    @property
    def breaks(self) -> list[Break]:
        return self._continuity.breaks

    @property
    def outliers(self) -> int:
        return self._continuity.outliers

    def _covariance_at(self, stamp: int) -> Array | None:
        """Of the message nearest in time: between two it hardly changes."""
        if not self._stamps:
            return None
        after = min(bisect_left(self._stamps, stamp), len(self._stamps) - 1)
        before = max(after - 1, 0)
        nearer = min((before, after), key=lambda index: abs(self._stamps[index] - stamp))
        return self._covariances[nearer]


class StillPoses:
    """A sensor that stands: its pose is that of the mount at the beginning, the origin where there is none."""

    breaks: list[Break] = []  # noqa: RUF012
    outliers = 0

    def __init__(self, map_frame: str) -> None:
        self._map_frame, self._transforms = map_frame, Transforms()

    def insert(self, message: Any, topic: str) -> None:
        self._transforms.insert(message, topic)

    def at(self, sensor_frame: str, stamp: int) -> SensorPose:
        try:
            return SensorPose(self._transforms.lookup(self._map_frame, sensor_frame, stamp))
        except TransformUnavailable:
            return SensorPose(np.eye(4))


def pose_of(message: Any) -> tuple[Array, Array | None]:
    """Pose, and covariance (6, 6) where the message has one; ValueError where it is none."""
    if hasattr(message, "transform"):
        return transform_of(message.transform), None
    pose, covariance = message.pose, None
    if hasattr(pose, "covariance"):
        covariance = np.array(pose.covariance, dtype=np.float64).reshape(6, 6)
        pose = pose.pose
    p, q = pose.position, pose.orientation
    return transform_from([p.x, p.y, p.z], [q.x, q.y, q.z, q.w]), covariance


def transform_of(transform: Any) -> Array:
    """geometry_msgs/Transform as a matrix; ValueError where it is none."""
    t, q = transform.translation, transform.rotation
    return transform_from([t.x, t.y, t.z], [q.x, q.y, q.z, q.w])


def nanoseconds(stamp: Any) -> int:
    return int(stamp.sec) * NANOSECONDS + int(stamp.nanosec)


def frame(name: str) -> str:
    """ROS 1 names of frames may begin with a slash."""
    return name.lstrip("/")
