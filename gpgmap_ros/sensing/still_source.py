"""Poses of a sensor that does not move."""

from __future__ import annotations

import numpy as np

from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing.cloud import Cloud
from gpgmap_ros.sensing.messages import FrameTransform
from gpgmap_ros.sensing.pose_source import PoseSource, SensorPose
from gpgmap_ros.sensing.source_setup import SourceSetup
from gpgmap_ros.sensing.transform_buffer import TransformUnavailable


class StillSource(PoseSource):
    """T_map_sensor from the mount in the tree of transforms; the identity where there is none."""

    def __init__(self, setup: SourceSetup) -> None:
        self._map_frame, self._tree = setup.map_frame, setup.make_tree()
        super().__init__(self._tree, setup.max_tilt)

    def locate(self, cloud: Cloud) -> SensorPose:
        return SensorPose(self.pose_at(cloud.frame_id, cloud.stamp))

    def pose_at(self, sensor_frame: str, stamp: int) -> Array:
        try:
            return self._tree.lookup(self._map_frame, sensor_frame, stamp)
        except TransformUnavailable:
            return np.eye(4)

    def insert_transform(self, transform: FrameTransform) -> None:
        self._tree.insert(transform.parent, transform.child, transform.stamp, transform.T, transform.static)
        self.changes.notify()
