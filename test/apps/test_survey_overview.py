"""The overview of a large map: means over squares of cells, window by window."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Grid
from gpgmap_ros.apps.survey_overview import Overview
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.report.content import MOST_CELLS


def window(elevation: np.ndarray) -> GPGMap:
    """Level ground in each cell, well known."""
    known = np.isfinite(elevation)
    layers = {"elevation": elevation.astype(np.float32)}
    layers |= {name: np.where(known, 0.0, np.nan).astype(np.float32) for name in ("gradient_x", "gradient_y")}
    layers |= {
        name: np.full(elevation.shape, 1e-4, dtype=np.float32)
        for name in ("variance", "gradient_x_variance", "gradient_y_variance")
    }
    return GPGMap(Grid((0.0, 0.0), elevation.shape, 0.1), layers)


@pytest.fixture
def large() -> Overview:
    side = int(np.sqrt(MOST_CELLS)) + 100
    return Overview(Grid((5.0, -3.0), (side, side), 0.1))


def test_a_small_map_keeps_its_cells() -> None:
    overview = Overview(Grid((5.0, -3.0), (30, 40), 0.1))
    assert overview.factor == 1
    assert overview.grid == Grid((5.0, -3.0), (30, 40), 0.1)


def test_a_large_map_has_at_most_so_many_squares(large: Overview) -> None:
    assert large.factor == 2
    assert large.grid.resolution == pytest.approx(0.2)
    assert large.grid.origin == (5.0, -3.0)
    assert np.prod(large.grid.shape) <= MOST_CELLS


def test_a_square_holds_the_mean_of_its_cells(large: Overview) -> None:
    large.add(window(np.arange(16.0).reshape(4, 4)), slice(2, 6), slice(4, 8))
    elevation = large.layers["elevation"]
    np.testing.assert_allclose(elevation[1:3, 2:4], [[2.5, 4.5], [10.5, 12.5]])
    assert np.isfinite(elevation).sum() == 4


def test_unknown_cells_do_not_erase_what_is_known(large: Overview) -> None:
    large.add(window(np.full((2, 2), 7.0)), slice(0, 2), slice(0, 2))
    large.add(window(np.full((2, 2), np.nan)), slice(0, 2), slice(0, 2))
    assert large.layers["elevation"][0, 0] == 7.0


def test_a_window_may_begin_within_a_square(large: Overview) -> None:
    large.add(window(np.repeat([[1.0], [2.0], [4.0]], 2, axis=1)), slice(3, 6), slice(0, 2))
    elevation = large.layers["elevation"]
    np.testing.assert_allclose(elevation[1:3, 0], [1.0, 3.0])
    assert np.isfinite(elevation).sum() == 2


def test_nothing_is_certain_where_nothing_was_added(large: Overview) -> None:
    large.add(window(np.zeros((2, 2))), slice(0, 2), slice(0, 2))
    assert large.certainty[0, 0] > 0.5
    assert large.certainty[5, 5] == 0.0
