"""P = C_0^-1 + A of a tile: against the sum over points, in float64 and in the compiled loops."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Workers
from gp_core.grid.axes import Axis
from gp_core.grid.moments import QUINTIC
from gp_core.grid.normal_matrix import (
    attempt,
    domain_weights,
    fill_normal_matrix,
    first_moments,
    normal_matrix,
    reduce_rows,
    safe_inverse,
)
from gp_core.grid.solvers import make_prior
from gp_core.grid.statistics import Statistics, locate
from gp_core.grid.tile_prior import TilePrior
from gp_core.grid.tiles import HEIGHT_MOMENTS, SAFE_ORDER, WEIGHT_MOMENTS, TileSize, make_tile_model
from gp_core.grid.tiling import Images, TileField
from gp_core.kernels import RBF

NOISE = 0.1


@pytest.fixture(scope="module")
def tile() -> TileField:
    """One tile over a window of 4 x 4 blocks, with a halo of two blocks around it."""
    prior = make_prior(RBF(1.0), (0.5, 0.5))
    assert isinstance(prior, TilePrior)
    model = make_tile_model(prior, TileSize(2.0, 1.0, 0.7, 1e-4), ((4, 2), (4, 2)))
    return TileField(model, Axis(0.5, 0, 4), Axis(0.5, 0, 4))


@pytest.fixture(scope="module")
def xy() -> np.ndarray:
    return np.random.default_rng(0).uniform(0.0, 2.0, (60, 2))


@pytest.fixture(scope="module")
def statistics(tile: TileField, xy: np.ndarray) -> Statistics:
    s = Statistics(tile.tiling.x, tile.tiling.y, QUINTIC)
    located = locate(xy, np.zeros(len(xy)), np.array([NOISE]), (0.0, 0.0, 2.0, 2.0), s.x, s.y)
    s.add_points(located, 1.0, 0.0, Workers(1))
    return s


@pytest.fixture(scope="module")
def expected(tile: TileField, xy: np.ndarray) -> np.ndarray:
    """C_0^-1 + sum over points of phi phi' / r."""
    model = tile.model
    along = []
    for axis, u in ((model.y, xy[:, 1] / 0.5), (model.x, xy[:, 0] / 0.5)):
        block = np.floor(u)
        along.append(axis.values(block.astype(np.int32) + axis.halo, 2.0 * (u - block) - 1.0))
    phi = along[0][:, model.mode_y] * along[1][:, model.mode_x]
    return model.precision + phi.T @ phi / NOISE


def test_it_is_the_prior_and_the_sum_over_points(
    tile: TileField, statistics: Statistics, expected: np.ndarray
) -> None:
    P = normal_matrix(tile.model, domain_weights(tile, 0, 0, statistics, 1.0))
    np.testing.assert_allclose(P, expected, atol=2e-3 * np.abs(expected).max())
    np.testing.assert_allclose(P, P.T, atol=1e-9 * np.abs(P).max())


def test_the_compiled_loops_fill_the_same_upper_triangle(
    tile: TileField, statistics: Statistics, expected: np.ndarray
) -> None:
    images = Images.covering([tile], 1)
    images.draw_weights(np.ones((4, 4), dtype=bool), statistics, 1.0)
    tables = tile.model.normal_tables
    place = tile.row_in(images, 0, np.array([0], dtype=np.int32))
    products = np.empty((tile.model.y.pairs, tile.model.x.pairs), dtype=np.float32)
    P = np.zeros((tile.model.rank, tile.model.rank), dtype=np.float32)
    fill_normal_matrix(reduce_rows(images.weights, tables.y.reduce, place), 0, tables, products, P)
    upper = np.triu_indices(tile.model.rank)
    np.testing.assert_allclose(P[upper], expected[upper], atol=2e-3 * np.abs(expected).max())


def test_blocks_outside_the_window_have_no_weight(tile: TileField, statistics: Statistics) -> None:
    weights = domain_weights(tile, 0, 0, statistics, 3.0)
    by_block = weights.reshape(8, WEIGHT_MOMENTS, 8, WEIGHT_MOMENTS)[:, 0, :, 0]
    np.testing.assert_allclose(by_block[2:6, 2:6], 3.0 * statistics.weights[:, :, 0, 0])
    assert by_block.sum() == pytest.approx(by_block[2:6, 2:6].sum())


def test_low_moments_are_those_of_each_block() -> None:
    image = np.arange(float((2 * HEIGHT_MOMENTS) ** 2)).reshape(2 * HEIGHT_MOMENTS, -1)
    low = first_moments(image)
    assert low.shape == (2 * SAFE_ORDER, 2 * SAFE_ORDER)
    np.testing.assert_array_equal(
        low[SAFE_ORDER:, :SAFE_ORDER],
        image[HEIGHT_MOMENTS : HEIGHT_MOMENTS + SAFE_ORDER, :SAFE_ORDER],
    )


def test_the_safe_inverse_is_the_inverse(expected: np.ndarray) -> None:
    np.testing.assert_allclose(safe_inverse(expected) @ expected, np.eye(len(expected)), atol=1e-8)


def test_the_safe_inverse_of_an_indefinite_matrix_is_positive() -> None:
    rotation, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))
    P = rotation @ np.diag([5.0, 2.0, 1.0, -1e-12]) @ rotation.T
    inverse = safe_inverse(P)
    assert np.isfinite(inverse).all()
    assert np.linalg.eigvalsh(inverse)[0] > 0.0


def test_an_attempt_fails_for_those_tiles_whose_result_is_not_finite() -> None:
    def fill(value: float, out: np.ndarray) -> None:
        out[1] = value

    assert attempt(fill, 1.0, np.zeros((3, 2, 2))).all()
    np.testing.assert_array_equal(attempt(fill, np.nan, np.zeros((3, 2, 2))), [True, False, True])
