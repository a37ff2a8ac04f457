"""The trend of a survey: what it follows, its gradient, and what it does where there are no points."""

from __future__ import annotations

import numpy as np
import pytest

from gpgmap_ros.mapping.survey_trend import Trend, trend_of


@pytest.fixture
def positions() -> np.ndarray:
    return np.random.default_rng(0).uniform(0.0, 100.0, (5000, 2))


def with_heights(xy: np.ndarray, z: np.ndarray) -> np.ndarray:
    return np.column_stack([xy, z])


def test_level_ground_has_a_level_trend(positions: np.ndarray) -> None:
    trend = trend_of(with_heights(positions, np.full(len(positions), 812.5)), 10.0)
    heights, gradient = trend.with_gradient(positions)
    np.testing.assert_allclose(heights, 812.5, atol=1e-9)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-9)


def test_an_inclined_plane_is_followed_inside(positions: np.ndarray) -> None:
    trend = trend_of(with_heights(positions, 0.2 * positions[:, 0] - 0.1 * positions[:, 1]), 5.0)
    inside = positions[(np.abs(positions - 50.0) < 30.0).all(axis=1)]
    heights, gradient = trend.with_gradient(inside)
    np.testing.assert_allclose(heights, 0.2 * inside[:, 0] - 0.1 * inside[:, 1], atol=0.3)
    np.testing.assert_allclose(gradient.mean(axis=0), [0.2, -0.1], atol=0.01)


def test_relief_far_finer_than_the_cells_is_left_out(positions: np.ndarray) -> None:
    trend = trend_of(with_heights(positions, np.sin(2.0 * np.pi * positions[:, 0])), 10.0)
    assert np.abs(trend.at(positions)).max() < 0.3


def test_both_ways_to_the_heights_agree_and_the_gradient_is_their_derivative() -> None:
    rng = np.random.default_rng(1)
    trend = Trend(rng.normal(size=(6, 5)), (1.0, -2.0), 3.0)
    xy = rng.uniform(-10.0, 25.0, (200, 2))
    heights, gradient = trend.with_gradient(xy)
    np.testing.assert_allclose(trend.at(xy), heights, atol=1e-12)
    for axis in (0, 1):
        step = np.zeros(2)
        step[axis] = 1e-5
        slope = (trend.at(xy + step) - trend.at(xy - step)) / 2e-5
        np.testing.assert_allclose(gradient[:, axis], slope, atol=1e-6)


def test_holes_are_filled_from_their_surroundings() -> None:
    near = np.random.default_rng(2).uniform(0.0, 20.0, (500, 2))
    xy = np.vstack([near, near + 2000.0])
    z = np.concatenate([np.full(500, 10.0), np.full(500, 30.0)])
    trend = trend_of(with_heights(xy, z), 10.0)
    between = trend.at(np.array([[1000.0, 1000.0], [10.0, 10.0], [2010.0, 2010.0]]))
    assert 10.0 < between[0] < 30.0
    np.testing.assert_allclose(between[1:], [10.0, 30.0], atol=0.5)


def test_it_is_level_beyond_its_cells(positions: np.ndarray) -> None:
    trend = trend_of(with_heights(positions, 0.2 * positions[:, 0]), 10.0)
    far, farther = trend.at(np.array([[1e4, 50.0], [1e5, 50.0]]))
    assert far == pytest.approx(farther)
    assert 15.0 < far < 20.5
