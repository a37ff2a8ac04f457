"""E57, the exchange format of terrestrial scanners, by pye57, which is optional: every scan in the file's frame."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.arrays import Array
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.points.source import PIECE, PointFileError, PointSource

CARTESIAN = ("cartesianX", "cartesianY", "cartesianZ")
INVALID = "cartesianInvalidState"
"""0 where a point has coordinates, 1 where only its direction is known, 2 where neither."""


def open_e57(path: Path) -> PointSource:
    """The points of all scans, piece by piece. PointFileError where pye57 is missing or a scan has no coordinates."""
    try:
        import pye57
    except ImportError as error:
        raise PointFileError(
            f"{path}: E57 files are read by pye57, which is not installed: pip install 'gpgmap_ros[e57]'"
        ) from error
    with opened(pye57, path) as file:
        headers = [file.get_header(number) for number in range(file.scan_count)]
        for number, header in enumerate(headers):
            if not set(CARTESIAN) <= set(header.point_fields):
                raise ValueError(
                    f"its scan {number + 1} has no {', '.join(CARTESIAN)}, but {', '.join(header.point_fields)}:"
                    " export it with Cartesian coordinates"
                )
        count = sum(int(header.point_count) for header in headers)

    def read(stride: int) -> Iterator[Array]:
        with opened(pye57, path) as file:
            for number in range(file.scan_count):
                for place, piece in enumerate(scan_points(file, number)):
                    if place % stride == 0:
                        yield piece

    return PointSource(path, count, Crs(), read)


@contextlib.contextmanager
def opened(pye57: Any, path: Path) -> Iterator[Any]:
    """The file; ValueError with what libE57 says of it where it is damaged."""
    try:
        file = pye57.E57(str(path))
    except Exception as error:  # libE57 has an exception of its own, below Exception
        raise ValueError(f"it is no E57 file, or damaged ({error}): copy it again") from error
    try:
        yield file
    finally:
        file.close()


def scan_points(file: Any, number: int) -> Iterator[Array]:
    """(N, 3) of a scan in the frame of the file."""
    header = file.get_header(number)
    fields = [*CARTESIAN, *([INVALID] if INVALID in header.point_fields else [])]
    arrays, buffers = file.make_buffers(fields, PIECE)
    rotation, translation = np.eye(3), np.zeros(3)
    if header.has_pose():
        rotation, translation = header.rotation_matrix, header.translation
    reader = header.points.reader(buffers)
    try:
        while count := reader.read():
            xyz = np.column_stack([arrays[name][:count] for name in CARTESIAN]).astype(np.float64)
            if INVALID in arrays:
                xyz = xyz[arrays[INVALID][:count] == 0]
            yield xyz @ np.transpose(rotation) + translation
    finally:
        reader.close()
