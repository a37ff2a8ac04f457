"""Submaps: parts of the trajectory, each mapped in a frame of its own, so that a corrected pose moves the whole piece.

A submap's frame has its origin where the robot was when it began, its x axis along the robot's heading then, and its z
axis along gravity: roll and pitch are zero, because heights are only heights in a gravity-aligned frame.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid
from gpgmap_ros.arrays import Array
from gpgmap_ros.config import Config, MappingConfig
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping.cells import flat_cells
from gpgmap_ros.mapping.elevation_map import ElevationMap
from gpgmap_ros.mapping.gpgmap import GPGMap, mask_unknown
from gpgmap_ros.mapping.layers import BASE
from gpgmap_ros.mapping.pseudo_points import CellSums, PseudoPoints
from gpgmap_ros.mapping.stated_drift import DriftSum, rates_of

FORGET_CELLS = 0.75
"""Cells around the middle of a cell that are forgotten with it: those of the submap's own lattice that overlap it."""
TRACK_STEP, TRACK_TURN = 0.2, 0.1
"""Metres and radians: the robot's pose is recorded when it has moved or turned so far since it was last."""


@dataclass(frozen=True, eq=False)
class Track:
    """Where the robot was: (K,) stamps in nanoseconds and (K, 4, 4) poses T_submap_robot."""

    stamps: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    poses: Array = field(default_factory=lambda: np.zeros((0, 4, 4)))

    @property
    def positions(self) -> Array:
        """(K, 3) of the robot, in the submap's frame."""
        return np.array(self.poses[:, :3, 3])


@dataclass(frozen=True, eq=False)
class Submap:
    """A finished piece of map.

    id: counts up, also over several runs into one folder
    session: stamp of the first cloud after the last reset; only submaps of one session have anchors in one frame
    T_map_submap: (4, 4) anchor of the submap's frame in the map's frame when it was made
    gpgmap: the terrain in the submap's frame, no larger than what is known of it
    first_stamp, last_stamp: of its clouds, nanoseconds
    distance: travelled in it, metres; ended_by: distance, angle, area, extent, or what the caller said
    track: the robot's poses while it was made
    points: one for each cell of the map, to be stitched with those of others; None where they were not kept
    tilt_std: radians by which the vertical of its drive's frame may be off; 0 where that is not known
    drift_variance: of position (m^2) and rotation (rad^2), that the odometry states for the way in it; 0 where it does
        not state any
    """

    id: int
    session: int
    T_map_submap: Array
    gpgmap: GPGMap = field(repr=False)
    first_stamp: int
    last_stamp: int
    distance: float
    ended_by: str
    track: Track = field(default_factory=Track, repr=False)
    points: PseudoPoints | None = field(default=None, repr=False)
    tilt_std: float = 0.0
    drift_variance: tuple[float, float] = (0.0, 0.0)


def submap_mapping(config: Config) -> MappingConfig:
    """How a submap is mapped: as the map around the robot, but larger, coarser and smoother.

    To recognise a place takes ground of many length scales, seen without gaps between the points; what the map around
    the robot shows beyond that is of no use to it. A map that is coarser itself has submaps like it. The kernel is
    the smooth one and the noise is the stated one, whatever the map's: the evidence for a loop closure was measured on
    submaps made with them.
    """
    submap, mapping = config.submap, config.mapping
    return dataclasses.replace(
        mapping,
        kernel="rbf",
        learn_noise=False,
        size_x=submap.size,
        size_y=submap.size,
        resolution=max(submap.resolution, mapping.resolution),
        length_scale=max(submap.length_scale, mapping.length_scale),
    )


