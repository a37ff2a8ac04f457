"""What a map remembers: kept, sent, forgotten, limited, and shared tables."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Grid, GridGP, Tiles, TileSize
from gp_core.kernels import RBF, Kernel, Matern

GRID = Grid((0.0, 0.0), (40, 50), 0.1)


SMOOTH, ROUGH = 0.04 * RBF(0.5), 0.04 * Matern(1.0, nu=1.5)


def made(mean: float | str = 0.0, kernel: Kernel = SMOOTH) -> GridGP:
    return GridGP(GRID, kernel, 1e-3, mean=mean)


def points(n: int = 3000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    xy = rng.uniform([0.0, 0.0], [5.0, 4.0], (n, 2))
    return xy, 0.2 * np.sin(2.0 * xy[:, 0]) + 0.03 * rng.standard_normal(n)


def same(a: GridGP, b: GridGP) -> None:
    p, q = a.posterior(), b.posterior()
    np.testing.assert_allclose(p.mean, q.mean, atol=1e-6)
    np.testing.assert_allclose(p.variance, q.variance, rtol=1e-4)


@pytest.mark.parametrize("learn", [False, True])
def test_blocks_carry_all_that_a_map_knows(learn):
    gp, other = made(), made()
    gp.update(*points())
    if learn:
        gp.learn_noise()
    plain = made()
    plain.update(*points())
    other.add_blocks(gp.blocks())
    same(other, plain)
    assert other.count == plain.count


def test_blocks_of_another_lattice_are_refused():
    gp = made()
    gp.update(*points())
    other = GridGP(GRID, 0.04 * RBF(0.8), 1e-3)
    with pytest.raises(ValueError, match="lattice"):
        other.add_blocks(gp.blocks())
    assert other.count == 0.0


def test_a_map_like_another_shares_its_tables_and_nothing_else():
    gp = made()
    gp.update(*points())
    grid = Grid((2.0, 1.0), (30, 20), 0.1)
    other = gp.like(grid, mean=5.0)
    assert other.count == 0.0
    assert other.posterior().mean.shape == (30, 20)
    np.testing.assert_allclose(other.posterior().mean, 5.0)
    xy, z = points(seed=1)
    other.update(xy, z + 5.0)
    fresh = GridGP(grid, 0.04 * RBF(0.5), 1e-3, mean=5.0)
    fresh.update(xy, z + 5.0)
    same(other, fresh)
    assert gp.grid == GRID
    with pytest.raises(ValueError, match=r"cells of 0\.1 m"):
        gp.like(Grid((0.0, 0.0), (5, 5), 0.2))
    with pytest.raises(ValueError, match="learns its mean"):
        made("plane").like(grid, mean=1.0)


def test_forgotten_places_return_to_the_prior():
    gp = made()
    gp.update(*points(20_000))
    near = np.abs(GRID.centers - (2.5, 2.0)).max(-1) < 1.2
    gp.forget(GRID.centers[near])
    p = gp.posterior()
    assert p.variance[20, 25] > 0.5 * 0.04
    assert p.variance[2, 2] < 0.01 * 0.04
    gp.forget(np.array([[100.0, 100.0]]))
    assert gp.posterior().variance[2, 2] == p.variance[2, 2]


def test_information_is_limited_where_there_is_too_much():
    gp, plain = made(), made()
    xy, z = points(50_000)
    gp.update(xy, z)
    plain.update(xy, z)
    gp.limit_information(1e4)
    assert gp.count < plain.count
    assert (gp.posterior().variance > plain.posterior().variance).all()
    before = gp.posterior().mean
    gp.limit_information(1e4)
    assert not gp._surface.means.stale.any()
    np.testing.assert_array_equal(gp.posterior().mean, before)


@pytest.mark.parametrize(
    ("mean", "kernel"), [(0.0, SMOOTH), ("plane", SMOOTH), (0.0, ROUGH), ("plane", ROUGH)]
)
def test_the_mean_on_blocks_is_the_mean_at_points(mean, kernel):
    gp = made(mean, kernel)
    gp.update(*points())
    blocks = gp.blocks()
    K = 7
    polynomial = gp.block_means(blocks)[K]
    s, t = 0.3, -0.6
    value = t ** np.arange(6) @ polynomial @ s ** np.arange(6) + blocks.reference
    at = (blocks.index[K, ::-1] + 0.5 * (np.array([s, t]) + 1.0)) * blocks.spacing
    assert value == pytest.approx(float(gp.predict(at[None])[0]), abs=1e-9)


def test_mean_height():
    gp = made()
    assert gp.mean_height is None
    gp.update(np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([1.0, 4.0]), np.array([1.0, 0.5]))
    assert gp.mean_height == pytest.approx(3.0, abs=1e-3)


def test_other_tiles_see_the_same_data_and_leave_them_alone():
    rng = np.random.default_rng(12)
    xy = rng.uniform(0.0, 4.0, (4000, 2))
    z = np.sin(xy[:, 0]) + 0.05 * rng.standard_normal(4000)
    grid = Grid((0.0, 0.0), (40, 40), 0.1)
    gp = GridGP(grid, RBF(0.6), 0.0025)
    small = TileSize(core=4.0, halo=1.0, window=1.0, cutoff=1e-6)
    quick = GridGP(Grid((0.0, 0.0), (1, 1), 0.1), RBF(0.6), 0.0025, tiles=Tiles(small, small, small))
    gp.update(xy, z)
    rough, exact = gp.posterior_by(quick), gp.posterior()
    error = np.abs(rough.mean - exact.mean) / np.sqrt(exact.variance)
    assert 0.0 < np.median(error) < 0.5
    np.testing.assert_allclose(np.median(rough.variance / exact.variance), 1.0, atol=0.1)
    gp.update(xy, z)
    doubled = gp.posterior()
    assert np.median(doubled.variance / exact.variance) < 0.6
    assert np.median(gp.posterior_by(quick).variance / rough.variance) < 0.6
    with pytest.raises(ValueError, match="another kernel"):
        gp.posterior_by(GridGP(grid, RBF(0.5), 0.0025))
