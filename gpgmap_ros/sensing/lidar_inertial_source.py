"""Poses by LiDAR-inertial odometry (rko-lio, an optional package), judged by the map of LiDAR odometry.

rko-lio (Malladi et al. 2025) takes scans and samples of an IMU in turn and gives a pose at the end of each scan, but no
uncertainty. Each pose is looked at in the voxel map of `LidarOdometry`, which gives the share of points that match
and the covariance. Where rko-lio gives none (the IMU is silent, or its mount is not known) or its pose does not fit,
the scan is registered as by `LidarSource`, and rko-lio goes on from there.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from gpgmap_ros.geometry import Array, inverse
from gpgmap_ros.optional_packages import explain_missing
from gpgmap_ros.sensing.cloud import Cloud
from gpgmap_ros.sensing.deskewing import Motion
from gpgmap_ros.sensing.imu import GRAVITY
from gpgmap_ros.sensing.lidar_odometry import LostTrack, OdometryStep, voxel_size_for
from gpgmap_ros.sensing.lidar_source import LidarSource
from gpgmap_ros.sensing.messages import ImuMeasurement
from gpgmap_ros.sensing.source_setup import SourceSetup
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

MAX_SAMPLES = 20_000
"""Samples of the IMU that wait for a scan."""
VOXEL_SHARE = 0.5
"""Edge of rko-lio's voxels, which hold points, over that of LiDAR odometry's, which hold Gaussians."""
MIN_SAMPLES = 2
"""Samples within a scan below which it is not given to rko-lio."""


class LidarInertialSource(LidarSource):
    """T_map_sensor by rko-lio. The map's frame, drives and loss of track are those of LidarSource."""

    def __init__(self, setup: SourceSetup) -> None:
        try:
            from rko_lio import config, lio, rko_lio_pybind
        except ImportError as error:
            raise ValueError(explain_missing(error) or str(error)) from error
        self._make, self._config, self._refused = lio.LIO, config.LIOConfig, rko_lio_pybind.InputError
        self._samples: deque[ImuMeasurement] = deque(maxlen=MAX_SAMPLES)
        super().__init__(setup)

    def forget(self) -> None:
        super().forget()
        self._lio: Any = None
        self._T_odom_lio: Array | None = None
        self._end: tuple[int, Array] | None = None  # stamp and pose of the last scan's end, by rko-lio

    def insert_imu(self, sample: ImuMeasurement) -> None:
        super().insert_imu(sample)
        self._samples.append(sample)

    def _register(self, cloud: Cloud, points: Array) -> OdometryStep:
        T_lio = self._locate_by_rko(cloud)
        if T_lio is not None and self._T_odom_lio is not None:
            try:
                return self._odometry.follow(points, cloud.stamp, self._T_odom_lio @ T_lio)
            except LostTrack:
                pass  # the map decides: a plain registration may find it
        step = super()._register(cloud, points)
        self._T_odom_lio = None if T_lio is None else step.T_odom_sensor @ inverse(T_lio)
        return step

    def _locate_by_rko(self, cloud: Cloud) -> Array | None:
        """(4, 4) pose at the stamp of a cloud, in rko-lio's own frame; None where it gives none."""
        mount = self.imu.mount(cloud.frame_id, cloud.stamp)
        times = np.zeros(len(cloud.points)) if cloud.times is None else cloud.times
        timed = np.isfinite(times)
        stamps = cloud.stamp + np.round(times[timed] * NANOSECONDS).astype(np.int64)
        if mount is None or self.imu.problem or not len(stamps):
            self._give_up()
            return None
        end = int(stamps.max())
        if self._lio is None:
            self._begin_rko(cloud)
        if self._give_samples(end, mount) < MIN_SAMPLES:
            self._give_up()
            return None
        try:
            self._lio.register_scan(cloud.points[timed], stamps)
        except (self._refused, RuntimeError):
            self._give_up()
            return None
        before, self._end = self._end, (end, np.array(self._lio.pose()))
        if before is None or before[0] >= end:
            return self._end[1]
        # a scan is stamped at its beginning, which is the end of the scan before
        ends = np.array([before[0] - cloud.stamp, end - cloud.stamp]) / NANOSECONDS
        return Motion(ends, np.stack([before[1], self._end[1]])).pose_at(0.0)

    def _begin_rko(self, cloud: Cloud) -> None:
        vertical = self.imu.vertical(cloud.frame_id, cloud.stamp)
        self._lio = self._make(
            self._config(
                voxel_size=VOXEL_SHARE * voxel_size_for(cloud.points),
                initialization_phase=vertical is not None
                and vertical.still,  # it learns biases standing still
                max_num_threads=1,
            )
        )

    def _give_samples(self, end: int, mount: Array) -> int:
        """Hand over the samples up to the end of a scan; how many there were."""
        unit = GRAVITY if self.imu.imu.in_g else 1.0
        count = 0
        while self._samples and self._samples[0].stamp <= end:
            sample = self._samples.popleft()
            acceleration = unit * np.array(sample.acceleration)
            self._lio.add_imu_measurement(
                acceleration, np.array(sample.angular_velocity), sample.stamp, mount
            )
            count += 1
        return count

    def _give_up(self) -> None:
        """Begin rko-lio anew with the next scan."""
        self._lio = self._T_odom_lio = self._end = None
