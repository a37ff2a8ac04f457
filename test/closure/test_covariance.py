"""Covariance: the sums against plain loops, and what a frame's origin does to it."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.ndimage import gaussian_filter

from gp_core.grid import Grid
from gpgmap_ros.closure import register
from gpgmap_ros.closure.consistency import moved
from gpgmap_ros.closure.covariance import LAGS, autocovariance, correlated, lag_distance


def test_correlated_is_the_double_sum():
    rng = np.random.default_rng(0)
    psi = gaussian_filter(rng.normal(size=(40, 38)), 1.5)
    mask = rng.uniform(size=psi.shape) > 0.1
    psi = np.where(mask, psi, 0.0)
    X = np.where(mask, rng.normal(size=(6, *psi.shape)), 0.0)
    shape = (80, 80)
    C = np.fft.ifft2(np.maximum(np.fft.fft2(autocovariance(psi, mask, shape)).real, 0.0)).real
    rows, columns = np.nonzero(mask)
    x = X[:, rows, columns]
    lags = C[(rows[:, None] - rows) % shape[0], (columns[:, None] - columns) % shape[1]]
    np.testing.assert_allclose(
        correlated(X, psi, mask), x @ lags @ x.T, rtol=0.02, atol=0.02 * np.abs(x @ lags @ x.T).max()
    )


def test_smooth_residuals_count_as_few():
    """Of two residual fields of one variance, the smooth one leaves the mean height less well known."""
    rng = np.random.default_rng(1)
    white = rng.normal(size=(60, 60))
    smooth = gaussian_filter(white, 3.0)
    smooth *= white.std() / smooth.std()
    mask = np.ones((60, 60), bool)
    X = np.ones((6, 60, 60))
    ratio = correlated(X, smooth, mask)[0, 0] / correlated(X, white, mask)[0, 0]
    assert ratio > 20.0  # 4 pi 3^2 = 113 cells to an independent one, less by the taper


def test_the_profile_ends():
    shape = (90, 90)
    C = autocovariance(np.ones((30, 30)), np.ones((30, 30), bool), shape)
    assert C[0, 0] == 1.0
    assert np.all(C[lag_distance(shape) > LAGS + 1] == 0.0)


def test_the_covariance_belongs_to_the_origin_of_the_source_frame(pair):
    """The same source in a frame 100 m off: the same ground, the same knowledge, seen from a longer lever."""
    source, target, _ = pair
    here = register(source, target)
    grid = source.grid
    far = Grid((grid.origin[0] - 100.0, grid.origin[1] + 40.0), grid.shape, grid.resolution)
    there = register(dataclasses.replace(source, grid=far), target)
    lever = there.T_target_source[:3, 3] - here.T_target_source[:3, 3]
    assert abs(np.hypot(*lever[:2]) - np.hypot(100.0, 40.0)) < 1.0
    np.testing.assert_allclose(there.covariance, moved(here.covariance, lever), rtol=1e-3, atol=1e-9)
    assert there.covariance[1, 1] > here.covariance[1, 1]
