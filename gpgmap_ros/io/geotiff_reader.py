"""Reads the GeoTIFFs that geotiff.py writes, tile by tile: one float band, Deflate, the whole layer first.

Other programs' files are left to GDAL: a map is made here, and read again only to derive layers from it.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.io.geotiff import (
    ASCII,
    ASCII_PARAMS,
    DOUBLE,
    DOUBLE_PARAMS,
    FLOATS,
    LONG,
    LONG8,
    PREDICTOR,
    PROJECTED_CRS,
    SHORT,
    TILE,
    USER_DEFINED,
    Crs,
    restore_pixels,
)
from gpgmap_ros.io.map_products import MapError

TYPES = {code: (size, letter) for code, size, letter in (ASCII, SHORT, LONG, DOUBLE, LONG8)}
MAX_TAGS, MAX_VALUES = 64, 1 << 24
LAYOUT = {258: 32, 259: 8, 277: 1, 322: TILE, 323: TILE, 339: 3}
"""Bits, Deflate, samples, tiles and floats, as the writer has them."""


class GeoTiffReader:
    """One layer; use it in a `with` statement. MapError where it is not a file of `GeoTiffWriter`, or damaged.

    shape: rows and columns; corner: x and y of the north-western corner; resolution: edge of a cell
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        try:
            tags = self._tags()
            self.shape: tuple[int, int] = (tags[257][0], tags[256][0])
            self.corner: tuple[float, float] = (tags[33922][3], tags[33922][4])
            self.resolution: float = tags[33550][0]
            self.crs = _crs(tags)
            self._places, self._sizes = tags[324], tags[325]
            self._predicted = tags.get(PREDICTOR, (0,))[0] == FLOATS  # older files are not
            self.tiles = (-(-self.shape[0] // TILE), -(-self.shape[1] // TILE))
            other = any(tags[tag][0] != value for tag, value in LAYOUT.items())
            if other or not len(self._places) == len(self._sizes) == self.tiles[0] * self.tiles[1]:
                raise ValueError("its pixels are stored in another way")
        except (LookupError, ValueError, struct.error) as error:
            self._file.close()
            raise MapError(f"{path}: not a GeoTIFF of a map ({error}): make the map again") from error

    def __enter__(self) -> GeoTiffReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def read_tile(self, row: int, column: int) -> NDArray[np.float32]:
        """A tile, counted from the north-western one; north up, fewer than 256 x 256 cells at the edges."""
        number = row * self.tiles[1] + column
        self._file.seek(self._places[number])
        try:
            unpack = zlib.decompressobj()
            data = unpack.decompress(self._file.read(self._sizes[number]), 4 * TILE * TILE)
            if len(data) != 4 * TILE * TILE:
                raise ValueError("it ends early")
            plain = np.frombuffer(data, dtype="<f4").reshape(TILE, TILE)
            pixels = restore_pixels(data, TILE) if self._predicted else plain
        except (zlib.error, ValueError) as error:
            raise MapError(
                f"{self._path}: damaged in tile {row}, {column} ({error}): make the map again"
            ) from error
        return np.asarray(pixels[: self.shape[0] - row * TILE, : self.shape[1] - column * TILE])

    def read(self) -> NDArray[np.float32]:
        """The whole layer, north up."""
        out = np.empty(self.shape, dtype=np.float32)
        for row, column in np.ndindex(self.tiles):
            tile = self.read_tile(row, column)
            y, x = row * TILE, column * TILE
            out[y : y + tile.shape[0], x : x + tile.shape[1]] = tile
        return out

    def _tags(self) -> dict[int, Any]:
        """Values of the first directory by tag."""
        head = self._file.read(16)
        if head[:4] not in (b"II*\0", b"II+\0"):
            raise ValueError("it does not begin as one")
        big = head[2:3] == b"+"
        count_letter, field, inline = ("Q", "Q", 8) if big else ("H", "I", 4)
        (first,) = struct.unpack(f"<{field}", head[8:16] if big else head[4:8])
        self._file.seek(first)
        (count,) = struct.unpack(f"<{count_letter}", self._file.read(struct.calcsize(f"<{count_letter}")))
        if count > MAX_TAGS:
            raise ValueError(f"it has {count} tags")
        size = 4 + 2 * inline
        entries = self._file.read(size * count)
        tags: dict[int, Any] = {}
        for k in range(count):
            entry = entries[k * size : (k + 1) * size]
            tag, code, number = struct.unpack(f"<HH{field}", entry[: 4 + inline])
            width, letter = TYPES[code]
            if number > MAX_VALUES:
                raise ValueError(f"tag {tag} has {number} values")
            data = entry[4 + inline :]
            if number * width > inline:
                self._file.seek(struct.unpack(f"<{field}", data)[0])
                data = self._file.read(number * width)
            data = data[: number * width]
            tags[tag] = data if letter == "s" else struct.unpack(f"<{number}{letter}", data)
        return tags


def _crs(tags: dict[int, Any]) -> Crs:
    """As the file has it, with the code of a projected system where there is one."""
    directory = tags[34735]
    text = tags.get(ASCII_PARAMS, b"").rstrip(b"\0").decode(errors="replace")
    keys = {directory[k]: directory[k + 3] for k in range(4, len(directory) - 3, 4)}
    code = keys.get(PROJECTED_CRS, 0)
    epsg = 0 if code == USER_DEFINED else int(code)
    return Crs(epsg, (tuple(directory), tuple(tags.get(DOUBLE_PARAMS, ())), text))
