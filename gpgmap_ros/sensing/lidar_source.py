"""Poses by LiDAR odometry, for recordings and robots that have nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpgmap_ros.geometry import Array, inverse
from gpgmap_ros.sensing.cloud import Cloud
from gpgmap_ros.sensing.continuity import Break
from gpgmap_ros.sensing.deskewing import Motion, deskew
from gpgmap_ros.sensing.levelling import FirstLevel, LevelTracker, first_level
from gpgmap_ros.sensing.lidar_odometry import LostTrack, OdometryStep
from gpgmap_ros.sensing.messages import FrameTransform
from gpgmap_ros.sensing.pose_source import IMU_STARTING, WAITING_FOR_IMU, PoseSource, SensorPose
from gpgmap_ros.sensing.scan_motion import scan_knots
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
    T_odom_sensor: Array


class LidarSource(PoseSource):
    """T_map_sensor by registering each cloud to those before it. The map's frame is level where the drive begins.

    An IMU gives the vertical there and holds it, the turn since the last cloud, and the turns within a cloud. Where
    track is lost, clouds have no pose; after some of them another drive begins, in a frame of its own.
    """

    def __init__(self, setup: SourceSetup) -> None:
        self._setup, self._mounts = setup, setup.make_tree()
        super().__init__(self._mounts, setup.max_tilt)
        self._odometry = setup.make_odometry()
        self._breaks: list[Break] = []
        self._sensor = ""
        self._notes: list[str] = []
        self.forget()

    def forget(self) -> None:
        self._odometry.restart()
        self._last: _Located | None = None
        self._before: _Located | None = None
        self._lost, self._why_lost = 0, ""
        self._level = LevelTracker(0.0)
        self._given_up = None
        self._ended = False

    def locate(self, cloud: Cloud) -> SensorPose:
        if self._sensor and cloud.frame_id != self._sensor:
            raise TransformUnavailable(
                LOST_TRACK,
                f"LiDAR odometry follows '{self._sensor}': a cloud of '{cloud.frame_id}' has no pose",
            )
        self._wait_for_turns_and_vertical(cloud)
        self._end_old_drive(cloud)
        points = self._deskew(cloud)
        if self._last is None:
            self._begin(cloud, points)
        try:
            step = self._register(cloud, points)
        except LostTrack as error:
            self._lost, self._why_lost = self._lost + 1, str(error)
            raise TransformUnavailable(LOST_TRACK, f"LiDAR odometry has lost track: {error}") from error
        self._sensor, self._lost = cloud.frame_id, 0
        self._keep_level(cloud, step)
        self._before, self._last = self._last, _Located(cloud.stamp, step.T_odom_sensor)
        covariance = step.covariance if step.covariance.any() else None
        T = self._level.T_map_odom @ step.T_odom_sensor
        drive = len(self._breaks)
        return SensorPose(T, covariance, self._mount(cloud), drive, self._level.std, covariance)

    def _register(self, cloud: Cloud, points: Array) -> OdometryStep:
        """The pose of a cloud whose points are deskewed; LostTrack where it is not known."""
        return self._odometry.register(points, cloud.stamp, self._turn(cloud))

    def pose_at(self, sensor_frame: str, stamp: int) -> Array:
        """Constant twist between the last two clouds and around them."""
        return np.asarray(self.motion(sensor_frame, [stamp])[0])

    def motion(self, sensor_frame: str, stamps: Sequence[int]) -> Array:
        """Turns by the gyroscope where there is one, else constant twist, around the last cloud."""
        if self._last is None or sensor_frame != self._sensor:
            raise TransformUnavailable(NO_MOTION, f"no cloud of '{sensor_frame}' has been registered yet")
        T_map_last = self._level.T_map_odom @ self._last.T_odom_sensor
        if self._before is None:
            if all(stamp == self._last.stamp for stamp in stamps):
                return np.stack([T_map_last] * len(stamps))
            raise TransformUnavailable(NO_MOTION, "the motion is known from the second cloud on")
        if (self._before.stamp - min(stamps)) / NANOSECONDS > MAX_EXTRAPOLATION:
            raise TransformUnavailable("too_early", "poses are kept for the last two clouds only")
        if (max(stamps) - self._last.stamp) / NANOSECONDS > MAX_EXTRAPOLATION:
            raise TransformUnavailable(NO_MOTION, "no cloud has been registered at that time yet")
        return np.asarray(T_map_last @ self._moved(self._last.stamp, stamps))

    def insert_transform(self, transform: FrameTransform) -> None:
        if transform.parent == self._setup.map_frame:
            return  # no mount, but odometry: this source's own, or another's that is not asked for
        self._mounts.insert(transform.parent, transform.child, transform.stamp, transform.T, transform.static)
        self.changes.notify()

    def stop_waiting(self, cloud: Cloud, ended: bool) -> None:
        super().stop_waiting(cloud, ended)
        self._ended = ended

    def newest(self) -> int | None:
        return None if self._last is None else self._last.stamp

    def problems(self) -> dict[str, str]:
        found = super().problems()
        if self._lost:
            count = "the last cloud has" if self._lost == 1 else f"the last {self._lost} clouds have"
            found["lost track"] = f"LiDAR odometry has lost track, {count} no pose: {self._why_lost}"
        return found

    def notes(self) -> list[str]:
        return list(self._notes)

    @property
    def breaks(self) -> list[Break]:
        return list(self._breaks)

    # ------------------------------------------------ the vertical

    def _begin(self, cloud: Cloud, points: Array) -> None:
        """Level the frame of a new drive by the IMU, or by the ground under the sensor."""
        mount = self._mount(cloud)
        level = first_level(
            points,
            self.imu.vertical(cloud.frame_id, cloud.stamp),
            self.imu.is_mounted(cloud.frame_id, cloud.stamp),
            None if mount is None else mount[:3, :3],
        )
        self._odometry.restart(level.T_level_sensor)
        self._level = LevelTracker(level.std)
        self._note(level)

    def _note(self, level: FirstLevel) -> None:
        for text in (str(level), level.problem):
            if text and text not in self._notes:
                self._notes.append(text)

    def _keep_level(self, cloud: Cloud, step: OdometryStep) -> None:
        if self._last is None:
            return
        self._level.drift(0.5 * float(step.covariance[3, 3] + step.covariance[4, 4]))
        vertical = self.imu.vertical(cloud.frame_id, cloud.stamp)
        if vertical is not None and (self.imu.is_mounted(cloud.frame_id, cloud.stamp) or self.imu.axes.agree):
            seconds = (cloud.stamp - self._last.stamp) / NANOSECONDS
            self._level.correct(step.T_odom_sensor, vertical, seconds)

    # ------------------------------------------------ the motion

    def _wait_for_turns_and_vertical(self, cloud: Cloud) -> None:
        """TransformUnavailable while samples up to the end of the scan, or the first vertical, are about to come."""
        imu = self.imu.imu
        if not imu.heard:
            if self._last is None and self._given_up != cloud.stamp and self._setup.expects_imu():
                raise TransformUnavailable(WAITING_FOR_IMU, "no sample of the IMU has come yet")
            return
        last = 0.0 if cloud.times is None else float(np.nanmax(cloud.times, initial=0.0))
        end = cloud.stamp + round(last * NANOSECONDS)
        waits = self._given_up != cloud.stamp and not imu.is_silent_at(end)
        if self._last is None and waits and imu.vertical(cloud.stamp) is None:
            raise TransformUnavailable(WAITING_FOR_IMU, "the IMU does not say yet where up is")
        self.wait_for_imu(cloud, end)
        if self._last is None and not self._ended and imu.is_starting:
            raise TransformUnavailable(IMU_STARTING, "the drive begins once the IMU says where up is")

    def _turn(self, cloud: Cloud) -> Array | None:
        """(3, 3) since the last cloud, by the gyroscope."""
        if self._last is None:
            return None
        turns = self.imu.turns(cloud.frame_id, self._last.stamp, [cloud.stamp])
        return None if turns is None else turns[0]

    def _moved(self, stamp: int, stamps: Sequence[int]) -> Array:
        """(K, 4, 4) T_stamp_t: turns by the gyroscope where there is one, else as between the last two clouds."""
        assert self._last is not None
        own = self._own_motion()
        seconds = [(item - stamp) / NANOSECONDS for item in stamps]
        poses = np.stack([own.pose_at(item) for item in seconds])
        turns = self.imu.turns(self._sensor, stamp, stamps)
        if turns is not None:
            poses[:, :3, :3] = turns
            poses[:, :3, 3] = np.outer(seconds, own.poses[1, :3, 3] / own.times[1])
        return poses

    def _own_motion(self) -> Motion:
        """The motion between the last two clouds, as a motion around any stamp."""
        assert self._before is not None
        assert self._last is not None
        seconds = max((self._last.stamp - self._before.stamp) / NANOSECONDS, 1e-3)
        T = inverse(self._before.T_odom_sensor) @ self._last.T_odom_sensor
        return Motion(np.array([0.0, seconds]), np.stack([np.eye(4), T]))

    def _deskew(self, cloud: Cloud) -> Array:
        """The points that have a time at the stamp of the cloud, as far as the motion of the clouds before goes on."""
        if cloud.times is None or not (timed := np.isfinite(cloud.times)).any():
            return cloud.points
        times = scan_knots(cloud.times)
        if len(times) < 2:
            return cloud.points
        stamps = [cloud.stamp + round(seconds * NANOSECONDS) for seconds in times]
        if self._before is not None:
            moved = Motion(times, self._moved(cloud.stamp, stamps))
            return deskew(cloud.points[timed], cloud.times[timed], moved)
        turns = self.imu.turns(cloud.frame_id, cloud.stamp, stamps)
        if turns is None:
            return cloud.points
        poses = np.tile(np.eye(4), (len(times), 1, 1))
        poses[:, :3, :3] = turns
        return deskew(cloud.points[timed], cloud.times[timed], Motion(times, poses))

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

    def _mount(self, cloud: Cloud) -> Array | None:
        if not self._setup.base_frame or cloud.frame_id == self._setup.base_frame:
            return None
        try:
            return self._mounts.lookup(self._setup.base_frame, cloud.frame_id, cloud.stamp)
        except TransformUnavailable:
            return None
