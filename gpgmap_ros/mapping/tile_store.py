"""Statistics in square tiles: those used last are in memory, the others in files.

A tile takes as much room as 120,000 points. Points of a tile that is not in memory are therefore kept as they are, in a
file beside it, until they would take more room than the tile: a survey whose points come in any order would otherwise
read and write every tile for every piece of points. They are added when the tile is needed, batch by batch and in the
order in which they came, so that the sums are the same to the last bit, however many tiles are in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gp_core.grid.axes import Axis
from gp_core.grid.statistics import COUNT, Statistics

Array = NDArray[np.float64]
Key = tuple[int, int]

TILE_BLOCKS = 64
"""Blocks along a tile: 2.9 MB of statistics, which stay in the processor's cache while points are added."""
BLOCK_BYTES = 8 * 88
TILE_BYTES = TILE_BLOCKS**2 * BLOCK_BYTES
POINT_BYTES = 3 * 8
LEAST_TILES = 4
"""Tiles that are always in memory: around a corner."""


class TileStore:
    """spacing: of the blocks along x and y; folder: for what leaves the memory, made when it is needed
    take: adds points, xy (N, 2) and z (N,), to a tile; memory: bytes for tiles
    """

    def __init__(
        self,
        spacing: tuple[float, float],
        folder: Path,
        take: Callable[[Statistics, Array, Array], None],
        memory: int,
    ) -> None:
        self._spacing, self._folder, self._take = spacing, folder, take
        self._tiles: OrderedDict[Key, Statistics] = OrderedDict()
        self._stored: set[Key] = set()
        self._changed: set[Key] = set()
        self._waiting: dict[Key, list[int]] = {}  # points of each batch in the file of a tile
        self.limit_memory(memory)

    @property
    def bytes_stored(self) -> int:
        """Of what is on disk at most."""
        points = sum(sum(batches) for batches in self._waiting.values())
        return len(self._stored) * TILE_BYTES + points * POINT_BYTES

    @property
    def bytes_in_memory(self) -> int:
        return len(self._tiles) * TILE_BYTES

    def limit_memory(self, memory: int) -> None:
        """Keep tiles of at most so many bytes in memory, and four at least; the others go to the disk."""
        self._most = max(LEAST_TILES, memory // TILE_BYTES)
        while len(self._tiles) > self._most:
            self._store_oldest()

    def add(self, key: Key, xy: Array, z: Array) -> None:
        """Add points that lie in a tile."""
        if key not in self._tiles and len(self._tiles) >= self._most:
            waiting = sum(self._waiting.get(key, ()))
            if (waiting + len(z)) * POINT_BYTES <= TILE_BYTES:
                self._keep(key, xy, z)
                return
        self._take(self.tile(key), xy, z)
        self._changed.add(key)

    def tile(self, key: Key) -> Statistics:
        """From memory, from the disk, or new, with all its points; the one not used for longest makes room."""
        if key in self._tiles:
            self._tiles.move_to_end(key)
            return self._tiles[key]
        while len(self._tiles) >= self._most:
            self._store_oldest()
        s = self._tiles[key] = self._loaded(key)
        self._add_waiting(key, s)
        return s

    def forget(self, key: Key) -> None:
        """Leave out a tile and its points."""
        self._tiles.pop(key, None)
        self._waiting.pop(key, None)
        self._stored.discard(key)
        self._changed.discard(key)

    def clear(self) -> None:
        """Free the memory."""
        self._tiles.clear()

    def _path(self, key: Key, kind: str) -> Path:
        return self._folder / f"{kind}_{key[0]}_{key[1]}"

    def _keep(self, key: Key, xy: Array, z: Array) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        batches = self._waiting.setdefault(key, [])
        with self._path(key, "points").open("ab" if batches else "wb") as file:
            file.write(np.ascontiguousarray(xy).data)
            file.write(np.ascontiguousarray(z).data)
        batches.append(len(z))

    def _add_waiting(self, key: Key, s: Statistics) -> None:
        batches = self._waiting.pop(key, None)
        if batches is None:
            return
        path = self._path(key, "points")
        with path.open("rb") as file:
            for count in batches:
                xy, z = np.empty((count, 2)), np.empty(count)
                file.readinto(xy.data)
                file.readinto(z.data)
                self._take(s, xy, z)
        path.unlink()
        self._changed.add(key)

    def _store_oldest(self) -> None:
        """Only the blocks with points: a tile at the edge of a survey is mostly empty."""
        key, s = self._tiles.popitem(last=False)
        if key not in self._changed:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        occupied = s.totals[..., COUNT] > 0.0
        with self._path(key, "tile").open("wb") as file:
            file.write(occupied.data)
            for array in s.arrays:
                file.write((array if occupied.all() else array[occupied]).data)
        self._stored.add(key)
        self._changed.discard(key)

    def _loaded(self, key: Key) -> Statistics:
        s = Statistics(
            Axis(self._spacing[0], key[1] * TILE_BLOCKS, TILE_BLOCKS),
            Axis(self._spacing[1], key[0] * TILE_BLOCKS, TILE_BLOCKS),
            0.0,
        )
        if key in self._stored:
            with self._path(key, "tile").open("rb") as file:
                occupied = np.empty((TILE_BLOCKS, TILE_BLOCKS), dtype=bool)
                file.readinto(occupied.data)
                for array in s.arrays:
                    if occupied.all():
                        file.readinto(array.data)
                        continue
                    part = np.empty((int(occupied.sum()), *array.shape[2:]))
                    file.readinto(part.data)
                    array[occupied] = part
        return s
