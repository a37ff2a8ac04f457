"""Maps whose variances may lag: the mean is that of all points, the variance that of most of them, never of more."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from gp_core.grid import Grid, GridGP
from gp_core.grid.markov import pane
from gp_core.kernels import Matern

SIDE, CELLS, NOISE, LAG = 8.0, 80, 0.02, 0.1
KERNEL = 1.0 * Matern(3.0, nu=1.25)
GRID = Grid((0.0, 0.0), (CELLS, CELLS), SIDE / CELLS)


def surface(xy: np.ndarray) -> np.ndarray:
    return 0.5 * np.sin(xy[:, 0]) + 0.3 * np.cos(2.0 * xy[:, 1]) + 0.2 * (xy[:, 0] > 4.0)


def cloud(rng: np.random.Generator, n: int, low: float = 0.0, high: float = SIDE):
    xy = rng.uniform(low, high, (n, 2))
    return xy, surface(xy) + NOISE * rng.standard_normal(n)


@cache
def empty_map(mean: float | str, lag: float) -> GridGP:
    """Its tables take longer to make than most of what is tested here: tests take maps like it."""
    return GridGP(GRID, KERNEL, NOISE**2, mean, variance_lag=lag)


def two_maps(mean: float | str = 0.0) -> tuple[GridGP, GridGP]:
    return empty_map(mean, 0.0).like(GRID), empty_map(mean, LAG).like(GRID)


def differences(exact: GridGP, lagging: GridGP) -> tuple[float, float, np.ndarray]:
    """Largest error of mean and gradient in standard deviations, and the ratio of the variances."""
    p, q = exact.posterior(), lagging.posterior()
    mean = np.abs(q.mean - p.mean) / np.sqrt(p.variance)
    slope = np.abs(q.gradient - p.gradient) / np.sqrt(p.gradient_variance)
    return float(mean.max()), float(slope.max()), q.variance / p.variance


@pytest.fixture
def eliminations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Jobs that were eliminated, as they come."""
    done: list[int] = []
    eliminate = pane.Pane._eliminate

    def note(self: pane.Pane, k: int) -> bool:
        done.append(k)
        return eliminate(self, k)

    monkeypatch.setattr(pane.Pane, "_eliminate", note)
    return done


@pytest.mark.parametrize("mean", [0.0, "plane"])
def test_the_mean_has_all_points_and_the_variance_most_of_them(mean: float | str) -> None:
    rng = np.random.default_rng(0)
    exact, lagging = two_maps(mean)
    for n in [20000, *[700] * 9]:
        points = cloud(rng, n)
        exact.update(*points)
        lagging.update(*points)
        off, slope, ratio = differences(exact, lagging)
        assert off < 0.03
        assert slope < 0.03
        assert ratio.min() > 0.98
        assert np.median(ratio) < 1.0 + 1.3 * LAG
    assert ratio.max() > 1.01  # it does lag


def test_little_growth_needs_no_elimination(eliminations: list[int]) -> None:
    rng = np.random.default_rng(1)
    _, lagging = two_maps()
    lagging.update(*cloud(rng, 20000))
    lagging.posterior()
    eliminations.clear()
    for _ in range(3):
        lagging.update(*cloud(rng, 300))
        lagging.posterior()
    assert not eliminations
    for _ in range(20):
        lagging.update(*cloud(rng, 300))
        lagging.posterior()
    assert eliminations


def test_new_ground_and_forgotten_ground_are_solved_at_once() -> None:
    rng = np.random.default_rng(2)
    exact, lagging = two_maps()
    for points in (cloud(rng, 8000, 0.0, 5.0), cloud(rng, 100, 0.0, 5.0), cloud(rng, 4000, 4.0, SIDE)):
        exact.update(*points)
        lagging.update(*points)
        off, slope, ratio = differences(exact, lagging)
        assert off < 0.03
        assert slope < 0.03
        assert ratio.min() > 0.98
        assert np.quantile(ratio, 0.9) < 1.2
    gone = rng.uniform(1.0, 3.0, (3000, 2))
    for gp in (exact, lagging):
        gp.forget(gone)
    off, _, ratio = differences(exact, lagging)
    assert off < 0.03
    assert np.quantile(ratio, 0.01) > 0.9
    inside = np.s_[15:25, 15:25]
    assert ratio[inside].min() > 0.7


def test_a_prompt_map_has_the_mean_of_all_points_and_no_variance_that_is_too_small() -> None:
    rng = np.random.default_rng(6)
    exact, lagging = two_maps()
    for low, high, n in ((0.0, 5.0, 8000), (0.0, 5.0, 3000), (7.0, 7.2, 10)):
        points = cloud(rng, n, low, high)
        for gp in (exact, lagging):
            gp.update(*points)
        p, q = exact.posterior(), lagging.posterior(prompt=True)
        assert (np.abs(q.mean - p.mean) < 0.03 * np.sqrt(p.variance)).all()
        assert (q.variance > 0.98 * p.variance).all()
    assert (q.variance / p.variance)[71, 71] > 10.0  # new ground waits

    assert lagging.renew()
    off, slope, ratio = differences(exact, lagging)
    assert off < 0.03
    assert slope < 0.03
    assert ratio.min() > 0.98
    assert np.quantile(ratio, 0.9) < 1.2
    assert not lagging.renew()


