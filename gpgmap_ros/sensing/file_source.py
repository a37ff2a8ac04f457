"""Poses from a trajectory file, interpolated."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.geometry import Array, interpolate
from gpgmap_ros.sensing.cloud import Cloud
from gpgmap_ros.sensing.messages import FrameTransform
from gpgmap_ros.sensing.pose_source import PoseSource, SensorPose
from gpgmap_ros.sensing.source_setup import SourceSetup
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS, TransformUnavailable

MAX_GAP = 2.0
"""Seconds between two poses of a file across which none is interpolated."""
TOLERANCE = 1_000_000
"""Nanoseconds by which a cloud may be outside the file: stamps are rounded when they are written as text."""


class FileSource(PoseSource):
    """T_map_sensor, or T_map_base with the sensor's mount from the tree of transforms.

    stamps: (N,) nanoseconds, growing; poses: (N, 4, 4)
    of_base: the poses are the robot's (`setup.base_frame`), not the sensor's
    """

    def __init__(
        self, setup: SourceSetup, stamps: NDArray[np.int64], poses: Array, of_base: bool = False
    ) -> None:
        self._mounts = setup.make_tree()
        super().__init__(self._mounts, setup.max_tilt)
        self._setup, self._stamps, self._poses, self._of_base = setup, stamps, poses, of_base

    def locate(self, cloud: Cloud) -> SensorPose:
        pose = self._pose(cloud.stamp)
        if not self._of_base:
            return SensorPose(pose)
        mount = self._mounts.lookup(self._setup.base_frame, cloud.frame_id, cloud.stamp)
        return SensorPose(pose @ mount, T_base_sensor=mount)

    def pose_at(self, sensor_frame: str, stamp: int) -> Array:
        pose = self._pose(stamp)
        if not self._of_base:
            return pose
        return np.asarray(pose @ self._mounts.lookup(self._setup.base_frame, sensor_frame, stamp))

    def insert_transform(self, transform: FrameTransform) -> None:
        self._mounts.insert(transform.parent, transform.child, transform.stamp, transform.T, transform.static)
        self.changes.notify()

    def newest(self) -> int | None:
        return int(self._stamps[-1]) if len(self._stamps) else None

    def _pose(self, stamp: int) -> Array:
        if not len(self._stamps) or stamp < self._stamps[0] - TOLERANCE:
            raise TransformUnavailable(
                "too_early", f"the file of poses begins {self._distance(stamp, 0)} later"
            )
        if stamp > self._stamps[-1] + TOLERANCE:
            raise TransformUnavailable(
                "too_early", f"the file of poses ends {self._distance(stamp, -1)} earlier"
            )
        after = (
            int(np.clip(np.searchsorted(self._stamps, stamp), 1, len(self._stamps) - 1))
            if len(self._stamps) > 1
            else 0
        )
        if after == 0:
            return np.asarray(self._poses[0])
        before = after - 1
        gap = int(self._stamps[after] - self._stamps[before])
        if gap > MAX_GAP * NANOSECONDS:
            raise TransformUnavailable(
                "too_early", f"the file of poses has none for {gap / NANOSECONDS:.1f} s around this cloud"
            )
        share = float(np.clip((stamp - self._stamps[before]) / gap, 0.0, 1.0))
        return interpolate(self._poses[before], self._poses[after], share)

    def _distance(self, stamp: int, index: int) -> str:
        return (
            f"{abs(int(self._stamps[index]) - stamp) / NANOSECONDS:.3f} s"
            if len(self._stamps)
            else "not at all,"
        )
