"""The noise of a survey, learned on a sample of its places and then fixed: the same for every window.

Windows that learned it each for itself would state different variances on both sides of their common edge.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gp_core.grid import Grid, Workers
from gp_core.grid.blocks import statistics_of
from gp_core.grid.local_scale import BlockResiduals, learn_scale_prior
from gp_core.grid.noise_level import estimate_noise_level
from gp_core.grid.tiled_statistics import TileKey, cut_window
from gpgmap_ros.mapping.model import terrain_kernel
from gpgmap_ros.mapping.survey import SurveyModel, SurveyNoise
from gpgmap_ros.mapping.survey_parts import PartIndex, load_tile, places_by_tile
from gpgmap_ros.mapping.survey_window import Places, load_tiles, restore_window

LEVEL_TILES = 9
"""Tiles, those with the most points, from which the noise level is estimated."""
FEWEST_SQUARES, MOST_SQUARES, TILES_OF_SQUARE = 9, 36, 16
"""Squares of the sample that the scale is learned from: one for so many tiles, within these limits. Each is solved for
it, which costs as much as a tenth of a window."""
SQUARE = 32
"""Cells along a square of the sample."""


def learn_survey_noise(
    model: SurveyModel, parts: Sequence[PartIndex], grid: Grid, workers: Workers
) -> SurveyNoise | None:
    """Of a survey whose sums are complete; None where noise is not learned. grid: of the map"""
    if not model.config.mapping.learn_noise:
        return None
    places = places_by_tile(parts)
    counts = {key: sum(int(entry["count"]) for _, entry in own) for key, own in sorted(places.items())}
    noise = SurveyNoise(_estimate_level(model, places, counts, workers), None)
    residuals = [
        found
        for key in spread_tiles(
            counts, min(max(len(counts) // TILES_OF_SQUARE, FEWEST_SQUARES), MOST_SQUARES)
        )
        if (found := _residuals_of_square(model, key, places, grid, noise, workers)) is not None
    ]
    if not residuals:
        return noise
    return SurveyNoise(noise.level, learn_scale_prior(residuals, 1.0 / noise.level))


def _estimate_level(
    model: SurveyModel, places: Places, counts: dict[TileKey, int], workers: Workers
) -> float:
    """The median of the levels of the tiles with the most points."""
    kernel, levels = terrain_kernel(model.config.mapping), []
    for key in sorted(counts, key=lambda key: (-counts[key], key))[:LEVEL_TILES]:
        x, y = model.lattice.axes(key)
        inside = (x.middles[0], y.middles[0], x.middles[-1], y.middles[-1])
        blocks = cut_window(model.lattice, [load_tile(model, key, places[key], workers)], inside)
        statistics = statistics_of(blocks, x, y, blocks.orders)
        level = estimate_noise_level(statistics, kernel, model.lattice.unresolved)
        levels += [] if level is None else [level]
    return float(np.median(levels)) if levels else 1.0


def spread_tiles(counts: dict[TileKey, int], number: int) -> list[TileKey]:
    """Some tiles, spread as evenly over the points as can be: a tile with more points is more likely among them."""
    keys, total = list(counts), np.cumsum(list(counts.values()))
    at = (np.arange(number) + 0.5) / number * total[-1]
    return [keys[k] for k in np.unique(np.searchsorted(total, at, side="right"))]


def _residuals_of_square(
    model: SurveyModel, key: TileKey, places: Places, grid: Grid, noise: SurveyNoise, workers: Workers
) -> BlockResiduals | None:
    """What the points of a square around those of a tile are off by; None where there are none."""
    low = np.min([entry["low"] for _, entry in places[key]], axis=0)
    high = np.max([entry["high"] for _, entry in places[key]], axis=0)
    middle = 0.5 * (low + high)
    column, row = (int(k) for k in np.round((middle - grid.origin) / grid.resolution) - SQUARE // 2)
    rows, columns = slice(row, row + SQUARE), slice(column, column + SQUARE)
    tiles = load_tiles(model, grid, rows, columns, places, workers)
    restored = restore_window(model, grid, rows, columns, tiles, noise)
    if restored is None:
        return None
    edge = grid.resolution
    low_x, low_y = grid.origin[0] + column * edge, grid.origin[1] + row * edge
    return restored[0].block_residuals((low_x, low_y, low_x + SQUARE * edge, low_y + SQUARE * edge))
