"""Sufficient statistics: order, batching, merging, removing, fading, moving; bad input."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import assert_agree

from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF, Matern

GRID = Grid((10.0, -4.0), (30, 40), 0.1)
KERNEL = 0.5 * RBF(0.5)
ROUGH = 0.5 * Matern(0.8, nu=1.5)
each_solver = pytest.mark.parametrize("kernel", [KERNEL, ROUGH], ids=["tiles", "strips"])


def terrain(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x_min, y_min, x_max, y_max = GRID.bounds
    xy = rng.uniform((x_min, y_min), (x_max, y_max), (n, 2))
    z = np.sin(2.0 * xy[:, 0]) + 0.3 * np.cos(3.0 * xy[:, 1]) + 0.1 * rng.standard_normal(n)
    return xy, z, rng.uniform(0.005, 0.02, n)


def make(kernel=KERNEL, **options) -> GridGP:
    return GridGP(GRID, kernel, 0.01, **options)


def filled(xy, z, r, kernel=KERNEL, **options) -> GridGP:
    gp = make(kernel, **options)
    gp.update(xy, z, r)
    return gp


def assert_same_map(a: GridGP, b: GridGP, tolerance: float = 1e-9) -> None:
    for one, other in zip(a._observations.statistics.arrays, b._observations.statistics.arrays, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * np.abs(other).max())
    assert_agree(a.posterior(), b.posterior())


@each_solver
def test_moments_are_what_they_say(kernel):
    xy, z, r = terrain(200)
    gp = filled(xy, z, r, kernel)
    s = gp._observations.statistics
    block_x, t_x = s.x.locate(xy[:, 0])
    block_y, t_y = s.y.locate(xy[:, 1])
    weights, heights = np.zeros_like(s.weights), np.zeros_like(s.heights)
    floor = gp.prior.unresolved
    powers, m = np.arange(gp.prior.orders.weights), gp.prior.orders.heights
    for n in range(len(z)):
        w = 1.0 / (r[n] + floor)
        py, px = t_y[n] ** powers, t_x[n] ** powers
        weights[block_y[n], block_x[n]] += w * np.outer(py, px)
        heights[block_y[n], block_x[n]] += w * z[n] * np.outer(py[:m], px[:m])
    np.testing.assert_allclose(s.weights, weights, rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(s.heights, heights, rtol=1e-11, atol=1e-9)
    assert s.totals[..., 0].sum() == pytest.approx((z**2 / (r + floor)).sum())
    assert s.totals[..., 2].sum() == pytest.approx(np.log(r + floor).sum())


@each_solver
def test_order_and_batches_do_not_matter(kernel):
    xy, z, r = terrain(3000)
    whole = filled(xy, z, r, kernel)
    order = np.random.default_rng(1).permutation(len(z))
    assert_same_map(filled(xy[order], z[order], r[order], kernel), whole)
    pieces = make(kernel)
    for part in np.array_split(order, 7):
        pieces.update(xy[part], z[part], r[part])
        pieces.posterior()  # solving in between must not change anything
    assert_same_map(pieces, whole)


@each_solver
def test_merge_is_the_map_of_both(kernel):
    xy, z, r = terrain(3000)
    half = xy[:, 0] < 12.0
    merged = filled(xy[half], z[half], r[half], kernel)
    merged.posterior()
    merged.merge(filled(xy[~half], z[~half], r[~half], kernel))
    assert_same_map(merged, filled(xy, z, r, kernel))


@each_solver
def test_merge_of_maps_with_another_reference_height(kernel):
    xy, z, r = terrain(2000)
    first, second = make(kernel, mean="constant"), make(kernel, mean="constant")
    first.update(xy[:1000], z[:1000] + 4000.0, r[:1000])
    second.update(xy[1000:], z[1000:] + 4000.0, r[1000:])
    assert first._observations.statistics.reference != second._observations.statistics.reference
    first.merge(second)
    whole = make(kernel, mean="constant")
    whole.update(xy, z + 4000.0, r)
    p, q = first.posterior(), whole.posterior()
    assert (np.abs(p.mean - q.mean) / np.sqrt(q.variance)).max() < 1e-2


def test_merge_refuses_another_kernel():
    with pytest.raises(ValueError, match="same kernel"):
        make().merge(GridGP(GRID, RBF(0.7), 0.01))
    with pytest.raises(ValueError, match="same mean"):
        make().merge(make(mean=1.0))


@each_solver
def test_remove_undoes_update(kernel):
    xy, z, r = terrain(2000)
    before = filled(xy[:1200], z[:1200], r[:1200], kernel)
    gp = filled(xy, z, r, kernel)
    gp.posterior()
    assert gp.remove(xy[1200:], z[1200:], r[1200:]).used == 800
    p, q = gp.posterior(), before.posterior()
    assert (np.abs(p.mean - q.mean) / np.sqrt(q.variance)).max() < 1e-3
    np.testing.assert_allclose(p.variance, q.variance, rtol=1e-4)
    assert gp.count == 1200
    with pytest.raises(ValueError, match="than it holds"):
        gp.remove(np.tile(xy[:1], (5000, 1)), np.zeros(5000))


def test_only_touched_tiles_are_solved_again():
    grid = Grid((0.0, 0.0), (200, 200), 0.1)
    rng = np.random.default_rng(2)
    gp = GridGP(grid, KERNEL, 0.01)
    xy = rng.uniform(0.0, 20.0, (20000, 2))
    gp.update(xy, np.sin(xy[:, 0]))
    before = gp.posterior()
    corner = rng.uniform(0.0, 2.0, (500, 2))
    gp.update(corner, np.sin(corner[:, 0]) + 0.5)
    gp._mark_changes()
    assert 0 < gp._surface.variances.stale.sum() < 0.1 * gp._surface.variances.stale.size
    after = gp.posterior()
    far = np.s_[80:, 80:]
    assert (after.mean[far] == before.mean[far]).all()
    assert (after.variance[far] == before.variance[far]).all()
    assert np.abs(after.mean[:15, :15] - before.mean[:15, :15]).max() > 0.1
    whole = GridGP(grid, KERNEL, 0.01)
    whole.update(np.vstack([xy, corner]), np.concatenate([np.sin(xy[:, 0]), np.sin(corner[:, 0]) + 0.5]))
    assert_same_map(gp, whole)


def test_only_boxes_that_a_change_reaches_are_solved_again():
    grid = Grid((0.0, 0.0), (40, 160), 0.1)
    rng = np.random.default_rng(2)
    gp = GridGP(grid, ROUGH, 0.01)
    xy = rng.uniform((0.0, 0.0), (16.0, 4.0), (12_000, 2))
    gp.update(xy, np.sin(xy[:, 0]))
    before = gp.posterior()
    corner = rng.uniform(0.0, 1.0, (500, 2))
    gp.update(corner, np.sin(corner[:, 0]) + 0.5)
    after = gp.posterior()
    far = np.s_[:, 60:]
    # Separators of the whole map are solved again with it, and change by rounding.
    assert (after.mean[far] == before.mean[far]).mean() > 0.5
    assert (np.abs(after.mean[far] - before.mean[far]) / np.sqrt(before.variance[far])).max() < 1e-4
    np.testing.assert_allclose(after.variance[far], before.variance[far], rtol=1e-4)
    assert np.abs(after.mean[:8, :8] - before.mean[:8, :8]).max() > 0.1
    whole = GridGP(grid, ROUGH, 0.01)
    whole.update(np.vstack([xy, corner]), np.concatenate([np.sin(xy[:, 0]), np.sin(corner[:, 0]) + 0.5]))
    assert_same_map(gp, whole)


@pytest.mark.parametrize("fill", [True, False], ids=["filled", "emptied"])
def test_a_hole_that_comes_or_goes_is_the_map_of_what_is_left(fill):
    rng = np.random.default_rng(8)
    grid = Grid((0.0, 0.0), (30, 120), 0.1)
    xy = rng.uniform((0.0, 0.0), (12.0, 3.0), (8000, 2))
    inside = (np.abs(xy - (6.0, 1.5)) < (0.9, 0.8)).all(1)
    z = np.sin(xy[:, 0]) + 0.1 * rng.standard_normal(len(xy))
    gp = GridGP(grid, ROUGH, 0.01)
    gp.update(xy[~inside], z[~inside])
    if fill:
        gp.posterior()
        gp.update(xy[inside], z[inside])
        whole = GridGP(grid, ROUGH, 0.01)
        whole.update(xy, z)
    else:
        whole = GridGP(grid, ROUGH, 0.01)
        whole.update(xy[~inside], z[~inside])
        gp.update(xy[inside], z[inside])
        gp.posterior()
        gp.remove(xy[inside], z[inside])
    p, q = gp.posterior(), whole.posterior()
    assert (np.abs(p.mean - q.mean) / np.sqrt(q.variance)).max() < 1e-3
    np.testing.assert_allclose(p.variance, q.variance, rtol=1e-3)


@each_solver
def test_a_map_like_another_and_a_posterior_by_another_are_the_same(kernel):
    xy, z, r = terrain(2000)
    model = make(kernel)
    gp = model.like(GRID)
    gp.update(xy, z, r)
    p = gp.posterior()
    assert_agree(p, filled(xy, z, r, kernel).posterior())
    assert_agree(gp.posterior_by(model), p)
    assert model.count == 0


@each_solver
@pytest.mark.parametrize("shift", [(7, 0), (0, -5), (-3, 11), (500, 0)])
def test_a_moved_window_keeps_what_stays_inside(shift, kernel):
    xy, z, r = terrain(4000)
    gp = filled(xy, z, r, kernel)
    before = gp.posterior()
    kept = gp._observations.statistics
    gp.move(*shift)
    after = gp.posterior()
    assert after.grid == GRID.shift(*shift)
    s = gp._observations.statistics
    for j in range(s.y.count):
        for i in range(s.x.count):
            old = (j + s.y.first - kept.y.first, i + s.x.first - kept.x.first)
            if 0 <= old[0] < kept.y.count and 0 <= old[1] < kept.x.count:
                assert (s.weights[j, i] == kept.weights[old]).all()
    # Where all data within reach are still there, the posterior is the same.
    dy, dx = shift
    ny, nx = GRID.shape
    if abs(dy) < ny and abs(dx) < nx:
        fresh = GridGP(after.grid, kernel, 0.01)
        fresh._observations.statistics = s
        fresh._reset()
        assert_agree(after, fresh.posterior())
        y, x = np.s_[max(dy, 0) : ny + min(dy, 0)], np.s_[max(dx, 0) : nx + min(dx, 0)]
        inner = before.mean[y, x]
        moved = after.mean[
            max(-dy, 0) : max(-dy, 0) + inner.shape[0], max(-dx, 0) : max(-dx, 0) + inner.shape[1]
        ]
        # The cells nearest to the edge that lost data may change by a few standard deviations.
        assert np.median(np.abs(moved - inner)) < 0.02
    else:
        assert (after.variance > 0.49).any()


@each_solver
def test_moving_there_and_back_loses_only_what_left(kernel):
    xy, z, r = terrain(4000)
    gp = filled(xy, z, r, kernel)
    gp.move(0, 4)
    gp.move(0, -4)
    s = gp._observations.statistics
    assert s.totals[..., 1].sum() < 4000
    inside = xy[:, 0] >= GRID.bounds[0] + 0.4 + s.x.spacing
    assert s.totals[..., 1].sum() >= inside.sum()


@each_solver
def test_points_fade_with_their_age(kernel):
    xy, z, r = terrain(3000)
    old, new = z + 1.0, z
    gp = make(kernel, half_life=10.0)
    gp.update(xy, old, r, stamp=0.0)
    assert gp.posterior().mean.mean() > 0.5
    gp.update(xy, new, r, stamp=100.0)
    reference = make(kernel)
    reference.update(xy, new, r)
    reference.update(xy, old, r * 2.0**10)
    assert gp.count == pytest.approx(3000 * (1.0 + 2.0**-10))
    p, q = gp.posterior(), reference.posterior()
    assert (np.abs(p.mean - q.mean) / np.sqrt(q.variance)).max() < 0.05
    np.testing.assert_allclose(p.variance, q.variance, rtol=0.02)


@each_solver
def test_variance_returns_to_the_prior_as_all_fades(kernel):
    xy, z, r = terrain(3000)
    gp = make(kernel, half_life=1.0)
    gp.update(xy, z, r, stamp=0.0)
    first = gp.posterior().variance.mean()
    gp.update(xy[:1], z[:1], r[:1], stamp=12.0)
    assert gp.posterior().variance.mean() > 3.0 * first
    gp.update(xy[:1], z[:1], r[:1], stamp=60.0)
    assert np.median(gp.posterior().variance) > 0.45
    gp.update(xy[:1], z[:1], r[:1], stamp=1e7)
    assert gp.count == pytest.approx(1.0)
    with pytest.raises(ValueError, match="stamp"):
        gp.update(xy, z, r)


@each_solver
def test_memory_and_statistics_stay_constant_over_many_scans(kernel):
    gp = make(kernel)
    xy, z, r = terrain(500)
    for _ in range(2):  # a tile that is solved again keeps its factor
        gp.update(xy, z, r)
        gp.posterior()
    size = gp.nbytes
    for _ in range(300):
        gp.update(xy, z, r)
    gp.posterior()
    assert gp.nbytes <= size  # a tile that is solved in float64 keeps no factor
    assert gp.count == 500 * 302


# -- bad input -------------------------------------------------------------------------------------------


def spoiled() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    xy, z, r = terrain(100)
    xy[3, 0], xy[4, 1], z[5], r[6] = np.nan, np.inf, np.nan, np.inf
    r[7], r[8] = 0.0, -1.0
    xy[9, 0], xy[10, 1] = 1e9, GRID.bounds[3]  # the far edge belongs to the next cell
    return xy, z, r


@each_solver
def test_bad_points_are_dropped_and_counted(kernel):
    xy, z, r = spoiled()
    gp = make(kernel)
    intake = gp.update(xy, z, r)
    assert (intake.used, intake.not_finite, intake.bad_variance, intake.outside) == (92, 4, 2, 2)
    assert intake.dropped == 8
    good = np.setdiff1d(np.arange(100), np.arange(3, 11))
    assert_same_map(gp, filled(xy[good], z[good], r[good], kernel))


def test_bad_points_are_refused_on_request():
    xy, z, r = spoiled()
    gp = make(on_bad="raise")
    with pytest.raises(
        ValueError, match="8 of 100 points are bad: 4 not finite, 2 with variance <= 0, 2 outside"
    ):
        gp.update(xy, z, r)
    assert gp.count == 0


@pytest.mark.parametrize(
    ("xy", "z", "variance", "message"),
    [
        (np.zeros((3, 3)), np.zeros(3), None, "shape"),
        (np.zeros(3), np.zeros(3), None, "shape"),
        (np.zeros((3, 2)), np.zeros(2), None, "match"),
        (np.zeros((3, 2)), np.zeros(3), np.ones(2), "variance"),
    ],
)
def test_wrong_shapes_are_refused(xy, z, variance, message):
    with pytest.raises(ValueError, match=message):
        make().update(xy, z, variance)


@each_solver
def test_empty_input_changes_nothing(kernel):
    gp = make(kernel)
    assert gp.update(np.zeros((0, 2)), np.zeros(0)).used == 0
    assert gp.update([], []).used == 0
    p = gp.posterior()
    assert (p.mean == 0.0).all()
    np.testing.assert_allclose(p.variance, 0.5, rtol=1e-6)  # covariances are kept in float32
    assert gp.predict(np.zeros((0, 2))).shape == (0,)
    assert gp.log_marginal_likelihood() == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise_variance": 0.0}, "noise_variance"),
        ({"noise_variance": -1.0}, "noise_variance"),
        ({"noise_variance": np.nan}, "noise_variance"),
        ({"mean": "parabola"}, "mean"),
        ({"mean": np.inf}, "mean"),
        ({"half_life": 0.0}, "half_life"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"on_bad": "ignore"}, "on_bad"),
        ({"threads": 0}, "threads"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GridGP(**{"grid": GRID, "kernel": KERNEL, "noise_variance": 0.01, **options})


def test_grids_out_of_range_are_refused():
    for origin, shape, resolution in (
        ((0.0, np.nan), (3, 3), 0.1),
        ((0.0, 0.0), (0, 3), 0.1),
        ((0.0, 0.0), (3, 3), -0.1),
        ((0.0, 0.0), (3, 3, 3), 0.1),
    ):
        with pytest.raises(ValueError, match="Grid"):
            Grid(origin, shape, resolution)


def test_the_old_name_of_shift_warns():
    with pytest.deprecated_call(match=r"use Grid\.shift"):
        assert GRID.moved(2, -3) == GRID.shift(2, -3)
