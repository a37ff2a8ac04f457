"""Finished submaps on disk: only what is needed to find them again stays in memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid
from gpgmap_ros.config import Config, settings
from gpgmap_ros.mapping.gpgmap import GPGMap
from gpgmap_ros.mapping.layers import BASE
from gpgmap_ros.mapping.plausible import (
    FARTHEST,
    LATEST,
    check_number,
    check_pose,
    check_poses,
    check_stamp,
)
from gpgmap_ros.mapping.pseudo_points import PseudoPoints
from gpgmap_ros.mapping.stated_drift import rates_of
from gpgmap_ros.mapping.submaps import Submap, Track
from gpgmap_ros.storage.archive import (
    MAX_BYTES,
    ArchiveError,
    read_archive,
    read_values,
    shorten,
    write_archive,
)

KIND = "submap"
FORMAT = 2
"""Of a submap's file. 1 had no statistics and no track: such a submap can be compared, but not stitched."""
MAX_ID = 10**9
MAX_CELLS = 10**8
"""Of a submap: four hundred megabytes for each layer."""


@dataclass(frozen=True, eq=False)
class SubmapInfo:
    """A submap without its layers; the fields are those of `Submap`, and the grid of its map."""

    id: int
    session: int
    T_map_submap: NDArray[np.float64]
    first_stamp: int
    last_stamp: int
    distance: float
    ended_by: str
    grid: Grid
    path: Path = field(repr=False)


class SubmapStore:
    """The submaps in a folder, those of earlier runs included.

    folder: made if it is not there; config: limits for the layers of loaded maps
    damaged: files that could not be read when the folder was opened, and why; they are left alone
    """

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder = folder
        self.damaged: dict[str, str] = {}
        self._config = config
        self._infos: dict[int, SubmapInfo] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._next_id = 0
        for path in sorted(folder.iterdir()):
            if match := re.fullmatch(r"submap_(\d{6,9})\.npz", path.name):
                self._next_id = max(
                    self._next_id, int(match[1]) + 1
                )  # a damaged file keeps its number as well
                try:
                    self._infos[int(match[1])] = self._info(path, int(match[1]))
                except ArchiveError as error:
                    self.damaged[path.name] = str(error)

    @property
    def next_id(self) -> int:
        return self._next_id

    def __len__(self) -> int:
        return len(self._infos)

    def infos(self) -> list[SubmapInfo]:
        """All submaps, oldest first."""
        return [self._infos[id] for id in sorted(self._infos)]

    def sessions(self) -> dict[int, int]:
        """The session of each submap, by its number."""
        return {id: info.session for id, info in list(self._infos.items())}

    def add(self, submap: Submap) -> SubmapInfo:
        """Write a submap; it is on the disk when this returns. OSError where that fails: then nothing has changed."""
        path = self.path(submap.id)
        write_submap(path, submap)
        info = info_from(path, values_of(submap))
        self._infos[submap.id] = info
        self._next_id = max(self._next_id, submap.id + 1)
        return info

    def include(self, id: int) -> SubmapInfo:
        """Look at a submap that another process has written since. ArchiveError where it can't be read."""
        self._infos[id] = self._info(self.path(id), id)
        self._next_id = max(self._next_id, id + 1)
        return self._infos[id]

    def _info(self, path: Path, id: int) -> SubmapInfo:
        info = info_from(path, read_values(path, KIND))
        if info.id != id:
            raise ArchiveError(f"{path}: holds submap {info.id}: it was renamed or copied")
        return info

    def path(self, id: int) -> Path:
        """Of the file of a submap."""
        return self.folder / f"submap_{id:06d}.npz"

    def load(self, id: int) -> Submap:
        """Read a submap; ArchiveError where there is none of that number, or its file is damaged."""
        if id not in self._infos:
            known = f"there are {min(self._infos)} to {max(self._infos)}" if self._infos else "there are none"
            raise ArchiveError(f"no submap {id}: {known}")
        return read_submap(self._infos[id].path, self._config)


