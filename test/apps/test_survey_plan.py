"""Settings of a survey, estimated from its points unless they are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpgmap_ros.apps.survey_plan import SurveyError, ground_area, plan, read_sample, roughness, round_up
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.io.geotiff import Crs
from gpgmap_ros.io.points import NoPointsError, PointSource

NOISE = 0.03


def source_of(xyz: np.ndarray, name: str = "survey.npy") -> PointSource:
    def read(stride: int) -> Iterator[np.ndarray]:
        if not len(xyz):
            raise NoPointsError(f"{name}: there are no points")
        yield xyz

    return PointSource(Path(name), len(xyz), Crs(), read)


@pytest.fixture(scope="module")
def hills() -> np.ndarray:
    """40 000 points on 100 m x 100 m: four per square metre."""
    rng = np.random.default_rng(0)
    xy = rng.uniform(0.0, 100.0, (40_000, 2))
    z = 300.0 + 2.0 * np.sin(xy[:, 0] / 15.0) + rng.normal(0.0, NOISE, len(xy))
    return np.column_stack([xy, z])


@pytest.mark.parametrize(("kernel", "guesses"), [("rbf", 4), ("matern54", 2)])
def test_settings_follow_from_the_points(hills: np.ndarray, kernel: str, guesses: int) -> None:
    """Of a rough kernel, length and relief follow from the cells: nothing is guessed of them."""
    found = plan([source_of(hills)], with_settings(Config(), {"mapping.kernel": kernel}), set())
    assert found.points == len(hills)
    assert found.density == pytest.approx(4.0, rel=0.15)
    assert found.config.mapping.resolution == 0.5
    assert found.config.mapping.length_scale == 2.5
    assert found.config.noise.height_std == pytest.approx(NOISE, rel=0.5)
    assert len(found.guesses) == guesses


def test_given_settings_stay(hills: np.ndarray) -> None:
    given = {
        "mapping.resolution": 0.25,
        "mapping.length_scale": 3.0,
        "mapping.relief_std": 0.7,
        "noise.height_std": 0.2,
    }
    config = with_settings(Config(), given)
    found = plan([source_of(hills)], config, set(given))
    assert found.config == config
    assert found.guesses == ()


def test_heights_far_from_all_others_are_left_out(hills: np.ndarray) -> None:
    birds = np.column_stack([hills[:5, :2], np.full(5, 5000.0)])
    sample = read_sample([source_of(np.vstack([hills, birds]))])
    assert sample[:, 2].max() < 400.0
    assert len(sample) > 0.99 * len(hills)


def test_too_few_points_are_refused_with_the_files(hills: np.ndarray) -> None:
    with pytest.raises(SurveyError, match=r"few\.npy: only 5 points"):
        plan([source_of(hills[:5], "few.npy")], Config(), set())


def test_points_on_a_line_need_a_given_resolution(hills: np.ndarray) -> None:
    line = hills * [1.0, 0.0, 1.0]
    with pytest.raises(SurveyError, match=r"--set mapping\.resolution"):
        plan([source_of(line)], Config(), set())


def test_a_file_without_points_is_passed_over_where_others_have_some(hills: np.ndarray) -> None:
    empty = source_of(np.zeros((0, 3)), "empty.npy")
    assert len(read_sample([empty, source_of(hills)])) > 0
    with pytest.raises(NoPointsError, match=r"empty\.npy"):
        read_sample([empty])


def test_the_area_of_a_diagonal_strip_is_not_that_of_its_box() -> None:
    rng = np.random.default_rng(1)
    along, across = rng.uniform(0.0, 1000.0, 20_000), rng.uniform(-5.0, 5.0, 20_000)
    xyz = np.column_stack([along + across, along - across, np.zeros(20_000)])
    true = 1000.0 * np.sqrt(2.0) * 10.0 * np.sqrt(2.0)
    assert 0.7 * true < ground_area(xyz) < 2.0 * true


def test_roughness_is_the_scatter_within_cells(hills: np.ndarray) -> None:
    assert roughness(hills, 1.0) == pytest.approx(NOISE, rel=0.5)
    assert roughness(hills[:30], 1.0) == 0.0, "too few cells with points to tell"


@pytest.mark.parametrize(
    ("edge", "expected"), [(0.11, 0.2), (0.2, 0.2), (0.21, 0.5), (3.0, 5.0), (5.1, 10.0), (1.0, 1.0)]
)
def test_edges_are_rounded_up_to_one_two_or_five(edge: float, expected: float) -> None:
    assert round_up(edge) == expected
