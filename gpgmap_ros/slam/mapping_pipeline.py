"""Cloud and pose in; the map around the robot, and submaps, out."""

from __future__ import annotations

import copy
import dataclasses
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from gpgmap_ros.arrays import Array
from gpgmap_ros.config import Config, ConfigError, settings
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping import ElevationMap, GPGMap
from gpgmap_ros.mapping.cells import cell_ids
from gpgmap_ros.mapping.clearing import VisibilityClearing
from gpgmap_ros.mapping.filters import select_ground
from gpgmap_ros.mapping.gate import GateResult, InnovationGate, PosteriorSnapshot, take_snapshot
from gpgmap_ros.mapping.map_file import LoadedMap, load_map, save_map
from gpgmap_ros.mapping.model import block_spacing, warm_up, with_model_of
from gpgmap_ros.mapping.noise import (
    CommonError,
    check_pose_covariance,
    height_variance,
    pose_height_variance,
    ray_deviations,
    shared_variance,
)
from gpgmap_ros.mapping.plausible import check_pose
from gpgmap_ros.mapping.submap_store import SubmapStore
from gpgmap_ros.mapping.submaps import Submap, SubmapBuilder, submap_mapping
from gpgmap_ros.slam.map_solving import MapToSolve, SolvedMap
from gpgmap_ros.storage.archive import ArchiveError, archive_path

NANOSECONDS = 1_000_000_000
NEW_GROUND = 0.05
"""Cells in which points were fused where the surface that clouds are compared with does not know the ground, as a share
of those that it knows, from which on it is solved again: until then nothing says what is in the way there. Where the
map is not published for somebody, solving it is most of the work."""
SURFACE_GROWTH = 0.5
"""Share of the map's points that must be new for that where the ground is known: they make the surface surer, but a
point is compared with its own noise as well, which is larger by then."""


