"""The interface of pose sources: where the sensor was when it took a cloud."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpgmap_ros.geometry import Array, apply, inverse
from gpgmap_ros.sensing.cloud import Cloud
from gpgmap_ros.sensing.continuity import Break
from gpgmap_ros.sensing.levelling import FrameTilt
from gpgmap_ros.sensing.messages import FrameTransform, ImuMeasurement, PoseMeasurement
from gpgmap_ros.sensing.pose_filter import HeldPoses, PoseFilter
from gpgmap_ros.sensing.sensor_imu import SensorImu
from gpgmap_ros.sensing.transform_buffer import TransformTree, TransformUnavailable

TILTED = "tilted_frame"
"""Reason of a `TransformUnavailable`: heights in the frame of the poses would not be heights."""
WAITING_FOR_IMU = "waiting_for_imu"
"""Reason of a `TransformUnavailable`: the samples of the IMU up to the end of the scan are about to come."""
IMU_STARTING = "imu_starting"
"""Reason of a `TransformUnavailable`: a drive begins once the IMU says where up is."""


@dataclass(frozen=True, eq=False)
class SensorPose:
    """Pose of the sensor in the odometry frame of a drive.

    T_map_sensor: (4, 4); covariance: (6, 6) of that pose, None where unknown
    T_base_sensor: (4, 4) mount of the sensor on the robot, None where the robot's frame is unknown
    drive: number of the drive; poses of two drives are not in one frame
    tilt_std: radians by which the vertical of that frame may be off about each horizontal axis; None where unknown
    step_covariance: (6, 6) of the motion since the poses before, by a source that registers clouds; None where unknown
    """

    T_map_sensor: Array
    covariance: Array | None = None
    T_base_sensor: Array | None = None
    drive: int = 0
    tilt_std: float | None = None
    step_covariance: Array | None = None

    @property
    def T_map_robot(self) -> Array:  # noqa: N802
        if self.T_base_sensor is None:
            return self.T_map_sensor
        return self.T_map_sensor @ inverse(self.T_base_sensor)


class ChangeSignal:
    """Counts changes, and wakes the threads that wait for the next one."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.count = 0

    def notify(self) -> None:
        with self._condition:
            self.count += 1
            self._condition.notify_all()

    def wait(self, seen: int, timeout: float) -> None:
        """Return once there are more changes than `seen`, after `timeout` seconds at the latest."""
        with self._condition:
            self._condition.wait_for(lambda: self.count != seen, timeout)


