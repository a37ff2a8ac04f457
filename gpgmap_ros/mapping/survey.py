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

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid import Grid
from gp_core.grid.blocks import statistics_of
from gp_core.grid.noise_level import estimate_noise_level
from gp_core.grid.tiled_statistics import BLOCK_BYTES, TILE_BLOCKS, Bounds, TileKey, cut_window
from gpgmap_ros.config import Config
from gpgmap_ros.mapping.elevation_map import ElevationMap
from gpgmap_ros.mapping.gpgmap import GPGMap
from gpgmap_ros.mapping.layers import posterior_layers
from gpgmap_ros.mapping.model import cached_gp, solver_block_bytes, terrain_kernel, window_halo
from gpgmap_ros.mapping.outliers import outlying_cells
from gpgmap_ros.mapping.survey_trend import Trend, spline_height, trend_of
from gpgmap_ros.mapping.tile_store import TileStore

__all__ = ["Outliers", "Survey", "Trend", "trend_of"]

BLOCK_COPIES, CELL_BYTES, SPARE_BYTES = 3.0, 150, 120 << 20
"""Of a window while it is solved: statistics in copies, bytes per cell, and what does not depend on its size."""
LEVEL_TILES = 9
"""Tiles, those with the most points, from which the noise level of all windows is estimated."""
MAX_TILES_AT_ONCE = 1 << 18
"""Tiles over whose box a piece of points is sorted in one go; one that reaches farther is divided first."""


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
    """Statistics of all points of a survey, and the map that follows from them, window by window.

    config: resolution, kernel, its length, its relief (of deviations from the trend) and noise.height_std are used
    trend: see above; folder: for tiles that leave the memory; memory: bytes for tiles
    heights: lowest and highest that are used; points beyond are counted in `beyond_heights` and left out
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
        self._lattice = cached_gp(mapping).lattice
        self._tiles = TileStore(self._lattice, config.noise.height_std**2, folder, memory)
        self._extents: dict[TileKey, _Extent] = {}
        self._noise_level: float | None = None

    @property
    def count(self) -> int:
        """Number of points."""
        return sum(extent.count for extent in self._extents.values())

    @property
    def cells_near_points(self) -> int:
        """Cells of the map in tiles with points: no more than these can be known."""
        spacing_x, spacing_y = self._lattice.spacing
        area = len(self._extents) * spacing_x * spacing_y * TILE_BLOCKS**2
        return int(area / self.config.mapping.resolution**2)

    @property
    def bytes_stored(self) -> int:
        """Upper bound on what is on disk."""
        return self._tiles.bytes_stored

    @property
    def bytes_in_memory(self) -> int:
        """Memory of the tiles."""
        return self._tiles.bytes_in_memory

    def limit_memory(self, memory: int) -> None:
        """Keep at most so many bytes of tiles in memory, and the others on disk."""
        self._tiles.limit_memory(memory)

    def close(self) -> None:
        """Free the memory of the tiles. Call it after the last window."""
        self._tiles.clear()

    def add(self, xyz: Array) -> None:
        """Add points (N, 3), all finite."""
        if not len(xyz):
            return
        xyz = np.ascontiguousarray(xyz)
        low, high = _box(xyz)
        lowest, highest = _height_range(xyz)
        if lowest < self._heights[0] or highest > self._heights[1]:
            self.add(self._drop_implausible(xyz))
            return
        edges = np.array(self._lattice.tile_size)
        first = np.floor(low / edges).astype(np.int64)
        count = np.floor(high / edges).astype(np.int64) - first + 1
        if count[0] > MAX_TILES_AT_ONCE // count[1]:
            axis = int(np.argmax(count))
            nearer = xyz[:, axis] < 0.5 * (low[axis] + high[axis])
            self.add(xyz[nearer])
            self.add(xyz[~nearer])
            return
        trend = self._trend
        xy, z, starts = _sort_by_tile(xyz, edges, first, count, trend.heights, *trend.origin, trend.edge)
        for number in np.flatnonzero(np.diff(starts)):
            part = slice(starts[number], starts[number + 1])
            row, column = divmod(int(number), int(count[0]))
            self._add((row + int(first[1]), column + int(first[0])), xy[part], z[part])

    def _drop_implausible(self, xyz: Array) -> Array:
        """The points whose heights are within the limits; the others are counted."""
        good = (xyz[:, 2] >= self._heights[0]) & (xyz[:, 2] <= self._heights[1])
        gone, so_far = xyz[~good], self.beyond_heights
        places = (*so_far.places, *(tuple(map(float, row)) for row in gone[:3]))[:3]
        self.beyond_heights = Outliers(so_far.count + len(gone), places)
        return xyz[good]

    def _add(self, key: TileKey, xy: Array, z: Array) -> None:
        self._tiles.add(key, xy, z)
        low, high = _box(xy)
        extent = self._extents.setdefault(key, _Extent(0, low, high))
        extent.count += len(xy)
        extent.low, extent.high = np.minimum(extent.low, low), np.maximum(extent.high, high)

    def leave_out_outliers(self) -> Outliers:
        """Remove tiles with few points, far from all others; returns what they held. Call it when all points are in."""
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
        side = cells * mapping.resolution + 2.0 * window_halo(mapping)
        blocks = side**2 / (self._lattice.spacing[0] * self._lattice.spacing[1])
        return (
            int((BLOCK_COPIES * BLOCK_BYTES + solver_block_bytes(mapping)) * blocks)
            + int(CELL_BYTES * (side / mapping.resolution) ** 2)
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
        """Solve the map of a part of `grid`; None where there are no points in it or near it."""
        grid, edge = self.grid, self.config.mapping.resolution
        x, y = grid.origin[0] + columns.start * edge, grid.origin[1] + rows.start * edge
        height, width = rows.stop - rows.start, columns.stop - columns.start
        margin = int(np.ceil(window_halo(self.config.mapping) / edge))
        mapping = dataclasses.replace(
            self.config.mapping, size_x=(width + 2 * margin) * edge, size_y=(height + 2 * margin) * edge
        )
        around = margin * edge
        bounds = (x - around, y - around, x + width * edge + around, y + height * edge + around)
        tiles = self._tiles_in(bounds)
        if not tiles:
            return None
        loaded = (self._tiles.tile(key) for key in tiles)
        blocks = cut_window(self._lattice, loaded, bounds, 1.0 / self.config.mapping.finest_std**2)
        if not len(blocks.index):
            return None
        window = ElevationMap(mapping, (x + 0.5 * width * edge, y + 0.5 * height * edge))
        window.restore(blocks, 0.0, self.noise_level if mapping.learn_noise else None)
        del blocks  # copied: the solver needs the room
        relief = window.gpgmap(config=self.config)
        part = np.s_[margin : margin + height, margin : margin + width]
        layers = {name: relief[name][part].astype(np.float64) for name in posterior_layers(mapping)}
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

    @property
    def noise_level(self) -> float:
        """Factor on the noise variances of all points, the same for every window: the median of some tiles' own."""
        if self._noise_level is None:
            by_count = sorted(self._extents, key=lambda key: (-self._extents[key].count, key))
            kernel, found = terrain_kernel(self.config.mapping), []
            for key in by_count[:LEVEL_TILES]:
                x, y = self._lattice.axes(key)
                inside = (x.middles[0], y.middles[0], x.middles[-1], y.middles[-1])
                blocks = cut_window(self._lattice, [self._tiles.tile(key)], inside)
                level = estimate_noise_level(statistics_of(blocks, x, y), kernel)
                found += [] if level is None else [level]
            self._noise_level = float(np.median(found)) if found else 1.0
        return self._noise_level

    def _tiles_in(self, bounds: Bounds) -> list[TileKey]:
        """The tiles with points that a box touches."""
        rows, columns = self._lattice.tiles_in(bounds)
        return [(row, column) for row in rows for column in columns if (row, column) in self._extents]


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
def _sort_by_tile(xyz, edges, first, count, heights, x0, y0, edge):  # type: ignore[no-untyped-def]
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
        z[to] = xyz[n, 2] - spline_height(x, y, heights, x0, y0, edge)
    return xy, z, starts
