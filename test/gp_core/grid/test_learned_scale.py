"""What a map learns of its own errors: the noise level, the scale of variances by place, the spread of points."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Grid, GridGP
from gp_core.grid.local_scale import learn_scale_prior
from gp_core.grid.noise_level import estimate_noise_level
from gp_core.grid.point_sample import PointSample
from gp_core.kernels import Matern

SIZE = 24.0
KERNEL = 100.0 * Matern(30.0, nu=1.5)
STATED = 0.02**2


def ground(xy: np.ndarray) -> np.ndarray:
    return 2.0 * np.sin(0.3 * xy[:, 0]) + np.cos(0.5 * xy[:, 1] + 0.2 * xy[:, 0]) + 0.3 * xy[:, 0]


def measured(seed: int, count: int, std: float, coarse: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Points; on the right half they scatter `coarse` times as much."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform(0.0, SIZE, (count, 2))
    return xy, ground(xy) + rng.normal(size=count) * std * np.where(xy[:, 0] < 0.5 * SIZE, 1.0, coarse)


def level_of(gp: GridGP) -> float | None:
    return estimate_noise_level(gp._observations.effective(), KERNEL, gp.prior.unresolved)


def make_map(xy: np.ndarray, z: np.ndarray, learn: bool = True, detail: bool = False) -> GridGP:
    gp = GridGP(Grid((0.0, 0.0), (24, 24), 1.0), KERNEL, 1.0)
    gp.update(xy, z, STATED)
    if learn:
        gp.learn_scale(detail=detail)
        gp.calibrate_by_own(xy, z, STATED)
    return gp


@pytest.mark.parametrize("per_cell", [1, 12])
def test_noisier_points_have_a_higher_noise_level(per_cell: int) -> None:
    levels = []
    for std in (0.05, 0.5):
        gp = make_map(*measured(0, per_cell * 576, std), learn=False)
        level = level_of(gp)
        assert level is not None
        levels.append(level)
    assert levels[1] > 10.0 * levels[0]


def test_few_points_or_none_at_different_heights_teach_nothing() -> None:
    xy, z = measured(0, 20, 0.1)
    assert level_of(make_map(xy, z, learn=False)) is None
    xy, z = measured(0, 500, 0.1)
    assert level_of(make_map(xy, 0.0 * z, learn=False)) is None


def test_the_level_lowers_the_error_of_the_surface() -> None:
    xy, z = measured(1, 1200, 0.5)
    new = measured(2, 2000, 0.0)
    errors = [
        np.sqrt(np.mean((make_map(xy, z, learn).predict(new[0]) - new[1]) ** 2)) for learn in (True, False)
    ]
    assert errors[0] < 0.7 * errors[1]


def test_relief_below_the_lattice_is_noise_of_sparse_points() -> None:
    """Exact points, one to a cell, on ground far rougher than the stated noise: a map that follows each of them swings
    between them."""
    rng = np.random.default_rng(8)
    length = np.exp(rng.uniform(np.log(1.0), np.log(40.0), 300))
    phase, angle = rng.uniform(0.0, 2.0 * np.pi, (2, 300))
    waves = 2.0 * np.pi / length * np.array([np.cos(angle), np.sin(angle)])

    def fractal(at: np.ndarray) -> np.ndarray:
        heights: np.ndarray = np.cos(at @ waves + phase) @ length**1.5
        return 0.01 * heights

    xy, new = rng.uniform(0.0, SIZE, (576, 2)), rng.uniform(2.0, SIZE - 2.0, (2000, 2))
    gp = make_map(xy, fractal(xy), learn=False)
    gp.learn_scale()
    noise = gp.noise_level * (STATED + gp.prior.unresolved)
    assert noise >= 0.6 * gp.prior.unresolved, "but for what a level is not changed for"
    learned = np.sqrt(np.mean((gp.predict(new) - fractal(new)) ** 2))
    gp.set_noise_level(0.01 * gp.noise_level)
    assert learned < 0.9 * np.sqrt(np.mean((gp.predict(new) - fractal(new)) ** 2))


def test_slopes_are_those_across_a_cell_in_maps_and_at_points() -> None:
    gp = make_map(*measured(3, 2000, 0.02))
    at = gp.grid.centers[6:18, 6:18].reshape(-1, 2)
    _, std = gp.predict_gradient(at, return_std=True)
    stated = gp.posterior().gradient_variance[6:18, 6:18].reshape(-1, 2)
    np.testing.assert_allclose(std**2, stated, rtol=1e-6)
    carried, unresolved = gp.prior.shares_across(gp.grid.resolution)
    assert np.all(unresolved < 0.5 * carried), "what lies below the lattice is mostly within a cell"


def test_the_scale_leaves_the_surface_and_says_where_points_scatter() -> None:
    xy, z = measured(3, 6000, 0.1, coarse=5.0)
    learned = make_map(xy, z)
    same = make_map(xy, z, learn=False)
    same.set_noise_level(learned.noise_level)
    np.testing.assert_allclose(learned.posterior().mean, same.posterior().mean, atol=1e-9)
    noise = np.sqrt(learned.measured_noise_at(learned.grid.centers.reshape(-1, 2))[0]).reshape(24, 24)
    assert np.median(noise[:, :11]) == pytest.approx(0.1, rel=0.3)
    assert np.median(noise[:, 13:]) == pytest.approx(0.5, rel=0.3)
    std = np.sqrt(learned.posterior().variance)
    assert np.median(std[:, 13:]) > 3.0 * np.median(std[:, :11])


@pytest.mark.parametrize(("count", "tails"), [(400, 0), (6000, 0), (6000, 3)])
def test_intervals_hold_their_share_of_new_points(count: int, tails: int) -> None:
    """Sparse and dense points, normal and heavy-tailed noise; the stated noise is a tenth of the true one."""

    def points(seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        xy = rng.uniform(1.0, SIZE - 1.0, (number, 2))
        noise = rng.standard_t(tails, number) if tails else rng.normal(size=number)
        return xy, ground(xy) + 0.2 * noise

    gp = make_map(*points(5, count))
    xy, z = points(6, 4000)
    for level in (0.68, 0.95, 0.997):
        low, high = gp.measured_interval(xy, level)
        share = float(np.mean((z >= low) & (z <= high)))
        assert abs(share - level) < (0.06 if count < 1000 else 0.03) * (1.0 if level < 0.99 else 0.4), level


@pytest.mark.parametrize("detail", [False, True])
def test_a_vertical_face_is_where_the_variance_is_large(detail: bool) -> None:
    rng = np.random.default_rng(7)
    xy = rng.uniform(0.0, SIZE, (8000, 2))
    z = np.where(xy[:, 0] > 12.3, 4.0, 0.0) + 0.05 * rng.normal(size=8000)
    std = np.sqrt(make_map(xy, z, detail=detail).posterior().variance)[4:-4]
    assert np.median(std[:, 12]) > 0.5
    assert np.median(std[:, 12]) > 10.0 * np.median(std[:, 4])


@pytest.mark.parametrize("at", [12.0, 12.3, 12.5, 12.9])
def test_detail_makes_no_map_surer_of_a_face_than_it_is_right(at: float) -> None:
    """Wherever the face is in its cells: as many true heights within two deviations as without detail."""
    rng = np.random.default_rng(7)
    xy = rng.uniform(0.0, SIZE, (8000, 2))
    z = np.where(xy[:, 0] > at, 4.0, 0.0) + 0.05 * rng.normal(size=8000)
    near = rng.uniform([12.0, 4.0], [13.0, 20.0], (2000, 2))
    inside = []
    for detail in (False, True):
        gp = make_map(xy, z, detail=detail)
        assert (gp._detail is not None) == detail
        height, std = gp.predict(near, return_std=True)
        inside.append(np.mean(np.abs(height - np.where(near[:, 0] > at, 4.0, 0.0)) <= 2.0 * std))
    assert inside[1] > inside[0] - 0.05


def test_what_was_learned_moves_with_the_window() -> None:
    gp = make_map(*measured(3, 6000, 0.1, coarse=5.0))
    before = gp.scale_layer
    gp.move(0, 6)
    np.testing.assert_array_equal(gp.scale_layer[:, :17], before[:, 6:23])
    assert gp.blocks().totals[:, 1].sum() == pytest.approx(gp.count)


def test_blocks_have_the_noise_as_it_was_given() -> None:
    xy, z = measured(3, 3000, 0.5)
    learned, plain = make_map(xy, z), make_map(xy, z, learn=False)
    assert learned.noise_level != 1.0
    np.testing.assert_allclose(learned.blocks().weights, plain.blocks().weights, rtol=1e-9)


def test_a_sample_does_not_depend_on_order_or_batches() -> None:
    rng = np.random.default_rng(0)
    xyz, variance = rng.normal(size=(5000, 3)), rng.uniform(1.0, 2.0, 5000)
    whole, parts = PointSample(300), PointSample(300)
    whole.add(xyz, variance)
    for rows in np.array_split(rng.permutation(5000), 7):
        parts.add(xyz[rows], variance[rows])
    order = [np.lexsort(sample.points.T) for sample in (whole, parts)]
    np.testing.assert_array_equal(whole.points[order[0]], parts.points[order[1]])
    assert len(whole.points) == 300
    assert abs(np.mean(whole.points[:, 0])) < 0.25, "a sample of all, not of some"


def test_level_ground_teaches_no_noise_level() -> None:
    xy = np.random.default_rng(4).uniform(0.0, SIZE, (2000, 2))
    gp = make_map(xy, np.full(len(xy), 3.7))
    assert gp.noise_level == 1.0
    assert np.allclose(gp.posterior().mean, 3.7, atol=1e-3)


def test_a_wall_on_exactly_level_ground_is_no_trouble() -> None:
    x, y = np.meshgrid(np.arange(0.25, SIZE, 0.5), np.arange(0.25, SIZE, 0.5))
    z = np.where((y > 10.0) & (y < 12.0), 2.0, 0.0)
    gp = make_map(np.column_stack([x.ravel(), y.ravel()]), z.ravel())
    assert np.isfinite(gp.posterior().mean).all()
    assert np.isfinite(gp.noise_level)


def test_parts_of_a_map_share_what_is_learned_from_all_of_them() -> None:
    """Alone, neither part knows that places differ; together they show it, and a map with their prior uses it."""
    calm, wild = (make_map(*measured(8, 1500, std), learn=False) for std in (0.05, 1.0))
    for gp in (calm, wild):
        gp.set_noise_level(25.0)
    parts = [gp.block_residuals() for gp in (calm, wild)]
    alone = [learn_scale_prior([part], 1.0) for part in parts]
    prior = learn_scale_prior(parts, 1.0)
    assert min(one.degrees[0] for one in alone) > 10.0 * prior.degrees[0]
    assert alone[0].overall < prior.overall < alone[1].overall
    calm.set_noise_level(25.0, prior)
    assert calm.learn_scale().overall == prior.overall
    assert calm.twin().learn_scale().overall == prior.overall