class PoseSource(ABC):
    """Gives the pose of each cloud. Transforms and poses may be inserted in one thread while another asks.

    `locate` gets the clouds in the order in which they are mapped, with their points, and may keep state: a source that
    registers scans needs nothing else. It begins a new drive by giving poses with another `SensorPose.drive`, and
    describes that in `breaks`; where it has lost track it raises TransformUnavailable.

    uses_odometry: whether it takes poses (`insert_pose`); all sources are given the transforms of /tf, and an IMU
    changes: notified whenever a pose may have become known
    imu: in the axes of the sensor; tilt: of the map's frame by it

    tree: of transforms, for the mounts of sensors; max_tilt: radians beyond which the map's frame is refused
    """

    uses_odometry = False

    def __init__(self, tree: TransformTree | None = None, max_tilt: float = np.inf) -> None:
        self.changes = ChangeSignal()
        self.imu, self.tilt, self._max_tilt = SensorImu(tree), FrameTilt(), max_tilt
        self._all_mounts = tree
        self._compared: tuple[str, int, SensorPose] | None = None
        self._given_up: int | None = None  # stamp of a cloud that waits for no IMU any more
        self._without_imu, self._last_without = (
            0,
            -1,
        )  # clouds since the last sample of the IMU, and their last stamp

    @abstractmethod
    def locate(self, cloud: Cloud) -> SensorPose:
        """Pose of the sensor at the stamp of a cloud. Never waits: TransformUnavailable where it is not known (yet)."""

    def registered_frame(self, cloud: Cloud) -> str:
        """The robot's frame where a cloud is in the frame of the poses, as registered scans are; else empty."""
        return ""

    def locate_cloud(self, cloud: Cloud) -> tuple[Cloud, SensorPose]:
        """A cloud in the frame of a sensor, and the pose of that. TransformUnavailable as of `locate`.

        Programs for odometry publish scans that they have moved into the frame of their poses. Such points are taken
        back to the robot: its rays, ranges and outline begin there. They have been deskewed on the way.
        """
        frame = self.registered_frame(cloud)
        if not frame:
            return cloud, self.locate(cloud)
        scan = replace(cloud, frame_id=frame, times=None, times_error="")
        pose = self.locate(scan)
        return replace(scan, points=apply(inverse(pose.T_map_sensor), scan.points)), pose

    @abstractmethod
    def pose_at(self, sensor_frame: str, stamp: int) -> Array:
        """T_map_sensor (4, 4) at any stamp, in nanoseconds; TransformUnavailable where it is not known."""

    def motion(self, sensor_frame: str, stamps: Sequence[int]) -> Array:
        """(K, 4, 4) T_map_sensor at several stamps, as within one scan; TransformUnavailable where one is not known."""
        return np.stack([self.pose_at(sensor_frame, stamp) for stamp in stamps])

    @abstractmethod
    def insert_transform(self, transform: FrameTransform) -> None:
        """Take in a transform of /tf or /tf_static; ValueError where it can't be used."""

    def insert_pose(self, measurement: PoseMeasurement) -> None:  # noqa: B027 (optional)
        """Take in a pose of the robot; ignored by sources that do not use odometry."""

    def insert_imu(self, sample: ImuMeasurement) -> None:
        """Take in a sample of the robot's IMU; ValueError for one that no IMU measures."""
        self.imu.insert(sample)
        self.changes.notify()

    def wait_for_imu(self, cloud: Cloud, end: int) -> None:
        """TransformUnavailable while samples up to `end`, nanoseconds, are about to come."""
        newest = self.imu.imu.newest
        if newest is None:
            return
        if newest >= end:
            self._without_imu = 0
            return
        if not self.imu.imu.is_silent_at(end) and self._given_up != cloud.stamp:
            raise TransformUnavailable(WAITING_FOR_IMU, "the IMU has not come to the end of the scan yet")
        if self._last_without != cloud.stamp:
            self._without_imu, self._last_without = self._without_imu + 1, cloud.stamp

    def stop_waiting(self, cloud: Cloud, ended: bool) -> None:
        """Locate this cloud with what there is: it has waited too long, or no more messages come (`ended`)."""
        self._given_up = cloud.stamp

    def check_level(self, cloud: Cloud, pose: SensorPose) -> None:
        """Compare a pose with the IMU. TransformUnavailable where the frame of the map is tilted too far."""
        before, self._compared = self._compared, (cloud.frame_id, cloud.stamp, pose)
        if before is not None and before[0] == cloud.frame_id and before[2].drive == pose.drive:
            turn = before[2].T_map_sensor[:3, :3].T @ pose.T_map_sensor[:3, :3]
            self.imu.compare(cloud.frame_id, before[1], cloud.stamp, turn)
        vertical = self.imu.vertical(cloud.frame_id, cloud.stamp)
        if vertical is None or not self.imu.is_mounted(cloud.frame_id, cloud.stamp):
            return
        self.tilt.add(pose.T_map_sensor[:3, :3] @ vertical.up, vertical.std)
        if self.tilt.known and self.tilt.tilt > self._max_tilt:
            raise TransformUnavailable(
                TILTED,
                f"the frame of the map is tilted by {np.degrees(self.tilt.tilt):.0f} deg against gravity, by the IMU:"
                f" choose a level one (map_frame), or raise imu.max_tilt ({np.degrees(self._max_tilt):.0f} deg)",
            )

    def position_on_robot(self, frame: str, sensor_frame: str, stamp: int) -> Array | None:
        """(3,) position of a frame, as of a GPS antenna, in the frame whose poses are given; None where unknown."""
        pose = self._compared[2] if self._compared is not None else None
        if self._all_mounts is None or pose is None or not frame:
            return None
        try:
            T_sensor_frame = self._all_mounts.lookup(sensor_frame, frame, stamp)
        except TransformUnavailable:
            return None
        T = T_sensor_frame if pose.T_base_sensor is None else pose.T_base_sensor @ T_sensor_frame
        return np.asarray(T[:3, 3])

    def notes(self) -> list[str]:
        """What is to be known about the poses: where the vertical comes from, and how well it is known."""
        return []

    def newest(self) -> int | None:
        """Stamp in nanoseconds of the newest pose that is known; None where there is none."""
        return None

    def problems(self) -> dict[str, str]:
        """What is wrong with the poses now, beside those that `held` describes: kind -> text."""
        found = {"imu axes": self.imu.problem} if self.imu.problem else {}
        if self._without_imu:
            found["imu silent"] = (
                f"the IMU on '{self.imu.imu.topic}' is silent: the last {self._without_imu} clouds were used without it"
            )
        return found

    def forget(self) -> None:  # noqa: B027 (optional)
        """Forget all poses, as after a jump back in time. The mounts of sensors stay known."""

    @property
    def filters(self) -> list[PoseFilter]:
        """The filters that decide which of the poses inserted are used."""
        return []

    @property
    def held(self) -> list[HeldPoses]:
        """Poses that were not used because of their stamps, by input."""
        return [item.held for item in self.filters]

    @property
    def breaks(self) -> list[Break]:
        """Ends of drives, in order."""
        return [item for each in self.filters for item in each.breaks]

    @property
    def outliers(self) -> int:
        """Poses that were left out because none before or after agrees with them."""
        return sum(item.outliers for item in self.filters)
