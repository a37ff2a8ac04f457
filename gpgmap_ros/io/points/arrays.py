"""NPZ and NPY, without NumPy reading a whole array."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
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
    shapes = [_npy_shape(path, member) for member in members]
    count = shapes[0][0]
    if whole and (len(shapes[0]) != 2 or shapes[0][1] < 3):
        raise ValueError(f"'{whole}' has shape {shapes[0]}, expected (N, 3)")
    if not whole and any(shape != (count,) for shape in shapes):
        raise ValueError(
            f"x, y and z have the shapes {', '.join(map(str, shapes))}, expected three times (N,)"
        )

    def read(stride: int) -> Iterator[Array]:
        streams = [_npy_rows(path, member, stride) for member in members]
        for parts in zip(*streams, strict=True):
            yield np.add(parts[0][:, :3] if whole else np.column_stack(parts), offset, dtype=np.float64)

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


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = reader(file)
    if dtype.hasobject or dtype.kind not in "fiu":
        raise ValueError(f"its array has the type {dtype}, expected numbers")
    if fortran and len(shape) > 1:
        raise ValueError("its array is in Fortran order: save it with np.ascontiguousarray")
    return shape, dtype


def _check_header(file: IO[bytes], member: str, declared: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array in an archive; ValueError where they do not make up the member's declared size.

    The checksum of a member is compared when its last declared byte has been read: a wrong size would skip that.
    """
    shape, dtype = _npy_header(file)
    size, there = math.prod(shape) * dtype.itemsize, declared - file.tell()
    if size != there:
        raise ValueError(
            f"its '{member}' declares {size:,} bytes and has {there:,}: it is damaged; copy it again"
        )
    return shape, dtype


def _npy_shape(path: Path, member: str) -> tuple[int, ...]:
    with open_array(path, member) as (file, size):
        shape, _ = _check_header(file, member, size)
    if not shape:
        raise ValueError(f"'{member}' is a single number, expected (N, 3)")
    return shape


def _npy_rows(path: Path, member: str, stride: int) -> Iterator[NDArray[Any]]:
    with open_array(path, member) as (file, size):
        yield from rows_of(file, stride, *_check_header(file, member, size))


def open_npy(path: Path) -> PointSource:
    with path.open("rb") as file:
        shape, _ = _npy_header(file)
    if len(shape) != 2 or shape[1] < 3:
        raise ValueError(f"its array has shape {shape}, expected (N, 3)")

    def read(stride: int) -> Iterator[Array]:
        with path.open("rb") as file:
            for rows in rows_of(file, stride, *_npy_header(file)):
                yield rows[:, :3].astype(np.float64)

    return PointSource(path, shape[0], Crs(), read)
