"""Covariance: the sums against plain loops, and what a frame's origin does to it."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.stats import chi2

from gp_core.grid import Grid
from gpgmap_ros.closure import ClosureConfig, register
from gpgmap_ros.closure.graph.pairwise_consistency import shift_covariance
from gpgmap_ros.closure.registration.covariance import (
    LAGS,
    LEAST_COMMON,
    autocovariance,
    bound_information,
    common_error,
    influence,
    inner_products,
    lag_distance,
    local_spread,
    score_covariance,
    weighted_inner,
)

NOTHING = np.zeros((6, 6))
NO_GAIN = 0.0


def half_spectra(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return np.fft.rfft2(values, s=shape)


def profile_of(psi: np.ndarray, mask: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    pairs = np.fft.irfft2(np.abs(half_spectra(mask.astype(float), shape)) ** 2, s=shape)
    return autocovariance(np.abs(half_spectra(psi, shape)) ** 2, pairs)


def test_the_weighted_product_is_the_double_sum():
    rng = np.random.default_rng(0)
    psi = gaussian_filter(rng.normal(size=(40, 38)), 1.5)
    mask = rng.uniform(size=psi.shape) > 0.1
    psi = np.where(mask, psi, 0.0)
    X = np.where(mask, rng.normal(size=(6, *psi.shape)), 0.0)
    shape = (80, 80)
    C = profile_of(psi, mask, shape)
    rows, columns = np.nonzero(mask)
    x = X[:, rows, columns]
    lags = C[(rows[:, None] - rows) % shape[0], (columns[:, None] - columns) % shape[1]]
    found = weighted_inner(half_spectra(X, shape), np.fft.rfft2(C).real, shape[1])
    np.testing.assert_allclose(found, x @ lags @ x.T, rtol=1e-6, atol=1e-6 * np.abs(found).max())


def test_smooth_residuals_count_as_few():
    """Of two residual fields of one variance, the smooth one leaves the mean height less well known."""
    rng = np.random.default_rng(1)
    white = rng.normal(size=(60, 60))
    smooth = gaussian_filter(white, 3.0)
    smooth *= white.std() / smooth.std()
    mask = np.ones((60, 60), bool)
    X, one = np.ones((6, 60, 60)), np.ones((60, 60))
    of_smooth, cells = score_covariance(X, NO_GAIN, smooth, one, mask, NOTHING)
    assert of_smooth[0, 0] / score_covariance(X, NO_GAIN, white, one, mask, NOTHING)[0][0, 0] > 40.0
    assert 60.0 < cells < 180.0  # 4 pi 3^2 = 113 cells to an independent one


def test_the_profile_ends():
    shape = (90, 90)
    C = profile_of(np.ones((30, 30)), np.ones((30, 30), bool), shape)
    np.testing.assert_allclose(C[0, 0], 1.0)
    assert np.all(C[lag_distance(shape) > LAGS + 1] == 0.0)
    waves = np.cos(2.0 * np.pi * np.arange(60) / 12.0)[None, :] + np.zeros((60, 1))
    assert np.all(profile_of(waves, np.ones((60, 60), bool), shape) >= 0.0)


def test_rough_ground_counts_as_rough():
    """Residuals ten times as large where the slope is: a spread common to all cells would miss it."""
    rng = np.random.default_rng(2)
    mask = np.ones((60, 60), bool)
    steep = np.arange(60)[None, :] + np.zeros((60, 1)) > 45
    psi = rng.normal(size=(60, 60)) * np.where(steep, 10.0, 1.0)
    spread = local_spread(psi, mask)
    X = np.zeros((6, 60, 60))
    X[:] = steep
    B, _ = score_covariance(X, NO_GAIN, psi, spread, mask, NOTHING)
    common, _ = score_covariance(X, NO_GAIN, psi, np.full(mask.shape, psi.std()), mask, NOTHING)
    np.testing.assert_allclose(B[0, 0] / (100.0 * steep.sum()), 1.0, atol=0.35)
    assert common[0, 0] < 0.6 * B[0, 0]


def test_the_noise_of_slopes_holds_nothing():
    """Information from slopes that are relief plus noise, against that from relief alone."""
    rng = np.random.default_rng(3)
    relief = rng.normal(size=(6, 50, 50))
    a, b = (relief + 0.7 * rng.normal(size=relief.shape) for _ in range(2))
    mean = 0.5 * (a + b)
    truth = np.trace(inner_products(relief, relief))
    np.testing.assert_allclose(
        np.trace(bound_information(inner_products(mean, mean), inner_products(a, b))), truth, rtol=0.05
    )
    assert np.trace(inner_products(mean, mean)) > 1.2 * truth


def test_a_fit_to_correlated_errors_is_as_good_as_it_says():
    """A plane of three parameters through smooth noise, 300 times: the normalised errors follow their chi-square.

    What the fit itself takes up must be put back: without that the mean is 15 % too large.
    """
    rng = np.random.default_rng(4)
    y, x = np.mgrid[:40, :40] / 20.0 - 1.0
    X = np.stack([np.ones_like(x), x, y])
    mask = np.hypot(x, y) < 1.0
    X = X * mask
    taken = np.linalg.inv(inner_products(X, X))
    errors = {True: [], False: []}
    for _ in range(300):
        noise = gaussian_filter(rng.normal(size=x.shape), 1.2, mode="wrap") * mask
        estimate = taken @ inner_products(X, noise[None])[:, 0]
        left = (noise - np.tensordot(estimate, X, 1)) * mask
        for back in errors:
            B, _ = score_covariance(X, float(back), left, mask.astype(float), mask, taken)
            sigma = taken @ B @ taken
            errors[back].append(float(estimate @ np.linalg.solve(sigma, estimate)))
    assert 0.85 < np.mean(errors[True]) / 3.0 < 1.2
    assert np.mean(errors[True]) < 0.95 * np.mean(errors[False])
    assert np.mean(np.array(errors[True]) > chi2.ppf(0.95, 3)) < 0.1


def test_a_robust_fit_is_as_good_as_it_says_where_steep_ground_errs_most():
    """A shift along a slope, found with Student's t 400 times: cells where the slope is large err four times as much.

    One gain for all cells, their mean, counts the steep ones for too much: errors are then stated a quarter too small.
    """
    rng = np.random.default_rng(5)
    mask = np.ones((30, 30), bool)
    steep = np.where(np.arange(30)[None, :] < 6, 3.0, 0.2) + np.zeros((30, 1))
    X = steep[None]
    own, common = [], []
    for _ in range(400):
        noise = rng.normal(size=mask.shape) * np.where(steep > 1.0, 4.0, 1.0)
        shift = 0.0
        for _ in range(60):
            u = noise - steep * shift
            shift += float(np.sum(steep * influence(u)[0]) / np.sum(steep**2 * influence(u)[0] / u))
        psi, gain = influence(noise - steep * shift)
        for gains, out in ((gain, own), (np.full(mask.shape, gain.mean()), common)):
            taken = np.linalg.inv(inner_products(gains * X, X))
            B, _ = score_covariance(X, gains, psi, local_spread(psi, mask), mask, taken)
            out.append(shift**2 / (taken @ B @ taken)[0, 0])
    assert 0.8 < np.mean(own) < 1.2
    assert np.mean(common) > 1.5


def test_a_common_error_is_what_the_maps_do_not_know_of():
    """Full where residuals exceed the maps' variances, a part of that where noise explains them, none of a drive."""
    config = ClosureConfig()

    def metres(scale: float, cell: float = 1.0, driven: bool = False) -> float:
        return cell * common_error(0.5, scale, cell, driven, config)

    np.testing.assert_allclose(metres(1e6), 0.06)
    np.testing.assert_allclose(metres(1.0), LEAST_COMMON * 0.06)
    assert metres(1.0) < metres(4.0) < metres(20.0) < metres(1e6)
    np.testing.assert_allclose(metres(1e6, 10.0), 0.06)
    np.testing.assert_allclose(metres(1e6, 0.25), 0.06 / 8.0)
    assert metres(1e6, driven=True) == 0.0
    np.testing.assert_allclose(
        common_error(0.01, 1e6, 1.0, False, config), 0.02
    )  # no more than residuals allow
    assert common_error(0.5, 1.0, 0.5, True, ClosureConfig(common_error=0.1)) == 0.2


def test_the_influence_and_its_slope():
    u = np.linspace(-8.0, 8.0, 4001)
    psi, gain = influence(u)
    np.testing.assert_allclose(gain[1:-1], np.gradient(psi, u)[1:-1], atol=1e-4)
    assert abs(psi[-1]) < abs(psi[2500])  # what lies far away pulls less
    assert gain[-1] < 0.0


def test_the_covariance_belongs_to_the_origin_of_the_source_frame(pair):
    """The same source in a frame 100 m off: the same ground, the same knowledge, seen from a longer lever."""
    source, target, _ = pair
    here = register(source, target)
    grid = source.grid
    far = Grid((grid.origin[0] - 100.0, grid.origin[1] + 40.0), grid.shape, grid.resolution)
    there = register(dataclasses.replace(source, grid=far), target)
    lever = there.T_target_source[:3, 3] - here.T_target_source[:3, 3]
    assert abs(np.hypot(*lever[:2]) - np.hypot(100.0, 40.0)) < 1.0
    np.testing.assert_allclose(
        there.covariance, shift_covariance(here.covariance, lever), rtol=1e-3, atol=1e-9
    )
    assert there.covariance[1, 1] > here.covariance[1, 1]
