"""A block keeps the moments that the splines of its lattice need, and takes them out of blocks that have more."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gp_core.grid import Grid, GridGP
from gp_core.grid.moments import QUADRATIC, QUINTIC
from gp_core.grid.statistics import Statistics, locate
from gp_core.grid.tiled_statistics import TiledStatistics
from gp_core.grid.workers import Workers
from gp_core.kernels import RBF, Matern

GRID = Grid((0.0, 0.0), (30, 30), 0.1)
ROUGH, SMOOTH = Matern(1.0, nu=1.5), RBF(0.5)


def points(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    xy = rng.uniform(0.0, 3.0, (2000, 2))
    return xy, np.sin(xy[:, 0]) + 0.01 * rng.standard_normal(2000), rng.uniform(1e-4, 4e-4, 2000)


@pytest.mark.parametrize(("kernel", "orders"), [(ROUGH, QUADRATIC), (SMOOTH, QUINTIC)])
def test_the_kernel_decides_which_moments_are_kept(kernel, orders):
    gp = GridGP(GRID, kernel, 1e-4)
    gp.update(*points())
    assert gp.lattice.orders == gp.blocks().orders == orders


def test_fewer_moments_are_the_first_of_more():
    gp = GridGP(GRID, ROUGH, 1e-4)
    gp.update(*points())
    few = gp._observations.statistics
    many = Statistics(few.x, few.y, QUINTIC, few.reference)
    many.add_points(locate(*points(), GRID.bounds, few.x, few.y), 1.0, gp.prior.unresolved, Workers(1))
    # to rounding: another CPU may fuse other operations in a longer loop
    np.testing.assert_allclose(few.weights, many.weights[..., :5, :5], rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(few.heights, many.heights[..., :3, :3], rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(few.totals, many.totals, rtol=1e-12)


def test_blocks_with_more_moments_than_needed_are_taken():
    gp = GridGP(GRID, ROUGH, 1e-4)
    gp.update(*points())
    blocks = gp.blocks()
    padded = dataclasses.replace(
        blocks,
        weights=np.pad(blocks.weights, ((0, 0), (0, 2), (0, 2)), constant_values=7.0),
        heights=np.pad(blocks.heights, ((0, 0), (0, 3), (0, 3)), constant_values=7.0),
    )
    other = GridGP(GRID, ROUGH, 1e-4)
    other.add_blocks(padded)
    np.testing.assert_array_equal(other.posterior().mean, gp.posterior().mean)


def test_blocks_with_fewer_moments_than_needed_are_refused():
    gp = GridGP(GRID, SMOOTH, 1e-4)
    gp.update(*points())
    blocks = gp.blocks()
    few = dataclasses.replace(blocks, weights=blocks.weights[:, :5, :5], heights=blocks.heights[:, :3, :3])
    with pytest.raises(ValueError, match="made for another kernel"):
        GridGP(GRID, SMOOTH, 1e-4).add_blocks(few)


def test_statistics_of_a_rough_kernel_on_file(tmp_path):
    gp = GridGP(GRID, ROUGH, 1e-4)
    tiled = TiledStatistics(gp.lattice)
    tiled.add(*points())
    tiled.save(tmp_path / "sums.npz")
    loaded = TiledStatistics.load(tmp_path / "sums.npz")
    assert loaded.lattice == gp.lattice
    direct, from_file = GridGP(GRID, ROUGH, 1e-4), GridGP(GRID, ROUGH, 1e-4)
    direct.add_blocks(tiled.window(GRID.bounds))
    from_file.add_blocks(loaded.window(GRID.bounds))
    np.testing.assert_array_equal(from_file.posterior().mean, direct.posterior().mean)
