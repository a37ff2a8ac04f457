"""Statistics in square tiles: those used last are in memory, the others in files.

A tile takes as much room as 120,000 points. Points of a tile that is not in memory are therefore kept as they are, in a
file beside it, until they would take more room than the tile: a survey whose points come in any order would otherwise
read and write every tile for every piece of points. They are added when the tile is needed, batch by batch and in the
order in which they came, so that the sums are the same to the last bit, however many tiles are in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np

from gp_core.arrays import Array
from gp_core.grid import Lattice, Workers
from gp_core.grid.tiled_statistics import TILE_BLOCKS, TILE_BYTES, TileKey, TileStatistics

POINT_BYTES = 3 * 8
MIN_TILES = 4
"""Tiles that are always in memory: around a corner."""


class TileStore:
    """Statistics of tiles, within a limit of memory.

    lattice: of the tiles; variance: noise variance of every point
    folder: for what leaves the memory, made when it is needed; memory: bytes for tiles
    """

    def __init__(self, lattice: Lattice, variance: float, folder: Path, memory: int) -> None:
        self._lattice, self._variance, self._folder = lattice, np.array([variance]), folder
        self._workers = Workers(None)
        self._tiles: OrderedDict[TileKey, TileStatistics] = OrderedDict()
        self._stored: set[TileKey] = set()
        self._changed: set[TileKey] = set()
        self._waiting: dict[TileKey, list[int]] = {}  # points of each batch in the file of a tile
        self.limit_memory(memory)

    @property
    def bytes_stored(self) -> int:
        """Upper bound on what is on disk."""
        points = sum(sum(batches) for batches in self._waiting.values())
        return len(self._stored) * TILE_BYTES + points * POINT_BYTES

    @property
    def bytes_in_memory(self) -> int:
        return len(self._tiles) * TILE_BYTES

    def limit_memory(self, memory: int) -> None:
        """Keep at most so many bytes of tiles, but at least four tiles, in memory, and the others on disk."""
        self._max_tiles = max(MIN_TILES, memory // TILE_BYTES)
        while len(self._tiles) > self._max_tiles:
            self._store_oldest()

    def add(self, key: TileKey, xy: Array, z: Array) -> None:
        """Add points that lie in a tile."""
        if key not in self._tiles and len(self._tiles) >= self._max_tiles:
            waiting = sum(self._waiting.get(key, ()))
            if (waiting + len(z)) * POINT_BYTES <= TILE_BYTES:
                self._append_points(key, xy, z)
                return
        self.tile(key).add(xy, z, self._variance, self._workers)
        self._changed.add(key)

    def tile(self, key: TileKey) -> TileStatistics:
        """A tile with all its points: from memory, from disk, or new. The least recently used one leaves the memory."""
        if key in self._tiles:
            self._tiles.move_to_end(key)
            return self._tiles[key]
        while len(self._tiles) >= self._max_tiles:
            self._store_oldest()
        tile = self._tiles[key] = self._load(key)
        self._add_waiting(key, tile)
        return tile

    def forget(self, key: TileKey) -> None:
        """Drop a tile and its points."""
        self._tiles.pop(key, None)
        self._waiting.pop(key, None)
        self._stored.discard(key)
        self._changed.discard(key)

    def clear(self) -> None:
        """Free the memory."""
        self._tiles.clear()

    def _path(self, key: TileKey, kind: str) -> Path:
        return self._folder / f"{kind}_{key[0]}_{key[1]}"

    def _append_points(self, key: TileKey, xy: Array, z: Array) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        batches = self._waiting.setdefault(key, [])
        with self._path(key, "points").open("ab" if batches else "wb") as file:
            file.write(np.ascontiguousarray(xy).data)
            file.write(np.ascontiguousarray(z).data)
        batches.append(len(z))

    def _add_waiting(self, key: TileKey, tile: TileStatistics) -> None:
        batches = self._waiting.pop(key, None)
        if batches is None:
            return
        path = self._path(key, "points")
        with path.open("rb") as file:
            for count in batches:
                xy, z = np.empty((count, 2)), np.empty(count)
                file.readinto(xy.data)
                file.readinto(z.data)
                tile.add(xy, z, self._variance, self._workers)
        path.unlink()
        self._changed.add(key)

    def _store_oldest(self) -> None:
        """Write the least recently used tile to disk: only its blocks with points, few at the edge of a survey."""
        key, tile = self._tiles.popitem(last=False)
        if key not in self._changed:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        occupied = tile.occupied
        with self._path(key, "tile").open("wb") as file:
            file.write(occupied.data)
            for array in tile.arrays:
                file.write((array if occupied.all() else array[occupied]).data)
        self._stored.add(key)
        self._changed.discard(key)

    def _load(self, key: TileKey) -> TileStatistics:
        tile = TileStatistics(self._lattice, key)
        if key in self._stored:
            with self._path(key, "tile").open("rb") as file:
                occupied = np.empty((TILE_BLOCKS, TILE_BLOCKS), dtype=bool)
                file.readinto(occupied.data)
                for array in tile.arrays:
                    if occupied.all():
                        file.readinto(array.data)
                        continue
                    part = np.empty((int(occupied.sum()), *array.shape[2:]))
                    file.readinto(part.data)
                    array[occupied] = part
        return tile
