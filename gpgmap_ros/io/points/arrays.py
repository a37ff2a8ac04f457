"""NPZ and NPY, without NumPy reading a whole array."""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.arrays import Array
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.points.source import PointSource, rows_of
from gpgmap_ros.storage.npz import array_sizes, open_array, read_arrays

SMALL_BYTES = 1 << 16
"""For what is read as a whole: an offset, a code, a name."""
LEAST_ROW = 9
"""Columns of an array with three rows beyond which these are x, y and z: no survey has three points."""
SKIPPED_BYTES = 1 << 20
"""At a time, of what is read for its checksum only."""


@dataclass(frozen=True)
class NpyHeader:
    """What an .npy file says of its array. by_column: in Fortran order, as of `np.array([x, y, z]).T`"""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_column: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def check_points(self, name: str) -> None:
        """ValueError where it is no array (N, 3); more columns may follow."""
        if len(self.shape) != 2 or self.shape[1] < 3:
            raise ValueError(f"{name} has shape {self.shape}, expected (N, 3)")
        if self.shape[0] == 3 < LEAST_ROW < self.shape[1]:
            raise ValueError(f"{name} has shape {self.shape}, expected (N, 3): save its transpose")


def open_npz(path: Path) -> PointSource:
    """`xyz` or `points` (N, 3), or `x`, `y`, `z`; `offset` (3,) is added; `epsg` or `crs` says what they refer to."""
    sizes = array_sizes(path)
    names = set(sizes)
    plain = _small_arrays(path, {name: sizes[name] for name in ("offset", "epsg", "crs") if name in sizes})
    offset = np.asarray(plain.get("offset", np.zeros(3)), dtype=np.float64)
    if offset.shape != (3,):
        raise ValueError(f"its offset must be 3 numbers, it has shape {offset.shape}")
    crs = _npz_crs(plain)
    whole = next((name for name in ("xyz", "points") if name in names), None)
    if whole is None and not {"x", "y", "z"} <= names:
        raise ValueError(
            f"it has neither xyz, points, nor x, y, z, but {', '.join(sorted(names)) or 'nothing'}"
        )
    members = [whole] if whole else ["x", "y", "z"]
    headers = [_member_header(path, member) for member in members]
    shapes = [header.shape for header in headers]
    count = shapes[0][0]
    if whole:
        headers[0].check_points(f"'{whole}'")
    elif any(shape != (count,) for shape in shapes):
        raise ValueError(
            f"x, y and z have the shapes {', '.join(map(str, shapes))}, expected three times (N,)"
        )

    def read(stride: int) -> Iterator[Array]:
        if whole:
            pieces = _npy_points(lambda: _open_member(path, whole), stride, headers[0].by_column)
        else:
            streams = [_npy_rows(_open_member(path, member), stride) for member in members]
            pieces = (np.column_stack(parts) for parts in zip(*streams, strict=True))
        for xyz in pieces:
            yield np.add(xyz, offset, dtype=np.float64)

    return PointSource(path, count, crs, read)


def _npz_crs(plain: dict[str, Any]) -> Crs:
    if "epsg" in plain:
        if np.shape(plain["epsg"]) != () or plain["epsg"].dtype.kind not in "iu":
            raise ValueError("its epsg is not an integer")
        return Crs(int(plain["epsg"]))
    text = str(plain.get("crs", ""))
    match = re.search(r"EPSG:?\s*(\d+)", text, re.IGNORECASE)
    return Crs(int(match[1])) if match else Crs(name=text)


def _small_arrays(path: Path, sizes: dict[str, int]) -> dict[str, Any]:
    """sizes: bytes of the arrays that are read"""
    for name, size in sizes.items():
        if size > SMALL_BYTES:
            raise ValueError(f"its '{name}' has {size:,} bytes, expected a few numbers")
    return read_arrays(path, sizes)


OpenedArray = tuple[IO[bytes], NpyHeader]
"""A stream at the first byte of an array, and its header."""


def _npy_header(file: IO[bytes]) -> NpyHeader:
    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = reader(file)
    if dtype.hasobject or dtype.kind not in "fiu":
        raise ValueError(f"its array has the type {dtype}, expected numbers")
    return NpyHeader(shape, dtype, fortran and len(shape) > 1)


@contextlib.contextmanager
def _open_member(path: Path, member: str) -> Iterator[OpenedArray]:
    """An array in an archive; ValueError where shape and type do not make up the member's declared size.

    The checksum of a member is compared when its last declared byte has been read: a wrong size would skip that.
    """
    with open_array(path, member) as (file, declared):
        header = _npy_header(file)
        there = declared - file.tell()
        if header.size != there:
            raise ValueError(
                f"its '{member}' declares {header.size:,} bytes and has {there:,}: it is damaged; copy it again"
            )
        yield file, header


@contextlib.contextmanager
def _open_npy(path: Path) -> Iterator[OpenedArray]:
    with path.open("rb") as file:
        yield file, _npy_header(file)


def _member_header(path: Path, member: str) -> NpyHeader:
    with _open_member(path, member) as (_, header):
        if not header.shape:
            raise ValueError(f"'{member}' is a single number, expected (N, 3)")
        return header


def _npy_points(
    opened: Callable[[], contextlib.AbstractContextManager[OpenedArray]], stride: int, by_column: bool
) -> Iterator[NDArray[Any]]:
    """Points (N, 3), a piece at a time. Of an array by columns each of the three is a stream of its own."""
    if by_column:
        columns = [_npy_column(opened(), stride, number) for number in range(3)]
        yield from (np.column_stack(parts) for parts in zip(*columns, strict=True))
    else:
        yield from (rows[:, :3] for rows in _npy_rows(opened(), stride))


def _npy_rows(opening: contextlib.AbstractContextManager[OpenedArray], stride: int) -> Iterator[NDArray[Any]]:
    with opening as (file, header):
        yield from rows_of(file, stride, header.shape, header.dtype)


def _npy_column(
    opening: contextlib.AbstractContextManager[OpenedArray], stride: int, number: int
) -> Iterator[NDArray[Any]]:
    with opening as (file, header):
        rows, columns = header.shape
        length = rows * header.dtype.itemsize
        if stride > 1:
            file.seek(number * length, io.SEEK_CUR)
            yield from rows_of(file, stride, (rows,), header.dtype)
            return
        # read instead of skipped: zipfile compares no checksum after a seek (Python 3.12)
        _read_past(file, number * length)
        yield from rows_of(file, stride, (rows,), header.dtype)
        if number == 2:
            _read_past(file, (columns - 3) * length)


def _read_past(file: IO[bytes], count: int) -> None:
    """Stops at the end of a file that was cut off, which whoever reads the next number finds."""
    while count > 0 and (data := file.read(min(count, SKIPPED_BYTES))):
        count -= len(data)


def open_npy(path: Path) -> PointSource:
    with _open_npy(path) as (_, header):
        header.check_points("its array")

    def read(stride: int) -> Iterator[Array]:
        for xyz in _npy_points(lambda: _open_npy(path), stride, header.by_column):
            yield xyz.astype(np.float64)

    return PointSource(path, header.shape[0], Crs(), read)
