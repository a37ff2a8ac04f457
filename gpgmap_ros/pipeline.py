"""One cloud in, the map out: the method in order. The node, bag replay and plain Python all run this."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.config import Config
from gpgmap_ros.geometry import apply
from gpgmap_ros.mapping import ElevationMap, GPGMap
from gpgmap_ros.mapping.filters import height_variance, keep_ground, ranges_from

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CloudReport:
    """What became of the points of one cloud.

    points: in the cloud; filtered: left out by range or height; outside: beyond the map; used: in the map now.
    """

    points: int
    filtered: int
    outside: int
    used: int


class MappingPipeline:
    """Fuses clouds into one elevation map in `config.map_frame`, centred where the sensor was first."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._map: ElevationMap | None = None
        self._stamp = 0

    def add_cloud(self, points_sensor: Array, T_map_sensor: Array, stamp: int) -> CloudReport:
        """Fuse one cloud: points (N, 3) in the sensor's frame, its pose in the map's frame, stamp in nanoseconds."""
        sensor = T_map_sensor[:3, 3]
        if self._map is None:
            self._map = ElevationMap(self._config.mapping, centre=sensor[:2])
        xyz = apply(T_map_sensor, points_sensor)
        ranges = ranges_from(xyz, sensor)
        ground = keep_ground(xyz, sensor, ranges, self._config.filter)
        used = self._map.add(xyz[ground], height_variance(ranges[ground], self._config.noise))
        self._stamp = max(self._stamp, stamp)
        kept = int(ground.sum())
        return CloudReport(points=len(xyz), filtered=len(xyz) - kept, outside=kept - used, used=used)

    def reset(self) -> None:
        """Forget everything; the next cloud starts a new map where its sensor is."""
        self._map, self._stamp = None, 0

    def reconfigure(self, config: Config) -> None:
        """Use other filters and noise from the next cloud on; the map itself stays as it is."""
        self._config = config

    def gpgmap(self) -> GPGMap | None:
        """The map as it is known now; None before the first cloud."""
        if self._map is None:
            return None
        return self._map.gpgmap(frame_id=self._config.map_frame, stamp=self._stamp)
