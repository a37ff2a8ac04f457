"""Noise that differs from place to place, learned from statistics alone."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF, Kernel, Matern

KERNEL = 0.04 * RBF(0.6)
GRID = Grid((0.0, 0.0), (40, 80), 0.1)


def relief(xy: np.ndarray) -> np.ndarray:
    return 0.2 * np.sin(1.7 * xy[:, 0]) + 0.15 * np.cos(2.1 * xy[:, 1])


def field(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points that scatter by 1 cm on the left half and by 8 cm on the right half."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform([0.0, 0.0], [8.0, 4.0], (n, 2))
    std = np.where(xy[:, 0] < 4.0, 0.01, 0.08)
    return xy, relief(xy) + std * rng.standard_normal(n), std


def learned(mean: float | str = 0.0, lift: float = 0.0, kernel: Kernel = KERNEL) -> GridGP:
    xy, z, _ = field(40_000, 0)
    gp = GridGP(GRID, kernel, 0.04**2, mean=mean)
    gp.update(xy, z + lift)
    gp.learn_noise()
    return gp


@pytest.mark.parametrize("kernel", [KERNEL, 0.04 * Matern(1.0, nu=1.5)], ids=["tiles", "strips"])
@pytest.mark.parametrize(("mean", "lift"), [(0.0, 0.0), ("constant", 3000.0), ("plane", 3000.0)])
def test_each_place_gets_its_own_noise(mean, lift, kernel):
    gp = learned(mean, lift, kernel)
    at = np.random.default_rng(1).uniform([0.0, 0.0], [8.0, 4.0], (500, 2))
    at = at[np.abs(at[:, 0] - 4.0) > 0.6]  # a block lies on the border
    variance, degrees = gp.noise_at(at)
    true = np.where(at[:, 0] < 4.0, 0.01, 0.08)
    ratio = np.abs(np.log(np.sqrt(variance) / true))
    if kernel == KERNEL:
        assert np.median(ratio) < 0.1
        assert (ratio < 0.7).all()
        assert (degrees > 10.0).all()
    else:  # a rough kernel has smaller blocks, with nine points on average: their scatter is known less well
        assert np.median(ratio) < 0.2
        assert np.quantile(ratio, 0.95) < 0.7
        assert np.median(degrees) > 5.0


def test_intervals_hold_on_both_halves_and_not_without():
    plain = GridGP(GRID, KERNEL, 0.04**2)
    xy, z, _ = field(40_000, 0)
    plain.update(xy, z)
    xy, z, _ = field(20_000, 2)
    calm = xy[:, 0] < 4.0

    def share(gp: GridGP, part: np.ndarray) -> float:
        low, high = gp.predict_interval(xy[part], 0.6827)
        return float(np.mean((z[part] > low) & (z[part] < high)))

    gp = learned()
    assert abs(share(gp, calm) - 0.6827) < 0.02
    assert abs(share(gp, ~calm) - 0.6827) < 0.02
    assert share(plain, calm) > 0.95
    assert gp.log_density(xy, z).mean() > plain.log_density(xy, z).mean() + 0.3


def test_the_surface_is_as_well_known_as_it_says_on_calm_ground():
    gp, plain = learned(), GridGP(GRID, KERNEL, 0.04**2)
    xy, z, _ = field(40_000, 0)
    plain.update(xy, z)
    truth = relief(GRID.centers.reshape(-1, 2)).reshape(GRID.shape)
    calm = np.s_[:, :35]
    score = [
        np.mean((p.mean - truth)[calm] ** 2 / p.variance[calm]) for p in (gp.posterior(), plain.posterior())
    ]
    assert 0.5 < score[0] < 1.5
    assert score[1] < 0.2


def test_later_points_are_weighed_alike_in_any_order():
    xy, z, _ = field(5_000, 3)
    one, other = learned(), learned()
    one.update(xy, z)
    for part in np.array_split(np.random.default_rng(4).permutation(len(z)), 7):
        other.update(xy[part], z[part])
    p, q = one.posterior(), other.posterior()
    np.testing.assert_allclose(p.mean, q.mean, atol=1e-6)
    np.testing.assert_allclose(p.variance, q.variance, rtol=1e-4)
    one.remove(xy, z)
    np.testing.assert_allclose(one.posterior().mean, learned().posterior().mean, atol=1e-5)


def test_a_map_with_other_factors_merges():
    xy, z, _ = field(5_000, 3)
    stranger = GridGP(GRID, KERNEL, 0.04**2)
    stranger.update(xy, z)
    merged, fed = learned(), learned()
    merged.merge(stranger)
    fed.update(xy, z)
    np.testing.assert_allclose(merged.posterior().mean, fed.posterior().mean, atol=1e-6)


def test_a_window_that_moves_takes_the_factors_along():
    gp = learned()
    at = np.array([[5.5, 2.0], [7.5, 2.0]])
    before = gp.noise_at(at)[0]
    gp.move(0, 30)
    np.testing.assert_array_equal(gp.noise_at(at)[0], before)
    beyond = gp.noise_at(np.array([[10.5, 2.0]]))
    assert beyond[1][0] < 20.0  # nothing was seen there
    xy, z, _ = field(500, 5)
    assert gp.update(xy + np.array([3.0, 0.0]), z).used > 0
    assert np.isfinite(gp.posterior().mean).all()


def test_calibration_by_points_held_out():
    rng = np.random.default_rng(6)

    def heavy(n: int) -> tuple[np.ndarray, np.ndarray]:
        xy = rng.uniform([0.0, 0.0], [8.0, 4.0], (n, 2))
        return xy, relief(xy) + 0.01 * rng.standard_t(2.0, n)

    gp = GridGP(GRID, KERNEL, 0.03**2)
    gp.update(*heavy(30_000))
    xy, z = heavy(20_000)

    def shares() -> np.ndarray:
        bounds = [gp.predict_interval(xy, level) for level in (0.6827, 0.95, 0.997)]
        return np.array([np.mean((z > low) & (z < high)) for low, high in bounds])

    assert shares()[0] > 0.8  # the tails have made the noise look large
    gp.calibrate(*heavy(3_000))
    np.testing.assert_allclose(shares(), [0.6827, 0.95, 0.997], atol=0.02)


def test_refusals():
    gp = GridGP(GRID, KERNEL, 0.01)
    with pytest.raises(ValueError, match="update the map first"):
        gp.learn_noise()
    with pytest.raises(ValueError, match="at least 50"):
        gp.calibrate(np.zeros((3, 2)), np.zeros(3))
    with pytest.raises(ValueError, match="match xy"):
        gp.calibrate(np.zeros((60, 2)), np.zeros(61))
    with pytest.raises(ValueError, match="level"):
        gp.predict_interval(np.zeros((1, 2)), 95.0)
