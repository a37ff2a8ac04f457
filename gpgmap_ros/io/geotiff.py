"""Cloud-optimised GeoTIFF, written tile by tile: one float band, unknown cells NaN, placed on the ground.

TIFF 6.0 (BigTIFF where it may exceed 4 GB), tiles of 256 x 256 compressed with Deflate after TIFF's predictor for
floats, GeoTIFF 1.1 keys, and GDAL's tags for nodata and the unit. Overviews, each half as large as the one before, down
to one tile: means of the known cells. Directories come first, then the overviews from the smallest, then the tiles (OGC
21-026): a reader far away asks for what it shows. In memory are one tile and the first overview.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Any
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.storage.atomic import atomic_write

TILE = 256
LEVEL = 1
"""Of Deflate: behind the predictor, higher ones take up to twice as long for some per cent."""
PREDICTOR, FLOATS = 317, 3
"""Tag, and its value for the predictor of floats."""
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
        self._full = _Level(shape)
        self._half = np.full([-(-size // 2) for size in shape], np.nan, dtype=np.float32)
        self._big = 6 * shape[0] * shape[1] > BIG  # pixels, and a third for the overviews

    def __enter__(self) -> GeoTiffWriter:
        self._staging = atomic_write(self._path)
        self._file = self._staging.__enter__()
        self._spool = TemporaryFile(dir=self._path.parent)
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
        finally:
            self._spool.close()
        self._staging.__exit__(kind, error, trace)

    @property
    def tiles(self) -> tuple[int, int]:
        """Number of tiles down and across."""
        return self._full.down, self._full.across

    def write_tile(self, row: int, column: int, pixels: NDArray[Any]) -> None:
        """A tile, counted from the north-western one; pixels north up, at most 256 x 256, fewer at the edges."""
        if np.isfinite(pixels).any():
            self._full.add(row, column, pixels, self._spool)
            small = halve(np.asarray(pixels, dtype=np.float32))
            y, x = row * TILE // 2, column * TILE // 2
            self._half[y : y + small.shape[0], x : x + small.shape[1]] = small

    def write(self, layer: NDArray[Any]) -> None:
        """The whole layer `[iy, ix]`, y growing with the index, as everywhere in this project."""
        image = layer[::-1]
        for row, column in np.ndindex(self.tiles):
            y, x = row * TILE, column * TILE
            self.write_tile(row, column, image[y : y + TILE, x : x + TILE])

    def _finish(self) -> None:
        """Directories, overviews from the smallest, tiles."""
        levels = [self._full, *self._overviews()]
        for level in levels:
            level.fill_holes(self._spool)
        at = start = 16 if self._big else 8
        sizes = [len(self._directory(level, 0, last=False)) for level in levels]
        places = [start + sum(sizes[:k]) for k in range(len(levels))]
        at += sum(sizes)
        for level in reversed(levels):
            level.begin, at = at, at + int(level.stored)
        self._file.write(
            struct.pack("<2sHHHQ", b"II", 43, 8, 0, start)
            if self._big
            else struct.pack("<2sHI", b"II", 42, start)
        )
        for level, place in zip(levels, places, strict=True):
            self._file.write(self._directory(level, place, last=level is levels[-1]))
        for level in reversed(levels):
            level.copy(self._spool, self._file)

    def _overviews(self) -> list[_Level]:
        """Smaller and smaller, until one fits into a tile."""
        made: list[_Level] = []
        image, shape = self._half, self._shape
        while max(shape) > TILE:
            shape = (image.shape[0], image.shape[1])
            level = _Level(shape)
            for row, column in np.ndindex(level.down, level.across):
                part = image[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
                if np.isfinite(part).any():
                    level.add(row, column, part, self._spool)
            made.append(level)
            image = halve(image)
        return made

    def _directory(self, level: _Level, place: int, last: bool) -> bytes:
        """A directory with the values that do not fit into its entries behind it. place: where it begins in the file"""
        field, count_letter, inline = ("Q", "Q", 8) if self._big else ("I", "H", 4)
        tags = sorted(self._tags(level))
        head = struct.calcsize(f"<{count_letter}") + len(tags) * (4 + 2 * inline) + inline
        entries, values_behind = [], b""
        for tag, (code, size, letter), values in tags:
            data = (
                values.encode() + b"\0" if letter == "s" else struct.pack(f"<{len(values)}{letter}", *values)
            )
            count = len(data) // size
            if len(data) > inline:
                where = place + head + len(values_behind)
                values_behind += data + b"\0" * (-len(data) % 8)
                data = struct.pack(f"<{field}", where)
            entries.append(struct.pack(f"<HH{field}", tag, code, count) + data.ljust(inline, b"\0"))
        spare = b"\0" * (-(head + len(values_behind)) % 8)
        following = 0 if last else place + head + len(values_behind) + len(spare)
        return (
            struct.pack(f"<{count_letter}", len(entries))
            + b"".join(entries)
            + struct.pack(f"<{field}", following)
            + values_behind
            + spare
        )

    def _tags(self, level: _Level) -> list[tuple[int, tuple[int, int, str], Any]]:
        rows, columns = level.shape
        wide = LONG8 if self._big else LONG
        tags: list[tuple[int, tuple[int, int, str], Any]] = [
            (254, LONG, [0 if level is self._full else 1]),  # 1: an overview
            (256, LONG, [columns]),
            (257, LONG, [rows]),
            (258, SHORT, [32]),  # bits
            (259, SHORT, [8]),  # Deflate
            (262, SHORT, [1]),  # black is zero
            (277, SHORT, [1]),  # samples per pixel
            (284, SHORT, [1]),
            (PREDICTOR, SHORT, [FLOATS]),
            (322, SHORT, [TILE]),
            (323, SHORT, [TILE]),
            (324, wide, level.places.tolist()),
            (325, wide, level.sizes.tolist()),
            (339, SHORT, [3]),  # floating point
            (42113, ASCII, "nan"),
        ]
        return tags if level is not self._full else tags + self._placement()

    def _placement(self) -> list[tuple[int, tuple[int, int, str], Any]]:
        """Where on the ground, and what of."""
        directory, doubles, text = geo_keys(self._crs)
        tags: list[tuple[int, tuple[int, int, str], Any]] = [
            (33550, DOUBLE, [self._resolution, self._resolution, 0.0]),
            (33922, DOUBLE, [0.0, 0.0, 0.0, *self._corner, 0.0]),
            (34735, SHORT, list(directory)),
        ]
        if doubles:
            tags.append((DOUBLE_PARAMS, DOUBLE, list(doubles)))
        if text:
            tags.append((ASCII_PARAMS, ASCII, text))
        if self._description or self._unit:
            tags.append((42112, ASCII, gdal_metadata(self._description, self._unit)))
        return tags


class _Level:
    """The compressed tiles of the layer or of an overview, in a spool until all are there.

    begin: where its tiles begin in the file; sizes: bytes of each tile
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.down, self.across = (-(-size // TILE) for size in shape)
        self.begin = 0
        self.sizes = np.zeros(self.down * self.across, dtype=np.uint64)
        self.stored = 0
        self._offsets = np.zeros_like(self.sizes)
        self._spooled: list[tuple[int, int]] = []

    @property
    def places(self) -> NDArray[np.uint64]:
        """Of the tiles, in the file."""
        return self._offsets + np.uint64(self.begin)

    def add(self, row: int, column: int, pixels: NDArray[Any], spool: IO[bytes]) -> None:
        full = np.full((TILE, TILE), np.nan, dtype="<f4")
        full[: pixels.shape[0], : pixels.shape[1]] = pixels
        self._append([row * self.across + column], full, spool)

    def fill_holes(self, spool: IO[bytes]) -> None:
        """Tiles without data share one of NaN."""
        empty = np.flatnonzero(self.sizes == 0)
        if len(empty):
            self._append(empty, np.full((TILE, TILE), np.nan, dtype="<f4"), spool)

    def copy(self, spool: IO[bytes], out: IO[bytes]) -> None:
        for start, size in self._spooled:
            spool.seek(start)
            out.write(spool.read(size))

    def _append(self, numbers: Any, pixels: NDArray[Any], spool: IO[bytes]) -> None:
        data = zlib.compress(predict_bytes(pixels), LEVEL)
        self._offsets[numbers], self.sizes[numbers] = self.stored, len(data)
        self.stored += len(data)
        self._spooled.append((spool.tell(), len(data)))
        spool.write(data)


def predict_bytes(pixels: NDArray[Any]) -> bytes:
    """The bytes of pixels (R, C), float32, as TIFF's predictor for floats stores them (Technical Note 3).

    Of each row the highest bytes of all pixels, then the next ones: neighbours are alike there. Differences are stored.
    """
    rows, columns = pixels.shape
    planes = (
        pixels.astype(">f4").view(np.uint8).reshape(rows, columns, 4).transpose(0, 2, 1).reshape(rows, -1)
    )
    out = planes.copy()
    out[:, 1:] -= planes[:, :-1]
    return out.tobytes()


def restore_pixels(data: bytes, rows: int) -> NDArray[np.float32]:
    """Pixels (R, C) of what `predict_bytes` made of them. ValueError where the data are no such rows."""
    planes = np.cumsum(np.frombuffer(data, dtype=np.uint8).reshape(rows, -1), axis=1, dtype=np.uint8)
    pixels = np.ascontiguousarray(planes.reshape(rows, 4, -1).transpose(0, 2, 1)).view(">f4")
    return pixels.reshape(rows, -1).astype(np.float32)


def halve(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """Means of the known among two by two cells, NaN where none is."""
    rows, columns = image.shape
    even = np.full((rows + rows % 2, columns + columns % 2), np.nan, dtype=np.float32)
    even[:rows, :columns] = image
    known = np.isfinite(even)
    filled = np.where(known, even, np.float32(0.0))
    total = filled[0::2, 0::2] + filled[0::2, 1::2] + filled[1::2, 0::2] + filled[1::2, 1::2]
    count = sum(known[y::2, x::2].astype(np.float32) for y in (0, 1) for x in (0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(total / count, dtype=np.float32)


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
