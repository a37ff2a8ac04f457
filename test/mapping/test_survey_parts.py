"""Partial sums of a survey: however its points are divided, and whatever is kept of them, they add up to the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_survey import WORKERS, SmallSurvey

from gp_core.grid.tiled_statistics import TileStatistics
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping.survey import PartialSums, SurveyModel, Trend, trend_of
from gpgmap_ros.mapping.survey_parts import (
    POINTS,
    SUMS,
    index_path,
    load_tile,
    merge_parts,
    places_by_tile,
    read_index,
    remove_part,
    write_part,
)
from gpgmap_ros.mapping.survey_window import load_tiles, solve_window

CONFIG = with_settings(
    Config(), {"mapping.resolution": 0.5, "mapping.length_scale": 1.0, "noise.height_std": 0.05}
)


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    """Sparse ground, and a spot with many points."""
    rng = np.random.default_rng(1)
    sparse, dense = rng.uniform(0.0, 60.0, (3000, 2)), rng.uniform(20.0, 22.0, (40_000, 2))
    xy = rng.permutation(np.vstack([sparse, dense]))
    return np.column_stack([xy, np.sin(xy[:, 0] / 5.0) + 0.05 * rng.normal(size=len(xy))])


@pytest.fixture(scope="module")
def model(points: np.ndarray) -> SurveyModel:
    return SurveyModel(CONFIG, trend_of(points, 20.0))


def part_of(model: SurveyModel, points: np.ndarray, path: Path):
    sums = PartialSums(model)
    sums.add(points)
    return write_part(path, sums, {"of": "test"}, WORKERS)


def direct_sums(model: SurveyModel, points: np.ndarray, key: tuple[int, int]) -> TileStatistics:
    """All points of a tile in one go, in memory."""
    edges = np.array(model.lattice.tile_size)
    own = points[(np.floor(points[:, :2] / edges).astype(int) == key[::-1]).all(axis=1)]
    tile = TileStatistics(model.lattice, key)
    xy = np.ascontiguousarray(own[:, :2])
    tile.add(xy, own[:, 2] - model.trend.at(xy), model.variance)
    return tile


def same_sums(one: TileStatistics, other: TileStatistics) -> bool:
    return all(np.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in zip(one.arrays, other.arrays, strict=True))


def test_parts_of_any_division_add_up_to_the_points(
    model: SurveyModel, points: np.ndarray, tmp_path: Path
) -> None:
    parts = [part_of(model, part, tmp_path / f"part_{k}") for k, part in enumerate(np.array_split(points, 3))]
    kinds = {int(kind) for part in parts for kind in part.entries["kind"]}
    assert kinds == {POINTS, SUMS}, "sparse tiles keep points, the dense one sums"
    assert sum(part.count for part in parts) == len(points)
    for key, places in places_by_tile(parts).items():
        assert same_sums(load_tile(model, key, places, WORKERS), direct_sums(model, points, key))


def test_a_tree_of_parts_has_the_same_sums(model: SurveyModel, points: np.ndarray, tmp_path: Path) -> None:
    parts = [part_of(model, part, tmp_path / f"part_{k}") for k, part in enumerate(np.array_split(points, 4))]
    halves = [merge_parts(tmp_path / f"half_{k}", parts[2 * k : 2 * k + 2], model, WORKERS) for k in range(2)]
    whole = merge_parts(tmp_path / "whole", halves, model, WORKERS)
    assert whole.count == len(points)
    plain, merged = places_by_tile(parts), places_by_tile([whole])
    assert plain.keys() == merged.keys()
    for key in plain:
        assert same_sums(
            load_tile(model, key, plain[key], WORKERS), load_tile(model, key, merged[key], WORKERS)
        )
    low = np.min([part.entries["low"].min(axis=0) for part in parts], axis=0)
    np.testing.assert_array_equal(whole.entries["low"].min(axis=0), low)


def test_the_map_does_not_depend_on_the_division(points: np.ndarray, tmp_path: Path) -> None:
    trend = trend_of(points, 20.0)
    one = SmallSurvey(CONFIG, trend, tmp_path / "one", [points])
    many = SmallSurvey(CONFIG, trend, tmp_path / "many", np.array_split(points[::-1], 5))
    window = slice(0, 60), slice(10, 70)
    for layer in ("elevation", "variance", "gradient_x"):
        a, b = one.window(*window)[layer], many.window(*window)[layer]
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_a_part_without_its_index_or_cut_off_is_none(
    model: SurveyModel, points: np.ndarray, tmp_path: Path
) -> None:
    path = tmp_path / "part"
    written = part_of(model, points, path)
    there = read_index(path)
    assert there is not None
    assert there.facts["of"] == "test"
    np.testing.assert_array_equal(there.entries, written.entries)
    path.write_bytes(path.read_bytes()[:-8])
    assert read_index(path) is None
    part_of(model, points, path)
    index_path(path).write_bytes(index_path(path).read_bytes()[:-8])
    assert read_index(path) is None
    remove_part(path)
    assert not list(tmp_path.iterdir())


def test_a_part_that_can_not_be_written_leaves_nothing(
    model: SurveyModel, points: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpgmap_ros.mapping.survey_parts.os.replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        part_of(model, points, tmp_path / "part")
    assert not list(tmp_path.iterdir())


def test_points_with_a_flier_five_thousand_kilometres_away(tmp_path: Path) -> None:
    """The box around them has millions of tiles: they are divided before they are sorted."""
    points = np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0], [5e6, -5e6, 2.0]])
    model = SurveyModel(CONFIG, Trend(np.zeros((1, 1)), (0.0, 0.0), 1.0))
    assert part_of(model, points, tmp_path / "part").count == 3


def test_a_window_at_the_edge_is_the_same_in_the_shape_of_all_others(
    points: np.ndarray, tmp_path: Path
) -> None:
    """Windows of one shape share the tables of the prior: those at the edges are solved with room beyond the map."""
    smooth = with_settings(CONFIG, {"mapping.kernel": "rbf", "mapping.learn_noise": False})
    survey = SmallSurvey(smooth, trend_of(points, 20.0), tmp_path, [points])
    rows, columns = slice(0, 20), slice(0, 30)
    tiles = load_tiles(survey.model, survey.grid, rows, columns, places_by_tile(survey.parts), WORKERS)
    alone, padded = (
        solve_window(survey.model, survey.grid, rows, columns, tiles, None, shape)
        for shape in (None, (48, 40))
    )
    assert alone is not None
    assert padded is not None
    assert padded.grid == alone.grid
    for name in ("elevation", "gradient_x"):
        np.testing.assert_allclose(padded[name], alone[name], atol=2e-3)
