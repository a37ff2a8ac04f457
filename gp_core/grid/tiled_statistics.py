"""Sufficient statistics over the tiles of a large area: partial sums that add in any order.

The blocks of a lattice are the same for every map with the same kernel, and their statistics are sums over points. So
an area of any size can be worked on in parts, by file, by tile or both, on any number of workers: each part is a
`TileStatistics` or a `TiledStatistics`, which can be pickled, merged in any order (exact up to round-off) and kept on
file. A window with its halo is then cut out and solved by a `GridGP` with the same kernel.

>>> import numpy as np
>>> from gp_core.grid import Grid, GridGP
>>> from gp_core.grid.tiled_statistics import TiledStatistics
>>> from gp_core.kernels import RBF
>>> gp = GridGP(Grid(origin=(0.0, 0.0), shape=(20, 20), resolution=0.1), 0.04 * RBF(0.5), noise_variance=1e-4)
>>> one, other = TiledStatistics(gp.lattice), TiledStatistics(gp.lattice)
>>> one.add(np.array([[1.05, 1.05]]), np.array([0.3]), 1e-4)
>>> other.add(np.array([[1.15, 1.05], [90.0, -3.0]]), np.array([0.3, 5.0]), 1e-4)
>>> one.merge(other)
>>> one.count, len(one)
(3.0, 2)
>>> gp.add_blocks(one.window((-3.0, -3.0, 5.0, 5.0)))
>>> float(gp.posterior().mean[10, 10].round(2))
0.3
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.axes import Axis
from gp_core.grid.blocks import Blocks, blocks_of
from gp_core.grid.moments import QUINTIC, MomentOrders
from gp_core.grid.statistics import COUNT, Mask, Statistics, locate
from gp_core.grid.statistics_file import load_blocks, save_blocks
from gp_core.grid.workers import Workers

__all__ = [
    "TILE_BLOCKS",
    "Bounds",
    "Lattice",
    "TileKey",
    "TileStatistics",
    "TiledStatistics",
    "cut_window",
    "merge",
]

TILE_BLOCKS: Final = 64
"""Blocks along a tile: 1.2 or 2.9 MB of statistics, which stay in the processor's cache while points are added."""

TileKey = tuple[int, int]
"""Row and column of a tile: it covers [column e_x, (column + 1) e_x) x [row e_y, (row + 1) e_y)."""
Bounds = tuple[float, float, float, float]
"""(x_min, y_min, x_max, y_max)."""
_ROUNDING: Final = 1e-6
"""Share of a block by which a point at the edge of a tile may lie outside, when its tile was found by a division."""
_ONE_THREAD: Final = Workers(1)


