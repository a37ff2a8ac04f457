"""Real points: are the intervals honest, and are they those of the dense GP?"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from exact import exact_posterior

from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF

FOLDER = Path(os.environ.get("GPGMAP_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))
needs_data = pytest.mark.skipif(not FOLDER.is_dir(), reason="no data folder: set GPGMAP_DATA")


def blanca(side: float) -> tuple[np.ndarray, np.ndarray]:
    points = np.load(FOLDER / "als_blanca.npz")["xyz"].astype(np.float64)
    xy = points[:, :2] - (100.0, 110.0)
    inside = ((xy > 0.0) & (xy < side)).all(1)
    return xy[inside], points[inside, 2]


def coverage(error: np.ndarray, std: np.ndarray) -> np.ndarray:
    return np.array([np.mean(np.abs(error) < k * std) for k in (1.0, 1.96, 3.0)])


@needs_data
def test_intervals_on_held_out_lidar_points():
    xy, z = blanca(40.0)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(z))
    test, train = order[:2000], order[2000:]
    gp = GridGP(Grid((0.0, 0.0), (80, 80), 0.5), float(z.var()) * RBF(2.0), 0.01, mean=float(np.median(z)))
    gp.update(xy[train], z[train])
    gp.fit_hyperparameters(max_tiles=12)
    mean, std = gp.predict(xy[test], return_std=True)
    found = coverage(z[test] - mean, np.sqrt(std**2 + gp.noise_variance))
    # Gullies are rougher than their shoulders: one stationary kernel is too careful for most points (the 68 %
    # interval holds more) and right in the tails that matter for safety.
    assert found[0] >= 0.66
    assert abs(found[1] - 0.95) < 0.02
    assert found[2] > 0.977


@needs_data
def test_intervals_are_those_of_the_dense_gp():
    xy, z = blanca(12.0)
    rng = np.random.default_rng(1)
    order = rng.permutation(len(z))
    test, train = order[:400], order[400:]
    kernel, noise, center = 9.0 * RBF(1.6), 0.005, float(np.median(z))
    gp = GridGP(Grid((0.0, 0.0), (24, 24), 0.5), kernel, noise, mean=center)
    gp.update(xy[train], z[train])
    mean, std = gp.predict(xy[test], return_std=True)
    exact = exact_posterior(kernel, xy[train], z[train] - center, noise, xy[test], gradient=False)
    assert np.sqrt(np.mean((mean - center - exact.mean) ** 2 / exact.variance)) < 0.1
    ours = coverage(z[test] - mean, np.sqrt(std**2 + noise))
    dense = coverage(z[test] - center - exact.mean, np.sqrt(exact.variance + noise))
    np.testing.assert_allclose(ours, dense, atol=0.01)
