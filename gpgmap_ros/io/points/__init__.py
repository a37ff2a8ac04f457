"""Point clouds in files, a piece at a time: LAS, LAZ, PLY, PCD, XYZ, NPZ. No file is ever in memory as a whole.

E57 is read by pye57, OFF, PTS, XYZN and XYZRGB by Open3D, these as a whole.

source = open_points(path)
for xyz in source.pieces():         # (N, 3) float64, N at most PIECE
    ...
source.sample(1_000_000)            # spread over the whole file
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.points.arrays import open_npy, open_npz
from gpgmap_ros.io.points.e57 import open_e57
from gpgmap_ros.io.points.las import open_las
from gpgmap_ros.io.points.open3d_files import OPEN3D_SUFFIXES, open_with_open3d
from gpgmap_ros.io.points.records import open_pcd, open_ply
from gpgmap_ros.io.points.source import (
    PIECE,
    READING_ERRORS,
    NoPointsError,
    PointFileError,
    PointSource,
    Window,
    clipped,
    unreadable,
)
from gpgmap_ros.io.points.text import open_text

__all__ = [
    "EVERYTHING",
    "PIECE",
    "SUFFIXES",
    "NoPointsError",
    "PointFileError",
    "PointSource",
    "Window",
    "check_kind",
    "open_points",
]

SUFFIXES = (
    ".las",
    ".laz",
    ".e57",
    ".ply",
    ".pcd",
    ".xyz",
    ".txt",
    ".csv",
    ".asc",
    ".npz",
    ".npy",
    *OPEN3D_SUFFIXES,
)
EVERYTHING = Window()
RECORDINGS = (".bag", ".db3", ".mcap", ".zstd", ".zst")


def check_kind(path: Path) -> None:
    """PointFileError where a path is no file of points by its name, or an empty one. Nothing is read."""
    if not path.exists():
        raise PointFileError(f"{path}: no such file")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        hint = "; recordings are for `gpgmap replay`" if path.is_dir() or suffix in RECORDINGS else ""
        raise PointFileError(
            f"{path}: not known as a point cloud: expected one of {', '.join(SUFFIXES)}{hint}"
        )
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "not a regular file"
        raise PointFileError(f"{path}: is {kind}: name the files in it, or a copy that is a file")
    if not path.stat().st_size:
        raise PointFileError(f"{path}: is empty (0 bytes): copy it again")


def open_points(
    path: Path, epsg: int = 0, classes: tuple[int, ...] | None = None, window: Window = EVERYTHING
) -> PointSource:
    """epsg: of the coordinates, where the file does not say; classes: of LAS points; None: ground where classified

    window: which points; of COPC files only the nodes in it are decoded
    """
    check_kind(path)
    suffix = path.suffix.lower()
    openers: dict[str, Callable[[Path], PointSource]] = {
        ".e57": open_e57, ".ply": open_ply, ".pcd": open_pcd, ".npz": open_npz, ".npy": open_npy,
        ".xyz": open_text, ".txt": open_text, ".csv": open_text, ".asc": open_text,
        **dict.fromkeys(OPEN3D_SUFFIXES, open_with_open3d),
    }  # fmt: skip
    try:
        source = open_las(path, classes, window) if suffix in (".las", ".laz") else openers[suffix](path)
    except PointFileError:
        raise
    except READING_ERRORS as error:
        raise unreadable(path, error) from error
    if epsg:
        source.crs = Crs(epsg)
    if window.bounds is not None:
        source = clipped(source, window.bounds)
    return source