def read_submap(path: Path, config: Config, max_bytes: int = MAX_BYTES) -> Submap:
    """The submap of a file; ArchiveError where that is damaged, of another kind, or declares more than `max_bytes`."""
    values, arrays = read_archive(path, KIND, max_bytes)
    info = info_from(path, values)
    track, points = contents_from(path, int(values.get("format", 1)), arrays)
    tilt_std, drift_variance = uncertainty_from(path, values)
    gpgmap = GPGMap(
        info.grid,
        layers_from(path, info.grid, arrays),
        frame_of(path, values),
        info.last_stamp,
        config,
        track.positions,
        rates_of(drift_variance, track.positions),
    )
    return Submap(
        info.id, info.session, info.T_map_submap, gpgmap,
        info.first_stamp, info.last_stamp, info.distance, info.ended_by,
        track, points, tilt_std, drift_variance,
    )  # fmt: skip


def write_submap(path: Path, submap: Submap) -> None:
    """Write a submap to a file, atomically. OSError where the disk refuses."""
    write_archive(path, KIND, values_of(submap), arrays_of(submap))


def arrays_of(submap: Submap) -> dict[str, NDArray[Any]]:
    """Layers, track and statistics; single precision is a thousandth of a millimetre at thirty metres."""
    arrays: dict[str, NDArray[Any]] = {name: submap.gpgmap[name] for name in BASE}
    arrays["track_stamps"], arrays["track_poses"] = submap.track.stamps, submap.track.poses
    if submap.points is not None:
        arrays["points_xyz"] = submap.points.xyz.astype(np.float32)
        arrays["points_variance"] = submap.points.variance.astype(np.float32)
    return arrays


