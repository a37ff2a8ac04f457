"""Points far from a survey: found, named, left out; whatever is asked for, it ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_survey import SmallSurvey

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping.outliers import height_limits, outlying_cells, outlying_points
from gpgmap_ros.mapping.survey import trend_of

CONFIG = with_settings(
    Config(), {"mapping.resolution": 0.5, "mapping.length_scale": 1.5, "noise.height_std": 0.05}
)


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    rng = np.random.default_rng(0)
    xy = rng.uniform(0.0, 40.0, (5000, 2))
    return np.column_stack([xy, 0.1 * xy[:, 0] + np.sin(xy[:, 1] / 5.0)])


@pytest.mark.parametrize("distance", [3e3, 1e5, 4e6])
def test_the_trend_of_points_far_apart_ends(points: np.ndarray, distance: float) -> None:
    """Its holes were filled from farther and farther around, for ever where that was too far."""
    far = np.vstack([points, [[distance, distance, 7.0]]])
    trend = trend_of(far, distance / 700.0)
    assert np.isfinite(trend.heights).all()
    assert trend.heights.min() >= points[:, 2].min() - 1.0
    assert trend.at(far[-1:, :2])[0] == pytest.approx(7.0, abs=1.0)


def test_the_trend_between_is_filled_smoothly() -> None:
    """Two strips with a gap that is many cells wide: heights in it lie between theirs."""
    rng = np.random.default_rng(1)
    low = np.column_stack([rng.uniform(0, 20, 2000), rng.uniform(0, 100, 2000), np.zeros(2000)])
    high = np.column_stack([rng.uniform(300, 320, 2000), rng.uniform(0, 100, 2000), np.full(2000, 10.0)])
    trend = trend_of(np.vstack([low, high]), 4.0)
    across = trend.at(np.column_stack([np.linspace(10.0, 310.0, 200), np.full(200, 50.0)]))
    assert across.min() > -0.5
    assert across.max() < 10.5
    assert (across[60:140] > 1.0).any()
    assert (across[60:140] < 9.0).any()


def test_few_points_far_away_are_outliers_and_a_second_site_is_none() -> None:
    body = np.stack(np.meshgrid(np.arange(10), np.arange(10)), axis=-1).reshape(-1, 2)
    counts = np.full(100, 1000)
    far = outlying_cells(np.vstack([body, [[400, -300]]]), np.append(counts, 3))
    assert far.tolist() == [False] * 100 + [True]
    near = outlying_cells(np.vstack([body, [[11, 5]]]), np.append(counts, 3))
    assert not near.any()  # one cell beyond the edge: mapped
    other_site = outlying_cells(np.vstack([body, body + 500]), np.append(counts, counts // 50))
    assert not other_site.any()  # two per cent of all points: a place of its own
    scattered = np.column_stack([np.arange(200) * 50, np.zeros(200, dtype=int)])
    assert not outlying_cells(scattered, np.ones(200, dtype=int)).any()  # nothing is the rest there


def test_the_sample_is_freed_of_them(points: np.ndarray) -> None:
    xy = np.vstack([points[:, :2], [[1e8, -1e8], [1e8, -1e8]]])
    assert np.flatnonzero(outlying_points(xy)).tolist() == [5000, 5001]
    assert not outlying_points(points[:, :2].copy()).any()
    assert not outlying_points(np.zeros((10, 2))).any()


@pytest.mark.parametrize("distance", [5e3, 9e8])
def test_a_survey_leaves_them_out_and_says_where(points: np.ndarray, tmp_path: Path, distance: float) -> None:
    dirty = np.vstack([points[:2500], [[distance, -distance, 0.0]], points[2500:]])
    survey = SmallSurvey(CONFIG, trend_of(points, 12.0), tmp_path / "dirty", [dirty])
    assert survey.count == 5001
    outliers = survey.leave_out_outliers()
    assert outliers.count == 1
    assert outliers.places == ((distance, -distance),)
    assert survey.count == 5000
    assert survey.grid.shape == (80, 80)
    plain = SmallSurvey(CONFIG, trend_of(points, 12.0), tmp_path / "plain", [points])
    window = np.s_[0:80], np.s_[0:80]
    assert np.array_equal(
        survey.window(*window)["elevation"], plain.window(*window)["elevation"], equal_nan=True
    )


def test_kept_they_are_mapped_and_the_empty_ground_between_costs_nothing(
    points: np.ndarray, tmp_path: Path
) -> None:
    far = np.vstack([points, [[5000.0, 5000.0, 3.0]]])
    survey = SmallSurvey(CONFIG, trend_of(points, 12.0), tmp_path, [far])
    assert survey.grid.shape == (10_001, 10_001)
    assert survey.window(slice(5000, 5100), slice(5000, 5100)) is None
    there = survey.window(slice(9950, 10_001), slice(9950, 10_001))
    assert there is not None
    assert np.isfinite(there["elevation"]).any()


@pytest.mark.parametrize("height", [1e6, -9999.0, 100.0])
def test_one_absurd_height_is_left_out_and_named(points: np.ndarray, tmp_path: Path, height: float) -> None:
    stray = np.array([[20.0, 20.0, height]])
    dirty = np.vstack([points[:2500], stray, points[2500:]])
    heights = height_limits(dirty)
    assert heights == height_limits(points)
    survey = SmallSurvey(CONFIG, trend_of(points, 12.0), tmp_path / "dirty", [dirty], heights)
    (beyond,) = (part.beyond_heights for part in survey.parts)
    assert beyond.count == 1
    assert beyond.places == ((20.0, 20.0, height),)
    assert survey.count == 5000
    plain = SmallSurvey(CONFIG, trend_of(points, 12.0), tmp_path / "plain", [points])
    window = np.s_[0:80], np.s_[0:80]
    assert np.array_equal(
        survey.window(*window)["elevation"], plain.window(*window)["elevation"], equal_nan=True
    )


def test_heights_of_ground_are_all_within_the_limits(points: np.ndarray) -> None:
    """A mast just above the ground, a steep face of many points, and a survey too small to judge by."""
    mast = np.column_stack([np.full((8, 2), 20.0), np.linspace(5.0, 30.0, 8)])
    lowest, highest = height_limits(np.vstack([points, mast]))
    assert highest > 30.0
    tower = np.vstack([points, points[:600] + np.array([0.0, 0.0, 500.0])])
    assert height_limits(tower)[1] > 500.0
    assert height_limits(points[:15]) == (-np.inf, np.inf)
    assert lowest < points[:, 2].min()


def test_the_same_heights_on_a_large_survey(points: np.ndarray) -> None:
    """Where a quarter of its length would be kilometres, what files write for 'no height' is still none."""
    large = points * [5000.0, 5000.0, 1.0]
    lowest, highest = height_limits(np.vstack([large, [[1e4, 1e4, -9999.0]]]))
    assert -9999.0 < lowest < large[:, 2].min()
    assert highest > large[:, 2].max()


@pytest.mark.parametrize("mark", [-9999.0, -32768.0])
def test_marks_of_no_data_are_beyond_the_heights(mark: float) -> None:
    """However many: rasters that are written as points have them wherever there is nothing."""
    points = np.random.default_rng(3).uniform(0.0, 60.0, (4000, 3))
    points[::3, 2] = mark
    lowest, highest = height_limits(points)
    assert mark < lowest < 0.0
    assert highest > 60.0
    deep = points - [0.0, 0.0, 9990.0]
    deep[::3, 2] = -9999.0
    assert height_limits(deep)[0] < -9999.0, "the bottom of a trench is not far from its sides"
