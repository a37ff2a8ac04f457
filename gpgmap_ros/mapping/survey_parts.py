"""Partial sums of a survey on file: of each tile the sums of its blocks, or its points where these take less room.

A tile's sums take as much room as 50,000 points (120,000 with quintic splines), and in a survey with one point per
cell a tile holds 16,000. So a part keeps the points of a tile as they are, positions and heights above the trend, until
their sums are smaller. Whoever needs the tile adds them up. What is kept depends on the part alone, and parts are added
in their order: the sums are the same to the last bit, whoever made the files and in whichever order.

A part is two files: the data, and an index that is written last. Without a readable index there is no part.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid import Lattice, Workers
from gp_core.grid.tiled_statistics import TILE_BLOCKS, TileKey, TileStatistics
from gpgmap_ros.mapping.survey import Outliers, PartialSums, SurveyModel, TilePoints, bounding_box

POINTS, SUMS = 0, 1
POINT_BYTES = 3 * 8
MASK_BYTES = TILE_BLOCKS**2 // 8
ENTRY = np.dtype(
    [
        ("row", "<i8"), ("column", "<i8"), ("kind", "<i8"), ("count", "<i8"), ("blocks", "<i8"), ("offset", "<i8"),
        ("low", "<f8", (2,)), ("high", "<f8", (2,)),
    ]
)  # fmt: skip
"""A tile in a part: POINTS or SUMS, how many points and (of sums) blocks, where in the file, the points' box."""
Entries = NDArray[Any]


@dataclass(frozen=True, eq=False)
class PartIndex:
    """What a part holds.

    path: of its data; entries: its tiles, see ENTRY, in the order of their keys
    facts: about the making of it: what it is `of`, points left out, seconds
    """

    path: Path
    entries: Entries
    facts: dict[str, Any]

    @property
    def count(self) -> int:
        """Number of points."""
        return int(self.entries["count"].sum())

    @property
    def digest(self) -> str:
        """By which its content is known: which tiles it has, and what it was made of."""
        made = f"{self.path.name} {self.facts.get('of', '')} ".encode()
        return hashlib.sha256(made + self.entries.tobytes()).hexdigest()

    @property
    def beyond_heights(self) -> Outliers:
        """Points that were left out because of their heights."""
        count, places = self.facts.get("beyond_heights", (0, ()))
        return Outliers(count, tuple(tuple(place) for place in places))


def index_path(path: Path) -> Path:
    """The file of a part's index."""
    return path.with_suffix(".index")


def write_part(path: Path, sums: PartialSums, facts: Mapping[str, Any], workers: Workers) -> PartIndex:
    """Write the part at `path`, atomically."""
    beyond = sums.beyond_heights
    facts = {**facts, "beyond_heights": (beyond.count, beyond.places)}
    with _Writer(path) as writer:
        for key in sorted(sums.tiles):
            if sums.model.ground_width:  # which of them are ground is found later
                writer.keep_points(key, *sums.tiles[key].joined())
            else:
                writer.write_points(sums.model, key, sums.tiles[key], workers)
        return writer.finish(facts)


def write_tiles(
    path: Path,
    model: SurveyModel,
    tiles: Iterable[tuple[TileKey, Array, Array]],
    facts: Callable[[], Mapping[str, Any]],
    workers: Workers,
) -> PartIndex:
    """Write a part from positions (N, 2) and heights above the trend (N,) of tiles; facts: asked for at the end"""
    with _Writer(path) as writer:
        for key, xy, z in tiles:
            writer.write_points(model, key, TilePoints([(xy, z)]), workers)
        return writer.finish(facts())


def merge_parts(path: Path, parts: Sequence[PartIndex], model: SurveyModel, workers: Workers) -> PartIndex:
    """Write one part that holds what several hold, tile by tile."""
    beyond = sum((part.beyond_heights for part in parts), Outliers())
    facts = {"beyond_heights": (beyond.count, beyond.places), "of": merged_from(parts)}
    by_tile = places_by_tile(parts)
    with _Writer(path) as writer:
        for key in sorted(by_tile):
            places = by_tile[key]
            if all(entry["kind"] == POINTS for _, entry in places):
                joined = TilePoints([_read_points(place, entry) for place, entry in places])
                writer.write_points(model, key, joined, workers)
            else:
                low = np.min([entry["low"] for _, entry in places], axis=0)
                high = np.max([entry["high"] for _, entry in places], axis=0)
                count = int(sum(entry["count"] for _, entry in places))
                writer.write_sums(load_tile(model, key, places, workers), count, low, high)
        return writer.finish(facts)


def merged_from(parts: Sequence[PartIndex]) -> str:
    """What a part that is merged from these is `of`."""
    return hashlib.sha256("".join(part.digest for part in parts).encode()).hexdigest()


def read_index(path: Path) -> PartIndex | None:
    """The index of the part at `path`; None where there is no complete part."""
    try:
        with index_path(path).open("rb") as file:
            head = json.loads(file.readline())
            entries = np.frombuffer(file.read(), dtype=ENTRY)
        if len(entries) != head["tiles"] or path.stat().st_size != head["bytes"]:
            return None
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return PartIndex(path, entries, head["facts"])