@dataclass(frozen=True)
class Lattice:
    """What statistics must have in common to be added: `GridGP.lattice` of every map with the same kernel.

    spacing: (h_x, h_y), sides of a block
    unresolved: variance that the lattice does not resolve, added to that of every point
    reference: height that is subtracted from all heights
    orders: of the moments of a block
    """

    spacing: tuple[float, float]
    unresolved: float
    reference: float = 0.0
    orders: MomentOrders = QUINTIC

    @property
    def tile_size(self) -> tuple[float, float]:
        """(e_x, e_y), sides of a tile in metres."""
        return self.spacing[0] * TILE_BLOCKS, self.spacing[1] * TILE_BLOCKS

    def axes(self, key: TileKey) -> tuple[Axis, Axis]:
        """The blocks of a tile along x and y."""
        row, column = key
        return (
            Axis(self.spacing[0], column * TILE_BLOCKS, TILE_BLOCKS),
            Axis(self.spacing[1], row * TILE_BLOCKS, TILE_BLOCKS),
        )

    def tiles_in(self, bounds: Bounds) -> tuple[range, range]:
        """Rows and columns of the tiles that a box touches."""
        e_x, e_y = self.tile_size
        x_min, y_min, x_max, y_max = bounds
        return range(int(y_min // e_y), int(y_max // e_y) + 1), range(
            int(x_min // e_x), int(x_max // e_x) + 1
        )

    def require_same(self, other: Lattice) -> None:
        """ValueError if statistics on the other lattice can't be added to those on this one."""
        if other != self:
            raise ValueError(
                f"statistics on different lattices do not add: {self}, {other}. Use the same kernel, "
                "resolution, expected noise and reference for all parts"
            )


class TileStatistics:
    """Sums over the points of one tile; pickled with its non-empty blocks only.

    lattice, key: what the tile is a part of
    """

    def __init__(self, lattice: Lattice, key: TileKey) -> None:
        self.lattice = lattice
        self.key = key
        self._sums = Statistics(*lattice.axes(key), lattice.orders, lattice.reference)

    @property
    def count(self) -> float:
        """Number of points."""
        return float(self._sums.totals[..., COUNT].sum())

    @property
    def occupied(self) -> Mask:
        """(TILE_BLOCKS, TILE_BLOCKS) blocks that hold points."""
        filled: Mask = self._sums.totals[..., COUNT] > 0.0
        return filled

    @property
    def arrays(self) -> tuple[Array, Array, Array]:
        """Moments of weights, of heights, and totals, by block; changes to them change the tile."""
        return self._sums.arrays

    @property
    def corner(self) -> tuple[int, int]:
        """Row and column of the first block in the lattice."""
        return self._sums.y.first, self._sums.x.first

    def add(self, xy: Array, z: Array, variance: Any, workers: Workers | None = None) -> None:
        """Add points of this tile; ValueError, and nothing is added, if one is not finite or lies elsewhere.

        xy: (N, 2) positions
        z: (N,) heights
        variance: (N,) or a number, noise variance of each height
        """
        r = np.ascontiguousarray(np.asarray(variance, dtype=np.float64).reshape(-1))
        s = self._sums
        located = locate(xy, z, r, self._bounds, s.x, s.y)
        if located.refused.any():
            raise ValueError(
                f"{located.refused.sum()} of {len(z)} points are not finite, have a variance that is not positive, "
                f"or lie outside tile {self.key}: remove them, or use TiledStatistics.add, which finds the tiles"
            )
        s.add_points(located, 1.0, self.lattice.unresolved, workers or _ONE_THREAD)

    def merge(self, other: TileStatistics) -> None:
        """Add the points of the same tile from another part."""
        self.lattice.require_same(other.lattice)
        if other.key != self.key:
            raise ValueError(f"tiles {self.key} and {other.key} are different places")
        self._sums.add(other._sums)

    def blocks(self) -> Blocks:
        """The blocks that hold points."""
        return blocks_of(self._sums)

    @property
    def _bounds(self) -> Bounds:
        x, y = self._sums.x, self._sums.y
        return (
            (x.first - _ROUNDING) * x.spacing,
            (y.first - _ROUNDING) * y.spacing,
            (x.first + x.count + _ROUNDING) * x.spacing,
            (y.first + y.count + _ROUNDING) * y.spacing,
        )

    def __getstate__(self) -> dict[str, Any]:
        occupied = self.occupied
        return {
            "lattice": self.lattice,
            "key": self.key,
            "occupied": np.packbits(occupied),
            "arrays": [array[occupied] for array in self.arrays],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["lattice"], state["key"])  # type: ignore[misc]
        occupied = np.unpackbits(state["occupied"]).astype(bool).reshape(TILE_BLOCKS, TILE_BLOCKS)
        for array, values in zip(self.arrays, state["arrays"], strict=True):
            array[occupied] = values


class TiledStatistics(Mapping[TileKey, TileStatistics]):
    """Sums over the points of a large area, by tile.

    lattice: of the maps that are to be made from it, `GridGP.lattice`
    threads: for adding points; None for one per core, at most four
    """

    def __init__(self, lattice: Lattice, threads: int | None = 1) -> None:
        self.lattice = lattice
        self._workers = Workers(threads)
        self._tiles: dict[TileKey, TileStatistics] = {}

    def __getitem__(self, key: TileKey) -> TileStatistics:
        return self._tiles[key]

    def __iter__(self) -> Iterator[TileKey]:
        return iter(self._tiles)

    def __len__(self) -> int:
        return len(self._tiles)

    @property
    def count(self) -> float:
        """Number of points."""
        return sum(tile.count for tile in self._tiles.values())

    def add(self, xy: Any, z: Any, variance: Any) -> None:
        """Add points; ValueError if one is not finite. Arguments as in `TileStatistics.add`."""
        xy = np.ascontiguousarray(xy, dtype=np.float64)
        z = np.ascontiguousarray(z, dtype=np.float64)
        r = np.asarray(variance, dtype=np.float64)
        if xy.ndim != 2 or xy.shape[1] != 2 or z.shape != (len(xy),) or (r.ndim and r.shape != z.shape):
            raise ValueError(f"xy, z, variance must be (N, 2), (N,), (N,): {xy.shape}, {z.shape}, {r.shape}")
        if not (np.isfinite(xy).all() and np.isfinite(z).all() and np.isfinite(r).all() and (r > 0.0).all()):
            raise ValueError(
                "xy, z or variance are not finite, or a variance is not positive: remove these points"
            )
        column, row = np.floor(xy / self.lattice.tile_size).astype(np.int64).T
        order = np.lexsort((column, row))  # stable: within a tile the points keep their order
        changes = np.flatnonzero((np.diff(row[order]) != 0) | (np.diff(column[order]) != 0)) + 1
        for part in np.split(order, changes) if len(order) else []:
            key = (int(row[part[0]]), int(column[part[0]]))
            self._tile(key).add(xy[part], z[part], r[part] if r.ndim else r, self._workers)

    def merge(self, other: TiledStatistics | TileStatistics) -> None:
        """Add the points of another part. The other part is not changed."""
        self.lattice.require_same(other.lattice)
        for tile in (other,) if isinstance(other, TileStatistics) else other.values():
            self._tile(tile.key).merge(tile)

    def window(self, bounds: Bounds, max_information: float = np.inf) -> Blocks:
        """The blocks that a box touches, for `GridGP.add_blocks`; see `cut_window`."""
        rows, columns = self.lattice.tiles_in(bounds)
        keys = [(row, column) for row in rows for column in columns if (row, column) in self._tiles]
        return cut_window(self.lattice, (self._tiles[key] for key in keys), bounds, max_information)

    def save(self, path: Path | str) -> None:
        """Write a file that replaces the one at `path` atomically. OSError where the disk refuses."""
        values = {"unresolved": self.lattice.unresolved, "tile_blocks": TILE_BLOCKS}
        parts = [self._tiles[key].blocks() for key in sorted(self._tiles)]
        nowhere = (Axis(self.lattice.spacing[0], 0, 0), Axis(self.lattice.spacing[1], 0, 0))
        empty = Statistics(*nowhere, self.lattice.orders)
        joined = [
            np.concatenate([getattr(part, name) for part in (blocks_of(empty), *parts)])
            for name in ("index", "weights", "heights", "totals")
        ]
        index, weights, heights, totals = joined
        spacing = np.array(self.lattice.spacing)
        save_blocks(
            Path(path), Blocks(index, spacing, self.lattice.reference, weights, heights, totals), values
        )

    @staticmethod
    def load(path: Path | str, threads: int | None = 1) -> TiledStatistics:
        """Read a file of `save`; ValueError, with the reason, if it is damaged or something else."""
        blocks, values = load_blocks(Path(path))
        if values.get("tile_blocks") != TILE_BLOCKS or not isinstance(values.get("unresolved"), float):
            raise ValueError(f"{path}: its tiles have {values.get('tile_blocks')} blocks, not {TILE_BLOCKS}")
        spacing = (float(blocks.spacing[0]), float(blocks.spacing[1]))
        out = TiledStatistics(
            Lattice(spacing, values["unresolved"], blocks.reference, blocks.orders), threads
        )
        keys = blocks.index // TILE_BLOCKS
        for row, column in np.unique(keys, axis=0):
            own = np.flatnonzero((keys[:, 0] == row) & (keys[:, 1] == column))
            tile = out._tile((int(row), int(column)))
            at = tuple((blocks.index[own] - tile.corner).T)
            for array, moments in zip(
                tile.arrays, (blocks.weights, blocks.heights, blocks.totals), strict=True
            ):
                array[at] = moments[own]
        return out

    def _tile(self, key: TileKey) -> TileStatistics:
        if key not in self._tiles:
            self._tiles[key] = TileStatistics(self.lattice, key)
        return self._tiles[key]


def merge(parts: Iterable[TiledStatistics | TileStatistics]) -> TiledStatistics:
    """The sum of one or more parts, none of which is changed."""
    out: TiledStatistics | None = None
    for part in parts:
        out = out or TiledStatistics(part.lattice)
        out.merge(part)
    if out is None:
        raise ValueError("there is nothing to merge: give at least one part")
    return out


def cut_window(
    lattice: Lattice, tiles: Iterable[TileStatistics], bounds: Bounds, max_information: float = np.inf
) -> Blocks:
    """The blocks with points of some tiles, as far as a box touches them.

    Tiles are read one after the other, so that an iterator may load each of them from a file.

    bounds: of the window and its halo
    max_information: 1 / m^2; where the weights of a block sum to more, all its points count less
    """
    first = np.floor(np.array([bounds[1], bounds[0]]) / lattice.spacing[::-1]).astype(np.int64) - 1
    last = np.floor(np.array([bounds[3], bounds[2]]) / lattice.spacing[::-1]).astype(np.int64) + 1
    size = int(np.prod(last - first + 1))
    # Arrays for all, filled tile by tile: the largest arrays of a window are in memory once, not twice.
    index = np.empty((size, 2), dtype=np.int64)
    n, m = lattice.orders
    sums = [np.empty((size, *shape)) for shape in ((n, n), (m, m), (3,))]
    used = 0
    for tile in tiles:
        lattice.require_same(tile.lattice)
        low, high = (np.clip(end - tile.corner, 0, TILE_BLOCKS) for end in (first, last + 1))
        part = np.s_[low[0] : high[0], low[1] : high[1]]
        at = np.nonzero(tile.arrays[0][part][..., 0, 0] > 0.0)
        to = slice(used, used + len(at[0]))
        index[to] = np.column_stack(at) + low + tile.corner
        for array, sum_ in zip(tile.arrays, sums, strict=True):
            sum_[to] = array[part][at]
        used = to.stop
    weights, heights, totals = (sum_[:used] for sum_ in sums)
    factor = np.minimum(1.0, max_information / weights[:, 0, 0])
    weights *= factor[:, None, None]
    heights *= factor[:, None, None]
    totals *= factor[:, None]
    return Blocks(index[:used], np.array(lattice.spacing), lattice.reference, weights, heights, totals)
