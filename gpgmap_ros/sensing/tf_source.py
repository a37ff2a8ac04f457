"""Poses straight from the tree of transforms."""

from __future__ import annotations

from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing.cloud import Cloud
from gpgmap_ros.sensing.messages import FrameTransform
from gpgmap_ros.sensing.pose_filter import PoseFilter, insert_admitted
from gpgmap_ros.sensing.pose_source import PoseSource, SensorPose
from gpgmap_ros.sensing.source_setup import SourceSetup
from gpgmap_ros.sensing.transform_buffer import TransformUnavailable


class TfSource(PoseSource):
    """T_map_sensor from /tf; the mount as well, where the tree has the robot's frame."""

    def __init__(self, setup: SourceSetup) -> None:
        self._tree = setup.make_tree()
        super().__init__(self._tree, setup.max_tilt)
        self._map_frame, self._base_frame = setup.map_frame, setup.base_frame
        self._filter = setup.pose_filter(self._tree, setup.map_frame, setup.base_frame, setup.sensor_frame)
        self._sensor_frame = setup.base_frame

    def locate(self, cloud: Cloud) -> SensorPose:
        self._sensor_frame = cloud.frame_id
        drive = self._filter.drive_at(cloud.stamp)
        T_map_sensor = self.pose_at(cloud.frame_id, cloud.stamp)
        try:
            mount = self._tree.lookup(self._base_frame, cloud.frame_id, cloud.stamp)
        except TransformUnavailable:
            mount = None
        return SensorPose(T_map_sensor, T_base_sensor=mount, drive=drive)

    def registered_frame(self, cloud: Cloud) -> str:
        # a sensor that stands may be the map's frame itself: then nothing leads to a robot
        moves = self._tree.newest(self._map_frame, self._base_frame) is not None
        return self._base_frame if cloud.frame_id == self._map_frame and moves else ""

    def pose_at(self, sensor_frame: str, stamp: int) -> Array:
        return self._tree.lookup(self._map_frame, sensor_frame, stamp)

    def insert_transform(self, transform: FrameTransform) -> None:
        insert_admitted(self._tree, transform, self._filter.admit(transform))
        self.changes.notify()

    def newest(self) -> int | None:
        return self._tree.newest(self._map_frame, self._sensor_frame)

    def forget(self) -> None:
        self._filter.clear()
        self._tree.clear()

    @property
    def filters(self) -> list[PoseFilter]:
        return [self._filter]
