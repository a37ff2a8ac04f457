"""The noise level of a survey: one factor on the noise variances of all points, the same for every window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gp_core.grid import Workers
from gp_core.grid.blocks import statistics_of
from gp_core.grid.noise_level import estimate_noise_level
from gp_core.grid.tiled_statistics import cut_window
from gpgmap_ros.mapping.model import terrain_kernel
from gpgmap_ros.mapping.survey import SurveyModel
from gpgmap_ros.mapping.survey_parts import PartIndex, load_tile, places_by_tile

LEVEL_TILES = 9
"""Tiles, those with the most points, from which the noise level is estimated."""


def estimate_survey_noise(model: SurveyModel, parts: Sequence[PartIndex], workers: Workers) -> float | None:
    """The median of the levels of the tiles with the most points; None where noise is not learned."""
    if not model.config.mapping.learn_noise:
        return None
    places = places_by_tile(parts)
    counts = {key: sum(int(entry["count"]) for _, entry in own) for key, own in places.items()}
    kernel, levels = terrain_kernel(model.config.mapping), []
    for key in sorted(places, key=lambda key: (-counts[key], key))[:LEVEL_TILES]:
        x, y = model.lattice.axes(key)
        inside = (x.middles[0], y.middles[0], x.middles[-1], y.middles[-1])
        blocks = cut_window(model.lattice, [load_tile(model, key, places[key], workers)], inside)
        level = estimate_noise_level(statistics_of(blocks, x, y), kernel)
        levels += [] if level is None else [level]
    return float(np.median(levels)) if levels else 1.0
