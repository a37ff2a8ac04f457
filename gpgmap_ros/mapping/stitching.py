"""One map from many submaps under corrected poses: their statistics are fused again, not their pictures.

Each submap keeps a point for each cell (pseudo_points.py). Under a pose they are points like any others; a Gaussian
process over all of them is the global map, with mean and variance as if every cloud had been fused at its corrected
place. Its kernel is the map's, and its noise is learned like the map's: one level for the whole, a scale by place. The
map is solved in square tiles with a margin, so that memory is bounded whatever the extent: a tile knows the submaps
that reach it and loads those alone.

Heights are a deviation from the ground at large, a surface that is bilinear between nodes many length scales apart, so
that hills of any height fit one prior and tiles join without a step.

The layer `variance` is what the clouds say if the poses are right. Where the poses' covariances are given, the layer
`pose_variance` is what these add (pose_variance.py): the sum is the variance of a height at given coordinates, the
first alone that of heights against their neighbours, which move with them.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from gp_core.grid import Grid
from gpgmap_ros.arrays import Array
from gpgmap_ros.config import Config
from gpgmap_ros.geometry import apply
from gpgmap_ros.mapping.coarse_ground import CoarseGround
from gpgmap_ros.mapping.elevation_map import ElevationMap
from gpgmap_ros.mapping.gpgmap import GPGMap
from gpgmap_ros.mapping.layers import BASE, POSE_VARIANCE
from gpgmap_ros.mapping.model import (
    correlation_length,
    prior_gradient_variance,
    prior_variance,
    window_halo,
)
from gpgmap_ros.mapping.pose_variance import PosedSubmap, pose_variance
from gpgmap_ros.mapping.submap_store import SubmapStore
from gpgmap_ros.mapping.submaps import Submap

TILE_CELLS, TILE_SCALES = 256, 60.0
"""Cells and length scales along an edge of a tile, at most: with its margin it is then solved in one piece."""
TILE_SIZES = 8
"""Different sizes of tiles, up to the largest."""
LEVEL_TILES = 9
"""Tiles, those with the most points, from which the noise level is estimated."""
GROUND_SCALES = 40.0
"""Length scales between the nodes of the ground at large: about what a local map around the robot is wide."""
MAX_CELLS = 16_000_000
"""Of one map in memory, unless more are allowed: 400 MB with all base layers."""
KEPT = 12
"""Submaps whose points stay in memory from tile to tile."""


class StitchError(ValueError):
    """Submaps that can't be stitched: which, and what to do."""


@dataclass(frozen=True)
class Part:
    """A submap in the global frame.

    bounds: x_min, y_min, x_max, y_max of its known cells; stamp: of its newest data
    """

    id: int
    T_map_submap: Array
    bounds: tuple[float, float, float, float]
    stamp: int
    load: Callable[[], Submap]


def stitch(
    submaps: Iterable[Submap] | SubmapStore,
    poses: Mapping[int, Array],
    config: Config,
    frame_id: str = "map",
    resolution: float | None = None,
    max_cells: int = MAX_CELLS,
    covariances: Mapping[int, Array] | None = None,
) -> GPGMap:
    """The global map of the submaps that have a pose, in one piece.

    submaps: finished ones, or the store that has them; poses: T_map_submap (4, 4) by number
    config: prior and limits, as the submaps were made with
    resolution: edge of a cell in metres, `mapping.resolution` unless given
    max_cells: StitchError beyond it: take a coarser resolution, or tile by tile (`stitch_tiles`)
    covariances: (6, 6) of the poses by number, over (x, y, z, roll, pitch, yaw) along the map's axes, as
        `LoopCloser.covariances` has them: the map then has the layer `pose_variance`
    """
    stitcher = Stitcher(submaps, poses, config, frame_id, resolution, covariances)
    rows, columns = stitcher.grid.shape
    if rows * columns > max_cells:
        coarser = stitcher.grid.resolution * np.sqrt(rows * columns / max_cells)
        raise StitchError(
            f"the map would have {rows} x {columns} cells, more than {max_cells:,}: "
            f"take cells of {coarser:.2g} m or more, or stitch tile by tile"
        )
    slope = prior_gradient_variance(stitcher.mapping)
    empty = {
        "variance": prior_variance(stitcher.mapping),
        "gradient_x_variance": slope,
        "gradient_y_variance": slope,
    }
    names = BASE if covariances is None else (*BASE, POSE_VARIANCE)
    layers = {name: np.full((rows, columns), empty.get(name, np.nan), dtype=np.float32) for name in names}
    for tile in stitcher:
        row, column = cell_offset(stitcher.grid, tile.grid)
        part = np.s_[row : row + tile.grid.shape[0], column : column + tile.grid.shape[1]]
        for name in names:
            layers[name][part] = tile[name]
    return GPGMap(stitcher.grid, layers, frame_id, stitcher.stamp, config)


