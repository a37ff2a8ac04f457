"""The map of a survey, window by window: each is solved from the sums in it and in a halo around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gp_core.arrays import Array
from gp_core.grid import Grid, Workers
from gp_core.grid.tiled_statistics import (
    TILE_BLOCKS,
    Bounds,
    TileKey,
    TileStatistics,
    cut_window,
)
from gpgmap_ros.config import Config
from gpgmap_ros.mapping.elevation_map import ElevationMap
from gpgmap_ros.mapping.gpgmap import GPGMap
from gpgmap_ros.mapping.layers import posterior_layers
from gpgmap_ros.mapping.model import cached_gp, solver_block_bytes, window_halo
from gpgmap_ros.mapping.outliers import outlying_cells
from gpgmap_ros.mapping.survey import Outliers, SurveyModel, SurveyNoise
from gpgmap_ros.mapping.survey_parts import Entries, PartIndex, load_tile

BLOCK_COPIES, CELL_BYTES, SPARE_BYTES = 3.0, 150, 120 << 20
"""Of a window while it is solved: statistics in copies, bytes per cell, and what does not depend on its size."""

Places = Mapping[TileKey, Sequence[tuple[Path, Any]]]
"""Of each tile the parts that have points in it, see `survey_parts.places_by_tile`."""


def find_outliers(parts: Iterable[PartIndex]) -> tuple[set[TileKey], Outliers]:
    """Tiles with few points, far from all others, and what they hold. Call it when all parts are done."""
    keys, counts, low, high = _tile_totals(parts)
    if not len(keys):
        return set(), Outliers()
    far = np.flatnonzero(outlying_cells(keys, counts))
    middles = 0.5 * (low[far[:3]] + high[far[:3]])
    places = tuple((float(x), float(y)) for x, y in middles)
    return {(int(row), int(column)) for row, column in keys[far]}, Outliers(int(counts[far].sum()), places)


def without_tiles(part: PartIndex, gone: set[TileKey]) -> PartIndex:
    """The part as if it had no points in some tiles."""
    kept = [(int(entry["row"]), int(entry["column"])) not in gone for entry in part.entries]
    return part if all(kept) else dataclasses.replace(part, entries=part.entries[np.array(kept)])


def _tile_totals(parts: Iterable[PartIndex]) -> tuple[Any, Any, Array, Array]:
    """Keys (K, 2) of all tiles, the number of points in each (K,), and their boxes (K, 2), (K, 2)."""
    entries: Entries = np.concatenate([part.entries for part in parts])
    keys, tile = np.unique(np.column_stack([entries["row"], entries["column"]]), axis=0, return_inverse=True)
    tile = tile.reshape(-1)
    counts = np.zeros(len(keys), dtype=np.int64)
    np.add.at(counts, tile, entries["count"])
    low, high = np.full((len(keys), 2), np.inf), np.full((len(keys), 2), -np.inf)
    np.minimum.at(low, tile, entries["low"])
    np.maximum.at(high, tile, entries["high"])
    return keys, counts, low, high


def survey_grid(parts: Iterable[PartIndex], resolution: float) -> Grid:
    """Whole cells, with corners at whole multiples of the resolution, just large enough for all points."""
    boxes = [
        (part.entries["low"].min(axis=0), part.entries["high"].max(axis=0))
        for part in parts
        if len(part.entries)
    ]
    first = np.floor(np.min([low for low, _ in boxes], axis=0) / resolution)
    last = np.floor(np.max([high for _, high in boxes], axis=0) / resolution)
    columns, rows = (last - first + 1).astype(int)
    origin = (float(first[0] * resolution), float(first[1] * resolution))
    return Grid(origin, (int(rows), int(columns)), resolution)


def cells_near_points(config: Config, tiles: int) -> int:
    """Cells of the map in so many tiles with points: no more than these can be known."""
    spacing_x, spacing_y = cached_gp(config.mapping).lattice.spacing
    return int(tiles * spacing_x * spacing_y * TILE_BLOCKS**2 / config.mapping.resolution**2)


def window_bytes(config: Config, cells: int) -> int:
    """Memory that a window of so many cells along each side takes while it is solved: measured, not derived."""
    mapping = config.mapping
    side = cells * mapping.resolution + 2.0 * window_halo(mapping)
    lattice = cached_gp(mapping).lattice
    blocks = side**2 / (lattice.spacing[0] * lattice.spacing[1])
    return (
        int((BLOCK_COPIES * lattice.orders.block_bytes + solver_block_bytes(mapping)) * blocks)
        + int(CELL_BYTES * (side / mapping.resolution) ** 2)
        + SPARE_BYTES
    )


def window_bounds(model: SurveyModel, grid: Grid, rows: slice, columns: slice) -> Bounds:
    """Of a part of the map with the halo whose points count there."""
    edge = model.config.mapping.resolution
    around = np.ceil(window_halo(model.config.mapping) / edge)
    return (
        grid.origin[0] + (columns.start - around) * edge,
        grid.origin[1] + (rows.start - around) * edge,
        grid.origin[0] + (columns.stop + around) * edge,
        grid.origin[1] + (rows.stop + around) * edge,
    )


def load_tiles(
    model: SurveyModel, grid: Grid, rows: slice, columns: slice, places: Places, workers: Workers
) -> dict[TileKey, TileStatistics]:
    """The sums of the tiles with points that a part of `grid` and its halo touch."""
    down, across = model.lattice.tiles_in(window_bounds(model, grid, rows, columns))
    keys = [(row, column) for row in down for column in across if (row, column) in places]
    return {key: load_tile(model, key, places[key], workers) for key in keys}


def restore_window(
    model: SurveyModel,
    grid: Grid,
    rows: slice,
    columns: slice,
    tiles: Mapping[TileKey, TileStatistics],
    noise: SurveyNoise | None,
    shape: tuple[int, int] | None = None,
) -> tuple[ElevationMap, int] | None:
    """A part of `grid` with its halo, not solved yet, and the cells of the halo; None where there are no points.

    The other arguments: see `solve_window`.
    """
    mapping, edge = model.config.mapping, model.config.mapping.resolution
    height, width = rows.stop - rows.start, columns.stop - columns.start
    bounds = window_bounds(model, grid, rows, columns)
    margin = int(np.ceil(window_halo(mapping) / edge))
    down, across = max(height, shape[0]) if shape else height, max(width, shape[1]) if shape else width
    around = dataclasses.replace(
        mapping, size_x=(across + 2 * margin) * edge, size_y=(down + 2 * margin) * edge
    )
    rows_of_tiles, columns_of_tiles = model.lattice.tiles_in(bounds)
    touched = [
        tiles[row, column] for row in rows_of_tiles for column in columns_of_tiles if (row, column) in tiles
    ]
    blocks = cut_window(model.lattice, touched, bounds, 1.0 / mapping.finest_std**2)
    if not len(blocks.index):
        return None
    x, y = grid.origin[0] + columns.start * edge, grid.origin[1] + rows.start * edge
    window = ElevationMap(around, (x + 0.5 * across * edge, y + 0.5 * down * edge), batch=True)
    if noise is None:
        window.restore(blocks, 0.0)
    else:
        window.restore(blocks, 0.0, noise.level, noise.scale)
    # `cut_window` gives every block that the bounds touch, the window takes those that its cells reach
    return (window, margin) if window.count else None


def solve_window(
    model: SurveyModel,
    grid: Grid,
    rows: slice,
    columns: slice,
    tiles: Mapping[TileKey, TileStatistics],
    noise: SurveyNoise | None,
    shape: tuple[int, int] | None = None,
) -> GPGMap | None:
    """The map of a part of `grid`; None where there are no points in it or near it.

    tiles: those that the part and its halo touch, see `load_tiles`; there may be more
    noise: of the whole survey, see `survey_noise`; None where noise is not learned
    shape: rows and columns that are solved, with none beyond the part known: windows of one shape share the tables of
        the prior, which take longer to compute than a window
    """
    restored = restore_window(model, grid, rows, columns, tiles, noise, shape)
    if restored is None:
        return None
    window, margin = restored
    mapping, edge = model.config.mapping, grid.resolution
    height, width = rows.stop - rows.start, columns.stop - columns.start
    relief = window.gpgmap(config=model.config)
    part = np.s_[margin : margin + height, margin : margin + width]
    layers = {name: relief[name][part].astype(np.float64) for name in posterior_layers(mapping)}
    if not np.isfinite(layers["elevation"]).any():
        return None
    x, y = grid.origin[0] + columns.start * edge, grid.origin[1] + rows.start * edge
    own = Grid((x, y), (height, width), edge)
    trend, gradient = model.trend.with_gradient(own.centers.reshape(-1, 2))
    layers["elevation"] += trend.reshape(own.shape)
    layers["gradient_x"] += gradient[:, 0].reshape(own.shape)
    layers["gradient_y"] += gradient[:, 1].reshape(own.shape)
    stack = {name: np.ascontiguousarray(layer, dtype=np.float32) for name, layer in layers.items()}
    return GPGMap(own, stack, "survey", 0, model.config)