class SubmapBuilder:
    """The submap that is being made.

    T_map_robot: the robot's pose when it begins; session: see `Submap`
    """

    def __init__(self, config: Config, T_map_robot: Array, stamp: int, session: int) -> None:
        self.T_map_submap = align_with_gravity(T_map_robot)
        self.config = config
        self._map = ElevationMap(submap_mapping(config), centre=(0.0, 0.0))
        self._cells = CellSums(config.submap.size, config.mapping.resolution, config.mapping.finest_std**2)
        self._seen = np.zeros(self._map.grid.shape, dtype=bool)
        self._session, self._first_stamp, self._last_stamp = session, stamp, stamp
        self._position, self._yaw = T_map_robot[:3, 3].copy(), yaw_of(T_map_robot)
        self._distance, self._angle = 0.0, 0.0
        self._stamps: list[int] = []
        self._track: list[Array] = []
        self._tilt_std = 0.0
        self._drift = DriftSum()

    def add(
        self,
        xyz: Array,
        variance: Array,
        T_map_robot: Array,
        stamp: int,
        tilt_std: float | None = None,
        step_covariance: Array | None = None,
        pose_covariance: Array | None = None,
    ) -> None:
        """Take in points (N, 3) in the map's frame with variances (N,), seen from the robot's pose.

        tilt_std: of the map's vertical, radians; step_covariance: (6, 6) of the motion since the clouds before
        pose_covariance: (6, 6) of the pose, which tells the drift where there is no step_covariance
        """
        self._tilt_std = max(self._tilt_std, tilt_std or 0.0)
        self._distance += float(np.linalg.norm(T_map_robot[:3, 3] - self._position))
        turn = yaw_of(T_map_robot) - self._yaw
        self._angle += abs((turn + np.pi) % (2.0 * np.pi) - np.pi)
        self._position, self._yaw = T_map_robot[:3, 3].copy(), yaw_of(T_map_robot)
        self._first_stamp, self._last_stamp = min(self._first_stamp, stamp), max(self._last_stamp, stamp)
        if self._record(stamp, T_map_robot):
            # A robot that stands is registered to the same clouds again: its errors do not add up.
            if step_covariance is not None:
                self._drift.add_motion(step_covariance)
            else:
                self._drift.add_pose(T_map_robot[:3, 3], pose_covariance)
        local = self._local(xyz)
        self._map.add(local, variance)
        self._cells.add(local, variance)
        if self.config.submap.max_area > 0.0:
            index, inside = flat_cells(self._map.grid, local[:, :2])
            self._seen.ravel()[index[inside]] = True

    def forget(self, xy: Array) -> None:
        """Forget what was seen around positions (N, 2) in the map's frame."""
        if len(xy):
            local = self._local(np.column_stack([xy, np.zeros(len(xy))]))[:, :2]
            self._map.forget(local)
            self._cells.forget(local, FORGET_CELLS * self.config.mapping.resolution)

    @property
    def area(self) -> float:
        """Ground seen, square metres; counted only if there is a limit to it."""
        return float(np.count_nonzero(self._seen)) * self._map.grid.resolution**2

    def ended_by(self) -> str | None:
        """The limit that is reached; None while there is none."""
        limits = self.config.submap
        for name, value, limit in (
            ("distance", self._distance, limits.max_distance),
            ("angle", self._angle, limits.max_angle),
            ("area", self.area, limits.max_area),
        ):
            if 0.0 < limit <= value:
                return name
        off = np.abs(self._position[:2] - self.T_map_submap[:2, 3]).max()
        return "extent" if off > limits.size / 2.0 else None  # the robot leaves what the submap can hold

    def finish(self, id: int, ended_by: str) -> Submap | None:
        """The submap as it is now; None where nothing is known."""
        gpgmap = crop_to_known(self._map.gpgmap(f"submap_{id}", self._last_stamp, self.config))
        if gpgmap is None:
            return None
        track = Track(np.array(self._stamps, dtype=np.int64), np.array(self._track).reshape(-1, 4, 4))
        drift, way = self._drift.variances, track.positions
        return Submap(
            id, self._session, self.T_map_submap,
            dataclasses.replace(gpgmap, way=way, drift_rates=rates_of(drift, way)),
            self._first_stamp, self._last_stamp, self._distance, ended_by,
            track, self._cells.points(), self._tilt_std, drift,
        )  # fmt: skip

    def _record(self, stamp: int, T_map_robot: Array) -> bool:
        """Remember the robot's pose if it has moved; clouds that overtook each other do not go back in time. Whether it
        was remembered."""
        T = inverse(self.T_map_submap) @ T_map_robot
        if self._track:
            last = self._track[-1]
            moved = float(np.linalg.norm(T[:3, 3] - last[:3, 3])) >= TRACK_STEP
            turned = np.trace(last[:3, :3].T @ T[:3, :3]) <= 1.0 + 2.0 * np.cos(TRACK_TURN)
            if stamp <= self._stamps[-1] or not (moved or turned):
                return False
        self._stamps.append(stamp)
        self._track.append(T)
        return True

    def _local(self, xyz: Array) -> Array:
        """Points of the map's frame in the submap's: a turn about z, and an offset."""
        T = inverse(self.T_map_submap)
        out = np.empty_like(xyz)
        out[:, 0] = T[0, 0] * xyz[:, 0] + T[0, 1] * xyz[:, 1] + T[0, 3]
        out[:, 1] = T[1, 0] * xyz[:, 0] + T[1, 1] * xyz[:, 1] + T[1, 3]
        out[:, 2] = xyz[:, 2] + T[2, 3]
        return out


def yaw_of(T: Array) -> float:
    """Heading of the x axis; of the y axis, less a right angle, where x stands upright."""
    R = T[:3, :3]
    if np.hypot(R[0, 0], R[1, 0]) > 1e-6:
        return float(np.arctan2(R[1, 0], R[0, 0]))
    return float(np.arctan2(-R[0, 1], R[1, 1]))


def align_with_gravity(T_map_robot: Array) -> Array:
    """x, y, z and yaw of a pose; roll and pitch zero."""
    T = np.eye(4)
    c, s = np.cos(yaw_of(T_map_robot)), np.sin(yaw_of(T_map_robot))
    T[:2, :2] = [[c, -s], [s, c]]
    T[:3, 3] = T_map_robot[:3, 3]
    return T


def crop_to_known(gpgmap: GPGMap) -> GPGMap | None:
    """The smallest rectangle with all known cells in it; None where there are none."""
    rows, columns = (np.flatnonzero(gpgmap.known.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return None
    part = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    grid, resolution = gpgmap.grid, gpgmap.grid.resolution
    corner = (grid.origin[0] + columns[0] * resolution, grid.origin[1] + rows[0] * resolution)
    layers = {name: np.ascontiguousarray(gpgmap[name][part]) for name in BASE}
    return GPGMap(
        Grid(corner, layers["elevation"].shape, resolution),
        layers,
        gpgmap.frame_id,
        gpgmap.stamp,
        gpgmap.config,
    )


def crop_to_disc(gpgmap: GPGMap, x: float, y: float, radius: float) -> GPGMap | None:
    """What is known around a place, and the way there; None where nothing is."""
    outside = np.hypot(gpgmap.grid.x[None, :] - x, gpgmap.grid.y[:, None] - y) > radius
    masked = ("elevation", "gradient_x", "gradient_y")  # variances are known everywhere
    layers = {name: mask_unknown(gpgmap[name], outside) if name in masked else gpgmap[name] for name in BASE}
    part = crop_to_known(dataclasses.replace(gpgmap, layers=layers))
    near = np.hypot(gpgmap.way[:, 0] - x, gpgmap.way[:, 1] - y) <= radius
    if part is None:
        return None
    return dataclasses.replace(part, way=gpgmap.way[near], drift_rates=gpgmap.drift_rates)