@dataclass(frozen=True)
class CloudReport:
    """What became of the points of one cloud: points = used + outside + held + the filtered ones, reason by reason.

    points: in the cloud; used: in the map now; outside: beyond the map; held: contradict it and wait to be confirmed
    not_finite, range, robot, height, thinned, overhang: left out by that filter
    released: cells where enough clouds have contradicted the map, so that it starts anew there
    cleared: cells through which enough clouds have looked, likewise
    moved: the map has followed the robot
    submap: the submap that this cloud finished; it is in the store, if there is one and `submap_error` is empty.
        None where somebody else completes it (`MappingPipeline`'s later)
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
    cleared: int = 0
    moved: bool = False
    submap: Submap | None = None
    submap_error: str = ""

    @property
    def filtered(self) -> int:
        """Points left out before the map was looked at, and those held back."""
        return self.points - self.used - self.outside


@dataclass(frozen=True)
class EndedSubmap:
    """A submap that takes no more points and has not been solved and stored: `MappingPipeline.complete` does that."""

    builder: SubmapBuilder
    ended_by: str


class MappingPipeline:
    """Fuses clouds into one elevation map in `config.map_frame`, around the robot. For one thread at a time.

    solved_beside: the map is solved in another thread, which calls `map_to_solve` and `look_at` between the other
    methods; without it the map is solved by `gpgmap`, and whenever clouds need a newer surface to be compared with
    later: takes each submap that has ended, to complete them in order in another thread; without it a submap is
    completed at once, while the cloud waits
    submaps: the finished submaps, in the folder `submaps` of `config.map_folder`; None if that is not set. Without it
    a finished submap is only handed to the caller of `add_cloud`.
    """

    def __init__(
        self,
        config: Config,
        later: Callable[[EndedSubmap], None] | None = None,
        solved_beside: bool = False,
    ) -> None:
        self._config, self._later, self._solved_beside = config, later, solved_beside
        self._folder = Path(config.map_folder).expanduser() if config.map_folder else None
        self.submaps: SubmapStore | None = None
        if self._folder is not None and config.submap.enabled:
            self.submaps = SubmapStore(self._folder / "submaps", config)
        self._next_id = self.submaps.next_id if self.submaps else 0
        self._numbering = threading.Lock()
        self._past_drives: set[int] = set()
        local, submap = config.mapping, submap_mapping(config)
        # Their tables are made now, and not when the first cloud waits.
        warm_up(local, approximate=True)
        warm_up(submap, approximate=False)
        self.reset()

    @property
    def config(self) -> Config:
        return self._config

    @property
    def fallbacks(self) -> int:
        """Tiles of the map that the solver had to solve the slower, safer way."""
        solved = self._twin if self._solved_beside else self._map
        return 0 if solved is None else solved.fallbacks

    @property
    def disputed(self) -> int:
        """Cells of the map that clouds contradict, not often enough yet to change it."""
        return self._gate.disputed

    def reset(self) -> None:
        """Forget everything that was seen. Finished submaps stay."""
        self._map: ElevationMap | None = None
        self._forget_passing()
        self._drive_id = 0
        self._stamp = 0

    def begin_drive(self, ended_by: str) -> tuple[Submap | None, str]:
        """Start anew with poses in another frame: end the submap that is being made, forget the map.

        Returns what the submap became, and why it is not on the disk if so, as for a submap that a cloud ends.
        """
        ended = self.end_submap(ended_by)
        self._past_drives.add(self._drive_id)
        self.reset()
        return ended

    @property
    def drive_id(self) -> int:
        """What the submaps being made have as `Submap.session`; 0 before the first cloud."""
        return self._drive_id

    def _forget_passing(self) -> None:
        """What belongs to the map of the moment and not to the map."""
        self._gate = InnovationGate(self._config.gate, self._config.mapping.length_scale)
        self._clearing = VisibilityClearing(self._config.clearing, block_spacing(self._config.mapping)[0])
        self._surface: PosteriorSnapshot | None = None
        self._twin: ElevationMap | None = None
        """Of the map, with what was last solved of it; None where it is not solved beside."""
        self._gone: list[Array] = []
        """Centres (K, 2) of cells forgotten since the map was last given away to be solved."""
        self._submap: SubmapBuilder | None = None

    def reconfigure(self, config: Config) -> None:
        """Go on with other settings. ConfigError, and nothing changes, if one differs that only a new map can have."""
        fixed = [
            new.name
            for old, new in zip(settings(self._config), settings(config), strict=True)
            if old.value != new.value and not new.dynamic
        ]
        if fixed:
            raise ConfigError(f"{', '.join(fixed)}: cannot change while a map is being made")
        self._config = config
        self._gate.config, self._clearing.config = config.gate, config.clearing
        if self._map is not None:
            self._map.config = with_model_of(config.mapping, self._map.config)
        if self._submap is not None:
            self._submap.config = config

    def warm_up(self, dtype: DTypeLike = np.float32) -> None:
        """Deprecated: `gpgmap_ros.slam.first_start.compile_mapping`."""
        from gpgmap_ros.slam.first_start import compile_mapping

        warnings.warn(
            "MappingPipeline.warm_up is deprecated and will be removed in version 0.3: use "
            "gpgmap_ros.slam.first_start.compile_mapping",
            DeprecationWarning,
            stacklevel=2,
        )
        compile_mapping(self._config, dtype)

    def add_cloud(
        self,
        points_sensor: Array,
        T_map_sensor: Array,
        stamp: int,
        pose_covariance: ArrayLike | None = None,
        T_base_sensor: Array | None = None,
        tilt_std: float | None = None,
        step_covariance: ArrayLike | None = None,
    ) -> CloudReport:
        """Fuse one cloud. A pose that is none is refused with a ValueError and changes nothing.

        points_sensor: (N, 3) in the sensor's frame; T_map_sensor: its pose in the map's frame; stamp: nanoseconds
        pose_covariance: (6, 6) of that pose, as in geometry_msgs/PoseWithCovariance; None or -1 first where unknown
        T_base_sensor: the sensor's mount on the robot, where it is known
        tilt_std: radians by which the vertical of the map's frame may be off, where it is known; kept in the submap
        step_covariance: (6, 6) of the motion since the clouds before, as of LiDAR odometry: the drift in the submap;
            unless given, what pose_covariance grows by
        """
        points_sensor = check_points(points_sensor)
        T_map_sensor = check_pose(T_map_sensor, "T_map_sensor")
        covariance = check_pose_covariance(pose_covariance)
        step = check_pose_covariance(step_covariance)
        mount = np.eye(4) if T_base_sensor is None else check_pose(T_base_sensor, "T_base_sensor")
        T_map_robot = T_map_sensor @ inverse(mount)

        ground = select_ground(points_sensor, T_map_sensor, T_base_sensor, self._config.filter)
        elevation_map, moved = self._map_around(T_map_robot[:3, 3])
        variance, common = self._variance(ground.xyz, T_map_sensor[:3, 3], covariance)
        self._refresh_surface(elevation_map)
        ray_std = ray_deviations(covariance, self._config.noise)
        cleared = self._clear(ground.xyz, T_map_sensor[:3, 3], ray_std, elevation_map)
        result = self._apply_gate(ground.xyz, variance, elevation_map)
        gone = np.concatenate([cleared, result.released])
        if len(gone):
            elevation_map.forget(gone)
            self._gone.append(gone)
        xyz = ground.xyz
        if not result.passed.all():
            xyz, variance = xyz[result.passed], variance[result.passed]
        used = elevation_map.add(xyz, variance, common)
        if self._config.clearing.enabled:
            self._clearing.forget(result.released, self._config.mapping.resolution)
            self._clearing.add(T_map_sensor[:3, 3], xyz, variance, ray_std, elevation_map.grid)
        self._stamp, self._drive_id = max(self._stamp, stamp), self._drive_id or self._new_drive_id(stamp)
        submap, error = self._add_to_submap(
            xyz, variance, gone, T_map_robot, stamp, tilt_std, step, covariance
        )
        return CloudReport(
            points=len(points_sensor),
            used=used,
            outside=len(xyz) - used,
            held=len(ground.xyz) - len(xyz),
            released=len(result.released),
            cleared=len(cleared),
            moved=moved,
            submap=submap,
            submap_error=error,
            **ground.dropped,
        )

    def gpgmap(self) -> GPGMap | None:
        """The map as it is known now; None before the first cloud. Not where it is solved beside."""
        if self._solved_beside:
            raise RuntimeError("this map is solved in another thread: see map_to_solve")
        if self._map is None:
            return None
        self._surface = take_snapshot(self._map, self._stamp)
        self._gate.surface_taken()
        return self._map.gpgmap(self._config.map_frame, self._stamp, self._config)

    @property
    def wants_surface(self) -> bool:
        """Whether the surface that clouds are compared with is older than it should be, and the map has grown since."""
        if not self._stamp or not (self._config.gate.enabled or self._config.clearing.enabled):
            return False
        age = self._stamp - (self._surface.stamp if self._surface else 0)
        if self._map is None or age < self._config.gate.refresh_period * NANOSECONDS:
            return False
        if self._surface is None:
            return True
        if self._map.taken - self._surface.points >= SURFACE_GROWTH * self._map.count:
            return True
        return self._gate.new_ground > NEW_GROUND * int(np.count_nonzero(self._surface.known))

    def map_to_solve(self) -> MapToSolve | None:
        """The map as it is now, to be solved while clouds go on coming; None before the first one.

        The one before must have been solved by then: they share what did not change.
        """
        if self._map is None:
            return None
        self._twin, self._gone = self._map.to_solve(self._twin), []
        self._gate.surface_taken()
        return MapToSolve(self._twin, self._config, self._stamp)

    def look_at(self, solved: SolvedMap) -> bool:
        """Compare the next clouds with a map that was solved; False where the map is another one by now."""
        if solved.elevation_map is not self._twin:
            return False
        self._surface = solved.surface
        for centres in self._gone:
            self._surface.mark_unknown(centres)
        return True

    def finish_submap(self, ended_by: str = "request") -> Submap | None:
        """End the submap that is being made and store it; None where there is nothing in it. OSError: not stored."""
        builder, self._submap = self._submap, None
        submap = self._finish(EndedSubmap(builder, ended_by)) if builder else None
        self._store(submap)
        return submap

    def copy_submap(self) -> SubmapBuilder | None:
        """The submap that is being made as it is now, to be solved elsewhere; None before its first cloud."""
        return copy.deepcopy(self._submap)

    def end_submap(self, ended_by: str) -> tuple[Submap | None, str]:
        """End the submap that is being made as its limits do: `later` takes it, or it is completed now (see there)."""
        builder, self._submap = self._submap, None
        if builder is None:
            return None, ""
        if self._later is None:
            return self.complete(EndedSubmap(builder, ended_by))
        self._later(EndedSubmap(builder, ended_by))
        return None, ""

    def complete(self, ended: EndedSubmap) -> tuple[Submap | None, str]:
        """Solve and store a submap that `later` was given: what it became, and why it is not on the disk if so.

        May run beside the other methods, in one thread.
        """
        submap = self._finish(ended)
        try:
            self._store(submap)
        except OSError as error:  # a full disk must not end the mapping
            return submap, self._not_written("a finished submap", error)
        return submap, ""

    def adopt(self, submap: Submap, session: int) -> tuple[Submap, str]:
        """Number and store a finished submap of another robot: what it is here, and why it is not on the disk if so.

        session: what its drive is called here. May run beside the other methods.
        """
        with self._numbering:
            number = self._next_id
            self._next_id += 1
        gpgmap = dataclasses.replace(submap.gpgmap, frame_id=f"submap_{number}")
        adopted = dataclasses.replace(submap, id=number, session=session, gpgmap=gpgmap)
        try:
            self._store(adopted)
        except OSError as error:
            return adopted, self._not_written("a submap of another robot", error)
        return adopted, ""

    def _not_written(self, what: str, error: OSError) -> str:
        return (
            f"{what} could not be written to {self._config.map_folder} ({error.strerror or error}): make room there;"
            " mapping goes on, and later submaps are written again"
        )

    def save(self, name: str) -> Path:
        """Write the map to the map folder; returns the file. ArchiveError or OSError with the reason where not."""
        path = self.map_path(name)
        if self._map is None:
            raise ArchiveError("there is no map yet: no cloud has been fused")
        path.parent.mkdir(parents=True, exist_ok=True)
        save_map(path, self._map, self._config, self._stamp, self._drive_id)
        return path

    def load(self, name: str) -> Path:
        """Go on with a map from the map folder. ArchiveError with the reason where not; then nothing has changed.

        The submap that is being made is ended and kept.
        """
        path = self.map_path(name)
        self.go_on_with(load_map(path, self._config))
        return path

    def go_on_with(self, loaded: LoadedMap) -> tuple[Submap | None, str]:
        """Replace the map by one that `load_map` has read; what became of the submap that was being made."""
        ended = self.end_submap("load_map")
        self._map, self._stamp, self._drive_id = loaded.elevation_map, loaded.stamp, loaded.session
        self._forget_passing()
        return ended

    def map_path(self, name: str) -> Path:
        """The file of the map called `name`. ArchiveError where there is no folder, or the name is none."""
        if self._folder is None:
            raise ArchiveError("there is no folder for maps: set map_folder")
        return archive_path(self._folder, name)

    def _add_to_submap(
        self,
        xyz: Array,
        variance: Array,
        released: Array,
        T_map_robot: Array,
        stamp: int,
        tilt_std: float | None,
        step_covariance: Array | None,
        pose_covariance: Array | None,
    ) -> tuple[Submap | None, str]:
        """Add points to the submap being made; what it became if that ended it, and why it is not on the disk if so."""
        if not self._config.submap.enabled:
            return None, ""
        if self._submap is None:
            self._submap = SubmapBuilder(self._config, T_map_robot, stamp, self._drive_id)
        self._submap.forget(released)
        self._submap.add(xyz, variance, T_map_robot, stamp, tilt_std, step_covariance, pose_covariance)
        ended_by = self._submap.ended_by()
        return self.end_submap(ended_by) if ended_by is not None else (None, "")

    def _new_drive_id(self, stamp: int) -> int:
        """The stamp of the first cloud, or the next number that is free: clocks may have been set back."""
        while stamp in self._past_drives:
            stamp += 1
        return stamp

    def _finish(self, ended: EndedSubmap) -> Submap | None:
        with self._numbering:
            submap = ended.builder.finish(self._next_id, ended.ended_by)
            self._next_id += submap is not None
        return submap

    def _store(self, submap: Submap | None) -> None:
        if submap is not None and self.submaps is not None:
            self.submaps.add(submap)

    def _map_around(self, robot: Array) -> tuple[ElevationMap, bool]:
        if self._map is None:
            self._map = ElevationMap(self._config.mapping, centre=robot[:2])
            return self._map, False
        return self._map, self._config.mapping.rolling and self._map.follow(robot)

    def _variance(self, xyz: Array, sensor: Array, covariance: Array | None) -> tuple[Array, CommonError]:
        """Noise of each point's height, and of the cloud: what its points have in common must not average out."""
        config = self._config.noise
        beams = xyz - sensor
        gradient = self._surface.gradient_at(xyz[:, :2]) if self._surface else None
        common = np.full(len(xyz), config.common_std**2)
        if covariance is not None:
            common += pose_height_variance(beams, gradient, covariance)
        patch = cell_ids(xyz[:, :2], self._config.mapping.length_scale)
        shared = shared_variance(common, patch)
        total = height_variance(beams, gradient, config) + shared
        if not len(xyz):
            return total, CommonError()
        return total, CommonError(float(np.mean(shared / total)), float(common.mean()), len(xyz))

    def _apply_gate(self, xyz: Array, variance: Array, elevation_map: ElevationMap) -> GateResult:
        """Compare with the surface; without gate or surface all points pass."""
        if not self._config.gate.enabled or self._surface is None:
            return GateResult(np.ones(len(xyz), dtype=bool), np.empty((0, 2)))
        return self._gate.apply(xyz, variance, self._surface, elevation_map.grid)

    def _clear(
        self, xyz: Array, sensor: Array, ray_std: tuple[float, float], elevation_map: ElevationMap
    ) -> Array:
        """Centres (K, 2) of the cells through which enough clouds have looked, where that is asked for."""
        if not self._config.clearing.enabled or self._surface is None:
            return np.empty((0, 2))
        if self._clearing.is_new and (blocks := elevation_map.blocks()) is not None:
            self._clearing.begin(blocks, elevation_map.grid, ray_std)
        return self._clearing.apply(sensor, xyz, ray_std, self._surface, elevation_map.grid)

    def _refresh_surface(self, elevation_map: ElevationMap) -> None:
        """See to it that the surface that clouds are compared with is not too old."""
        if not self._solved_beside and self.wants_surface:
            self._surface = take_snapshot(elevation_map, self._stamp, closely=False)
            self._gate.surface_taken()


def check_points(points: Array) -> Array:
    """Points (N, 3) as the compiled filters take them: contiguous, in the machine's byte order, 4 or 8 bytes."""
    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != 3 or points.dtype.kind != "f":
        raise ValueError(f"points must be floats of shape (N, 3), got {points.dtype} {points.shape}")
    return np.ascontiguousarray(points, dtype=np.float32 if points.dtype.itemsize <= 4 else np.float64)
