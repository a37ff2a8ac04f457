"""Maps that the drift of odometry has bent: what is stated about their pose, and what it is stated from."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fractal_world import World, map_as_submap
from scipy.ndimage import map_coordinates
from scipy.stats import chi2

from gpgmap_ros.closure import ClosureConfig, ClosureDatabase, Registration, register
from gpgmap_ros.closure.registration.bending import (
    AMPLITUDES,
    DRIVEN,
    Bending,
    amplitude_likelihoods,
    weigh_cases,
)
from gpgmap_ros.closure.registration.covariance import score_likelihoods, slow_change
from gpgmap_ros.closure.registration.deformation import (
    MISMATCH,
    PARTS,
    PATCHES,
    SHIFT,
    Drive,
    fit_bending,
    height_changes,
    pose_spread,
    residual_patterns,
    score_spread,
    split_upright,
    ways,
)
from gpgmap_ros.closure.registration.registration_map import WAY_POINTS, make_registration_map, thin_way
from gpgmap_ros.closure.registration.stated_drift import UNSTATED, stated_factors
from gpgmap_ros.geometry import apply, inverse
from gpgmap_ros.mapping import GPGMap

CONFIG = ClosureConfig(threads=1)


def driven_map(world: World, start: tuple[float, float], turn: float, seed: int) -> tuple[GPGMap, np.ndarray]:
    """A map made on 24 m along x, its heading off by `turn` radians more after each metre; and its T_map_world."""
    rng = np.random.default_rng(seed)
    stated, way, clouds = np.array([*start, 0.0]), [], []
    for metre in range(25):
        true = np.array([start[0] + metre, start[1]])
        r, angle = 14.0 * np.sqrt(rng.uniform(size=260)), rng.uniform(-np.pi, np.pi, 260)
        seen = np.stack([r * np.cos(angle), r * np.sin(angle)], axis=1)
        z = map_coordinates(world.z, (true + seen)[:, ::-1].T, order=3, mode="grid-wrap")
        heading = turn * metre
        R = np.array([[np.cos(heading), -np.sin(heading)], [np.sin(heading), np.cos(heading)]])
        clouds.append(np.column_stack([stated[:2] + seen @ R.T, z + rng.normal(scale=0.02, size=len(z))]))
        way.append(stated.copy())
        stated[:2] += R @ np.array([1.0, 0.0])
    T_world_map = np.eye(4)
    T_world_map[:2, 3] = start
    T = inverse(T_world_map)
    return dataclasses.replace(
        map_as_submap(apply(T, np.concatenate(clouds))), way=apply(T, np.array(way))
    ), T


def squared_distance(found: Registration, truth: np.ndarray) -> float:
    turn = truth[:3, :3] @ found.T_target_source[:3, :3].T
    error = np.array([*(truth - found.T_target_source)[:3, 3], turn[2, 1], turn[0, 2], turn[1, 0]])
    return float(error @ np.linalg.solve(found.covariance, error))


@pytest.fixture(scope="module")
def straight(world: World) -> tuple[GPGMap, np.ndarray]:
    return driven_map(world, (90.0, 100.0), 0.0, 1)


@pytest.mark.parametrize("known", [True, False])
def test_the_truth_of_a_bent_map_is_within_what_is_stated(world: World, straight, known: bool):
    """The heading drifts by 0.1 degrees a metre. The same maps without the bend are known ten times as well."""
    target, T_target = straight
    found = []
    for turn in (np.deg2rad(0.1), 0.0):
        source, T_source = driven_map(world, (96.0, 101.0), turn, 2)
        if not known:
            source, target = (dataclasses.replace(m, way=np.zeros((0, 3))) for m in (source, target))
        found.append(register(source, target, CONFIG))
        assert found[-1].accepted, found[-1].reason
        assert squared_distance(found[-1], T_target @ inverse(T_source)) < chi2.ppf(0.999, 6)
    bent, plain = (np.sqrt(found[k].covariance[5, 5]) for k in (0, 1))
    assert bent > 4.0 * plain
    assert found[0].evidence.bend > found[1].evidence.bend


def test_drift_that_odometry_states_is_expected(straight, world: World):
    """Where ground at the end of one way and the start of the other says little, less drift than usual makes a pose
    better known, and more makes it worse, however much; the pose and its probability stay."""
    target, _ = straight
    source, _ = driven_map(world, (112.0, 101.0), 0.0, 2)
    usual = register(source, target, CONFIG)
    stds = []
    for rates in ((1e-9, 1e-9), (0.02, 2e-4), (1e3, 10.0)):
        stated = register(*(dataclasses.replace(m, drift_rates=rates) for m in (source, target)), CONFIG)
        np.testing.assert_array_equal(stated.T_target_source, usual.T_target_source)
        assert stated.probability == usual.probability
        stds.append(np.sqrt(np.diag(stated.covariance) / np.diag(usual.covariance))[[0, 1, 2, 5]])
    good, bad, worse = stds
    assert (good < 0.8).all()
    assert (good > 0.2).all()
    assert (bad > 1.1).all()
    assert (worse > 1.1).all()


def test_one_map_may_state_its_drift_and_the_other_none(straight):
    good, plain = (
        make_registration_map(dataclasses.replace(straight[0], drift_rates=rates), CONFIG)
        for rates in ((1e-12, 1e-12), (0.0, 0.0))
    )
    factors = stated_factors(good, plain, CONFIG)
    np.testing.assert_allclose(factors, [[np.sqrt(UNSTATED)] * 2, [1.0, 1.0]], rtol=1e-3)
    usual = 2.0 * DRIVEN.usual**2 * np.exp(2.0 * DRIVEN.spread**2)
    expected = dataclasses.replace(
        good,
        drift_rates=usual * np.array([(SHIFT * CONFIG.drift_position) ** 2, CONFIG.drift_rotation**2]),
    )
    np.testing.assert_allclose(stated_factors(expected, plain, CONFIG)[0], np.sqrt(1.0 + UNSTATED))
    still = dataclasses.replace(good, way=np.zeros((0, 2)))
    assert stated_factors(still, still, CONFIG).tolist() == [[1.0, 1.0]] * 2


def likelihoods(tau: float, sizes: np.ndarray, rng: np.random.Generator, excess: float = 1.0) -> np.ndarray:
    """Of scores that maps bent by tau leave in patterns of these sizes."""
    scores = np.sqrt(excess + tau**2 * sizes**2) * rng.normal(size=len(sizes))
    return amplitude_likelihoods(scores, np.eye(len(sizes)), np.diag(sizes**2))


def many(level: float, upright: float, excess: float = 1.0, driven: bool = True) -> list[Bending]:
    rng = np.random.default_rng(4)
    sizes = np.linspace(100.0, 30.0, 8)
    return [
        weigh_cases(*(likelihoods(tau, sizes, rng, excess) for tau in (level, upright)), driven)
        for _ in range(40)
    ]


def test_a_change_of_height_is_no_drift_in_the_plane():
    """Residuals that drift in height explains, as snow leaves them, say little about turns and shifts."""
    found = many(0.0, 1.5)
    assert np.median([part.change for part in found]) > 0.9
    assert np.median([np.sqrt(part.changed_sq) for part in found]) == pytest.approx(1.5, rel=0.3)
    rng = np.random.default_rng(4)
    mask, X = np.ones((40, 40), bool), rng.normal(size=(6, 40, 40))
    level, upright = (
        residual_patterns(20.0 * rng.normal(size=(5, 40, 40)), X, np.ones((40, 40)), np.zeros((6, 6)))
        for _ in range(2)
    )
    u = rng.normal(size=(40, 40)) + 2.0 * np.tensordot(upright.sizes, upright.E, 1)
    snow = weigh_cases(*(score_likelihoods(u, X, bend, None, mask) for bend in (level, upright)), True)
    assert snow.change > 0.9
    assert snow.drift * snow.level_sq < 0.01 * snow.changed_sq


def test_drift_that_shows_in_height_is_expected_in_the_plane():
    """One odometry makes both: where turns and shifts leave nothing to see, they are taken as large as in height."""
    rng = np.random.default_rng(5)
    sizes = np.linspace(100.0, 30.0, 8)
    unseen = amplitude_likelihoods(np.zeros(8), 1e8 * np.eye(8), np.diag(sizes**2))
    for tau in (0.15, 0.5):
        found = [weigh_cases(unseen, likelihoods(tau, sizes, rng), True) for _ in range(40)]
        assert 0.6 * tau < np.sqrt(np.median([part.level_sq for part in found])) < 1.8 * tau


def test_drift_along_the_way_moves_along_it():
    """A slope across the way says nothing about a shift along it."""
    way = np.array([[0.0, 0.0], [10.0, 0.0], [20.0, 0.0]])
    points, slope = np.zeros((2, 4, 4)) + 10.0, np.zeros((2, 4, 4))
    slope[1] = 0.3
    H = height_changes(Drive(way, 5.0), points, slope, CONFIG).reshape(3, 4, 4, 4)
    assert np.abs(H[:, 1]).max() == 0.0
    assert np.all(H[:2, 2] < 0.0)
    across, up = split_upright(H.reshape(12, 4, 4))
    assert len(across) == 9
    assert np.all(up[:2] > 0.0)
    np.testing.assert_allclose(H[2], H[:2].sum(0) / np.sqrt(2.0))


def test_only_what_was_seen_before_and_after_is_in_doubt():
    """Ground at the end of a way was all seen after its parts: their drift moves it as a whole, and bends nothing."""
    way = np.array([[0.0, 0.0], [10.0, 0.0], [20.0, 0.0], [30.0, 0.0]])
    x = np.array([[-5.0, 5.0, 15.0, 25.0, 40.0]])
    points, slope = np.stack([x, 0.0 * x]), np.zeros((2, 1, 5)) + 0.3
    H, doubt = (height_changes(Drive(way, 5.0), points, slope, CONFIG, of) for of in (False, True))
    first = (
        np.abs(doubt[3, 0]) / np.abs(H[3]).max()
    )  # up, of the first part: in doubt where the share is a half
    assert first.argmax() == 1
    assert first[1] > 0.3
    assert first[4] < 0.1 * first[1]
    last = np.abs(doubt[11, 0]) / np.abs(H[11]).max()
    assert last.argmax() == 3


def test_the_amplitude_follows_the_patterns():
    for tau in (0.2, 0.6):
        found = many(tau, tau)
        for name in ("level_sq", "upright_sq"):
            stated = np.sqrt(np.median([getattr(part, name) for part in found]))
            assert 0.6 * tau < stated < 1.8 * tau
        assert np.median([part.drift for part in found]) > 0.95


def test_patterns_that_noise_explains_are_no_bending():
    """On real ground patterns have several times the noise that is expected of them, whatever their size."""
    for excess in (1.0, 3.0, 6.0):
        found = many(0.0, 0.0, excess)
        assert np.median([part.drift * part.level_sq for part in found]) < 0.02**2
        assert np.median([part.drift for part in found]) < 0.12


def displaced_residuals(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (6, 40, 40), displacements H (6, 40, 40) of one large form and five small ones, and residuals
    (count, 40, 40) by drifts with tau = 1 that differ from H by a share of their own in each patch."""
    y, x = np.mgrid[:40, :40] / 40.0
    X = rng.normal(size=(6, 40, 40))
    forms = [np.cos(np.pi * (1 + k % 3) * x + k) * np.cos(np.pi * (1 + k // 3) * y) for k in range(6)]
    H = np.array([300.0, *[6.0] * 5])[:, None, None] * np.array(forms)
    side = 40 // PATCHES
    share = MISMATCH * rng.normal(size=(count, 6, PATCHES, PATCHES))
    share = share.repeat(side, axis=2).repeat(side, axis=3)
    drift = rng.normal(size=(count, 6, 1, 1))
    return X, H, np.sum(drift * (1.0 + share) * H, axis=1)


def most_likely(likelihoods: np.ndarray) -> float:
    return float(AMPLITUDES[np.argmax(likelihoods[1:])])


def test_a_pose_is_not_better_known_than_the_displacements_are():
    """Poses fitted to residuals of displacements that differ from their model have the stated covariance."""
    X, H, residuals = displaced_residuals(np.random.default_rng(6), 2000)
    bend = residual_patterns(H, X, np.ones((40, 40)), np.zeros((6, 6)))
    x = X.reshape(6, -1)
    poses = np.linalg.solve(x @ x.T, x @ residuals.reshape(len(residuals), -1).T)
    stated = pose_spread(bend, H, X, np.ones((40, 40)))
    whitened = np.linalg.solve(np.linalg.cholesky(stated), poses)
    np.testing.assert_allclose(np.mean(whitened**2, axis=1), 1.0, atol=0.25)


def test_displacements_that_differ_from_their_model_do_not_look_like_more_drift():
    """One large displacement leaves something in the patterns of all small ones."""
    X, H, residuals = displaced_residuals(np.random.default_rng(7), 60)
    bend = residual_patterns(H, X, np.ones((40, 40)), np.zeros((6, 6)))
    scores = np.tensordot(0.3 * residuals, bend.E, ((1, 2), (1, 2)))
    known, plain = (
        np.median(
            [most_likely(amplitude_likelihoods(y, np.eye(len(y)), score_spread(bend, of))) for y in scores]
        )
        for of in (H, None)
    )
    assert 0.15 < known < 0.6
    assert plain > 1.3 * 0.3
    assert plain > 1.3 * known


def test_where_nothing_is_seen_the_prior_remains():
    unseen = amplitude_likelihoods(np.zeros(8), 1e8 * np.eye(8), np.diag(np.linspace(100.0, 30.0, 8) ** 2))
    found = weigh_cases(unseen, unseen, True)
    np.testing.assert_allclose([found.straight, found.drift, found.change], DRIVEN.shares, atol=0.01)
    assert 0.5 * DRIVEN.usual < np.sqrt(found.level_sq) < 2.0 * DRIVEN.usual
    assert weigh_cases(unseen, unseen, False).drift < 0.1 * found.drift


def test_a_change_of_height_is_what_noise_does_not_leave():
    """A field that varies slowly is found beneath white noise; white noise alone has none."""
    rng = np.random.default_rng(2)
    rows, columns = np.mgrid[:120, :120]
    slow = 0.5 * np.sin(2.0 * np.pi * rows / 90.0) * np.cos(2.0 * np.pi * columns / 90.0)
    noise, weight = rng.normal(size=(120, 120)), np.ones((120, 120))
    alone = slow_change(weight, noise, 1.0, 1.0, 6.0)
    assert alone < 0.02 * np.mean(slow**2)
    with_change = slow_change(weight, noise + slow, 1.0, 1.0, 6.0)
    assert 0.4 * np.mean(slow**2) < with_change < 1.1 * np.mean(slow**2)


def test_bending_is_told_from_a_motion_of_the_pose():
    """What a pose can follow is in P; what it can't is in the patterns, orthogonal to the pose, and is taken off."""
    rng = np.random.default_rng(3)
    mask = np.ones((30, 30), bool)
    X, H = rng.normal(size=(6, 30, 30)), rng.normal(size=(5, 30, 30))
    H[0] = 2.0 * X[1]
    patterns = residual_patterns(H, X, np.ones((30, 30)), np.zeros((6, 6)))
    np.testing.assert_allclose(patterns.P[:, 0], [0, 2, 0, 0, 0, 0], atol=1e-6)
    assert len(patterns.sizes) == 4
    assert np.abs(np.tensordot(patterns.E, X, ((1, 2), (1, 2)))).max() < 1e-6
    noise = 0.1 * rng.normal(size=(30, 30))
    fit = fit_bending(
        noise + 3.0 * patterns.sizes[0] * patterns.E[0], X, patterns.E, 10.0 * patterns.sizes, mask
    )
    assert np.abs(fit.amplitudes / patterns.sizes - [3.0, 0, 0, 0]).max() < 0.05
    assert fit.rest.std() < 0.11
    held = fit_bending(
        noise + 3.0 * patterns.sizes[0] * patterns.E[0], X, patterns.E, 1e-6 * patterns.sizes, mask
    )
    assert held.rest.std() > 0.5  # not expected: not taken off


def test_a_way_is_kept_in_equal_parts(straight):
    target, _ = straight
    prepared = make_registration_map(target, CONFIG)
    steps = np.hypot(*np.diff(prepared.way, axis=0).T)
    assert len(prepared.way) == WAY_POINTS
    np.testing.assert_allclose(steps, 24.0 / (WAY_POINTS - 1), rtol=1e-6)
    (drive,) = ways(prepared)
    assert np.isclose(drive.step, 24.0 / (WAY_POINTS - 1))
    assert len(thin_way(np.zeros((5, 2)))) == 0
    assert len(thin_way(np.zeros((0, 2)))) == 0
    without = ways(dataclasses.replace(prepared, way=np.zeros((0, 2))))
    assert [len(drive.points) for drive in without] == [PARTS + 1] * 2


def test_ways_are_kept_with_the_submaps(straight, tmp_path):
    database = ClosureDatabase(CONFIG)
    database.add("a", straight[0])
    database.save(tmp_path / "maps.db")
    loaded = ClosureDatabase.load(tmp_path / "maps.db", CONFIG)
    np.testing.assert_array_equal(loaded._maps["a"].way, database._maps["a"].way)


def test_drift_that_was_stated_is_kept_with_the_submaps(straight, tmp_path):
    database = ClosureDatabase(CONFIG)
    database.add("a", dataclasses.replace(straight[0], drift_rates=(0.02, 3e-5)))
    database.save(tmp_path / "maps.db")
    loaded = ClosureDatabase.load(tmp_path / "maps.db", CONFIG)
    assert loaded._maps["a"].drift_rates.tolist() == [0.02, 3e-5]
