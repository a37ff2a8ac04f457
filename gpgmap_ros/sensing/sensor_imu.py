"""The IMU of a robot in the axes of its range sensor, as far as they are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing.imu import Imu, Vertical
from gpgmap_ros.sensing.imu_axes import ImuAxes
from gpgmap_ros.sensing.messages import ImuMeasurement
from gpgmap_ros.sensing.transform_buffer import TransformTree, TransformUnavailable

IMU_HORIZON = 30.0
"""Seconds of samples that are kept."""


class SensorImu:
    """Turns and verticals in the sensor's axes. The mount comes from the tree of transforms; where that has none, the
    axes are taken to be the sensor's own, and turns are used only once they were seen to agree with the poses."""

    def __init__(self, tree: TransformTree | None) -> None:
        self.imu, self.axes, self._tree = Imu(IMU_HORIZON), ImuAxes(), tree

    def insert(self, sample: ImuMeasurement) -> None:
        """ValueError for a sample that no IMU measures."""
        self.imu.insert(sample)

    def clear(self) -> None:
        self.imu.clear()

    @property
    def problem(self) -> str:
        """What is wrong with the axes; empty where nothing is known to be."""
        return self.axes.problem

    def mount(self, sensor_frame: str, stamp: int) -> Array | None:
        """(4, 4) T_sensor_imu; None where transforms do not lead from one to the other."""
        if self.imu.frame_id == sensor_frame:
            return np.eye(4)
        if self._tree is None or not self.imu.frame_id:
            return None
        try:
            return np.asarray(self._tree.lookup(sensor_frame, self.imu.frame_id, stamp))
        except TransformUnavailable:
            return None

    def is_mounted(self, sensor_frame: str, stamp: int) -> bool:
        """Whether transforms lead from the IMU to the sensor."""
        return self._mount(sensor_frame, stamp) is not None

    def turns(self, sensor_frame: str, begin: int, stamps: Sequence[int]) -> Array | None:
        """(K, 3, 3) R_begin_t of the sensor; None where samples are missing or the axes are not trusted."""
        if self.axes.judged and not self.axes.agree:
            return None
        mount = self._mount(sensor_frame, begin)
        if mount is None and not self.axes.agree:
            return None
        return self._turns(begin, stamps, mount)

    def vertical(self, sensor_frame: str, stamp: int) -> Vertical | None:
        """Where up is, in the axes of the sensor; None where it is not known, or the axes are known to be wrong."""
        found = self.imu.vertical(stamp)
        if found is None or self.axes.problem:
            return None
        mount = self._mount(sensor_frame, stamp)
        return Vertical(found.up if mount is None else mount @ found.up, found.std, found.still)

    def compare(self, sensor_frame: str, begin: int, end: int, R_begin_end: Array) -> None:
        """Judge axes and bias by a turn of the sensor between two clouds that is known otherwise."""
        mount = self._mount(sensor_frame, begin)
        turns = self._turns(begin, [end], mount)
        if turns is None:
            return
        self.axes.add(turns[0], R_begin_end)
        if self.axes.agree or (mount is not None and not self.axes.judged):
            R_sensor_imu = np.eye(3) if mount is None else mount
            self.imu.learn_bias(begin, end, R_sensor_imu.T @ R_begin_end @ R_sensor_imu)

    def _turns(self, begin: int, stamps: Sequence[int], mount: Array | None) -> Array | None:
        turns = self.imu.turns(begin, stamps)
        return turns if turns is None or mount is None else np.asarray(mount @ turns @ mount.T)

    def _mount(self, sensor_frame: str, stamp: int) -> Array | None:
        """(3, 3) R_sensor_imu."""
        found = self.mount(sensor_frame, stamp)
        return None if found is None else found[:3, :3]
