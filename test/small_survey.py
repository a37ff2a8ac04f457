"""A survey in this process, without files of points: its parts are given as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np

from gp_core.grid import Grid, Workers
from gpgmap_ros.config import Config
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.survey import Outliers, PartialSums, SurveyModel, SurveyNoise, Trend
from gpgmap_ros.mapping.survey_noise import learn_survey_noise
from gpgmap_ros.mapping.survey_parts import PartIndex, places_by_tile, write_part
from gpgmap_ros.mapping.survey_window import (
    find_outliers,
    load_tiles,
    solve_window,
    survey_grid,
    without_tiles,
)

WORKERS = Workers(1)


class SmallSurvey:
    """Parts written to a folder, each from an array (N, 3), and windows solved from them."""

    def __init__(
        self,
        config: Config,
        trend: Trend,
        folder: Path,
        parts: Iterable[np.ndarray],
        heights: tuple[float, float] = (-np.inf, np.inf),
    ) -> None:
        self.model = SurveyModel(config, trend, heights)
        self.parts: list[PartIndex] = []
        for number, points in enumerate(parts):
            sums = PartialSums(self.model)
            sums.add(points)
            self.parts.append(write_part(folder / f"part_{number:04d}", sums, {}, WORKERS))

    @property
    def count(self) -> int:
        return sum(part.count for part in self.parts)

    @property
    def grid(self) -> Grid:
        return survey_grid(self.parts, self.model.config.mapping.resolution)

    @cached_property
    def noise(self) -> SurveyNoise | None:
        return learn_survey_noise(self.model, self.parts, self.grid, WORKERS)

    def leave_out_outliers(self) -> Outliers:
        far, outliers = find_outliers(self.parts)
        self.parts = [without_tiles(part, far) for part in self.parts]
        return outliers

    def window(self, rows: slice, columns: slice) -> GPGMap | None:
        tiles = load_tiles(self.model, self.grid, rows, columns, places_by_tile(self.parts), WORKERS)
        return solve_window(self.model, self.grid, rows, columns, tiles, self.noise)
