"""A registration as a figure: what the chequerboard and the histogram show."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Grid
from gpgmap_ros.viz.figures import new_figure
from gpgmap_ros.viz.pairs import Pair, Side
from gpgmap_ros.viz.registration_figure import CHECKS, chequerboard, histogram

SIDE = 4 * CHECKS


def side_with(elevation: np.ndarray) -> Side:
    level = np.zeros_like(elevation)
    return Side(elevation, level, level, np.full_like(elevation, 1e-4), np.ones_like(elevation))


@pytest.fixture
def pair() -> Pair:
    """Both know the ground in the middle; the source alone on the left, the target alone on the right."""
    source, target = np.zeros((SIDE, SIDE)), np.zeros((SIDE, SIDE))
    source[:, -4:], target[:, :4] = np.nan, np.nan
    return Pair(Grid((0.0, 0.0), (SIDE, SIDE), 0.1), side_with(source), side_with(target))


def taken_from_source(pair: Pair) -> np.ndarray:
    pictures = {"source": np.ones((SIDE, SIDE, 3)), "target": np.zeros((SIDE, SIDE, 3))}
    return chequerboard(pair, pictures)[..., 0] == 1.0


def test_shared_ground_is_shown_in_turns(pair: Pair) -> None:
    shared = taken_from_source(pair)[:, 4:-4]
    assert 0.4 < shared.mean() < 0.6
    np.testing.assert_array_equal(shared[0:4], ~shared[4:8])
    np.testing.assert_array_equal(shared[:, 0:4], ~shared[:, 4:8])


def test_ground_that_one_map_knows_is_shown_from_it(pair: Pair) -> None:
    taken = taken_from_source(pair)
    assert taken[:, :4].all()
    assert not taken[:, -4:].any()


def test_the_histogram_says_where_no_ground_is_shared() -> None:
    figure, axes = new_figure(1, 2)
    histogram(axes[0], np.full((3, 3), np.nan))
    histogram(axes[1], np.random.default_rng(0).normal(size=(50, 50)))
    assert [text.get_text() for text in axes[0].texts] == ["no shared ground"]
    assert not axes[1].texts
    area = sum(bar.get_width() * bar.get_height() for bar in axes[1].patches)
    assert area == pytest.approx(1.0)
    figure.clear()