def stitch_tiles(
    submaps: Iterable[Submap] | SubmapStore,
    poses: Mapping[int, Array],
    config: Config,
    frame_id: str = "map",
    resolution: float | None = None,
    covariances: Mapping[int, Array] | None = None,
) -> Iterator[GPGMap]:
    """The same map piece by piece, for any extent: the tiles in which something is known, row by row from the south."""
    yield from Stitcher(submaps, poses, config, frame_id, resolution, covariances)


class Stitcher:
    """What the tiles of one global map share.

    grid: cells of the whole map; mapping: the settings, with the resolution of these cells
    stamp: of the newest data in it
    """

    def __init__(
        self,
        submaps: Iterable[Submap] | SubmapStore,
        poses: Mapping[int, Array],
        config: Config,
        frame_id: str = "map",
        resolution: float | None = None,
        covariances: Mapping[int, Array] | None = None,
    ) -> None:
        self._config, self._frame_id, self._covariances = config, frame_id, covariances
        self._parts = list(parts_of(submaps, poses))
        if not self._parts:
            raise StitchError("no submap has a pose: there is nothing to stitch")
        if covariances is not None:
            check_covariances(self._parts, covariances)
        self._cache: OrderedDict[int, tuple[Array, Array]] = OrderedDict()
        bounds = np.array([part.bounds for part in self._parts])
        low, high = bounds[:, :2].min(axis=0), bounds[:, 2:].max(axis=0)
        edge = resolution or config.mapping.resolution
        first, last = np.floor(low / edge).astype(int), np.ceil(high / edge).astype(int)
        shape = (max(int(last[1] - first[1]), 1), max(int(last[0] - first[0]), 1))
        self.grid = Grid((float(first[0] * edge), float(first[1] * edge)), shape, edge)
        self.mapping = dataclasses.replace(
            config.mapping,
            resolution=edge,
            size_x=max(config.mapping.size_x, edge),
            size_y=max(config.mapping.size_y, edge),
        )
        self.stamp = max(part.stamp for part in self._parts)
        most = max(1, min(TILE_CELLS, int(TILE_SCALES * correlation_length(self.mapping) / edge)))
        self._tile_shape = tile_edge(shape[0], most), tile_edge(shape[1], most)
        self._ground: CoarseGround | None = None

    def __iter__(self) -> Iterator[GPGMap]:
        if self._ground is None:
            spacing = GROUND_SCALES * self._config.mapping.length_scale
            self._ground = CoarseGround((self._points(part)[0] for part in self._parts), self.grid, spacing)
        touched = self._tiles_with_submaps()
        level = self._noise_level(touched, self._ground) if self.mapping.learn_noise else None
        for row, column in sorted(touched):
            tile = self._tile(self._tile_grid(row, column), touched[row, column], self._ground, level)
            if tile is not None:
                yield tile

    def _noise_level(self, touched: dict[tuple[int, int], list[Part]], ground: CoarseGround) -> float | None:
        """The median of the levels of the tiles that most submaps reach; one for all, so that tiles join smoothly."""
        levels = []
        for place in sorted(touched, key=lambda place: (-len(touched[place]), place))[:LEVEL_TILES]:
            window = self._window(self._tile_grid(*place), 0, touched[place], ground)
            level = None if window is None else window.estimate_noise_level()
            levels += [] if level is None else [level]
        return float(np.median(levels)) if levels else None

    def _tiles_with_submaps(self) -> dict[tuple[int, int], list[Part]]:
        """The tiles, by row and column, that submaps reach, with those submaps."""
        cells = np.array(self._tile_shape[::-1])
        edge = cells * self.grid.resolution
        reach = window_halo(self.mapping)
        last = (np.array(self.grid.shape[::-1]) - 1) // cells
        out: dict[tuple[int, int], list[Part]] = {}
        for part in self._parts:
            bounds = np.array(part.bounds).reshape(2, 2) - self.grid.origin + [[-reach], [reach]]
            (left, bottom), (right, top) = np.clip(np.floor(bounds / edge).astype(int), 0, last)
            for row in range(bottom, top + 1):
                for column in range(left, right + 1):
                    out.setdefault((row, column), []).append(part)
        return out

    def _tile_grid(self, row: int, column: int) -> Grid:
        """The cells of a tile; the last ones of a row or column reach beyond the map: all are of one size."""
        grid, (rows, columns) = self.grid, self._tile_shape
        corner = (
            grid.origin[0] + column * columns * grid.resolution,
            grid.origin[1] + row * rows * grid.resolution,
        )
        return Grid(corner, self._tile_shape, grid.resolution)

    def _on_map(self, tile: Grid) -> Grid:
        """The part of a tile that is on the map."""
        row, column = cell_offset(self.grid, tile)
        shape = (
            min(tile.shape[0], self.grid.shape[0] - row),
            min(tile.shape[1], self.grid.shape[1] - column),
        )
        return Grid(tile.origin, shape, tile.resolution)

    def _tile(
        self, grid: Grid, parts: list[Part], ground: CoarseGround, noise_level: float | None
    ) -> GPGMap | None:
        """One tile of the submaps that reach it; None where none of their points does."""
        margin = int(np.ceil(window_halo(self.mapping) / grid.resolution))
        window = self._window(grid, margin, parts, ground)
        grid = self._on_map(grid)
        if window is None:
            return None
        if noise_level is not None:
            window.set_noise_level(noise_level)
        relief = window.gpgmap(self._frame_id, self.stamp, self._config)
        core = np.s_[margin : margin + grid.shape[0], margin : margin + grid.shape[1]]
        layers = {name: relief[name][core].astype(np.float64) for name in BASE}
        at = grid.centers.reshape(-1, 2)
        gradient = ground.gradient(at).reshape(*grid.shape, 2)
        layers["elevation"] += ground.height(at).reshape(grid.shape)
        layers["gradient_x"] += gradient[..., 0]
        layers["gradient_y"] += gradient[..., 1]
        if self._covariances is not None:
            gradient += window.posterior().gradient[core]
            layers[POSE_VARIANCE] = pose_variance(
                grid, layers["elevation"], gradient, self._posed_submaps(parts), self.mapping.length_scale
            )
        layers = {name: layer.astype(np.float32) for name, layer in layers.items()}
        return GPGMap(grid, layers, self._frame_id, self.stamp, self._config)

    def _window(
        self, grid: Grid, margin: int, parts: list[Part], ground: CoarseGround
    ) -> ElevationMap | None:
        """The relief on the ground at large of a tile and so many cells around it; None where there are no points."""
        x_min, y_min, x_max, y_max = grid.bounds
        around = margin * grid.resolution
        low, high = np.array([x_min, y_min]) - around, np.array([x_max, y_max]) + around
        found = []
        for part in parts:  # what is beyond the window need not be in memory for all of them at once
            xyz, variance = self._points(part)
            inside = ((xyz[:, :2] >= low) & (xyz[:, :2] < high)).all(axis=1)
            found.append((xyz[inside], variance[inside]))
        xyz, variance = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        if not len(xyz):
            return None
        width, height = (high - low).tolist()
        window = ElevationMap(
            dataclasses.replace(self.mapping, size_x=width, size_y=height),
            centre=0.5 * (low + high),
            mean=0.0,
        )
        window.add(np.column_stack([xyz[:, :2], xyz[:, 2] - ground.height(xyz[:, :2])]), variance)
        return window

    def _posed_submaps(self, parts: list[Part]) -> Iterator[PosedSubmap]:
        """The submaps with the covariances of their poses, one after another."""
        assert self._covariances is not None
        for part in parts:
            xyz, variance = self._points(part)
            covariance = np.asarray(self._covariances[part.id], dtype=np.float64)
            yield PosedSubmap(part.T_map_submap[:3, 3], covariance, xyz[:, :2], 1.0 / variance)

    def _points(self, part: Part) -> tuple[Array, Array]:
        """Points (N, 3) of a submap in the global frame and their variances (N,)."""
        if part.id in self._cache:
            self._cache.move_to_end(part.id)
            return self._cache[part.id]
        points = part.load().points
        if points is None:
            raise StitchError(
                f"submap {part.id} was written by an earlier version, without its statistics: it cannot be stitched"
            )
        xyz = apply(part.T_map_submap, points.xyz.astype(np.float64))
        self._cache[part.id] = xyz, points.variance.astype(np.float64)
        if len(self._cache) > KEPT:
            self._cache.popitem(last=False)
        return self._cache[part.id]