def remove_part(path: Path) -> None:
    """Remove a part, its index first."""
    index_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def places_by_tile(parts: Iterable[PartIndex]) -> dict[TileKey, list[tuple[Path, Any]]]:
    """Of each tile where its points and sums are, in the order of the parts."""
    places: dict[TileKey, list[tuple[Path, Any]]] = {}
    for part in parts:
        for entry in part.entries:
            places.setdefault((int(entry["row"]), int(entry["column"])), []).append((part.path, entry))
    return places


def load_tile(
    model: SurveyModel, key: TileKey, places: Sequence[tuple[Path, Any]], workers: Workers
) -> TileStatistics:
    """The sums over all points of a tile, part by part."""
    tile = TileStatistics(model.lattice, key)
    for path, entry in places:
        if entry["kind"] == POINTS:
            tile.add(*_read_points(path, entry), model.variance, workers)
        else:
            tile.merge(_read_sums(path, entry, model.lattice, key))
    return tile


def read_tile_points(places: Sequence[tuple[Path, Any]]) -> tuple[Array, Array]:
    """Positions (N, 2) and heights above the trend (N,) of a tile whose points were kept, part by part."""
    return TilePoints([_read_points(path, entry) for path, entry in places]).joined()


def _read_points(path: Path, entry: Any) -> tuple[Array, Array]:
    count = int(entry["count"])
    with path.open("rb", buffering=0) as file:
        file.seek(int(entry["offset"]))
        return _read(file, (count, 2)), _read(file, (count,))


def _read_sums(path: Path, entry: Any, lattice: Lattice, key: TileKey) -> TileStatistics:
    tile = TileStatistics(lattice, key)
    with path.open("rb", buffering=0) as file:
        file.seek(int(entry["offset"]))
        bits = np.frombuffer(file.read(MASK_BYTES), dtype=np.uint8)
        occupied = np.unpackbits(bits).astype(bool).reshape(TILE_BLOCKS, TILE_BLOCKS)
        for array in tile.arrays:
            array[occupied] = _read(file, (int(entry["blocks"]), *array.shape[2:]))
    return tile


@compiled()
def _count_blocks(xy, width, height, first_column, first_row):  # type: ignore[no-untyped-def]
    """Blocks of a tile that points (N, 2) lie in. width, height: of a block; first: those of the tile's corner"""
    occupied = np.zeros((TILE_BLOCKS, TILE_BLOCKS), dtype=np.bool_)
    for n in range(len(xy)):
        i = int(np.floor(xy[n, 0] / width)) - first_column
        j = int(np.floor(xy[n, 1] / height)) - first_row
        occupied[min(max(j, 0), TILE_BLOCKS - 1), min(max(i, 0), TILE_BLOCKS - 1)] = True
    return occupied.sum()


def _read(file: IO[bytes], shape: tuple[int, ...]) -> Array:
    array = np.empty(shape)
    if file.readinto(array.data.cast("B")) != array.nbytes:  # type: ignore[attr-defined]
        raise OSError(f"{file.name}: ends early: remove it and begin again")
    return array


class _Writer:
    """Data, then the index. What is not finished leaves no file behind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
        self._entries: list[tuple[Any, ...]] = []

    def __enter__(self) -> _Writer:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._staged.open("xb")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._staged.unlink(missing_ok=True)

    def write_points(self, model: SurveyModel, key: TileKey, points: TilePoints, workers: Workers) -> None:
        """Points, or their sums if these are smaller."""
        xy, z = points.joined()
        low, high = bounding_box(xy)
        block_bytes = model.lattice.orders.block_bytes
        if (
            len(z) * POINT_BYTES > MASK_BYTES + block_bytes
        ):  # a single block with all of them would be smaller
            occupied = _count_blocks(xy, *model.lattice.spacing, TILE_BLOCKS * key[1], TILE_BLOCKS * key[0])
            if len(z) * POINT_BYTES > MASK_BYTES + block_bytes * occupied:
                tile = TileStatistics(model.lattice, key)
                tile.add(xy, z, model.variance, workers)
                self.write_sums(tile, len(z), low, high)
                return
        self.keep_points(key, xy, z)

    def keep_points(self, key: TileKey, xy: Array, z: Array) -> None:
        """Points as they are."""
        self._begin(key, POINTS, len(z), 0, *bounding_box(xy))
        self._file.write(np.ascontiguousarray(xy).data)
        self._file.write(np.ascontiguousarray(z).data)

    def write_sums(self, tile: TileStatistics, count: int, low: Array, high: Array) -> None:
        """The blocks with points, few at the edge of a survey."""
        occupied = tile.occupied
        self._begin(tile.key, SUMS, count, int(occupied.sum()), low, high)
        self._file.write(np.packbits(occupied).data)
        for array in tile.arrays:
            self._file.write(np.ascontiguousarray(array[occupied]).data)

    def finish(self, facts: Mapping[str, Any]) -> PartIndex:
        """Give the files their names; the index is the last."""
        self._file.close()
        size = self._staged.stat().st_size
        index_path(self._path).unlink(missing_ok=True)
        os.replace(self._staged, self._path)
        entries = np.array(self._entries, dtype=ENTRY)
        head = {"bytes": size, "tiles": len(entries), "facts": dict(facts)}
        self._staged.write_bytes(json.dumps(head).encode() + b"\n" + entries.tobytes())
        os.replace(self._staged, index_path(self._path))
        return PartIndex(self._path, entries, dict(facts))

    def _begin(self, key: TileKey, kind: int, count: int, blocks: int, low: Array, high: Array) -> None:
        self._entries.append((*key, kind, count, blocks, self._file.tell(), low, high))
