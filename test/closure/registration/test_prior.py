"""A prior: the same in the search's terms, fewer poses to fall for, and no way around the evidence."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fractal_world import World
from scipy.spatial.transform import Rotation

from gp_core.grid import Grid
from gpgmap_ros.closure import ClosureConfig, ClosureDatabase, PosePrior, register
from gpgmap_ros.closure.registration.prior import make_search_prior
from gpgmap_ros.closure.registration.refinement import rotation_matrix
from gpgmap_ros.closure.registration.registration_map import make_registration_map
from gpgmap_ros.geometry import apply, inverse

CONFIG = ClosureConfig(threads=1)


def compute_covariance(position: float, degrees: float) -> np.ndarray:
    return np.diag([position**2] * 3 + [np.deg2rad(degrees) ** 2] * 3)


def test_the_expectation_is_that_of_sampled_poses(pair):
    """Errors of the frame, drawn from the covariance, move the middle of the source as the expectation says."""
    source, target, truth = pair
    grid = source.grid  # far from its frame's origin, so that rotations move it
    there = Grid((grid.origin[0] + 40.0, grid.origin[1] - 25.0), grid.shape, grid.resolution)
    raised = {**source.layers, "elevation": source["elevation"] + np.float32(60.0)}
    source = dataclasses.replace(source, grid=there, layers=raised)
    a, b = make_registration_map(source, CONFIG), make_registration_map(target, CONFIG)
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6)) * np.array([[0.3], [0.2], [0.1], [0.004], [0.004], [0.01]])
    expected = make_search_prior(PosePrior(truth, root @ root.T), a, b)
    drawn = []
    for _ in range(4000):
        e = root @ rng.normal(size=6)
        T = truth.copy()
        T[:3, :3] = rotation_matrix(e[3:]) @ truth[:3, :3]
        T[:3, 3] += e[:3]
        x, y, _ = (apply(T, a.middle[None])[0] - b.middle) / b.resolution
        drawn.append([x, y, np.arctan2(T[1, 0], T[0, 0])])
    np.testing.assert_allclose(np.mean(drawn, axis=0), expected.mean, atol=0.05)
    scale = np.sqrt(np.diag(expected.covariance))
    unit = np.outer(scale, scale)
    np.testing.assert_allclose(np.cov(np.transpose(drawn)) / unit, expected.covariance / unit, atol=0.08)
    distances = expected.mahalanobis_sq(*np.transpose(drawn))
    assert abs(distances.mean() - 3.0) < 0.3


def test_a_right_prior_speaks_for_the_pose_and_a_vague_one_says_nothing(pair):
    source, target, truth = pair
    alone = register(source, target, CONFIG)
    narrow, vague = (
        register(source, target, CONFIG, PosePrior(truth, compute_covariance(*std)))
        for std in ((2.0, 3.0), (500.0, 400.0))
    )
    assert narrow.accepted, narrow.reason
    assert narrow.score > alone.score + 2.0
    assert vague.score == pytest.approx(alone.score)
    np.testing.assert_allclose(narrow.T_target_source, alone.T_target_source, atol=1e-3)


def test_a_wrong_prior_finds_nothing(pair):
    """The right pose lies 10 standard deviations away: it is not looked for, and no other one is believed."""
    source, target, truth = pair
    elsewhere = truth.copy()
    elsewhere[0, 3] += 10.0
    found = register(source, target, CONFIG, PosePrior(elsewhere, compute_covariance(1.0, 2.0)))
    assert not found.accepted
    turned = truth.copy()
    turned[:3, :3] = Rotation.from_euler("z", np.pi).as_matrix() @ truth[:3, :3]
    assert not register(source, target, CONFIG, PosePrior(turned, compute_covariance(3.0, 10.0))).accepted


def test_a_prior_does_not_make_different_places_the_same(world: World):
    """Odometry that is sure to be in the right place does not replace evidence from the ground."""
    maps = [world.map_at((x, y), int(x))[0] for x, y in ((40.0, 40.0), (150.0, 60.0), (60.0, 200.0))]
    for k, source in enumerate(maps):
        for target in maps[k + 1 :]:
            prior = PosePrior(np.eye(4), compute_covariance(2.0, 5.0))
            assert not register(source, target, CONFIG, prior).accepted


def test_the_database_looks_where_the_prior_says(world: World):
    places = {"a": (40.0, 40.0), "b": (150.0, 60.0), "c": (60.0, 200.0)}
    database = ClosureDatabase(CONFIG)
    frames = {}
    for k, (name, place) in enumerate(places.items()):
        map_, frames[name] = world.map_at(place, k)
        database.add(name, map_)
    visit, T_visit = world.map_at((154.0, 66.0), 9, yaw=1.0)
    truth = frames["b"] @ inverse(T_visit)
    priors = {"b": PosePrior(truth, compute_covariance(2.0, 4.0))}
    name, found = database.closures(visit, max_matches=1, priors=priors)[0]
    assert name == "b"
    assert found.score > dict(database.closures(visit, max_matches=3))["b"].score + 2.0
    far = truth.copy()
    far[0, 3] += 30.0
    accepted = [
        f
        for _, f in database.closures(visit, priors={"b": PosePrior(far, compute_covariance(1.0, 2.0))})
        if f.accepted
    ]
    assert not accepted


@pytest.mark.parametrize(
    ("T", "covariance", "message"),
    [
        (np.full((4, 4), np.nan), np.eye(6), "finite"),
        (np.diag([-1.0, 1.0, 1.0, 1.0]), np.eye(6), "does not rotate"),
        (np.eye(4), np.eye(3), "6 x 6"),
        (np.eye(4), np.diag([1.0, 1.0, 1.0, 1.0, 1.0, 0.0]), "positive definite"),
        (np.eye(4), np.triu(np.ones((6, 6))), "symmetric"),
    ],
)
def test_what_is_no_prior_is_refused(T, covariance, message):
    with pytest.raises(ValueError, match=message):
        PosePrior(T, covariance)
