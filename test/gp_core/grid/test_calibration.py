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


def norlab() -> tuple[np.ndarray, np.ndarray]:
    data = np.load(FOLDER / "norlab_static14.npz")
    scans = np.split(data["points"].astype(np.float64), np.cumsum(data["n"])[:-1])
    points = np.vstack([p @ T[:3, :3].T + T[:3, 3] for p, T in zip(scans, data["T_map_base"], strict=True)])
    xy, z = points[:, :2] - (3.0, -5.0), points[:, 2]
    inside = ((xy > 0.0) & (xy < 10.0)).all(1) & (z > -1.4) & (z < -0.4)
    return xy[inside], z[inside]


@needs_data
@pytest.mark.parametrize(
    ("survey", "cells", "resolution", "length"), [("blanca", 80, 0.5, 1.0), ("norlab", 100, 0.1, 0.3)]
)
def test_intervals_on_held_out_lidar_points(survey, cells, resolution, length):
    """Gullies are rougher than their shoulders, and a forest floor has stems: one noise for all would be wrong."""
    xy, z = blanca(40.0) if survey == "blanca" else norlab()
    order = np.random.default_rng(0).permutation(len(z))
    test, held, train = order[:4000], order[4000:6000], order[6000:]
    grid = Grid((0.0, 0.0), (cells, cells), resolution)
    gp = GridGP(grid, float(z.var()) * RBF(length), 0.01 * float(z.var()), mean=float(np.median(z)))
    gp.update(xy[train], z[train])
    gp.fit_hyperparameters(max_tiles=12)
    before = gp.log_density(xy[test], z[test]).mean()
    gp.learn_noise()
    assert gp.log_density(xy[test], z[test]).mean() > before + 0.2
    gp.calibrate(xy[held], z[held])
    for level in (0.6827, 0.95, 0.997):
        low, high = gp.predict_interval(xy[test], level)
        assert abs(np.mean((z[test] > low) & (z[test] < high)) - level) < 0.02


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
