"""The search: FFT sums against plain loops, and the true pose among the candidates."""

from __future__ import annotations

import itertools

import numpy as np
from fractal_world import World, pose_error

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.correlation import Spectra, likelihoods, make_search_grid
from gpgmap_ros.closure.registration.pipeline import to_metres
from gpgmap_ros.closure.registration.prior import PosePrior, make_search_prior
from gpgmap_ros.closure.registration.refinement import make_alignment
from gpgmap_ros.closure.registration.registration_map import make_registration_map
from gpgmap_ros.closure.registration.search import find_peaks, search
from gpgmap_ros.geometry import inverse

CONFIG = ClosureConfig(threads=1, yaw_step=15.0)


def prepared(world: World):
    source, T_source = world.map_at((100.0, 100.0), 1, yaw=0.5)
    target, T_target = world.map_at((108.0, 96.0), 2)
    a, b = make_registration_map(source, CONFIG), make_registration_map(target, CONFIG)
    grid = make_search_grid(max(a.radius, b.radius), CONFIG)
    return Spectra(a, grid, CONFIG), Spectra(b, grid, CONFIG), T_target @ inverse(T_source)


def fields_at(side: Spectra, yaw: float, band: int) -> np.ndarray:
    """w, w |g|^2, w g_x, w g_y of one band."""
    return side.fields(np.array([yaw]))[0][[0, *range(1 + 3 * band, 4 + 3 * band)]].astype(float)


def naive_likelihood(a, b, dy: int, dx: int, remove_mean: bool) -> float:
    a = np.roll(a, (dy, dx), axis=(1, 2))
    n = np.sum(a[0] * b[0])
    e_a, e_b = np.sum(a[1] * b[0]), np.sum(a[0] * b[1])
    c = np.sum(a[2] * b[2] + a[3] * b[3])
    if remove_mean:
        s_a = np.array([np.sum(a[k] * b[0]) for k in (2, 3)])
        s_b = np.array([np.sum(a[0] * b[k]) for k in (2, 3)])
        e_a, e_b, c = e_a - s_a @ s_a / n, e_b - s_b @ s_b / n, c - s_a @ s_b / n
    return -n * np.log(1.0 - min(c * c / (e_a * e_b), 0.9999)) if c > 0.0 else 0.0


def test_the_sums_are_those_of_a_plain_loop(world: World):
    """At yaws of both halves of the turn, in both bands, at shifts that share much and little."""
    source, target, _ = prepared(world)
    grid = source.grid
    both = likelihoods(source, target, CONFIG.min_overlap, 1)
    assert len(both) == 2
    for band, scores in enumerate(both):
        b = fields_at(target, 0.0, band)
        for k in (1, len(grid.yaws) // 2 + 3, len(grid.yaws) - 1):
            a = fields_at(source, grid.yaws[k], band)
            for dy, dx in ((0, 0), (3, -2), (-5, 4)):
                expected = naive_likelihood(a, b, dy, dx, band == 0)
                np.testing.assert_allclose(
                    scores[k, dy % grid.size, dx % grid.size], expected, rtol=2e-3, atol=0.05
                )


def test_too_little_overlap_scores_nothing(world: World):
    source, target, _ = prepared(world)
    scores = likelihoods(source, target, 0.6, 1)[0]
    half = source.grid.size // 2
    assert scores[0, half, half] == 0.0
    assert (scores > 0.0).any()


def test_the_true_pose_is_among_the_candidates(world: World):
    source, target, truth = prepared(world)
    errors = [
        pose_error(
            to_metres(make_alignment(c, target.surface), source.surface, target.surface), truth, np.zeros(3)
        )
        for c in search(source.surface, target.surface, CONFIG)
    ]
    assert any(shift < 4.0 and yaw < 10.0 for shift, yaw in errors)


def test_a_slope_turns_with_its_map(world: World):
    """Turning by half a turn reverses the vectors and the lattice."""
    source, _, _ = prepared(world)
    side = source.grid.side
    still, turned = fields_at(source, 0.0, 0), fields_at(source, np.pi, 0)
    np.testing.assert_allclose(turned[2, :side, :side], -still[2, side - 1 :: -1, side - 1 :: -1], atol=1e-4)


def test_candidates_are_distinct_and_ordered(world: World):
    source, target, _ = prepared(world)
    found = search(source.surface, target.surface, CONFIG)
    values = [c.likelihood for c in found]
    assert values == sorted(values, reverse=True)
    assert len({(c.yaw, *c.shift) for c in found}) == len(found)


def test_the_highest_peaks_are_found_in_order(world: World):
    """Against a sort of all scores: the first is the maximum, and each next one is the highest that is not near."""
    source, target, _ = prepared(world)
    grid = source.grid
    scores = likelihoods(source, target, CONFIG.min_overlap, 1)[0]
    found = find_peaks(scores.copy(), grid, 4)
    assert found[0].likelihood == scores.max()
    k = int(np.argmin(np.abs(grid.yaws - found[0].yaw)))
    dx, dy = (round(d / grid.stride) % grid.size for d in found[0].shift)
    assert scores[k, dy, dx] == scores.max()
    for one, other in itertools.pairwise(found):
        turn = abs((one.yaw - other.yaw + np.pi) % (2.0 * np.pi) - np.pi)
        assert turn > np.deg2rad(8.0) or np.abs(one.shift - other.shift).max() > 4.0


def test_a_prior_limits_the_search(world: World):
    source, target, truth = prepared(world)
    covariance = np.diag([2.0**2, 2.0**2, 1.0, 1e-4, 1e-4, np.deg2rad(5.0) ** 2])
    expected = make_search_prior(PosePrior(truth, covariance), source.surface, target.surface)
    found = search(source.surface, target.surface, CONFIG, expected)
    errors = []
    for candidate in found:
        T = to_metres(make_alignment(candidate, target.surface), source.surface, target.surface)
        errors.append(pose_error(T, truth, source.surface.middle))
    # 99.9 % of three dimensions, with half a step of the grid (2 cells, 15 degrees) for its rounding
    assert max(shift for shift, _ in errors) < 4.1 * np.hypot(2.0, 1.0)
    assert max(yaw for _, yaw in errors) < 4.1 * np.hypot(5.0, 7.5)
    assert any(shift < 4.0 and yaw < 10.0 for shift, yaw in errors)
    everywhere = search(source.surface, target.surface, CONFIG)
    assert len(found) < len(everywhere)
