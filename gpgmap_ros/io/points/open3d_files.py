"""Formats that Open3D reads and no reader of ours: OFF (vertices of a mesh), PTS, XYZN, XYZRGB."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.arrays import Array
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.points.source import PIECE, PointFileError, PointSource
from gpgmap_ros.open3d_import import Open3DMissing, import_open3d

OPEN3D_SUFFIXES = (".off", ".pts", ".xyzn", ".xyzrgb")


def open_with_open3d(path: Path) -> PointSource:
    """The points of a file that Open3D reads; it is in memory as a whole, because Open3D reads no parts."""
    try:
        open3d = import_open3d()
    except Open3DMissing as error:
        raise PointFileError(f"{path}: {path.suffix} files are read by Open3D. {error}") from error
    points = read_points(open3d, path)
    if not len(points):
        raise PointFileError(
            f"{path}: can't be read: Open3D found no points in it: it is damaged, or no {path.suffix} file"
        )

    def read(stride: int) -> Iterator[Array]:
        size = PIECE if stride == 1 else PIECE // 16
        for first in range(0, len(points), size * stride):
            yield points[first : first + size]

    return PointSource(path, len(points), Crs(), read, note=f"{path.name} was read by Open3D, as a whole")


def read_points(open3d: Any, path: Path) -> Array:
    """(N, 3) coordinates; none where Open3D could not read the file."""
    with quiet(open3d):
        if path.suffix.lower() == ".off":
            return np.array(open3d.io.read_triangle_mesh(str(path)).vertices).reshape(-1, 3)
        kind = path.suffix.lower().removeprefix(".")
        cloud = open3d.io.read_point_cloud(str(path), format=kind, remove_nan_points=False)
        return np.array(cloud.points).reshape(-1, 3)


@contextlib.contextmanager
def quiet(open3d: Any) -> Iterator[None]:
    """Open3D's own warnings say less than our errors, and come in between."""
    level = open3d.utility.get_verbosity_level()
    open3d.utility.set_verbosity_level(open3d.utility.VerbosityLevel.Error)
    try:
        yield
    finally:
        open3d.utility.set_verbosity_level(level)
