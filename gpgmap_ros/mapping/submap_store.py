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
from gpgmap_ros.mapping.archive import ArchiveError, read_archive, read_values, write_archive
from gpgmap_ros.mapping.gpgmap import GPGMap
from gpgmap_ros.mapping.layers import BASE
from gpgmap_ros.mapping.pseudo_points import PseudoPoints
from gpgmap_ros.mapping.submaps import Submap, Track

KIND = "submap"
FORMAT = 2
"""Of a submap's file. 1 had no statistics and no track: such a submap can be compared, but not stitched."""


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
            if match := re.fullmatch(r"submap_(\d+)\.npz", path.name):
                self._next_id = max(
                    self._next_id, int(match[1]) + 1
                )  # a damaged file keeps its number as well
                try:
                    info = info_from(path, read_values(path, KIND))
                    self._infos[info.id] = info
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

    def add(self, submap: Submap) -> SubmapInfo:
        """Write a submap; it is on the disk when this returns. OSError where that fails: then nothing has changed."""
        path = self._path(submap.id)
        values = values_of(submap)
        write_archive(path, KIND, values, arrays_of(submap))
        info = info_from(path, values)
        self._infos[submap.id] = info
        self._next_id = max(self._next_id, submap.id + 1)
        return info

    def include(self, id: int) -> SubmapInfo:
        """Look at a submap that another process has written since. ArchiveError where it can't be read."""
        path = self._path(id)
        self._infos[id] = info_from(path, read_values(path, KIND))
        self._next_id = max(self._next_id, id + 1)
        return self._infos[id]

    def _path(self, id: int) -> Path:
        return self.folder / f"submap_{id:06d}.npz"

    def load(self, id: int) -> Submap:
        """Read a submap; ArchiveError where there is none of that number, or its file is damaged."""
        if id not in self._infos:
            known = f"there are {min(self._infos)} to {max(self._infos)}" if self._infos else "there are none"
            raise ArchiveError(f"no submap {id}: {known}")
        path = self._infos[id].path
        values, arrays = read_archive(path, KIND)
        info = info_from(path, values)
        missing = [name for name in BASE if name not in arrays or arrays[name].shape != info.grid.shape]
        if missing:
            raise ArchiveError(f"{path}: its layers {', '.join(missing)} are missing or of another size")
        layers = {name: arrays[name] for name in BASE}
        gpgmap = GPGMap(info.grid, layers, str(values["frame_id"]), info.last_stamp, self._config)
        return Submap(
            info.id, info.session, info.T_map_submap, gpgmap,
            info.first_stamp, info.last_stamp, info.distance, info.ended_by,
            *contents_from(path, int(values.get("format", 1)), arrays),
        )  # fmt: skip


def arrays_of(submap: Submap) -> dict[str, NDArray[Any]]:
    """Layers, track and statistics; single precision is a thousandth of a millimetre at thirty metres."""
    arrays: dict[str, NDArray[Any]] = {name: submap.gpgmap[name] for name in BASE}
    arrays["track_stamps"], arrays["track_poses"] = submap.track.stamps, submap.track.poses
    if submap.points is not None:
        arrays["points_xyz"] = submap.points.xyz.astype(np.float32)
        arrays["points_variance"] = submap.points.variance.astype(np.float32)
    return arrays


def contents_from(
    path: Path, version: int, arrays: Mapping[str, NDArray[Any]]
) -> tuple[Track, PseudoPoints | None]:
    """Track and statistics; neither is in a file of format 1. ArchiveError where they do not fit together."""
    if version < 2:
        return Track(), None
    try:
        track = Track(arrays["track_stamps"], arrays["track_poses"])
        points = None
        if "points_xyz" in arrays:
            points = PseudoPoints(arrays["points_xyz"], arrays["points_variance"])
    except KeyError as error:
        raise ArchiveError(f"{path}: its {error} is missing") from error
    if track.poses.shape != (len(track.stamps), 4, 4):
        raise ArchiveError(f"{path}: its track has {len(track.stamps)} stamps and {track.poses.shape} poses")
    if points is not None and (points.xyz.shape != (len(points), 3) or not (points.variance > 0.0).all()):
        raise ArchiveError(f"{path}: its statistics are damaged")
    return track, points


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
        "grid": {"origin": grid.origin, "shape": grid.shape, "resolution": grid.resolution},
        "settings": {item.name: item.value for item in settings(submap.gpgmap.config)},
    }


def info_from(path: Path, values: dict[str, Any]) -> SubmapInfo:
    """ArchiveError where a value is missing or makes no sense, or a later version wrote it."""
    try:
        if int(values.get("format", 1)) > FORMAT:
            raise ArchiveError(
                f"{path}: a submap in format {values['format']}, this program reads up to {FORMAT}: update it"
            )
        grid = values["grid"]
        return SubmapInfo(
            int(values["id"]),
            int(values["session"]),
            np.array(values["T_map_submap"], dtype=np.float64).reshape(4, 4),
            int(values["first_stamp"]),
            int(values["last_stamp"]),
            float(values["distance"]),
            str(values["ended_by"]),
            Grid(tuple(grid["origin"]), tuple(grid["shape"]), grid["resolution"]),
            path,
        )
    except ArchiveError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ArchiveError(f"{path}: its header is incomplete: {error}") from error
