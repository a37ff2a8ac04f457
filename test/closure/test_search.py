"""The search: FFT sums against plain loops, and the true pose among the candidates."""

from __future__ import annotations

import itertools

import numpy as np
from fractal_world import World, pose_error

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.correlation import Prepared, canvas_for, likelihoods
from gpgmap_ros.closure.first_look import best_poses, exact_likelihoods, proposals, source_side, target_side
from gpgmap_ros.closure.prior import PosePrior, expectation_of
from gpgmap_ros.closure.refinement import alignment_of
from gpgmap_ros.closure.registration import in_metres
from gpgmap_ros.closure.search import peaks, search
from gpgmap_ros.closure.surface import surface_of
from gpgmap_ros.geometry import inverse

CONFIG = ClosureConfig(threads=1, yaw_step=15.0)


def prepared(world: World):
    source, T_source = world.map_at((100.0, 100.0), 1, yaw=0.5)
    target, T_target = world.map_at((108.0, 96.0), 2)
    a, b = surface_of(source, CONFIG), surface_of(target, CONFIG)
    canvas = canvas_for(max(a.radius, b.radius), CONFIG)
    return Prepared(a, canvas, CONFIG), Prepared(b, canvas, CONFIG), T_target @ inverse(T_source)


def fields_at(side: Prepared, yaw: float, band: int) -> np.ndarray:
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
    canvas = source.canvas
    both = likelihoods(source, target, CONFIG.min_overlap, 1)
    assert len(both) == 2
    for band, scores in enumerate(both):
        b = fields_at(target, 0.0, band)
        for k in (1, len(canvas.yaws) // 2 + 3, len(canvas.yaws) - 1):
            a = fields_at(source, canvas.yaws[k], band)
            for dy, dx in ((0, 0), (3, -2), (-5, 4)):
                expected = naive_likelihood(a, b, dy, dx, band == 0)
                np.testing.assert_allclose(
                    scores[k, dy % canvas.size, dx % canvas.size], expected, rtol=2e-3, atol=0.05
                )


def test_too_little_overlap_scores_nothing(world: World):
    source, target, _ = prepared(world)
    scores = likelihoods(source, target, 0.6, 1)[0]
    half = source.canvas.size // 2
    assert scores[0, half, half] == 0.0
    assert (scores > 0.0).any()


def test_the_true_pose_is_among_the_candidates(world: World):
    source, target, truth = prepared(world)
    errors = [
        pose_error(
            in_metres(alignment_of(c, target.surface), source.surface, target.surface), truth, np.zeros(3)
        )
        for c in search(source.surface, target.surface, CONFIG)
    ]
    assert any(shift < 4.0 and yaw < 10.0 for shift, yaw in errors)


def test_a_slope_turns_with_its_map(world: World):
    """Turning by half a turn reverses the vectors and the lattice."""
    source, _, _ = prepared(world)
    side = source.canvas.side
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
    canvas = source.canvas
    scores = likelihoods(source, target, CONFIG.min_overlap, 1)[0]
    found = peaks(scores.copy(), canvas, 4)
    assert found[0].likelihood == scores.max()
    k = int(np.argmin(np.abs(canvas.yaws - found[0].yaw)))
    dx, dy = (round(d / canvas.stride) % canvas.size for d in found[0].shift)
    assert scores[k, dy, dx] == scores.max()
    for one, other in itertools.pairwise(found):
        turn = abs((one.yaw - other.yaw + np.pi) % (2.0 * np.pi) - np.pi)
        assert turn > np.deg2rad(8.0) or np.abs(one.shift - other.shift).max() > 4.0


def test_a_prior_limits_the_search(world: World):
    source, target, truth = prepared(world)
    covariance = np.diag([2.0**2, 2.0**2, 1.0, 1e-4, 1e-4, np.deg2rad(5.0) ** 2])
    expected = expectation_of(PosePrior(truth, covariance), source.surface, target.surface)
    found = search(source.surface, target.surface, CONFIG, expected)
    errors = []
    for candidate in found:
        T = in_metres(alignment_of(candidate, target.surface), source.surface, target.surface)
        errors.append(pose_error(T, truth, source.surface.middle))
    # 99.9 % of three dimensions, with half a step of the canvas (2 cells, 15 degrees) for its rounding
    assert max(shift for shift, _ in errors) < 4.1 * np.hypot(2.0, 1.0)
    assert max(yaw for _, yaw in errors) < 4.1 * np.hypot(5.0, 7.5)
    assert any(shift < 4.0 and yaw < 10.0 for shift, yaw in errors)
    everywhere = search(source.surface, target.surface, CONFIG)
    assert len(found) < len(everywhere)


def test_the_first_look_of_a_query_finds_the_same_poses(world: World):
    """Its exact values are those of the search, and its proposals hold the best poses of the search."""
    source, target, _ = prepared(world)
    canvas = source.canvas
    expected = likelihoods(source, target, CONFIG.min_overlap, 1)[0]
    rng = np.random.default_rng(0)
    cells = np.column_stack([rng.integers(0, n, 200) for n in expected.shape])
    half = canvas.size // 2
    cells = cells[np.all(np.abs(cells[:, 1:] - half) > canvas.size - canvas.side - half, axis=1)]
    a, b = source_side(source), target_side(target)
    least = CONFIG.min_overlap * min(a.area, b.area) / canvas.stride**2
    np.testing.assert_allclose(
        exact_likelihoods(a.fields, b.fields[0], cells, canvas.size, least),
        expected[tuple(cells.T)],
        rtol=5e-3,
        atol=0.05,
    )
    scores = proposals(a, [b, b], canvas, CONFIG.min_overlap)
    np.testing.assert_array_equal(scores[0], scores[1])
    found = best_poses(scores[0], a, b, canvas, CONFIG.min_overlap, 6)
    best = peaks(expected.copy(), canvas, 3)
    assert found[0, 3] > 0.9 * best[0].likelihood
    for candidate in best:
        yaws = np.abs((canvas.yaws[found[:, 0].astype(int)] - candidate.yaw + np.pi) % (2.0 * np.pi) - np.pi)
        shifts = (found[:, 2:0:-1] + half) % canvas.size - half - candidate.shift / canvas.stride
        assert np.any((yaws < 1.1 * canvas.step) & (np.abs(shifts).max(1) <= 2.0))
