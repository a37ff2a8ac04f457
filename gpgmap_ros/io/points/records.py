"""PLY and PCD: a header, then records of fixed size or text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.arrays import Array
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.points.source import PIECE, PointSource, require_xyz, rows_of
from gpgmap_ros.io.points.text import text_records

LONGEST_LINE = 1 << 16
"""Bytes of a line of a header: one that is longer is none."""
DAMAGED = "its compressed data are damaged: copy it again"
PLY_TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4",
    "float": "f4", "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2",
    "int32": "i4", "uint32": "u4", "float32": "f4",
    "float64": "f8",
}  # fmt: skip


def open_ply(path: Path) -> PointSource:
    with path.open("rb") as file:
        if file.readline(LONGEST_LINE).strip() != b"ply":
            raise ValueError("it does not begin with 'ply'")
        order, count, fields, element = "", 0, [], ""
        while (line := file.readline(LONGEST_LINE)).strip() != b"end_header":
            if not line or len(line) == LONGEST_LINE:
                raise ValueError("its header is not terminated")
            words = line.decode("ascii", errors="replace").split()
            if words[:1] == ["format"]:
                order = {"ascii": "text", "binary_little_endian": "<", "binary_big_endian": ">"}[words[1]]
            elif words[:1] == ["element"]:
                if not element and words[1] != "vertex":
                    raise ValueError("its first element is not 'vertex'")
                element = words[1]
                count = number_of_points(words[2]) if element == "vertex" else count
            elif words[:1] == ["property"] and element == "vertex":
                if words[1] == "list":
                    raise ValueError("its vertices have lists")
                fields.append((words[2], words[1]))
        start = file.tell()
    names = [name for name, _ in fields]
    require_xyz(names)
    if order == "text":
        return text_records(path, count, names, start)
    dtype = np.dtype([(name, order + PLY_TYPES[kind]) for name, kind in fields])
    return _records(path, count, dtype, start)


def open_pcd(path: Path) -> PointSource:
    header: dict[str, list[str]] = {}
    with path.open("rb") as file:
        while "DATA" not in header:
            line = file.readline(LONGEST_LINE)
            if not line or len(line) == LONGEST_LINE:
                raise ValueError("its header has no DATA line")
            words = line.decode("ascii", errors="replace").split()
            if words and not words[0].startswith("#"):
                header[words[0].upper()] = words[1:]
        start = file.tell()
    names, sizes, kinds = header["FIELDS"], header["SIZE"], header["TYPE"]
    repeats = [int(value) for value in header.get("COUNT", ["1"] * len(names))]
    counts = ["POINTS"] if "POINTS" in header else ["WIDTH", "HEIGHT"]
    count = math.prod(number_of_points(header[name][0]) for name in counts)
    require_xyz(names)
    if several := [
        name for name, repeat in zip(names, repeats, strict=True) if name in tuple("xyz") and repeat != 1
    ]:
        raise ValueError(f"its {', '.join(several)} must be one number (COUNT 1) for each point")
    letters = {"F": "f", "I": "i", "U": "u"}
    dtype = np.dtype(
        [
            (f"{name}{number}" if names.index(name) != number else name, f"<{letters[kind]}{size}", (repeat,))
            if repeat != 1
            else (f"{name}{number}" if names.index(name) != number else name, f"<{letters[kind]}{size}")
            for number, (name, size, kind, repeat) in enumerate(
                zip(names, sizes, kinds, repeats, strict=True)
            )
        ]
    )
    storage = header["DATA"][0].lower()
    if storage == "ascii":
        flat = [name for name, repeat in zip(names, repeats, strict=True) for _ in range(repeat)]
        return text_records(path, count, flat, start)
    if storage == "binary_compressed":
        return _open_compressed_pcd(path, count, dtype, start)
    return _records(path, count, dtype, start)


def number_of_points(text: str) -> int:
    """ValueError where a header says what is no number of points."""
    if (count := int(text)) < 0:
        raise ValueError(f"its header says {count:,} points")
    return count


def _records(path: Path, count: int, dtype: np.dtype[Any], start: int) -> PointSource:
    def read(stride: int) -> Iterator[Array]:
        with path.open("rb") as file:
            file.seek(start)
            for rows in rows_of(file, stride, (count,), dtype):
                yield np.column_stack([rows["x"], rows["y"], rows["z"]]).astype(np.float64)

    return PointSource(path, count, Crs(), read)


def _open_compressed_pcd(path: Path, count: int, dtype: np.dtype[Any], start: int) -> PointSource:
    """PCL compresses a whole cloud at once, field after field: only here is one in memory as a whole."""

    def read(stride: int) -> Iterator[Array]:
        with path.open("rb") as file:
            file.seek(start)
            packed, size = (int(value) for value in np.frombuffer(file.read(8), dtype="<u4"))
            if size != count * dtype.itemsize:
                raise ValueError(
                    f"its {count:,} points need {count * dtype.itemsize:,} bytes, it has {size:,}"
                )
            if packed > path.stat().st_size:
                raise ValueError("it ends within its compressed data: it was cut off; copy it again")
            data = _lzf(file.read(packed), size)
        columns, at = {}, 0
        for name in dtype.names or ():
            kind = dtype[name]
            columns[name] = np.frombuffer(
                data, dtype=kind.base, count=count * int(np.prod(kind.shape, dtype=int)), offset=at
            )
            at += count * kind.itemsize
        xyz = np.column_stack([columns["x"], columns["y"], columns["z"]]).astype(np.float64)
        for first in range(0, count, PIECE):
            yield xyz[first : first + PIECE]

    return PointSource(path, count, Crs(), read)


def _lzf(data: bytes, size: int) -> bytes:
    """LibLZF: runs of literals (up to 32 bytes) and references back (length, distance)."""
    out = bytearray()
    at = 0
    while at < len(data) and len(out) <= size:
        control = data[at]
        at += 1
        if control < 32:
            out += data[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += data[at]
            at += 1
        distance = ((control & 0x1F) << 8) + data[at] + 1
        at += 1
        if distance > len(out):
            raise ValueError(DAMAGED)
        # a reference may reach into what it makes: then its beginning repeats itself
        begin = len(out) - distance
        source = out[begin : begin + length + 2]
        out += (source * -(-(length + 2) // len(source)))[: length + 2]
    if len(out) != size:
        raise ValueError(DAMAGED)
    return bytes(out)