def parts_of(submaps: Iterable[Submap] | SubmapStore, poses: Mapping[int, Array]) -> Iterator[Part]:
    """The submaps that have a pose, without their points."""
    if isinstance(submaps, SubmapStore):
        for info in submaps.infos():
            if info.id in poses:
                yield Part(
                    info.id,
                    poses[info.id],
                    transform_bounds(info.grid, poses[info.id]),
                    info.last_stamp,
                    partial(submaps.load, info.id),
                )
        return
    for submap in submaps:
        if submap.id in poses:
            T = poses[submap.id]
            bounds = transform_bounds(submap.gpgmap.grid, T)
            yield Part(submap.id, T, bounds, submap.last_stamp, partial(_identity, submap))


def check_covariances(parts: Iterable[Part], covariances: Mapping[int, Array]) -> None:
    for part in parts:
        if part.id not in covariances:
            raise StitchError(f"submap {part.id} has a pose, but its covariance is not given")
        covariance = np.asarray(covariances[part.id], dtype=np.float64)
        if covariance.shape != (6, 6) or not np.isfinite(covariance).all():
            raise StitchError(f"the covariance of submap {part.id} must be 6 x 6 and finite")


def _identity(submap: Submap) -> Submap:
    return submap


def transform_bounds(grid: Grid, T: Array) -> tuple[float, float, float, float]:
    """x_min, y_min, x_max, y_max of a grid under a pose."""
    x_min, y_min, x_max, y_max = grid.bounds
    corners = np.array([[x, y, 0.0] for x in (x_min, x_max) for y in (y_min, y_max)])
    xy = apply(T, corners)[:, :2]
    return (*map(float, xy.min(axis=0)), *map(float, xy.max(axis=0)))  # type: ignore[return-value]


def tile_edge(cells: int, most: int) -> int:
    """Cells along the edge of tiles of one size: one of few sizes, because solving a new one begins with tables."""
    tiles = -(-cells // most)
    step = max(1, most // TILE_SIZES)
    return min(-(-cells // (tiles * step)) * step, most)


def cell_offset(outer: Grid, inner: Grid) -> tuple[int, int]:
    """Row and column of the inner grid's first cell in the outer one."""
    off = np.round((np.array(inner.origin) - outer.origin) / outer.resolution).astype(int)
    return int(off[1]), int(off[0])
