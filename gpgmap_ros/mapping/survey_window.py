"""The map of a survey, window by window: each is solved from the sums in it and in a halo around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gp_core.arrays import Array
from gp_core.grid import Grid, Workers
from gp_core.grid.tiled_statistics import BLOCK_BYTES, TILE_BLOCKS, Bounds, TileKey, cut_window
from gpgmap_ros.config import Config
from gpgmap_ros.mapping.elevation_map import ElevationMap
from gpgmap_ros.mapping.gpgmap import GPGMap
from gpgmap_ros.mapping.layers import posterior_layers
from gpgmap_ros.mapping.model import cached_gp, solver_block_bytes, window_halo
from gpgmap_ros.mapping.outliers import outlying_cells
from gpgmap_ros.mapping.survey import Outliers, SurveyModel
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
    spacing = cached_gp(mapping).lattice.spacing
    return (
        int((BLOCK_COPIES * BLOCK_BYTES + solver_block_bytes(mapping)) * side**2 / (spacing[0] * spacing[1]))
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


def tiles_of_window(model: SurveyModel, bounds: Bounds, known: Places) -> list[TileKey]:
    """The tiles with points that a box touches."""
    rows, columns = model.lattice.tiles_in(bounds)
    return [(row, column) for row in rows for column in columns if (row, column) in known]


def solve_window(
    model: SurveyModel,
    grid: Grid,
    rows: slice,
    columns: slice,
    places: Places,
    noise_level: float | None,
    workers: Workers,
) -> GPGMap | None:
    """The map of a part of `grid`; None where there are no points in it or near it.

    noise_level: of the whole survey, see `survey_noise`; None where noise is not learned
    """
    mapping, edge = model.config.mapping, model.config.mapping.resolution
    height, width = rows.stop - rows.start, columns.stop - columns.start
    bounds = window_bounds(model, grid, rows, columns)
    margin = int(np.ceil(window_halo(mapping) / edge))
    around = dataclasses.replace(
        mapping, size_x=(width + 2 * margin) * edge, size_y=(height + 2 * margin) * edge
    )
    keys = tiles_of_window(model, bounds, places)
    loaded = (load_tile(model, key, places[key], workers) for key in keys)
    blocks = cut_window(model.lattice, loaded, bounds, 1.0 / mapping.finest_std**2)
    if not len(blocks.index):
        return None
    x, y = grid.origin[0] + columns.start * edge, grid.origin[1] + rows.start * edge
    window = ElevationMap(around, (x + 0.5 * width * edge, y + 0.5 * height * edge))
    window.restore(blocks, 0.0, noise_level)
    del blocks  # copied: the solver needs the room
    relief = window.gpgmap(config=model.config)
    part = np.s_[margin : margin + height, margin : margin + width]
    layers = {name: relief[name][part].astype(np.float64) for name in posterior_layers(mapping)}
    if not np.isfinite(layers["elevation"]).any():
        return None
    own = Grid((x, y), (height, width), edge)
    trend, gradient = model.trend.with_gradient(own.centers.reshape(-1, 2))
    layers["elevation"] += trend.reshape(own.shape)
    layers["gradient_x"] += gradient[:, 0].reshape(own.shape)
    layers["gradient_y"] += gradient[:, 1].reshape(own.shape)
    stack = {name: np.ascontiguousarray(layer, dtype=np.float32) for name, layer in layers.items()}
    return GPGMap(own, stack, "survey", 0, model.config)