def test_means_are_right_however_unevenly_ground_comes() -> None:
    """Some parts are eliminated again while others keep their factors, and what both share must not count twice."""
    rng = np.random.default_rng(100)
    exact, lagging = two_maps()
    for k in range(14):
        if k % 4 == 3:
            low = rng.uniform(0.0, 6.5)
            xy, z = cloud(rng, int(rng.integers(5, 2500)), low, low + rng.uniform(0.2, 1.5))
        else:
            around = rng.uniform(0.0, SIDE, 2) + rng.normal(0.0, 1.2, (int(rng.integers(50, 3000)), 2))
            xy = np.clip(around, 0.01, SIDE - 0.01)
            z = surface(xy) + NOISE * rng.standard_normal(len(xy))
        exact.update(xy, z)
        lagging.update(xy, z)
        p, q = exact.posterior(), lagging.posterior(prompt=bool(rng.integers(2)))
        assert (np.abs(q.mean - p.mean) < 0.03 * np.sqrt(p.variance)).all()
        if rng.uniform() < 0.3:
            lagging.renew()


def test_a_prompt_map_of_twice_the_points_leaves_the_variances_to_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(11)
    exact, lagging = two_maps()
    substituted: list[int] = []
    substitute = pane.Pane._substitute

    def note(self: pane.Pane, k: int, shared: np.ndarray) -> None:
        substituted.append(k)
        substitute(self, k, shared)

    monkeypatch.setattr(pane.Pane, "_substitute", note)
    for n in (5000, 5000):
        points = cloud(rng, n)
        exact.update(*points)
        lagging.update(*points)
        p = exact.posterior()
        substituted.clear()
        q = lagging.posterior(prompt=True)
        assert (np.abs(q.mean - p.mean) < 0.03 * np.sqrt(p.variance)).all()
        assert (q.variance > 0.98 * p.variance).all()
    assert not substituted
    assert np.median(q.variance / p.variance) > 1.3
    assert lagging.renew()
    assert substituted
    ratio = lagging.posterior().variance / p.variance
    assert ratio.min() > 0.98
    assert ratio.max() < 1.02


def test_a_prompt_map_forgets_at_once() -> None:
    rng = np.random.default_rng(7)
    exact, lagging = two_maps()
    points, gone = cloud(rng, 8000), rng.uniform(1.0, 5.0, (9000, 2))
    for gp in (exact, lagging):
        gp.update(*points)
        gp.posterior()
        gp.forget(gone)
    p, q = exact.posterior(), lagging.posterior(prompt=True)
    inside = np.s_[15:45, 15:45]
    assert (q.variance[inside] > 0.9 * p.variance[inside]).all()


def test_a_prompt_map_that_is_never_renewed_does_not_wait_for_ever() -> None:
    rng = np.random.default_rng(8)
    exact, lagging = two_maps()
    for n in [4000, *[500] * 12]:
        points = cloud(rng, n)
        exact.update(*points)
        lagging.update(*points)
        q = lagging.posterior(prompt=True)
    ratio = q.variance / exact.posterior().variance
    assert np.median(ratio) < 1.8  # by 10000 points instead of 4000 it would be 2.5


def test_prompt_maps_share_the_eliminations_among_them(eliminations: list[int]) -> None:
    rng = np.random.default_rng(9)
    grid = Grid((0.0, 0.0), (120, 120), SIDE / CELLS)
    lagging = GridGP(grid, KERNEL, NOISE**2, variance_lag=LAG)
    for _ in range(4):  # so that no place is new later on
        lagging.update(*cloud(rng, 300_000, high=12.0))
    lagging.posterior()
    jobs, dearest, seen = len(eliminations), 0, set()
    for _ in range(20):
        eliminations.clear()
        lagging.update(*cloud(rng, 60_000, high=12.0))
        lagging.posterior(prompt=True)
        dearest = max(dearest, len(eliminations))
        seen.update(eliminations)
    assert 0 < dearest <= 0.6 * jobs  # a quarter, those above it, and where single coefficients have doubled
    assert len(seen) == jobs


def test_after_many_small_clouds_the_mean_has_not_drifted() -> None:
    rng = np.random.default_rng(3)
    exact, lagging = two_maps()
    for k in range(60):
        points = cloud(rng, 4000 if k == 0 else 60)
        exact.update(*points)
        lagging.update(*points)
        lagging.posterior()
    off, slope, _ = differences(exact, lagging)
    assert off < 0.03
    assert slope < 0.03


def test_another_noise_level_is_taken_up() -> None:
    rng = np.random.default_rng(4)
    exact, lagging = two_maps()
    points = cloud(rng, 6000)
    for gp in (exact, lagging):
        gp.update(*points)
        gp.posterior()
        gp.set_noise_level(7.0)
    off, _, ratio = differences(exact, lagging)
    assert off < 0.03
    assert ratio.min() > 0.99
    assert ratio.max() < 1.01


def test_where_the_steps_do_not_converge_all_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    exact, lagging = two_maps()
    for n in (8000, 200):
        points = cloud(rng, n)
        exact.update(*points)
        lagging.update(*points)
        exact.posterior()
        lagging.posterior()
        monkeypatch.setattr(pane, "improve", lambda *arguments: None)
    off, _, ratio = differences(exact, lagging)
    assert off < 0.01
    assert np.abs(ratio - 1.0).max() < 0.01


@pytest.mark.parametrize("lag", [-0.1, 1.0, np.nan])
def test_a_lag_that_is_none_is_refused(lag: float) -> None:
    with pytest.raises(ValueError, match="variance_lag must be at least 0 and less than 1"):
        GridGP(GRID, KERNEL, NOISE**2, variance_lag=lag)
