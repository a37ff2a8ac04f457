"""A map by name: a map file, a submap, a run, one of its submaps, or a point cloud."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gpgmap_ros.apps.point_clouds import fit_resolution, read_point_cloud
from gpgmap_ros.config import Config
from gpgmap_ros.io.map_products import MapError, read_map_npz
from gpgmap_ros.io.points import SUFFIXES
from gpgmap_ros.io.points.source import READING_ERRORS
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.mapping import GPGMap, SubmapStore, gpgmap_from_points
from gpgmap_ros.storage.npz import array_sizes

Tell = Callable[[str], None]


def unheard(text: str) -> None:
    """Warnings that nobody asked for."""


def open_map(name: str, config: Config, resolution: float | None, tell: Tell = unheard) -> GPGMap:
    """`RUN` (its whole map), `RUN:7` (a submap), a submap's or map's .npz, or a point cloud, which needs a resolution.

    MapError where it is none of these; PointFileError, SurveyError as of `read_point_cloud`. tell: warnings, for people
    """
    path, number = Path(name), None
    if not path.exists() and ":" in name:
        head, _, tail = name.rpartition(":")
        if tail.isdigit():
            path, number = Path(head), int(tail)
    if not path.exists():
        raise MapError(f"{name}: no such file or run (name a submap as in RUN:7)")
    if path.is_dir():
        run = RunFolder(path)
        run.check()
        return run.read_map()[0] if number is None else run.open_submaps().load(number).gpgmap
    if not path.is_file():
        raise MapError(f"{path}: not a map: it is not a regular file")
    kind = kind_of_npz(path)
    if kind == "submap":
        store = SubmapStore(path.parent, config)
        found = [info.id for info in store.infos() if info.path.name == path.name]
        if not found:
            raise MapError(f"{path}: not a submap: {store.damaged.get(path.name, 'it has another name')}")
        return store.load(found[0]).gpgmap
    if kind == "map":
        return read_map_npz(path, config)[0]
    if path.suffix.lower() not in SUFFIXES:
        raise MapError(
            f"{path}: not a map: expected a run, a submap or map (.npz), or a point cloud ({', '.join(SUFFIXES)})"
        )
    if resolution is None:
        raise MapError(
            f"{path}: is a point cloud: give the cell size with --resolution, as in --resolution 0.2"
        )
    return map_point_clouds([path], resolution, tell)


def kind_of_npz(path: Path) -> str:
    """ "map" or "submap" for such a file, empty for all others. MapError where an NPZ cannot be read."""
    if path.suffix != ".npz" or not path.is_file():
        return ""
    try:
        names = set(array_sizes(path))
    except READING_ERRORS as error:
        raise MapError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    return "submap" if "header" in names else "map" if "elevation" in names else ""


def map_point_clouds(paths: Sequence[Path], resolution: float | None, tell: Tell = unheard) -> GPGMap:
    """One map of the points of several files, as `read_point_cloud` checks them.

    resolution: edge of a cell in metres, by their density unless given; tell: warnings, for people
    """
    cloud = read_point_cloud(paths)
    for text in cloud.warnings:
        tell(text)
    return gpgmap_from_points(cloud.points, resolution or fit_resolution(cloud.points, cloud.names))
