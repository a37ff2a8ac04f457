"""Poses by LiDAR odometry, for recordings and robots that have nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpgmap_ros.geometry import Array, inverse
from gpgmap_ros.sensing.cloud import Cloud
from gpgmap_ros.sensing.continuity import Break
from gpgmap_ros.sensing.deskewing import Motion, deskew
from gpgmap_ros.sensing.ground_level import find_level
from gpgmap_ros.sensing.lidar_odometry import LidarOdometry, LostTrack
from gpgmap_ros.sensing.messages import FrameTransform
from gpgmap_ros.sensing.pose_source import PoseSource, SensorPose
from gpgmap_ros.sensing.source_setup import SourceSetup
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS, TransformUnavailable

LOST_TRACK = "lost_track"
"""Reason of a `TransformUnavailable`."""
NO_MOTION = "no_motion"
"""Reason of a `TransformUnavailable`: the cloud after this one would tell, but it is registered only after this one."""
MAX_LOST = 5
"""Clouds in a row without a pose after which another drive begins: the place is another by then."""
MAX_GAP = 2.0
"""Seconds without a cloud after which another drive begins."""
MAX_EXTRAPOLATION = 0.5
"""Seconds before and after the last two clouds for which their motion is taken to go on."""


@dataclass(frozen=True, eq=False)
class _Located:
    stamp: int
    T_map_sensor: Array


class LidarSource(PoseSource):
    """T_map_sensor by registering each cloud to those before it. The map's frame is level where the drive begins.

    Where track is lost, clouds have no pose; after some of them another drive begins, in a frame of its own.
    """

    def __init__(self, setup: SourceSetup) -> None:
        super().__init__()
        self._setup, self._mounts = setup, setup.make_tree()
        self._odometry = LidarOdometry()
        self._breaks: list[Break] = []
        self._sensor = ""
        self.forget()

    def forget(self) -> None:
        self._odometry.restart()
        self._last: _Located | None = None
        self._before: _Located | None = None
        self._lost, self._why_lost = 0, ""

    def locate(self, cloud: Cloud) -> SensorPose:
        if self._sensor and cloud.frame_id != self._sensor:
            raise TransformUnavailable(
                LOST_TRACK,
                f"LiDAR odometry follows '{self._sensor}': a cloud of '{cloud.frame_id}' has no pose",
            )
        self._end_old_drive(cloud)
        points = self._deskew(cloud)
        if self._last is None:
            self._begin(points)
        try:
            step = self._odometry.register(points, cloud.stamp)
        except LostTrack as error:
            self._lost, self._why_lost = self._lost + 1, str(error)
            raise TransformUnavailable(LOST_TRACK, f"LiDAR odometry has lost track: {error}") from error
        self._sensor, self._lost = cloud.frame_id, 0
        self._before, self._last = self._last, _Located(cloud.stamp, step.T_odom_sensor)
        covariance = step.covariance if step.covariance.any() else None
        return SensorPose(step.T_odom_sensor, covariance, self._mount(cloud), len(self._breaks))

    def pose_at(self, sensor_frame: str, stamp: int) -> Array:
        """Constant twist between the last two clouds and around them."""
        if self._last is None or sensor_frame != self._sensor:
            raise TransformUnavailable(NO_MOTION, f"no cloud of '{sensor_frame}' has been registered yet")
        if self._before is None:
            if stamp == self._last.stamp:
                return self._last.T_map_sensor
            raise TransformUnavailable(NO_MOTION, "the motion is known from the second cloud on")
        if (self._before.stamp - stamp) / NANOSECONDS > MAX_EXTRAPOLATION:
            raise TransformUnavailable("too_early", "poses are kept for the last two clouds only")
        if (stamp - self._last.stamp) / NANOSECONDS > MAX_EXTRAPOLATION:
            raise TransformUnavailable(NO_MOTION, "no cloud has been registered at that time yet")
        seconds = (stamp - self._last.stamp) / NANOSECONDS
        return self._last.T_map_sensor @ self._own_motion(self._last.stamp).pose_at(seconds)

    def insert_transform(self, transform: FrameTransform) -> None:
        if transform.parent == self._setup.map_frame:
            return  # no mount, but odometry: this source's own, or another's that is not asked for
        self._mounts.insert(transform.parent, transform.child, transform.stamp, transform.T, transform.static)
        self.changes.notify()

    def newest(self) -> int | None:
        return None if self._last is None else self._last.stamp

    def problems(self) -> dict[str, str]:
        if not self._lost:
            return {}
        count = "the last cloud has" if self._lost == 1 else f"the last {self._lost} clouds have"
        return {"lost track": f"LiDAR odometry has lost track, {count} no pose: {self._why_lost}"}

    @property
    def breaks(self) -> list[Break]:
        return list(self._breaks)

    def _begin(self, points: Array) -> None:
        """Level the frame of a new drive by the ground under the sensor, where there is some."""
        level = find_level(points, np.random.default_rng(0))
        self._odometry.restart(None if level is None else level.T_level_sensor)

    def _end_old_drive(self, cloud: Cloud) -> None:
        if self._last is None:
            return
        seconds = (cloud.stamp - self._last.stamp) / NANOSECONDS
        if self._lost >= MAX_LOST:
            reason = f"LiDAR odometry lost track for {self._lost} clouds"
        elif not 0.0 <= seconds <= MAX_GAP:
            reason = (
                f"there is no cloud for {seconds:.1f} s"
                if seconds > 0.0
                else "the stamps of the clouds go back"
            )
        else:
            return
        self._breaks.append(Break(self._last.stamp, cloud.stamp, reason, seconds < 0.0))
        self.forget()

    def _own_motion(self, stamp: int) -> Motion:
        """The motion between the last two clouds, as a motion around `stamp`."""
        assert self._before is not None
        assert self._last is not None
        seconds = max((self._last.stamp - self._before.stamp) / NANOSECONDS, 1e-3)
        T = inverse(self._before.T_map_sensor) @ self._last.T_map_sensor
        return Motion(np.array([0.0, seconds]), np.stack([np.eye(4), T]))

    def _deskew(self, cloud: Cloud) -> Array:
        """The points at the stamp of the cloud, as far as the motion of the clouds before goes on."""
        if cloud.times is None or self._before is None:
            return cloud.points
        return deskew(cloud.points, cloud.times, self._own_motion(cloud.stamp))

    def _mount(self, cloud: Cloud) -> Array | None:
        if not self._setup.base_frame or cloud.frame_id == self._setup.base_frame:
            return None
        try:
            return self._mounts.lookup(self._setup.base_frame, cloud.frame_id, cloud.stamp)
        except TransformUnavailable:
            return None
