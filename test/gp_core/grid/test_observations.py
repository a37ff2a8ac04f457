"""Points in and out of a map's statistics, fading, windows and limits."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Grid, Workers
from gp_core.grid.moments import QUINTIC
from gp_core.grid.observations import Observations, Points, as_points, as_positions
from gp_core.grid.statistics import COUNT

GRID = Grid((0.0, 0.0), (10, 10), 0.5)


def make(half_life: float | None = None, grid: Grid = GRID) -> Observations:
    return Observations(grid, (1.0, 1.0), QUINTIC, 0.0, 0.0, half_life, Workers(1))


def points(count: int = 50, seed: int = 0) -> Points:
    rng = np.random.default_rng(seed)
    return as_points(rng.uniform(0.0, 5.0, (count, 2)), rng.normal(size=count), 0.01)


def test_points_are_counted_by_what_became_of_them() -> None:
    xy = np.array([[1.0, 1.0], [np.nan, 1.0], [1.0, 1.0], [9.0, 1.0]])
    intake = make().add(as_points(xy, np.zeros(4), np.array([0.1, 0.1, 0.0, 0.1])), None)
    assert (intake.used, intake.not_finite, intake.bad_variance, intake.outside) == (1, 1, 1, 1)
    assert intake.dropped == 3


def test_a_bad_point_is_refused_with_its_kind() -> None:
    with pytest.raises(ValueError, match=r"1 of 2 points are bad: 0 not finite, 0 .*, 1 outside"):
        make().require_good(as_points([[1.0, 1.0], [9.0, 1.0]], [0.0, 0.0], 0.1))


def test_the_mean_height_is_weighted_by_precision() -> None:
    observations = make()
    assert observations.mean_height is None
    observations.add(as_points([[1.0, 1.0], [4.0, 4.0]], [0.0, 1.0], np.array([1.0, 1.0 / 3.0])), None)
    assert observations.mean_height == pytest.approx(0.75)


def test_what_is_removed_leaves_nothing() -> None:
    observations = make()
    observations.add(points(), None)
    observations.remove(points())
    assert observations.count == 0.0
    assert not observations.with_data.any()


def test_no_more_can_be_removed_than_was_added() -> None:
    observations = make()
    observations.add(points(20), None)
    with pytest.raises(ValueError, match="nothing was changed"):
        observations.remove(points(50, seed=1))
    assert observations.count == 20.0


def test_a_point_counts_half_after_its_half_life() -> None:
    observations = make(half_life=10.0)
    observations.add(points(40), 100.0)
    observations.add(points(1, seed=1), 110.0)
    assert observations.count == pytest.approx(21.0)
    assert observations.effective().totals[..., COUNT].sum() == pytest.approx(21.0)


def test_a_map_that_fades_needs_the_time_of_its_points() -> None:
    with pytest.raises(ValueError, match="give stamp"):
        make(half_life=10.0).add(points(), None)


def test_after_very_long_only_new_points_are_left() -> None:
    observations = make(half_life=1.0)
    observations.add(points(40), 0.0)
    observations.add(points(3, seed=1), 1e6)
    assert observations.count == pytest.approx(3.0)


def test_two_windows_merge_to_what_one_would_hold() -> None:
    one, other, whole = make(), make(), make()
    one.add(points(30), None)
    other.add(points(20, seed=1), None)
    one.merge(other)
    whole.add(points(30), None)
    whole.add(points(20, seed=1), None)
    for mine, expected in zip(one.statistics.arrays, whole.statistics.arrays, strict=True):
        np.testing.assert_allclose(mine, expected, atol=1e-9)


def test_a_window_that_moves_keeps_what_both_cover() -> None:
    observations = make()
    observations.add(as_points([[0.5, 0.5], [4.5, 4.5]], [1.0, 2.0], 0.1), None)
    observations.move(GRID.shift(6, 6))
    assert observations.count == 1.0
    assert observations.mean_height == pytest.approx(2.0)


def test_forgotten_places_hold_no_points() -> None:
    observations = make()
    observations.add(as_points([[0.5, 0.5], [4.5, 4.5]], [1.0, 2.0], 0.1), None)
    observations.mark_read()
    observations.forget(np.array([[0.4, 0.6], [99.0, 99.0]]))
    assert observations.count == 1.0
    assert np.argwhere(observations.changed).tolist() == [[0, 0]]


def test_the_information_of_a_block_can_be_limited() -> None:
    observations = make()
    observations.add(as_points(np.full((100, 2), 0.5), np.full(100, 3.0), 0.01), None)
    observations.limit_information(500.0)
    assert observations.statistics.weights[0, 0, 0, 0] == pytest.approx(500.0)
    assert observations.mean_height == pytest.approx(3.0)


def test_only_blocks_with_new_points_are_changed() -> None:
    observations = make()
    observations.add(points(), None)
    observations.mark_read()
    assert not observations.changed.any()
    observations.add(as_points([[2.5, 3.5]], [0.0], 0.1), None)
    assert np.argwhere(observations.changed).tolist() == [[3, 2]]


@pytest.mark.parametrize(
    ("xy", "z", "variance", "reason"),
    [
        (np.zeros((3, 3)), np.zeros(3), 1.0, r"xy must be positions of shape \(N, 2\)"),
        (np.zeros((3, 2)), np.zeros(2), 1.0, r"z must have shape \(3,\)"),
        (np.zeros((3, 2)), np.zeros(3), np.ones(2), r"variance must be a number or have shape \(3,\)"),
    ],
)
def test_shapes_that_do_not_match_are_refused(
    xy: np.ndarray, z: np.ndarray, variance: object, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        as_points(xy, z, variance)


def test_positions_must_be_finite_pairs() -> None:
    assert as_positions([]).shape == (0, 2)
    with pytest.raises(ValueError, match="NaN"):
        as_positions([[0.0, np.nan]])
    with pytest.raises(ValueError, match="shape"):
        as_positions([1.0, 2.0])
