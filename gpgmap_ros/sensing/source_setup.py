"""What a pose source is made from: the frames, and how poses are kept and filtered (live, or from a recording)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gpgmap_ros.config import DriveConfig, ImuConfig
from gpgmap_ros.sensing.lidar_odometry import LidarOdometry, ScanRegistration
from gpgmap_ros.sensing.pose_filter import DriveFilter, PoseFilter, StampFilter
from gpgmap_ros.sensing.transform_buffer import HORIZON, TransformBuffer, TransformTree

RECORDED_HORIZON = 60.0
"""Seconds of poses kept in replay: more than clouds and poses of one moment are ever apart in a recording."""

MAX_TILT = math.radians(ImuConfig().max_tilt)

PoseFilterMaker = Callable[[TransformTree, str, str, str], PoseFilter]
"""Makes a filter from the tree of the poses, the map's, the robot's and the sensor's frame."""


@dataclass(frozen=True)
class SourceSetup:
    """Given to every pose source.

    map_frame, base_frame: of the map and the robot; sensor_frame: stands for the robot where there is no base_frame
    mounted: whether transforms lead from the robot to the sensor; if not, it is taken to be at the robot's frame
    pose_topic: of the odometry, named in messages; horizon: seconds of history
    max_tilt: radians against gravity, by the IMU, beyond which the map's frame is refused
    make_tree: a buffer for transforms; pose_filter, mount_filter: decide which poses and which mounts are used
    expects_imu: whether samples of an IMU are about to come, before the first has
    make_odometry: registers scans, for the sources that do
    """

    map_frame: str
    base_frame: str
    make_tree: Callable[[], TransformTree]
    pose_filter: PoseFilterMaker
    mount_filter: Callable[[], PoseFilter]
    sensor_frame: str = ""
    mounted: bool = True
    pose_topic: str = ""
    horizon: float = HORIZON
    max_tilt: float = MAX_TILT
    expects_imu: Callable[[], bool] = lambda: False
    make_odometry: Callable[[], ScanRegistration] = LidarOdometry

    def make_pose_buffer(self) -> TransformBuffer:
        """A buffer for poses that do not come from /tf."""
        return TransformBuffer(self.horizon)

    @classmethod
    def live(
        cls,
        map_frame: str,
        base_frame: str,
        clock: Callable[[], int],
        make_tree: Callable[[], TransformTree] = TransformBuffer,
        pose_topic: str = "",
        max_tilt: float = MAX_TILT,
        expects_imu: Callable[[], bool] = lambda: False,
    ) -> SourceSetup:
        """For a running system. clock: nanoseconds now, 0 where simulated time has not begun."""
        return cls(
            map_frame,
            base_frame,
            make_tree,
            pose_filter=lambda tree, *frames: StampFilter(clock),
            mount_filter=lambda: StampFilter(clock),
            pose_topic=pose_topic,
            max_tilt=max_tilt,
            expects_imu=expects_imu,
        )

    @classmethod
    def recorded(
        cls,
        map_frame: str,
        base_frame: str,
        sensor_frame: str = "",
        mounted: bool = True,
        pose_topic: str = "",
        limits: DriveConfig | None = None,
        max_tilt: float = MAX_TILT,
        has_imu: bool = False,
        make_odometry: Callable[[], ScanRegistration] = LidarOdometry,
    ) -> SourceSetup:
        """For a recording. limits: of the motion within a drive, the defaults unless given."""
        drive = limits or DriveConfig()
        return cls(
            map_frame,
            base_frame,
            make_tree=lambda: TransformBuffer(RECORDED_HORIZON),
            pose_filter=lambda tree, map_, base, sensor: DriveFilter(tree, map_, base, sensor, drive),
            mount_filter=PoseFilter,
            sensor_frame=sensor_frame,
            mounted=mounted,
            pose_topic=pose_topic,
            horizon=RECORDED_HORIZON,
            max_tilt=max_tilt,
            expects_imu=lambda: has_imu,
            make_odometry=make_odometry,
        )
