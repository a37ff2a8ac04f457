"""Relief of a thousand times the noise is ordinary: no eigenvalues, no repeated failures, the dense GP's answer."""

from __future__ import annotations

import numpy as np
import pytest
from exact import exact_posterior

from gp_core.grid import Grid, GridGP, normal_matrix
from gp_core.kernels import RBF


@pytest.fixture
def hillside() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    xy = rng.uniform(0.0, 4.0, (1200, 2))
    z = 8.0 * np.sin(0.9 * xy[:, 0]) * np.cos(0.7 * xy[:, 1]) + 0.01 * rng.standard_normal(1200)
    return xy, z


def test_a_hillside_is_solved_without_eigenvalues(
    hillside: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which took ten times as long as all else."""
    calls: list[int] = []
    eigh = np.linalg.eigh
    monkeypatch.setattr(normal_matrix.np.linalg, "eigh", lambda P: (calls.append(len(P)), eigh(P))[1])
    kernel, noise = 25.0 * RBF(0.5), 1e-4
    gp = GridGP(Grid((0.0, 0.0), (20, 20), 0.2), kernel, noise)
    calls.clear()
    gp.update(*hillside)
    p = gp.posterior()
    assert gp.fallbacks > 0  # single precision can't hold this
    assert not calls
    exact = exact_posterior(kernel, *hillside, noise, gp.grid.centers.reshape(-1, 2))
    error = (p.mean.ravel() - exact.mean) / np.sqrt(exact.variance)
    assert np.sqrt(np.mean(error**2)) < 0.05
    assert np.median(np.abs(p.variance.ravel() / exact.variance - 1.0)) < 0.02


def test_a_tile_that_failed_in_single_precision_is_not_tried_again(
    hillside: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    gp = GridGP(Grid((0.0, 0.0), (20, 20), 0.2), 25.0 * RBF(0.5), 1e-4)
    gp.update(*hillside)
    gp.posterior()
    means = gp._surface.means
    hard, tried = means.hard.copy(), []
    assert hard.any()
    attempt = type(means)._attempt

    def note(self: object, j: int, columns: np.ndarray, images: object) -> np.ndarray:
        tried.append((j, columns))
        solved: np.ndarray = attempt(self, j, columns, images)
        return solved

    monkeypatch.setattr(type(means), "_attempt", note)
    gp.update(*hillside)
    gp.posterior()
    assert not any(hard[j, columns].any() for j, columns in tried)


@pytest.mark.parametrize("relief", [10.0, 19.0])
def test_what_single_precision_would_lose_in_a_hole_is_not_lost(relief: float) -> None:
    """It factorises such tiles without complaint: means were off by 0.6 and 1.3 standard deviations."""
    rng = np.random.default_rng(6)
    xy = rng.uniform(0.0, 12.0, (4500, 2))
    xy = xy[(np.hypot(xy[:, 0] - 6.0, xy[:, 1] - 6.0) > 2.0) & (xy[:, 0] < 9.5)]
    shape = 0.5 + 0.5 * np.sin(0.5 * xy[:, 0]) * np.cos(0.4 * xy[:, 1])
    z = relief * shape + 0.02 * rng.standard_normal(len(xy))
    kernel = float(np.var(z)) * RBF(1.0)
    gp = GridGP(Grid((0.0, 0.0), (60, 60), 0.2), kernel, 0.02**2)
    gp.update(xy, z)
    p = gp.posterior()
    exact = exact_posterior(kernel, xy, z, 0.02**2, gp.grid.centers.reshape(-1, 2), gradient=False)
    error = np.abs(p.mean.ravel() - exact.mean) / np.sqrt(exact.variance)
    assert np.sqrt(np.mean(error**2)) < 0.08
    assert error.max() < 0.5
    assert np.percentile(np.abs(p.variance.ravel() / exact.variance - 1.0), 95) < 0.2
