"""Where tiles are, which depend on which blocks, and what they keep when the window moves."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Workers
from gp_core.grid.axes import Axis
from gp_core.grid.moments import QUINTIC
from gp_core.grid.solvers import make_prior
from gp_core.grid.statistics import Statistics, locate
from gp_core.grid.tile_prior import TilePrior
from gp_core.grid.tiles import HEIGHT_MOMENTS, WEIGHT_MOMENTS, TileModel, TileSize, make_tile_model
from gp_core.grid.tiling import Images, TileField, Tiling
from gp_core.kernels import RBF

CORE, HALO = 4, 2


@pytest.fixture(scope="module")
def model() -> TileModel:
    prior = make_prior(RBF(1.0), (0.5, 0.5))
    assert isinstance(prior, TilePrior)
    return make_tile_model(prior, TileSize(2.0, 1.0, 0.7, 1e-3), ((CORE, HALO), (CORE, HALO)))


def field_over(model: TileModel, y: tuple[int, int], x: tuple[int, int]) -> TileField:
    """y, x: first block and number of blocks of the window"""
    return TileField(model, Axis(0.5, *y), Axis(0.5, *x))


def one_block(field: TileField, j: int, i: int) -> np.ndarray:
    blocks = np.zeros((field.tiling.y.count, field.tiling.x.count), dtype=bool)
    blocks[j, i] = True
    return blocks


def statistics_with(field: TileField, xy: list[tuple[float, float]]) -> Statistics:
    s = Statistics(field.tiling.x, field.tiling.y, QUINTIC)
    at, z = np.array(xy), np.ones(len(xy))
    s.add_points(locate(at, z, np.array([0.1]), (-50.0, -50.0, 50.0, 50.0), s.x, s.y), 1.0, 0.0, Workers(1))
    return s


def test_tiles_are_the_same_wherever_the_window_begins(model: TileModel) -> None:
    tiling = Tiling.covering(model, Axis(0.5, -3, 10), Axis(0.5, 5, 4))
    assert (tiling.first_y, tiling.first_x) == (-1, 1)
    assert tiling.shape == (3, 2)


def test_a_domain_is_the_core_with_a_halo_on_each_side(model: TileModel) -> None:
    field = field_over(model, (-3, 10), (5, 4))
    # tile (-1, 1) owns blocks -4 ... -1 and 4 ... 7
    assert field.domain(0, 0) == (-4 - HALO + 3, 4 - HALO - 5)
    assert field.domain(1, 1) == (0 - HALO + 3, 8 - HALO - 5)


def test_a_block_in_a_halo_touches_both_tiles(model: TileModel) -> None:
    field = field_over(model, (0, 12), (0, 12))
    np.testing.assert_array_equal(
        field.tiles_touching(one_block(field, 0, 5)), [[True, True, False], [False] * 3, [False] * 3]
    )
    assert field.tiles_touching(one_block(field, 5, 5)).sum() == 4
    assert not field.tiles_touching(np.zeros((12, 12), dtype=bool)).any()


def test_changed_blocks_make_their_tiles_stale_and_others_stay_empty(model: TileModel) -> None:
    field = field_over(model, (0, 12), (0, 12))
    field.mark(one_block(field, 0, 0), statistics_with(field, [(0.2, 0.2)]))
    expected = np.zeros((3, 3), dtype=bool)
    expected[0, 0] = True
    np.testing.assert_array_equal(field.stale, expected)
    np.testing.assert_array_equal(field.empty, ~expected)


def test_after_a_move_only_new_tiles_and_those_that_lost_data_are_stale(model: TileModel) -> None:
    old, new = field_over(model, (0, 12), (0, 12)), field_over(model, (0, 12), (4, 12))
    lost = one_block(old, 0, 3)  # in the first column of tiles, and in the halo of the second
    new.inherit(old, lost)
    np.testing.assert_array_equal(
        new.stale, [[True, False, True], [False, False, True], [False, False, True]]
    )


def test_images_hold_the_moments_of_the_drawn_blocks(model: TileModel) -> None:
    field = field_over(model, (0, 12), (0, 12))
    s = statistics_with(field, [(0.2, 0.2), (5.8, 0.3)])
    images = Images.covering([field], 1)
    assert (images.first_y, images.first_x) == (-HALO, -HALO)
    images.draw_weights(one_block(field, 0, 11), s, 2.0)
    row, column = HALO * WEIGHT_MOMENTS, (11 + HALO) * WEIGHT_MOMENTS
    drawn = images.weights[row : row + WEIGHT_MOMENTS, column : column + WEIGHT_MOMENTS]
    np.testing.assert_allclose(drawn, 2.0 * s.weights[0, 11, :WEIGHT_MOMENTS, :WEIGHT_MOMENTS], rtol=1e-6)
    assert np.count_nonzero(images.weights) == np.count_nonzero(drawn), "other blocks were not asked for"
    images.draw_heights(one_block(field, 0, 0), s.heights, 1.0, 0)
    corner = HALO * HEIGHT_MOMENTS
    assert images.heights[0, corner, corner] == pytest.approx(s.heights[0, 0, 0, 0])


def test_tiles_are_listed_by_row_and_found_in_the_images(model: TileModel) -> None:
    field = field_over(model, (0, 12), (0, 12))
    tiles = np.array([[True, False, True], [False] * 3, [False, True, False]])
    assert [(j, columns.tolist()) for j, columns in field.rows(tiles)] == [(0, [0, 2]), (2, [1])]
    place = field.row_in(Images.covering([field], 1), 2, np.array([1, 2], dtype=np.int32))
    assert (place.row, place.first) == (2 * CORE, CORE)
    assert place.starts.tolist() == [0, CORE]
    assert place.span == CORE + CORE + 2 * HALO
