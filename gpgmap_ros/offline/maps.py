"""A map by name: a map file, a submap, a run, one of its submaps, or a point cloud."""

from __future__ import annotations

from pathlib import Path

from gpgmap_ros.config import Config
from gpgmap_ros.io.map_products import MapError, read_map_npz
from gpgmap_ros.io.npz import array_sizes
from gpgmap_ros.io.points import SUFFIXES, open_points
from gpgmap_ros.io.points.source import READING_ERRORS
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.mapping import GPGMap, SubmapStore, gpgmap_from_points

MOST_POINTS = 3_000_000


def open_map(name: str, config: Config, resolution: float | None) -> GPGMap:
    """`RUN` (its whole map), `RUN:7` (a submap), a submap's or map's .npz, or a point cloud, which needs a resolution.

    MapError where it is none of these.
    """
    path, number = Path(name), None
    if not path.exists() and ":" in name:
        head, _, tail = name.rpartition(":")
        if tail.isdigit():
            path, number = Path(head), int(tail)
    if not path.exists():
        raise MapError(f"{name}: there is no such file or run (a submap is named as in RUN:7)")
    if path.is_dir():
        run = RunFolder(path)
        run.check()
        return run.read_map()[0] if number is None else run.open_submaps().load(number).gpgmap
    if not path.is_file():
        raise MapError(f"{path}: no map: it is no regular file")
    if path.suffix == ".npz":
        try:
            names = set(array_sizes(path))
        except READING_ERRORS as error:
            raise MapError(f"{path}: can't be read: {' '.join(str(error).split())}") from error
        if "header" in names:
            store = SubmapStore(path.parent, config)
            found = [info.id for info in store.infos() if info.path.name == path.name]
            if not found:
                raise MapError(f"{path}: no submap: {store.damaged.get(path.name, 'it is called otherwise')}")
            return store.load(found[0]).gpgmap
        if "elevation" in names:
            return read_map_npz(path, config)[0]
    if path.suffix.lower() not in SUFFIXES:
        raise MapError(
            f"{path}: no map: expected a run, a submap or map (.npz), or a point cloud ({', '.join(SUFFIXES)})"
        )
    if resolution is None:
        raise MapError(f"{path}: is a point cloud: say with which cells to map it, as in --resolution 0.2")
    return gpgmap_from_points(open_points(path).sample(MOST_POINTS), resolution)
