"""One cloud in, the map out: the method in order. The node, bag replay and plain Python all run this."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpgmap_ros.config import Config
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping import ElevationMap, GPGMap
from gpgmap_ros.mapping.cells import cell_ids
from gpgmap_ros.mapping.filters import select_ground
from gpgmap_ros.mapping.gate import InnovationGate, Surface, Verdict
from gpgmap_ros.mapping.noise import (
    checked_pose_covariance,
    height_variance,
    pose_height_variance,
    shared_variance,
)

Array = NDArray[np.float64]

NANOSECONDS = 1_000_000_000
FARTHEST = 1e7  # metres; a pose beyond it is an error, and the map could not tell centimetres there


@dataclass(frozen=True)
class CloudReport:
    """What became of the points of one cloud: points = used + outside + held + the filtered ones, reason by reason.

    points: in the cloud; used: in the map now; outside: beyond the map; held: contradict it and wait to be confirmed
    not_finite, range, robot, height, thinned, overhang: left out by that filter
    released: cells where enough clouds have contradicted the map, so that it starts anew there
    moved: the map has followed the robot
    """

    points: int
    used: int
    outside: int
    held: int = 0
    not_finite: int = 0
    range: int = 0
    robot: int = 0
    height: int = 0
    thinned: int = 0
    overhang: int = 0
    released: int = 0
    moved: bool = False

    @property
    def filtered(self) -> int:
        """Points left out before the map was looked at, and those held back."""
        return self.points - self.used - self.outside


class MappingPipeline:
    """Fuses clouds into one elevation map in `config.map_frame`, around the robot. For one thread at a time."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.reset()

    def reset(self) -> None:
        """Forget everything that was seen."""
        self._map: ElevationMap | None = None
        self._gate = InnovationGate(self._config.gate, self._config.mapping.length_scale)
        self._surface: Surface | None = None
        self._stamp = 0

    def add_cloud(
        self,
        points_sensor: Array,
        T_map_sensor: Array,
        stamp: int,
        pose_covariance: ArrayLike | None = None,
        T_base_sensor: Array | None = None,
    ) -> CloudReport:
        """Fuse one cloud. A pose that is none is refused with a ValueError and changes nothing.

        points_sensor: (N, 3) in the sensor's frame; T_map_sensor: its pose in the map's frame; stamp: nanoseconds
        pose_covariance: (6, 6) of that pose, as in geometry_msgs/PoseWithCovariance; None or -1 first where unknown
        T_base_sensor: the sensor's mount on the robot, where it is known
        """
        points_sensor = checked_points(points_sensor)
        T_map_sensor = checked_pose(T_map_sensor, "T_map_sensor")
        covariance = checked_pose_covariance(pose_covariance)
        mount = np.eye(4) if T_base_sensor is None else checked_pose(T_base_sensor, "T_base_sensor")
        robot = (T_map_sensor @ inverse(mount))[:3, 3]

        ground = select_ground(points_sensor, T_map_sensor, T_base_sensor, self._config.filter)
        elevation_map, moved = self._map_around(robot)
        variance = self._variance(ground.xyz, T_map_sensor[:3, 3], covariance)
        verdict = self._judge(ground.xyz, variance, elevation_map)
        elevation_map.forget(verdict.released)
        xyz, variance = ground.xyz[verdict.passed], variance[verdict.passed]
        used = elevation_map.add(xyz, variance)
        self._stamp = max(self._stamp, stamp)
        return CloudReport(
            points=len(points_sensor),
            used=used,
            outside=len(xyz) - used,
            held=len(ground.xyz) - len(xyz),
            released=len(verdict.released),
            moved=moved,
            **ground.dropped,
        )

    def reconfigure(self, config: Config) -> None:
        """Use other dynamic settings from the next cloud on; the map itself stays as it is."""
        self._config = config
        self._gate = InnovationGate(config.gate, config.mapping.length_scale)

    def gpgmap(self) -> GPGMap | None:
        """The map as it is known now; None before the first cloud."""
        if self._map is None:
            return None
        self._look(self._map)
        return self._map.gpgmap(self._config.map_frame, self._stamp, self._config)

    def _map_around(self, robot: Array) -> tuple[ElevationMap, bool]:
        if self._map is None:
            self._map = ElevationMap(self._config.mapping, centre=robot[:2])
            return self._map, False
        return self._map, self._config.mapping.rolling and self._map.follow(robot)

    def _variance(self, xyz: Array, sensor: Array, covariance: Array | None) -> Array:
        """Noise of each point's height. The pose's error is common to a cloud: it must not average out in a patch."""
        beams = xyz - sensor
        gradient = self._surface.gradient_at(xyz[:, :2]) if self._surface else None
        variance = height_variance(beams, gradient, self._config.noise)
        if covariance is not None:
            patch = cell_ids(xyz[:, :2], self._config.mapping.length_scale)
            variance += shared_variance(pose_height_variance(beams, gradient, covariance), patch)
        return variance

    def _judge(self, xyz: Array, variance: Array, elevation_map: ElevationMap) -> Verdict:
        """Compare with a surface that is not too old; without gate or surface all points pass."""
        config = self._config.gate
        if config.enabled and self._stamp:
            age = self._stamp - (self._surface.stamp if self._surface else 0)
            if age >= config.refresh_period * NANOSECONDS:
                self._look(elevation_map)
        if not config.enabled or self._surface is None:
            return Verdict(np.ones(len(xyz), dtype=bool), np.empty((0, 2)))
        return self._gate.judge(xyz, variance, self._surface, elevation_map.grid)

    def _look(self, elevation_map: ElevationMap) -> None:
        """Keep the surface as it is now, to compare points with and to know their incidence."""
        posterior = elevation_map.posterior()
        self._surface = Surface(posterior, ~elevation_map.unknown(posterior), self._stamp)


def checked_points(points: Array) -> Array:
    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != 3 or points.dtype.kind != "f":
        raise ValueError(f"points must be floats of shape (N, 3), got {points.dtype} {points.shape}")
    return points


def checked_pose(T: Array, name: str) -> Array:
    """`T` if it is a rigid transform between places on one planet; else a ValueError."""
    T = np.asarray(T, dtype=np.float64)
    if T.shape != (4, 4) or not np.isfinite(T).all():
        raise ValueError(f"{name} must be a finite 4 x 4 matrix")
    R = T[:3, :3]
    if np.abs(R.T @ R - np.eye(3)).max() > 1e-4 or np.linalg.det(R) < 0.0:
        raise ValueError(f"{name} does not rotate: its upper left part is no rotation matrix")
    if np.abs(T[:3, 3]).max() > FARTHEST:
        raise ValueError(
            f"{name} is {np.abs(T[:3, 3]).max():.3g} m away: at most {FARTHEST:.0e} m can be mapped"
        )
    return T
