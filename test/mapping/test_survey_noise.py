"""The noise of a survey: learned once, so that its map does not depend on how it is divided into windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_survey import WORKERS, SmallSurvey

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.survey import trend_of
from gpgmap_ros.mapping.survey_noise import learn_survey_noise, spread_tiles

CONFIG = with_settings(Config(), {"mapping.resolution": 1.0, "noise.height_std": 0.02})
WIDTH, HEIGHT, MEADOW = 150.0, 48.0, 60.0


@pytest.fixture(scope="module")
def meadow_and_boulders(tmp_path_factory: pytest.TempPathFactory) -> SmallSurvey:
    """Smooth ground on the left and rough ground on the right, with few points: 3 for 10 cells."""
    rng = np.random.default_rng(1)
    xy = rng.uniform(0.0, 1.0, (2200, 2)) * [WIDTH, HEIGHT]
    waves = sum(np.sin(xy @ rng.normal(0.0, 1.2, 2) + rng.uniform(0.0, 6.3)) for _ in range(40))
    z = 4.0 * np.sin(xy[:, 0] / 40.0) * np.cos(xy[:, 1] / 33.0) + 0.02 * rng.normal(size=len(xy))
    z += np.where(xy[:, 0] < MEADOW, 0.0025, 0.1) * waves
    points = np.column_stack([xy, z])
    return SmallSurvey(CONFIG, trend_of(points, 40.0), tmp_path_factory.mktemp("parts"), [points])


@pytest.fixture(scope="module")
def dense_boulders(tmp_path_factory: pytest.TempPathFactory) -> SmallSurvey:
    """The same rough ground everywhere, with so many points that they show detail below the cells."""
    rng = np.random.default_rng(1)
    xy = rng.uniform(0.0, 1.0, (36_000, 2)) * [WIDTH, HEIGHT]
    waves = sum(np.sin(xy @ rng.normal(0.0, 1.2, 2) + rng.uniform(0.0, 6.3)) for _ in range(40))
    points = np.column_stack([xy, 0.1 * waves + 0.005 * rng.normal(size=len(xy))])
    return SmallSurvey(CONFIG, trend_of(points, 40.0), tmp_path_factory.mktemp("dense"), [points])


def cut(part: GPGMap, columns: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Elevation, variance and noise variance of some columns."""
    found = [
        part[name][:, columns].astype(np.float64) for name in ("elevation", "variance", "noise_variance")
    ]
    return found[0], found[1], found[2]


@pytest.mark.parametrize("ground", ["meadow_and_boulders", "dense_boulders"])
def test_windows_agree_where_they_overlap(ground: str, request: pytest.FixtureRequest) -> None:
    """What they share reaches to the edge of both. On the first ground one is nearly all meadow, the other boulders."""
    survey, rows = request.getfixturevalue(ground), slice(0, 48)
    assert survey.noise.scale is not None
    assert (survey.noise.scale.detail is not None) == (ground == "dense_boulders")
    left, right = survey.window(rows, slice(0, 80)), survey.window(rows, slice(50, 146))
    assert left is not None
    assert right is not None
    one, other = cut(left, slice(50, 80)), cut(right, slice(0, 30))
    known = np.isfinite(one[0])
    assert known.mean() > 0.9
    assert np.array_equal(known, np.isfinite(other[0]))
    for a, b in zip(one[1:], other[1:], strict=True):
        ratio = np.abs(np.log(a[known] / b[known]))
        assert np.median(ratio) < 0.01
        assert np.quantile(ratio, 0.95) < 0.03
    error = (one[0] - other[0])[known] / np.sqrt(other[1][known])
    assert np.sqrt(np.mean(error**2)) < 0.05


def test_the_scale_still_follows_the_ground(meadow_and_boulders: SmallSurvey) -> None:
    whole = meadow_and_boulders.window(slice(0, 48), slice(0, 146))
    assert whole is not None
    variance = whole["variance"]
    assert np.nanmedian(variance[:, 90:]) > 10.0 * np.nanmedian(variance[:, :45])


def test_points_just_beyond_the_halo_of_a_window_make_no_map_there(
    meadow_and_boulders: SmallSurvey, tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    points = np.column_stack([rng.uniform(0.0, 40.0, (2000, 2)), np.zeros(2000)])
    survey = SmallSurvey(CONFIG, meadow_and_boulders.model.trend, tmp_path, [points])
    found = [survey.window(slice(0, 8), slice(first, first + 8)) for first in range(52, 60)]
    assert all(part is None for part in found), "known ground ends a few cells beyond the last point"


def test_noise_that_is_not_learned_is_not_estimated(meadow_and_boulders: SmallSurvey, tmp_path: Path) -> None:
    stated = with_settings(CONFIG, {"mapping.learn_noise": False})
    survey = SmallSurvey(stated, meadow_and_boulders.model.trend, tmp_path, [np.zeros((10, 3))])
    assert learn_survey_noise(survey.model, survey.parts, survey.grid, WORKERS) is None


def test_the_sample_is_spread_over_the_points() -> None:
    counts = {(0, column): 100 for column in range(40)} | {(1, 0): 4000}
    chosen = spread_tiles(counts, 8)
    assert (1, 0) in chosen, "half of the points are there"
    assert [column for row, column in chosen if row == 0] == [5, 15, 25, 35]
    assert spread_tiles({(3, 4): 1}, 9) == [(3, 4)]
