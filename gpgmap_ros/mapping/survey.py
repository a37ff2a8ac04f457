"""Surveys of any size: statistics in tiles, of which only some are in memory, and the map window by window.

A point is added to the statistics of its block and forgotten. Blocks are kept in square tiles; those that do not fit
into the memory are on disk (tile_store.py). When all points are in, each window of cells is solved from the blocks in
it and around it. Memory depends on the sizes of tiles and windows, not on the number of points or the extent of the
survey.

The relief is modelled as a deviation from a coarse trend, which is subtracted from the points and added again to the
map: far from the data a map should continue the hillside, not return to the mean height of the survey.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

from gp_core.compiled import compiled
from gp_core.grid import Grid
from gp_core.grid.statistics import Statistics, locate
from gp_core.grid.workers import Workers
from gpgmap_ros.config import Config
from gpgmap_ros.mapping.elevation_map import ElevationMap
from gpgmap_ros.mapping.gpgmap import GPGMap
from gpgmap_ros.mapping.layers import BASE
from gpgmap_ros.mapping.outliers import outlying_cells
from gpgmap_ros.mapping.tile_store import BLOCK_BYTES, TILE_BLOCKS, Key, TileStore
from gpgmap_ros.mapping.window import Blocks, prototype

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

BLOCK_COPIES, CELL_BYTES, SPARE_BYTES = 3.0, 150, 120 << 20
"""Of a window while it is solved: statistics in copies, bytes per cell, and what does not depend on its size."""
MOST_TILES_AT_ONCE = 1 << 18
"""Tiles over whose box a piece of points is sorted in one go; one that reaches farther is divided first."""
HALO = 8.0
"""Length scales around a window whose blocks are solved with it: beyond, a correlation is e^-32."""


@dataclass(frozen=True, eq=False)
class Trend:
    """A cubic B-spline with its coefficients at the middles of coarse cells: smooth, as a GP is; level beyond them.

    origin: x and y of the middle of cell (0, 0); edge: of a cell
    """

    heights: Array
    origin: tuple[float, float]
    edge: float

    def at(self, xy: Array) -> Array:
        """(N,) heights at positions (N, 2)."""
        return _spline_heights(xy, self.heights, *self.origin, self.edge)  # type: ignore[no-any-return]

    def with_gradient(self, xy: Array) -> tuple[Array, Array]:
        """(N,) heights and their gradients (N, 2)."""
        return _spline(xy, self.heights, *self.origin, self.edge)  # type: ignore[no-any-return]


def trend_of(xyz: Array, edge: float) -> Trend:
    """The coarse relief of points (N, 3): means in cells of the given edge, smoothed over their neighbours."""
    low = xyz[:, :2].min(axis=0)
    index = np.floor((xyz[:, :2] - low) / edge).astype(np.int64)
    columns, rows = index.max(axis=0) + 1
    flat = index[:, 1] * columns + index[:, 0]
    count = np.bincount(flat, minlength=rows * columns).reshape(rows, columns).astype(np.float64)
    mean = float(xyz[:, 2].mean())
    total = np.bincount(flat, xyz[:, 2] - mean, minlength=rows * columns).reshape(rows, columns)
    heights = _smoothed(np.where(count > 0, total / np.maximum(count, 1.0), 0.0), count > 0)
    return Trend(heights + mean, (float(low[0] + edge / 2.0), float(low[1] + edge / 2.0)), edge)


def _smoothed(average: Array, known: Mask) -> Array:
    """Known cells smoothed over their neighbours; holes filled from the same with cells twice as large, and so on.

    The number of levels is the logarithm of the number of cells: it ends however far apart the known cells are.
    """
    weight = gaussian_filter(known.astype(np.float64), 0.7, mode="constant")
    reached = weight > 1e-3
    heights = np.where(
        reached,
        gaussian_filter(np.where(known, average, 0.0), 0.7, mode="constant") / np.maximum(weight, 1e-3),
        0.0,
    )
    if reached.all() or average.size == 1:
        return heights
    count, total = _doubled(known.astype(np.float64)), _doubled(np.where(known, average, 0.0))
    coarse = _smoothed(total / np.maximum(count, 1.0), count > 0.0)
    # middles of the fine cells in units of the coarse ones; level beyond the outermost middles
    at = np.meshgrid(*((np.arange(size) - 0.5) / 2.0 for size in average.shape), indexing="ij")
    filled = map_coordinates(coarse, np.stack(at), order=1, mode="nearest")
    return np.where(reached, heights, filled)


def _doubled(cells: Array) -> Array:
    """Sums over squares of two by two cells."""
    rows, columns = cells.shape
    even = np.pad(cells, ((0, rows % 2), (0, columns % 2)))
    return even[0::2, 0::2] + even[0::2, 1::2] + even[1::2, 0::2] + even[1::2, 1::2]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Outliers:
    """Points that were left out: their number, and where the first few, or the middles of groups of them, are."""

    count: int
    places: tuple[tuple[float, ...], ...]


@dataclass
class _Extent:
    """Of the points in a tile: their number, and their box."""

    count: int
    low: Array
    high: Array


class Survey:
    """Collects points; then hands out the map.

    config: resolution, length_scale, relief_std (of the deviations from the trend) and noise.height_std are used
    trend: see above; folder: for tiles that leave the memory; memory: bytes for tiles
    heights: lowest and highest that are taken in; points beyond are counted in `beyond_heights` and left out
    """

    def __init__(
        self,
        config: Config,
        trend: Trend,
        folder: Path,
        memory: int = 1 << 29,
        heights: tuple[float, float] = (-np.inf, np.inf),
    ) -> None:
        self.config, self._trend, self._heights = config, trend, heights
        self.beyond_heights = Outliers(0, ())
        mapping = config.mapping
        self._prior = prototype(mapping.length_scale, mapping.relief_std, mapping.resolution).prior
        self._tiles = TileStore(self._prior.spacing, folder, self._take, memory)
        self._extents: dict[Key, _Extent] = {}
        self._variance = np.array([config.noise.height_std**2])
        self._workers = Workers(None)

    @property
    def count(self) -> int:
        """Points taken in."""
        return sum(extent.count for extent in self._extents.values())

    @property
    def cells_near_points(self) -> int:
        """Cells of the map in tiles with points: no more than these can be known."""
        spacing_x, spacing_y = self._prior.spacing
        area = len(self._extents) * spacing_x * spacing_y * TILE_BLOCKS**2
        return int(area / self.config.mapping.resolution**2)

    @property
    def bytes_stored(self) -> int:
        """Of what is on disk at most."""
        return self._tiles.bytes_stored

    @property
    def bytes_in_memory(self) -> int:
        """Of the tiles."""
        return self._tiles.bytes_in_memory

    def limit_memory(self, memory: int) -> None:
        """Keep tiles of at most so many bytes in memory; the others go to the disk."""
        self._tiles.limit_memory(memory)

    def close(self) -> None:
        """Free the memory of the tiles, when all windows have been made."""
        self._tiles.clear()

    def add(self, xyz: Array) -> None:
        """Take in points (N, 3), all finite."""
        if not len(xyz):
            return
        xyz = np.ascontiguousarray(xyz)
        low, high = _box(xyz)
        lowest, highest = _height_range(xyz)
        if lowest < self._heights[0] or highest > self._heights[1]:
            self.add(self._plausible(xyz))
            return
        edges = np.array([spacing * TILE_BLOCKS for spacing in self._prior.spacing])
        first = np.floor(low / edges).astype(np.int64)
        count = np.floor(high / edges).astype(np.int64) - first + 1
        if count[0] > MOST_TILES_AT_ONCE // count[1]:
            axis = int(np.argmax(count))
            nearer = xyz[:, axis] < 0.5 * (low[axis] + high[axis])
            self.add(xyz[nearer])
            self.add(xyz[~nearer])
            return
        trend = self._trend
        xy, z, starts = _by_tile(xyz, edges, first, count, trend.heights, *trend.origin, trend.edge)
        for number in np.flatnonzero(np.diff(starts)):
            part = slice(starts[number], starts[number + 1])
            row, column = divmod(int(number), int(count[0]))
            self._add((row + int(first[1]), column + int(first[0])), xy[part], z[part])

    def _plausible(self, xyz: Array) -> Array:
        """The points whose heights are within the limits; the others are counted."""
        good = (xyz[:, 2] >= self._heights[0]) & (xyz[:, 2] <= self._heights[1])
        gone, so_far = xyz[~good], self.beyond_heights
        places = (*so_far.places, *(tuple(map(float, row)) for row in gone[:3]))[:3]
        self.beyond_heights = Outliers(so_far.count + len(gone), places)
        return xyz[good]

    def _add(self, key: Key, xy: Array, z: Array) -> None:
        self._tiles.add(key, xy, z)
        low, high = _box(xy)
        extent = self._extents.setdefault(key, _Extent(0, low, high))
        extent.count += len(xy)
        extent.low, extent.high = np.minimum(extent.low, low), np.maximum(extent.high, high)

    def _take(self, s: Statistics, xy: Array, z: Array) -> None:
        everywhere = (-np.inf, -np.inf, np.inf, np.inf)
        located = locate(xy, z, self._variance, everywhere, s.x, s.y)
        s.take(located, 1.0, self._prior.unresolved, self._workers)

    def leave_out_outliers(self) -> Outliers:
        """Forget tiles with few points that lie far from all others; what they held. Call it when all points are in."""
        keys = list(self._extents)
        if not keys:
            return Outliers(0, ())
        counts = np.array([self._extents[key].count for key in keys])
        far = [keys[k] for k in np.flatnonzero(outlying_cells(np.array(keys), counts))]
        gone = [self._extents.pop(key) for key in far]
        for key in far:
            self._tiles.forget(key)
        middles = [0.5 * (extent.low + extent.high) for extent in gone[:3]]
        return Outliers(sum(extent.count for extent in gone), tuple((float(x), float(y)) for x, y in middles))

    def window_bytes(self, cells: int) -> int:
        """Memory that a window of so many cells along each side takes while it is solved: measured, not derived."""
        mapping = self.config.mapping
        side = cells * mapping.resolution + 2.0 * HALO * mapping.length_scale
        blocks = side**2 / (self._prior.spacing[0] * self._prior.spacing[1])
        return (
            int(BLOCK_COPIES * BLOCK_BYTES * blocks + CELL_BYTES * (side / mapping.resolution) ** 2)
            + SPARE_BYTES
        )

    # -- the map -----------------------------------------------------------------------------------------

    @property
    def grid(self) -> Grid:
        """Whole cells, with corners at whole multiples of the resolution, just large enough for all points."""
        edge = self.config.mapping.resolution
        first = np.floor(np.min([extent.low for extent in self._extents.values()], axis=0) / edge)
        last = np.floor(np.max([extent.high for extent in self._extents.values()], axis=0) / edge)
        columns, rows = (last - first + 1).astype(int)
        return Grid((float(first[0] * edge), float(first[1] * edge)), (int(rows), int(columns)), edge)

    def window(self, rows: slice, columns: slice) -> GPGMap | None:
        """The map of a part of `grid`; None where there are no points in it or near it."""
        grid, edge = self.grid, self.config.mapping.resolution
        x, y = grid.origin[0] + columns.start * edge, grid.origin[1] + rows.start * edge
        height, width = rows.stop - rows.start, columns.stop - columns.start
        margin = int(np.ceil(HALO * self.config.mapping.length_scale / edge))
        mapping = dataclasses.replace(
            self.config.mapping, size_x=(width + 2 * margin) * edge, size_y=(height + 2 * margin) * edge
        )
        around = margin * edge
        bounds = (x - around, y - around, x + width * edge + around, y + height * edge + around)
        tiles = self._tiles_in(bounds)
        if not tiles:
            return None
        blocks = self._blocks(tiles, bounds)
        if not len(blocks.index):
            return None
        window = ElevationMap(mapping, (x + 0.5 * width * edge, y + 0.5 * height * edge))
        window.restore(blocks, 0.0)
        del blocks  # copied: the solver needs the room
        relief = window.gpgmap(config=self.config)
        part = np.s_[margin : margin + height, margin : margin + width]
        layers = {name: relief[name][part].astype(np.float64) for name in BASE}
        if not np.isfinite(layers["elevation"]).any():
            return None
        own = Grid((x, y), (height, width), edge)
        centres = own.centers.reshape(-1, 2)
        trend, gradient = self._trend.with_gradient(centres)
        layers["elevation"] += trend.reshape(own.shape)
        layers["gradient_x"] += gradient[:, 0].reshape(own.shape)
        layers["gradient_y"] += gradient[:, 1].reshape(own.shape)
        stack = {name: np.ascontiguousarray(layer, dtype=np.float32) for name, layer in layers.items()}
        return GPGMap(own, stack, "survey", 0, self.config)

    def _tiles_in(self, bounds: tuple[float, float, float, float]) -> list[Key]:
        """The tiles with points that a box (x_min, y_min, x_max, y_max) touches."""
        edge_x, edge_y = (spacing * TILE_BLOCKS for spacing in self._prior.spacing)
        rows = range(int(bounds[1] // edge_y), int(bounds[3] // edge_y) + 1)
        columns = range(int(bounds[0] // edge_x), int(bounds[2] // edge_x) + 1)
        return [(row, column) for row in rows for column in columns if (row, column) in self._extents]

    def _blocks(self, tiles: list[Key], bounds: tuple[float, float, float, float]) -> Blocks:
        """The blocks with points of some tiles, as far as a box touches them.

        Written tile by tile into arrays for all: the largest arrays of a window are here once, not twice.
        """
        first = np.floor(np.array([bounds[1], bounds[0]]) / self._prior.spacing[::-1]).astype(np.int64) - 1
        last = np.floor(np.array([bounds[3], bounds[2]]) / self._prior.spacing[::-1]).astype(np.int64) + 1
        most = 1.0 / self.config.mapping.finest_std**2
        size = int(np.prod(last - first + 1))
        index = np.empty((size, 2), dtype=np.int64)
        sums = [np.empty((size, *array.shape[2:])) for array in self._tiles.tile(tiles[0]).arrays]
        used = 0
        for key in tiles:
            s = self._tiles.tile(key)
            corner = np.array([s.y.first, s.x.first])
            low, high = np.maximum(first - corner, 0), np.minimum(last - corner + 1, TILE_BLOCKS)
            part = np.s_[low[0] : high[0], low[1] : high[1]]
            at = np.nonzero(s.weights[part][..., 0, 0] > 0.0)
            to = slice(used, used + len(at[0]))
            index[to] = np.column_stack(at) + low + corner
            for array, sum_ in zip(s.arrays, sums, strict=True):
                sum_[to] = array[part][at]
            used = to.stop
        weights, heights, totals = (sum_[:used] for sum_ in sums)
        # where points weigh more than `finest_std` allows, all of them count less
        factor = np.minimum(1.0, most / weights[:, 0, 0])
        weights *= factor[:, None, None]
        heights *= factor[:, None, None]
        totals *= factor[:, None]
        return Blocks(index[:used], np.array(self._prior.spacing), 0.0, weights, heights, totals)


@compiled()
def _box(xyz):  # type: ignore[no-untyped-def]
    """Smallest and largest x and y: NumPy takes twenty times as long along the longer axis."""
    x_min, x_max, y_min, y_max = xyz[0, 0], xyz[0, 0], xyz[0, 1], xyz[0, 1]
    for n in range(len(xyz)):
        x, y = xyz[n, 0], xyz[n, 1]
        x_min, x_max = min(x_min, x), max(x_max, x)
        y_min, y_max = min(y_min, y), max(y_max, y)
    return np.array([x_min, y_min]), np.array([x_max, y_max])


@compiled()
def _height_range(xyz):  # type: ignore[no-untyped-def]
    """Smallest and largest z."""
    low = high = xyz[0, 2]
    for n in range(len(xyz)):
        low, high = min(low, xyz[n, 2]), max(high, xyz[n, 2])
    return low, high


@compiled()
def _by_tile(xyz, edges, first, count, heights, x0, y0, edge):  # type: ignore[no-untyped-def]
    """Positions (N, 2) and heights above the trend (N,) in order of the tiles, row by row, and where each tile begins
    (tiles + 1,): a counting sort. One pass over the points where there could be five: they come from memory.
    """
    tiles = count[0] * count[1]
    tile = np.empty(len(xyz), dtype=np.int32)
    starts = np.zeros(tiles + 1, dtype=np.int64)
    for n in range(len(xyz)):
        i = min(max(int(np.floor(xyz[n, 0] / edges[0])) - first[0], 0), count[0] - 1)
        j = min(max(int(np.floor(xyz[n, 1] / edges[1])) - first[1], 0), count[1] - 1)
        tile[n] = j * count[0] + i
        starts[tile[n] + 1] += 1
    for k in range(tiles):
        starts[k + 1] += starts[k]
    fill = starts[:-1].copy()
    xy, z = np.empty((len(xyz), 2)), np.empty(len(xyz))
    for n in range(len(xyz)):
        to = fill[tile[n]]
        fill[tile[n]] += 1
        x, y = xyz[n, 0], xyz[n, 1]
        xy[to, 0], xy[to, 1] = x, y
        z[to] = xyz[n, 2] - _spline_height(x, y, heights, x0, y0, edge)
    return xy, z, starts


@compiled()
def _spline_heights(xy, heights, x0, y0, edge):  # type: ignore[no-untyped-def]
    """As `_spline` without gradients."""
    out = np.empty(len(xy))
    for n in range(len(xy)):
        out[n] = _spline_height(xy[n, 0], xy[n, 1], heights, x0, y0, edge)
    return out


@njit(inline="always")
def _spline_height(x, y, heights, x0, y0, edge):  # type: ignore[no-untyped-def]
    """Every point of a survey comes through here."""
    rows, columns = heights.shape
    u, v = (x - x0) / edge, (y - y0) / edge
    i, j = int(np.floor(u)), int(np.floor(v))
    s, t = u - i, v - j
    s1, t1 = 1.0 - s, 1.0 - t
    a0, a3 = s1 * s1 * s1 / 6.0, s * s * s / 6.0
    a1, a2 = 2.0 / 3.0 - 0.5 * s * s * (2.0 - s), 2.0 / 3.0 - 0.5 * s1 * s1 * (2.0 - s1)
    b = (t1 * t1 * t1 / 6.0, 2.0 / 3.0 - 0.5 * t * t * (2.0 - t),
         2.0 / 3.0 - 0.5 * t1 * t1 * (2.0 - t1), t * t * t / 6.0)  # fmt: skip
    i0, i1 = min(max(i - 1, 0), columns - 1), min(max(i, 0), columns - 1)
    i2, i3 = min(max(i + 1, 0), columns - 1), min(max(i + 2, 0), columns - 1)
    total = 0.0
    for m in range(4):
        row = heights[min(max(j + m - 1, 0), rows - 1)]
        total += b[m] * (a0 * row[i0] + a1 * row[i1] + a2 * row[i2] + a3 * row[i3])
    return total


@compiled()
def _spline(xy, heights, x0, y0, edge):  # type: ignore[no-untyped-def]
    rows, columns = heights.shape
    out = np.zeros(len(xy))
    gradient = np.zeros((len(xy), 2))
    b, d = np.empty((2, 4)), np.empty((2, 4))
    for n in range(len(xy)):
        u, v = (xy[n, 0] - x0) / edge, (xy[n, 1] - y0) / edge
        i, j = int(np.floor(u)), int(np.floor(v))
        for axis, t in ((0, u - i), (1, v - j)):
            w = 1.0 - t
            b[axis, 0], b[axis, 3] = w * w * w / 6.0, t * t * t / 6.0
            b[axis, 1] = 2.0 / 3.0 - 0.5 * t * t * (2.0 - t)
            b[axis, 2] = 2.0 / 3.0 - 0.5 * w * w * (2.0 - w)
            d[axis, 0], d[axis, 3] = -0.5 * w * w, 0.5 * t * t
            d[axis, 1] = 1.5 * t * t - 2.0 * t
            d[axis, 2] = 2.0 * w - 1.5 * w * w
        for m in range(4):
            row = min(max(j + m - 1, 0), rows - 1)
            h = g = 0.0
            for k in range(4):
                value = heights[row, min(max(i + k - 1, 0), columns - 1)]
                h += b[0, k] * value
                g += d[0, k] * value
            out[n] += b[1, m] * h
            gradient[n, 0] += b[1, m] * g / edge
            gradient[n, 1] += d[1, m] * h / edge
    return out, gradient
