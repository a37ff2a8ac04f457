"""A twin of a map: it has the data of the other one, whatever happened there, and is solved in its place."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import assert_agree

from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF, Matern

SIDE, CELLS, NOISE = 4.0, 40, 0.02
GRID = Grid((0.0, 0.0), (CELLS, CELLS), SIDE / CELLS)
KERNELS = [1.0 * Matern(3.0, nu=1.25), 1.0 * RBF(0.6)]


def cloud(rng: np.random.Generator, n: int, low: float = 0.0, high: float = SIDE):
    xy = rng.uniform(low, high, (n, 2))
    return xy, np.sin(xy[:, 0]) + 0.3 * np.cos(2.0 * xy[:, 1]) + NOISE * rng.standard_normal(n)


@pytest.mark.parametrize("kernel", KERNELS, ids=["rough", "smooth"])
def test_it_follows_points_forgetting_limits_and_moves(kernel) -> None:
    rng = np.random.default_rng(0)
    one, twin = GridGP(GRID, kernel, NOISE**2), None
    reference = GridGP(GRID, kernel, NOISE**2)
    changes = [
        lambda gp, points: gp.update(*points),
        lambda gp, points: gp.forget(np.array([[1.0, 1.0], [3.0, 2.5]])),
        lambda gp, points: gp.limit_information(2e4),
        lambda gp, points: gp.move(3, -5),
        lambda gp, points: (gp.forget(points[0][:3]), gp.move(-2, 4), gp.update(*points)),
    ]
    one.update(*(first := cloud(rng, 3000)))
    reference.update(*first)
    twin = one.twin()
    for change in changes:
        points = cloud(rng, 400, 0.5, 2.5)
        for gp in (one, reference):
            change(gp, points)
        twin.take(one)
        assert twin.grid == reference.grid
        assert_agree(twin.posterior(), reference.posterior())


def test_what_was_learned_stays_and_weights_what_is_taken() -> None:
    rng = np.random.default_rng(1)
    one = GridGP(GRID, KERNELS[0], NOISE**2)
    one.update(*(first := cloud(rng, 4000)))
    twin = one.twin()
    twin.set_noise_level(4.0)
    one.update(*(second := cloud(rng, 500)))
    twin.take(one)
    assert (one.noise_level, twin.noise_level) == (1.0, 4.0)
    expected = GridGP(GRID, KERNELS[0], NOISE**2)
    expected.update(*first)
    expected.update(*second)
    expected.set_noise_level(4.0)
    assert_agree(twin.posterior(), expected.posterior())
    # and a twin of that has it from the beginning
    assert_agree(twin.twin().posterior(), expected.posterior())


def test_only_what_changed_is_copied() -> None:
    rng = np.random.default_rng(2)
    one = GridGP(GRID, KERNELS[0], NOISE**2)
    one.update(*cloud(rng, 4000))
    twin = one.twin()
    twin.posterior()
    one.update(*cloud(rng, 50, 0.0, 0.5))
    twin.take(one)
    changed = twin._observations.changed
    assert 0 < changed.sum() < 0.1 * changed.size


def test_maps_of_another_kind_share_nothing() -> None:
    one = GridGP(GRID, KERNELS[0], NOISE**2)
    with pytest.raises(ValueError, match="same kernel"):
        one.take(GridGP(GRID, KERNELS[1], NOISE**2))
    with pytest.raises(ValueError, match="same mean"):
        one.take(GridGP(GRID, KERNELS[0], NOISE**2, mean=1.0))
