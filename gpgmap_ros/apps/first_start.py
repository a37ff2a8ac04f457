"""What a first start compiles, compiled beforehand: into the folders where later starts look for it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gp_core.grid import Workers
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping.model import compile_learning
from gpgmap_ros.mapping.survey import PartialSums, SurveyModel, trend_of
from gpgmap_ros.mapping.survey_parts import write_part
from gpgmap_ros.slam.closure_warm_up import warm_up as warm_up_closures
from gpgmap_ros.slam.first_start import compile_mapping

OPTIONAL: dict[str, Any] = {"filter.voxel_size": 0.1, "filter.lowest_surface": True}
"""Settings that need loops of their own, and are off unless the user asks for them."""


def compile_all_mapping(config: Config) -> None:
    """What the node compiles, and what it needs with other settings and with clouds in float32."""
    compile_mapping(config, closures_too=True)
    compile_mapping(with_settings(config, OPTIONAL), np.float32)


def compile_surveys(config: Config) -> None:
    """What maps that are made of all their points at once need besides: a small survey, up to its sums."""
    compile_learning(config.mapping, batch=True)
    points = np.random.default_rng(0).normal(size=(500, 3))
    trend = trend_of(points, 1.0)
    sums = PartialSums(SurveyModel(config, trend, (-np.inf, np.inf)))
    sums.add(points)
    with tempfile.TemporaryDirectory() as folder:
        write_part(Path(folder) / "part", sums, {}, Workers(1))
    xy = np.ascontiguousarray(points[:, :2])
    trend.at(xy)
    trend.with_gradient(xy)


PARTS: dict[str, Callable[[Config], None]] = {
    "mapping": compile_all_mapping,
    "loop closure": lambda config: warm_up_closures(config.closure),
    "surveys": compile_surveys,
}
"""What there is to compile, in the order in which a robot needs it; the second is begun beside the first."""


def compile_parts(config: Config, done: Callable[[str], None]) -> dict[str, float]:
    """Compile all parts that are not on disk; seconds of CPU for each, next to none where it was.

    done: told the name of each part when it is ready
    """
    seconds = {}
    for name, compile_part in PARTS.items():
        begin = _processor_time()
        compile_part(config)
        seconds[name] = _processor_time() - begin
        done(name)
    return seconds


def _processor_time() -> float:
    """Seconds of CPU of this process and of those that it has waited for."""
    return sum(os.times()[:4])
