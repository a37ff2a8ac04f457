"""LAS and LAZ, by laspy in a process of its own."""

from __future__ import annotations

import base64
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.arrays import Array
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.points.decoder import NoneOfClass, decoder
from gpgmap_ros.io.points.source import Bounds, NoPointsError, PointFileError, PointSource, Window

GROUND = 2
"""The class of ground."""
DECODER_BYTES = 110 << 20
"""Memory of the decoding process, measured."""


def open_las(path: Path, classes: tuple[int, ...] | None, window: Window) -> PointSource:
    if importlib.util.find_spec("laspy") is None:
        raise PointFileError(f"{path}: LAS files need laspy: pip install laspy lazrs")
    header = decoder.describe(path, window.bounds, window.spacing)
    wanted, note = classes, ""
    if classes is None and header["classes"].get(str(GROUND)):
        wanted, note = (GROUND,), "ground points (class 2) only"

    def read(**places: int | None) -> Iterator[Array]:
        try:
            yield from decoder.points(path, wanted, **places)
        except NoneOfClass as error:
            raise NoPointsError(f"{path}: {error}") from error

    def read_nodes(group: int | None) -> Iterator[Array]:
        yield from decoder.nodes(path, wanted, window.bounds, window.spacing, group)

    by_nodes = header["copc"] and bool(window)
    return PointSource(
        path,
        None if by_nodes else header["count"],
        _las_crs(header["records"]),
        (lambda stride: read_nodes(None)) if by_nodes else (lambda stride: read()),
        note,
        decoder_bytes=DECODER_BYTES,
        read_range=None if by_nodes else lambda first, count: read(first=first, count=count),
        read_places=None if by_nodes else lambda places, each: read(places=places, each=each),
        bounds=_las_bounds(header["bounds"]),
        groups=header["groups"],
        read_group=read_nodes if header["groups"] else None,
        read_levels=(lambda points: decoder.sample(path, wanted, window.bounds, window.spacing, points))
        if by_nodes
        else None,
    )


def _las_bounds(values: list[float]) -> Bounds | None:
    """Of the header, where it gives any: some writers leave zeros."""
    low, high = values[:3], values[3:]
    if not all(np.isfinite(values)) or any(a > b for a, b in zip(low, high, strict=True)) or not any(values):
        return None
    return (low[0], low[1], low[2], high[0], high[1], high[2])


def _las_crs(records: list[Any]) -> Crs:
    """GeoKeys as they are; of a WKT the EPSG code, where it ends with one. records: (id, data in base64)"""
    keys: tuple[int, ...] = ()
    doubles: tuple[float, ...] = ()
    text = wkt = ""
    for number, encoded in records:
        data = base64.b64decode(encoded)
        if number == 34735:
            keys = tuple(int(value) for value in np.frombuffer(data[: len(data) // 2 * 2], dtype="<u2"))
        elif number == 34736:
            doubles = tuple(float(value) for value in np.frombuffer(data[: len(data) // 8 * 8], dtype="<f8"))
        elif number == 34737:
            text = data.rstrip(b"\0").decode("ascii", errors="replace")
        elif number == 2112:
            wkt = data.rstrip(b"\0").decode(errors="replace")
    if wkt:
        return Crs(epsg_of(wkt), wkt=wkt)
    if len(keys) >= 4:
        return Crs(epsg_of_keys(keys), keys=(keys[: 4 + 4 * keys[3]], doubles, text))
    return Crs()


def epsg_of(wkt: str) -> int:
    """The code of the horizontal part: of PROJCS (or PROJCRS) itself, not of its parts; 0 where it has none."""
    horizontal = re.search(r"PROJ(?:CS|CRS)\[", wkt)
    if not horizontal:
        return 0
    depth, at = 0, horizontal.end() - 1
    for end in range(at, len(wkt)):
        depth += {"[": 1, "]": -1}.get(wkt[end], 0)
        if depth == 0:
            break
    own = wkt[at : end + 1]
    codes = re.findall(r'(?:AUTHORITY|ID)\["EPSG",\s*"?(\d+)"?\]', own)
    ends_with_code = re.search(r'(?:AUTHORITY|ID)\["EPSG",\s*"?(\d+)"?\]\s*\]$', own)
    return int(ends_with_code[1]) if codes and ends_with_code else 0


def epsg_of_keys(keys: tuple[int, ...]) -> int:
    """ProjectedCRSGeoKey, 0 where there is none or it is user-defined."""
    for at in range(4, len(keys) - 3, 4):
        if keys[at] == 3072 and keys[at + 1] == 0 and 0 < keys[at + 3] < 32767:
            return keys[at + 3]
    return 0