def layers_from(path: Path, grid: Grid, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The layers of the map; ArchiveError where one is missing or holds what no map has."""
    missing = [name for name in BASE if name not in arrays or arrays[name].shape != grid.shape]
    if missing:
        raise ArchiveError(f"{path}: its layers {', '.join(missing)} are missing or of another size")
    layers = {name: arrays[name] for name in BASE}
    known = np.isfinite(layers["elevation"])
    for name, layer in layers.items():
        if layer.dtype != np.float32:
            raise ArchiveError(f"{path}: its {name} is of type {layer.dtype}, not float32")
        if name.endswith("variance"):
            good = bool((np.isfinite(layer) & (layer >= 0.0)).all())
        else:
            good = bool((np.isfinite(layer) == known).all() and not np.isinf(layer).any())
            good = good and bool((np.abs(layer[known]) <= FARTHEST).all())
        if not good:
            raise ArchiveError(f"{path}: its {name} holds values that no map has")
    return layers


def frame_of(path: Path, values: Mapping[str, Any]) -> str:
    frame = values.get("frame_id")
    if not isinstance(frame, str):
        raise ArchiveError(f"{path}: its frame_id is missing or no text")
    return frame


def uncertainty_from(path: Path, values: Mapping[str, Any]) -> tuple[float, tuple[float, float]]:
    """tilt_std and drift_variance of a Submap; 0 in files of earlier versions."""
    try:
        tilt = check_number(values.get("tilt_std", 0.0), "its tilt_std", 0.0, np.pi)
        drift = values.get("drift_variance", [0.0, 0.0])
        if not isinstance(drift, list) or len(drift) != 2:
            raise ValueError("its drift_variance is no pair of numbers")
        position, rotation = (check_number(item, "its drift_variance", 0.0) for item in drift)
        return tilt, (position, rotation)
    except ValueError as error:
        raise ArchiveError(f"{path}: {error}") from error


def contents_from(
    path: Path, version: int, arrays: Mapping[str, NDArray[Any]]
) -> tuple[Track, PseudoPoints | None]:
    """Track and statistics; neither is in a file of format 1. ArchiveError where they make no sense."""
    if version < 2:
        return Track(), None
    try:
        track = Track(arrays["track_stamps"], arrays["track_poses"])
        points = None
        if "points_xyz" in arrays:
            points = PseudoPoints(arrays["points_xyz"], arrays["points_variance"])
    except KeyError as error:
        raise ArchiveError(f"{path}: its {error} is missing") from error
    if track.stamps.ndim != 1 or track.poses.shape != (len(track.stamps), 4, 4):
        raise ArchiveError(f"{path}: its track has {track.stamps.shape} stamps and {track.poses.shape} poses")
    try:
        check_poses(track.poses, "a pose of its track")
    except ValueError as error:
        raise ArchiveError(f"{path}: {error}") from error
    stamps = track.stamps
    if stamps.dtype != np.int64 or (len(stamps) and not 0 <= stamps[0] <= stamps[-1] < LATEST):
        raise ArchiveError(f"{path}: its track has stamps that are none")
    if (np.diff(stamps) <= 0).any():
        raise ArchiveError(f"{path}: the stamps of its track do not grow")
    if points is not None:
        check_points(path, points)
    return track, points


def check_points(path: Path, points: PseudoPoints) -> None:
    """Points of the ground with positive variances, or an ArchiveError."""
    xyz, variance = points.xyz, points.variance
    count = len(variance) if variance.ndim == 1 else -1
    fits = xyz.shape == (count, 3) and xyz.dtype.kind == variance.dtype.kind == "f"
    # comparisons with NaN are false
    if (
        not fits
        or not (np.abs(xyz) <= FARTHEST).all()
        or not ((variance > 0.0) & np.isfinite(variance)).all()
    ):
        raise ArchiveError(f"{path}: its statistics are damaged")


def values_of(submap: Submap) -> dict[str, Any]:
    grid = submap.gpgmap.grid
    return {
        "format": FORMAT,
        "id": submap.id,
        "session": submap.session,
        "T_map_submap": submap.T_map_submap.tolist(),
        "first_stamp": submap.first_stamp,
        "last_stamp": submap.last_stamp,
        "distance": submap.distance,
        "ended_by": submap.ended_by,
        "frame_id": submap.gpgmap.frame_id,
        "tilt_std": submap.tilt_std,
        "drift_variance": list(submap.drift_variance),
        "grid": {"origin": grid.origin, "shape": grid.shape, "resolution": grid.resolution},
        "settings": {item.name: item.value for item in settings(submap.gpgmap.config)},
    }


def info_from(path: Path, values: dict[str, Any]) -> SubmapInfo:
    """ArchiveError where a value is missing or makes no sense, or a later version wrote it."""
    try:
        if int(values.get("format", 1)) > FORMAT:
            raise ArchiveError(
                f"{path}: a submap in format {shorten(values['format'])}, this program reads up to {FORMAT}"
            )
        first, last = (check_stamp(values[name], f"its {name}") for name in ("first_stamp", "last_stamp"))
        if first > last:
            raise ValueError("its first stamp comes after its last")
        return SubmapInfo(
            int(check_number(values["id"], "its number", 0.0, MAX_ID)),
            check_stamp(values["session"], "its session"),
            check_pose(np.array(values["T_map_submap"], dtype=np.float64), "its anchor"),
            first,
            last,
            check_number(values["distance"], "its distance", 0.0),
            str(values["ended_by"]),
            grid_from(values["grid"]),
            path,
        )
    except ArchiveError:
        raise
    except Exception as error:  # whatever strange content may cause
        reason = shorten(error) or type(error).__name__
        raise ArchiveError(f"{path}: its header is incomplete: {reason}") from error


def grid_from(values: Mapping[str, Any]) -> Grid:
    x, y = (check_number(value, "its origin") for value in values["origin"])
    rows, columns = (int(check_number(value, "its number of cells", 1.0)) for value in values["shape"])
    if rows * columns > MAX_CELLS:
        raise ValueError(f"it has {rows} x {columns} cells")
    return Grid((x, y), (rows, columns), check_number(values["resolution"], "its resolution", 1e-4, 1e4))
