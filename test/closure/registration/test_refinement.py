"""Refinement: derivatives against differences, interpolation, and the robust scale."""

from __future__ import annotations

import dataclasses

import numpy as np
from fractal_world import World
from scipy.ndimage import gaussian_filter

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.cell_comparison import MapPair, interpolate_height, rotate_slope
from gpgmap_ros.closure.registration.inlined_algorithms import select_rank, solve_definite
from gpgmap_ros.closure.registration.octaves import correlate_fields
from gpgmap_ros.closure.registration.overlay import overlay_maps
from gpgmap_ros.closure.registration.refinement import (
    Alignment,
    normal_equations,
    refine,
    rotation_matrix,
)
from gpgmap_ros.closure.registration.registration_map import make_registration_map
from gpgmap_ros.closure.registration.verification import estimate_scale

CONFIG = ClosureConfig()


def test_interpolation_is_exact_for_a_quadratic():
    y, x = np.mgrid[0:6, 0:6].astype(np.float32)
    z, gx, gy = 0.3 * x**2 - 0.2 * x * y + 0.1 * y**2 + x, 0.6 * x - 0.2 * y + 1.0, -0.2 * x + 0.2 * y
    fields = np.stack([np.ones_like(z), z, gx, gy])
    for px, py in ((2.3, 3.8), (0.0, 0.0), (4.5, 1.25), (5.0, 5.0)):
        expected = 0.3 * px**2 - 0.2 * px * py + 0.1 * py**2 + px
        assert abs(interpolate_height(px, py, fields) - expected) < 1e-5


def test_the_gradient_is_that_of_the_cost(world: World):
    """g is minus half the derivative of the weighted squares, for one surface against itself moved a little."""
    map_, _ = world.map_at((100.0, 100.0), 1)
    surface = make_registration_map(map_, CONFIG)
    t0 = np.array([*surface.centre, 0.0])
    centre = t0.copy()

    def residual(step):
        turn = rotation_matrix(step[3:])
        moved = Alignment(turn, centre + step[:3] + turn @ (t0 - centre), centre)
        return overlay_maps(moved, surface, surface, ClosureConfig(use_variance=False)).residual

    offset = np.array([0.3, -0.2, 0.1, 0.004, -0.003, 0.01])
    turn = rotation_matrix(offset[3:])
    R, t = turn, centre + offset[:3] + turn @ (t0 - centre)
    H, g, total = np.empty((6, 6)), np.empty(6), np.empty(6)
    maps = MapPair(surface.fields, surface.fields, surface.centre, 1, False)
    normal_equations(maps, R, t, centre, 0.0, H, g, total)
    step = np.linalg.solve(H, g)
    # one step must take most of the offset away: the linearisation is right in all six directions
    before, after = residual(offset), residual(offset + step)
    assert np.sum(after**2) < 0.05 * np.sum(before**2)
    np.testing.assert_allclose(step, -offset, atol=0.25 * np.abs(offset).max())


def test_a_definite_system_is_solved():
    rng = np.random.default_rng(0)
    for _ in range(5):
        A, g, x = rng.normal(size=(9, 6)) * [1e3, 1.0, 1e-2, 1.0, 10.0, 1.0], rng.normal(size=6), np.empty(6)
        H = A.T @ A
        expected = np.linalg.solve(H, g)
        solve_definite(H, g, x)
        np.testing.assert_allclose(x, expected, rtol=1e-9)


def test_a_value_of_any_rank_is_found():
    rng = np.random.default_rng(1)
    for count in (1, 2, 3, 10, 101):
        for values in (rng.normal(size=count), rng.integers(0, 4, count).astype(float), np.zeros(count)):
            for rank in {0, count // 2, count - 1}:
                room = np.append(values, -np.inf)  # beyond the count: not looked at
                assert select_rank(room, count, rank) == np.sort(values)[rank]
                assert room[:rank].max(initial=-np.inf) <= room[rank]


def test_rotation_is_a_rotation():
    for omega in (
        np.zeros(3),
        np.array([0.0, 0.0, 3.0]),
        np.array([1e-9, 0.0, 0.0]),
        np.array([0.1, -0.2, 0.3]),
    ):
        R = rotation_matrix(omega)
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
        np.testing.assert_allclose(np.linalg.det(R), 1.0)


def test_slopes_follow_a_tilt():
    a = 0.02
    gx, gy = rotate_slope(rotation_matrix(np.array([0.0, a, 0.0])), 0.0, 0.0)
    np.testing.assert_allclose([gx, gy], [-np.tan(a), 0.0], atol=1e-12)


def test_unit_variance_of_student_noise_with_outliers():
    rng = np.random.default_rng(0)
    clean = 9.0 * rng.normal(size=(20000, 2)) ** 2
    outliers = clean.copy()
    outliers[:400] = 1e6
    one, other = estimate_scale(clean.sum(1), 2), estimate_scale(outliers.sum(1), 2)
    assert abs(other / one - 1.0) < 0.12


def test_independent_cells_are_counted():
    """White fields: every cell. Fields blurred by a Gaussian of s cells: one in 2 pi s^2 (Bartlett)."""
    rng = np.random.default_rng(1)
    w = np.ones((80, 80))
    white = [rng.normal(size=(1, 80, 80)) for _ in range(2)]
    _, n = correlate_fields(w, *white)
    assert 0.7 * 6400 < n < 1.3 * 6400
    smooth = [np.stack([gaussian_filter(f[0], 3.0)]) for f in white]
    _, n = correlate_fields(w, *smooth)
    expected = 6400 / (2.0 * np.pi * 3.0**2)
    assert 0.7 * expected < n < 1.4 * expected


def test_a_single_feature_is_no_field():
    """One rock on a plain, in both maps: perfect correlation, hardly any independent cell."""
    y, x = np.mgrid[0:60, 0:60]
    rock = np.exp(-((x - 30.0) ** 2 + (y - 30.0) ** 2) / 8.0)[None]
    rho, n = correlate_fields(np.ones((60, 60)), rock, rock)
    assert rho > 0.99
    assert n < 5.0


def test_a_pose_that_nothing_holds_is_left_alone(world: World):
    """A frozen lake: no slope anywhere, so that only the height is known."""
    surface = make_registration_map(world.map_at((100.0, 100.0), 1)[0], CONFIG)
    level = {name: np.zeros_like(surface.height) for name in ("height", "slope_x", "slope_y")}
    ice = dataclasses.replace(surface, **level)
    above = dataclasses.replace(ice, height=ice.height + 0.5 * (ice.weight > 0.0).astype(np.float32))
    start = np.array([*ice.centre, 0.0])
    found = refine(Alignment(np.eye(3), start, start), ice, above, CONFIG)
    np.testing.assert_allclose(found.t, start + np.array([0.0, 0.0, 0.5]), atol=1e-3)
    np.testing.assert_allclose(found.R, np.eye(3), atol=1e-6)
