"""Poses of the robot from one topic, interpolated; the sensor's mount from the tree of transforms."""

from __future__ import annotations

import threading
from bisect import bisect_left

import numpy as np

from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing.cloud import Cloud
from gpgmap_ros.sensing.messages import FrameTransform, PoseMeasurement
from gpgmap_ros.sensing.pose_filter import PoseFilter, insert_admitted
from gpgmap_ros.sensing.pose_source import PoseSource, SensorPose
from gpgmap_ros.sensing.source_setup import SourceSetup
from gpgmap_ros.sensing.transform_buffer import TransformUnavailable

ROBOT = "(odometry)"
"""Stands for the robot in the buffer of poses, whatever the messages call it; no frame has this name."""


class OdometrySource(PoseSource):
    """T_map_base from nav_msgs/Odometry and its relatives, with covariance.

    Where the sensor has a frame of its own, its mount comes from /tf.
    """

    uses_odometry = True

    def __init__(self, setup: SourceSetup) -> None:
        self._mounts, self._poses = setup.make_tree(), setup.make_pose_buffer()
        super().__init__(self._mounts, setup.max_tilt)
        self._setup, self._base_frame = setup, setup.base_frame
        self._mount_filter = setup.mount_filter()
        self._filter = setup.pose_filter(self._poses, setup.map_frame, ROBOT, "")
        self._covariances = NearestCovariance(setup.horizon)

    def locate(self, cloud: Cloud) -> SensorPose:
        drive = self._filter.drive_at(cloud.stamp)
        T_map_base = self._robot_pose(cloud.stamp)
        mount = self._mount(cloud.frame_id, cloud.stamp)
        return SensorPose(T_map_base @ mount, self._covariances.at(cloud.stamp), mount, drive)

    def registered_frame(self, cloud: Cloud) -> str:
        return self._base_frame if cloud.frame_id == self._setup.map_frame != self._base_frame else ""

    def pose_at(self, sensor_frame: str, stamp: int) -> Array:
        return self._robot_pose(stamp) @ self._mount(sensor_frame, stamp)

    def insert_transform(self, transform: FrameTransform) -> None:
        insert_admitted(self._mounts, transform, self._mount_filter.admit(transform))
        self.changes.notify()

    def insert_pose(self, measurement: PoseMeasurement) -> None:
        self._base_frame = measurement.base_frame or self._base_frame
        pose = FrameTransform(
            self._setup.map_frame, ROBOT, measurement.stamp, measurement.T, topic=measurement.topic
        )
        admission = self._filter.admit(pose, measurement.covariance)
        if admission.restarted:
            self._covariances.clear()
        insert_admitted(self._poses, pose, admission)
        for item in admission.poses:
            self._covariances.insert(item.stamp, item.extra)
        self.changes.notify()

    def newest(self) -> int | None:
        return self._poses.newest(self._setup.map_frame, ROBOT)

    def forget(self) -> None:
        for item in self.filters:
            item.clear()
        self._poses.clear()
        self._mounts.clear()
        self._covariances.clear()

    @property
    def filters(self) -> list[PoseFilter]:
        return [self._filter, self._mount_filter]

    def _robot_pose(self, stamp: int) -> Array:
        try:
            return self._poses.lookup(self._setup.map_frame, ROBOT, stamp)
        except TransformUnavailable as error:
            if error.reason != "unknown_frame":
                raise
        text = (
            f"no usable odometry on '{self._setup.pose_topic}' yet: is it published, and in frame"
            f" '{self._setup.map_frame}'?"
        )
        raise TransformUnavailable("no_odometry", text)

    def _mount(self, sensor_frame: str, stamp: int) -> Array:
        if not self._setup.mounted or sensor_frame == self._base_frame:
            return np.eye(4)
        return self._mounts.lookup(self._base_frame, sensor_frame, stamp)


class NearestCovariance:
    """Covariances of poses by time; between two messages they hardly change. horizon: seconds that are kept."""

    def __init__(self, horizon: float) -> None:
        self._horizon, self._lock = round(horizon * 1e9), threading.Lock()
        self._stamps: list[int] = []
        self._covariances: list[Array] = []

    def insert(self, stamp: int, covariance: Array | None) -> None:
        # all zero is how a driver says that it does not know
        if covariance is None or not covariance.any():
            return
        with self._lock:
            if self._stamps and stamp <= self._stamps[-1]:
                return
            self._stamps.append(stamp)
            self._covariances.append(covariance)
            if len(self._stamps) > 1 and stamp - self._stamps[0] > self._horizon:
                del self._stamps[0], self._covariances[0]

    def at(self, stamp: int) -> Array | None:
        """The covariance (6, 6) nearest in time; None where there is none."""
        with self._lock:
            if not self._stamps:
                return None
            after = min(bisect_left(self._stamps, stamp), len(self._stamps) - 1)
            before = max(after - 1, 0)
            nearer = min((before, after), key=lambda index: abs(self._stamps[index] - stamp))
            return self._covariances[nearer]

    def clear(self) -> None:
        with self._lock:
            self._stamps.clear()
            self._covariances.clear()
