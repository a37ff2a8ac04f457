"""GeoTIFF, written tile by tile: one float band, unknown cells NaN, placed on the ground.

TIFF 6.0 (BigTIFF where it may exceed 4 GB), tiles of 256 x 256 compressed with Deflate, GeoTIFF 1.1 keys, and GDAL's
tags for nodata and the unit. Only one tile is in memory at a time, so that a map of any size can be written.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.storage.atomic import atomic_write

TILE = 256
LEVEL = 5  # of Deflate: higher takes longer for some per cent
BIG = 3_900_000_000
"""Bytes of pixels beyond which BigTIFF is written."""
# TIFF types: code, bytes, struct letter
ASCII, SHORT, LONG, DOUBLE, LONG8 = (2, 1, "s"), (3, 2, "H"), (4, 4, "I"), (12, 8, "d"), (16, 8, "Q")
# GeoTIFF keys and the values used here
MODEL_TYPE, RASTER_TYPE, CITATION = 1024, 1025, 1026
PROJECTED, GEOGRAPHIC, USER_DEFINED, PIXEL_IS_AREA = 1, 2, 32767, 1
GEODETIC_CRS, PROJECTED_CRS, PROJ_CITATION, LINEAR_UNITS, METRE = 2048, 3072, 3073, 3076, 9001
ASCII_PARAMS, DOUBLE_PARAMS = 34737, 34736


@dataclass(frozen=True)
class Crs:
    """What the coordinates refer to.

    epsg: code of a projected system, 0 where there is none
    keys: (GeoKeyDirectory, GeoDoubleParams, GeoAsciiParams) as another file has them; they are copied where given
    wkt: well-known text, for a .prj file beside it
    name: for people, such as "local frame 'odom'"
    """

    epsg: int = 0
    keys: tuple[tuple[int, ...], tuple[float, ...], str] | None = None
    wkt: str = ""
    name: str = ""

    @property
    def label(self) -> str:
        return (
            f"EPSG:{self.epsg}"
            if self.epsg
            else self.name or ("as in the files" if self.keys or self.wkt else "")
        )


class GeoTiffWriter:
    """Writes one layer; use it in a `with` statement: the file is there, whole, when that ends well.

    shape: rows and columns; corner: x and y of the north-western corner; resolution: edge of a cell
    description, unit: of the values
    """

    def __init__(
        self,
        path: Path,
        shape: tuple[int, int],
        corner: tuple[float, float],
        resolution: float,
        crs: Crs | None = None,
        description: str = "",
        unit: str = "",
    ) -> None:
        self._path = path
        self._shape, self._corner, self._resolution = shape, corner, resolution
        self._crs, self._description, self._unit = crs or Crs(), description, unit
        self._down, self._across = (-(-size // TILE) for size in shape)
        self._offsets = np.zeros(self._down * self._across, dtype=np.uint64)
        self._sizes = np.zeros_like(self._offsets)
        self._big = 4 * shape[0] * shape[1] > BIG

    def __enter__(self) -> GeoTiffWriter:
        self._staging = atomic_write(self._path)
        self._file = self._staging.__enter__()
        # the offset of the directory follows when it is known
        self._file.write(
            struct.pack("<2sHHHQ", b"II", 43, 8, 0, 0) if self._big else struct.pack("<2sHI", b"II", 42, 0)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        except BaseException as failure:
            self._staging.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._staging.__exit__(kind, error, trace)

    @property
    def tiles(self) -> tuple[int, int]:
        """Number of tiles down and across."""
        return self._down, self._across

    def write_tile(self, row: int, column: int, pixels: NDArray[Any]) -> None:
        """A tile, counted from the north-western one; pixels north up, at most 256 x 256, fewer at the edges."""
        if np.isfinite(pixels).any():
            full = np.full((TILE, TILE), np.nan, dtype="<f4")
            full[: pixels.shape[0], : pixels.shape[1]] = pixels
            data = zlib.compress(full.tobytes(), LEVEL)
            number = row * self._across + column
            self._offsets[number], self._sizes[number] = self._file.tell(), len(data)
            self._file.write(data)

    def write(self, layer: NDArray[Any]) -> None:
        """The whole layer `[iy, ix]`, y growing with the index, as everywhere in this project."""
        image = layer[::-1]
        for row in range(self._down):
            for column in range(self._across):
                y, x = row * TILE, column * TILE
                self.write_tile(row, column, image[y : y + TILE, x : x + TILE])

    def _finish(self) -> None:
        """Tiles without data share one of NaN; then the directory."""
        empty = self._sizes == 0
        if empty.any():
            data = zlib.compress(np.full((TILE, TILE), np.nan, dtype="<f4").tobytes(), LEVEL)
            self._offsets[empty], self._sizes[empty] = self._file.tell(), len(data)
            self._file.write(data)
        at = self._write_directory(sorted(self._tags()))
        self._file.seek(8 if self._big else 4)
        self._file.write(struct.pack("<Q" if self._big else "<I", at))

    def _tags(self) -> list[tuple[int, tuple[int, int, str], Any]]:
        rows, columns = self._shape
        wide = LONG8 if self._big else LONG
        tags: list[tuple[int, tuple[int, int, str], Any]] = [
            (256, LONG, [columns]),
            (257, LONG, [rows]),
            (258, SHORT, [32]),  # bits
            (259, SHORT, [8]),  # Deflate
            (262, SHORT, [1]),  # black is zero
            (277, SHORT, [1]),  # samples per pixel
            (284, SHORT, [1]),
            (322, SHORT, [TILE]),
            (323, SHORT, [TILE]),
            (324, wide, self._offsets.tolist()),
            (325, wide, self._sizes.tolist()),
            (339, SHORT, [3]),  # floating point
            (33550, DOUBLE, [self._resolution, self._resolution, 0.0]),
            (33922, DOUBLE, [0.0, 0.0, 0.0, *self._corner, 0.0]),
            (42113, ASCII, "nan"),
        ]
        directory, doubles, text = geo_keys(self._crs)
        tags.append((34735, SHORT, list(directory)))
        if doubles:
            tags.append((DOUBLE_PARAMS, DOUBLE, list(doubles)))
        if text:
            tags.append((ASCII_PARAMS, ASCII, text))
        if self._description or self._unit:
            tags.append((42112, ASCII, gdal_metadata(self._description, self._unit)))
        return tags

    def _write_directory(self, tags: list[tuple[int, tuple[int, int, str], Any]]) -> int:
        """Values that do not fit into an entry come before the directory; returns where that begins."""
        field, count_letter, inline = ("Q", "Q", 8) if self._big else ("I", "H", 4)
        entries = []
        for tag, (code, size, letter), values in tags:
            data = (
                values.encode() + b"\0" if letter == "s" else struct.pack(f"<{len(values)}{letter}", *values)
            )
            count = len(data) // size
            if len(data) > inline:
                self._file.seek(self._file.tell() + self._file.tell() % 2)  # values begin at even bytes
                place = self._file.tell()
                self._file.write(data)
                data = struct.pack(f"<{field}", place)
            entries.append(struct.pack(f"<HH{field}", tag, code, count) + data.ljust(inline, b"\0"))
        self._file.seek(self._file.tell() + self._file.tell() % 2)
        at = self._file.tell()
        self._file.write(
            struct.pack(f"<{count_letter}", len(entries)) + b"".join(entries) + struct.pack(f"<{field}", 0)
        )
        return at


def write_geotiff(
    path: Path,
    layer: NDArray[Any],
    origin: tuple[float, float],
    resolution: float,
    crs: Crs | None = None,
    description: str = "",
    unit: str = "",
) -> None:
    """A layer `[iy, ix]`; origin: x and y of the corner of cell (0, 0), which is the south-western one."""
    corner = (origin[0], origin[1] + layer.shape[0] * resolution)
    with GeoTiffWriter(path, layer.shape, corner, resolution, crs, description, unit) as writer:
        writer.write(layer)


def geo_keys(crs: Crs) -> tuple[tuple[int, ...], tuple[float, ...], str]:
    """GeoKeyDirectory, GeoDoubleParams and GeoAsciiParams."""
    if crs.keys is not None:
        directory, doubles, text = crs.keys
        return _with_pixel_is_area(directory), doubles, text
    keys: list[tuple[int, int, int, int]] = [(RASTER_TYPE, 0, 1, PIXEL_IS_AREA)]
    text = ""
    if crs.epsg:
        keys += [(MODEL_TYPE, 0, 1, PROJECTED), (PROJECTED_CRS, 0, 1, crs.epsg)]
    else:
        text = f"{crs.name or 'local frame'}|"
        keys += [(MODEL_TYPE, 0, 1, USER_DEFINED), (CITATION, ASCII_PARAMS, len(text), 0)]
        keys += [(LINEAR_UNITS, 0, 1, METRE)]
    keys.sort()
    return (1, 1, 0, len(keys), *(value for key in keys for value in key)), (), text


def _with_pixel_is_area(directory: tuple[int, ...]) -> tuple[int, ...]:
    """Cells are areas here, whatever the points' file says of its own rasters (it has none)."""
    keys = [directory[i : i + 4] for i in range(4, len(directory), 4) if directory[i] != RASTER_TYPE]
    keys = sorted([*keys, (RASTER_TYPE, 0, 1, PIXEL_IS_AREA)])
    return (*directory[:3], len(keys), *(value for key in keys for value in key))


def gdal_metadata(description: str, unit: str) -> str:
    items = []
    if description:
        items.append(f'<Item name="DESCRIPTION" sample="0" role="description">{escape(description)}</Item>')
    if unit:
        items.append(f'<Item name="UNITTYPE" sample="0" role="unittype">{escape(unit)}</Item>')
    return f"<GDALMetadata>{''.join(items)}</GDALMetadata>"
