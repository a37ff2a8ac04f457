"""A map by name: a map file, a submap, a run, one of its submaps, or a point cloud."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.config import Config
from gpgmap_ros.io.map_products import MapError, read_map_npz
from gpgmap_ros.io.points import SUFFIXES, open_points
from gpgmap_ros.io.points.source import READING_ERRORS
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.mapping import GPGMap, SubmapStore, gpgmap_from_points
from gpgmap_ros.storage.npz import array_sizes

MAX_POINTS = 3_000_000


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
        raise MapError(f"{name}: no such file or run (name a submap as in RUN:7)")
    if path.is_dir():
        run = RunFolder(path)
        run.check()
        return run.read_map()[0] if number is None else run.open_submaps().load(number).gpgmap
    if not path.is_file():
        raise MapError(f"{path}: not a map: it is not a regular file")
    if path.suffix == ".npz":
        try:
            names = set(array_sizes(path))
        except READING_ERRORS as error:
            raise MapError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
        if "header" in names:
            store = SubmapStore(path.parent, config)
            found = [info.id for info in store.infos() if info.path.name == path.name]
            if not found:
                raise MapError(f"{path}: not a submap: {store.damaged.get(path.name, 'it has another name')}")
            return store.load(found[0]).gpgmap
        if "elevation" in names:
            return read_map_npz(path, config)[0]
    if path.suffix.lower() not in SUFFIXES:
        raise MapError(
            f"{path}: not a map: expected a run, a submap or map (.npz), or a point cloud ({', '.join(SUFFIXES)})"
        )
    if resolution is None:
        raise MapError(
            f"{path}: is a point cloud: give the cell size with --resolution, as in --resolution 0.2"
        )
    return gpgmap_from_points(open_points(path).sample(MAX_POINTS), resolution)


def map_point_clouds(paths: Sequence[Path], resolution: float | None) -> GPGMap:
    """One map of the points of several files. resolution: edge of a cell in metres, by their density unless given"""
    points = np.concatenate([open_points(path).sample(MAX_POINTS // len(paths)) for path in paths])
    return gpgmap_from_points(points, resolution or fit_resolution(points))


def fit_resolution(points: NDArray[np.float64]) -> float:
    """Edge of a cell in metres, 1, 2 or 5 times a power of ten: two points in most cells, 1500 cells across at most."""
    extent = np.ptp(points[:, :2], axis=0)
    least = max(float(np.sqrt(2.0 * extent[0] * extent[1] / len(points))), float(extent.max()) / 1500.0, 1e-3)
    power = 10.0 ** np.floor(np.log10(least))
    return float(next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= least))
