"""Registration: the right pose from no guess, an honest verdict, and a clear refusal of what can't be registered."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fractal_world import World, fractal, pose_error
from scipy.ndimage import gaussian_filter
from scipy.stats import chi2

from gp_core.grid import Grid
from gpgmap_ros.closure import ClosureConfig, register
from gpgmap_ros.closure.acceptance import pose_objection
from gpgmap_ros.closure.registration.pipeline import decide
from gpgmap_ros.closure.registration.probability import VerifiedPose, compare_fits, compute_octaves
from gpgmap_ros.closure.registration.refinement import Alignment, refine
from gpgmap_ros.closure.registration.registration_map import RegistrationMap, make_registration_map
from gpgmap_ros.closure.registration.self_similarity import SelfSimilarity
from gpgmap_ros.closure.registration.verification import compute_evidence
from gpgmap_ros.closure.types import Registration
from gpgmap_ros.config import ConfigError
from gpgmap_ros.geometry import apply, inverse
from gpgmap_ros.mapping import GPGMap


def changed(map_: GPGMap, **layers: np.ndarray) -> GPGMap:
    return dataclasses.replace(map_, layers={**map_.layers, **layers})


def assert_rigid(T: np.ndarray) -> None:
    np.testing.assert_allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-9)
    assert np.linalg.det(T[:3, :3]) == pytest.approx(1.0)
    np.testing.assert_array_equal(T[3], [0.0, 0.0, 0.0, 1.0])


def test_finds_the_pose_without_a_guess(pair):
    source, target, truth = pair
    found = register(source, target)
    assert found.accepted, found.reason
    shift, yaw = pose_error(found.T_target_source, truth, np.zeros(3))
    assert shift < 0.3
    assert yaw < 0.5
    assert abs((found.T_target_source - truth)[2, 3]) < 0.1
    assert 0.3 < found.overlap < 0.7
    assert_rigid(found.T_target_source)


def test_both_directions_agree(pair):
    source, target, _ = pair
    there, back = register(source, target), register(target, source)
    shift, yaw = pose_error(back.T_target_source @ there.T_target_source, np.eye(4), np.zeros(3))
    assert shift < 0.2
    assert yaw < 0.3


@pytest.mark.parametrize("yaw", [0.0, 1.0, np.pi / 2, np.pi, -2.5])
def test_any_yaw(world: World, yaw):
    source, T_source = world.map_at((60.0, 180.0), 5, yaw=yaw)
    target, T_target = world.map_at((70.0, 176.0), 6)
    found = register(source, target)
    assert found.accepted, found.reason
    shift, turn = pose_error(found.T_target_source, T_target @ inverse(T_source), np.zeros(3))
    assert shift < 0.2
    assert turn < 0.4


def test_the_frame_may_be_far_away(pair):
    """Coordinates of a map grid, kilometres from the origin, must not cost precision."""
    source, target, truth = pair
    far = np.eye(4)
    far[:3, 3] = [4.0e5, 5.6e6, 800.0]
    grid = target.grid
    there = Grid((grid.origin[0] + far[0, 3], grid.origin[1] + far[1, 3]), grid.shape, grid.resolution)
    raised = (target["elevation"].astype(np.float64) + far[2, 3]).astype(np.float32)
    found = register(source, dataclasses.replace(changed(target, elevation=raised), grid=there))
    assert found.accepted, found.reason
    shift, _ = pose_error(found.T_target_source, far @ truth, np.zeros(3))
    assert shift < 0.3


def test_different_places_are_refused(world: World):
    maps = [
        world.map_at((x, y), int(x + y))[0]
        for x, y in ((40.0, 40.0), (40.0, 140.0), (150.0, 60.0), (200.0, 200.0))
    ]
    for k, source in enumerate(maps):
        for target in maps[k + 1 :]:
            found = register(source, target)
            assert not found.accepted
            assert found.probability < 0.5
            assert found.reason
            assert_rigid(found.T_target_source)


def test_a_mirrored_map_is_refused(pair):
    """A reflection would fit it perfectly; no rotation does."""
    source, _, _ = pair
    flipped = {name: layer[:, ::-1].copy() for name, layer in source.layers.items()}
    flipped["gradient_x"] *= -1.0
    found = register(source, dataclasses.replace(source, layers=flipped))
    assert not found.accepted
    assert_rigid(found.T_target_source)


def test_parallel_ridges_are_refused_as_not_unique():
    """A corrugated plane fits itself at every whole wavelength."""
    x = np.arange(256.0)
    ridges = World(np.broadcast_to(1.5 * np.sin(2.0 * np.pi * x / 16.0), (256, 256)).copy())
    source, _ = ridges.map_at((100.0, 100.0), 1, yaw=0.4)
    target, _ = ridges.map_at((116.0, 110.0), 2)
    assert not register(source, target).accepted


def test_a_place_that_the_target_shows_twice_is_refused():
    """Relief that repeats every 40 m: the source lies in the target several times, each with all of its ground."""
    for seed in (3, 4, 5):
        relief = World(np.tile(fractal(seed, size=40, slope=1.8, relief=1.5), (6, 6)))
        source, _ = relief.map_at((100.0, 100.0), 1, yaw=0.7, radius=18.0)
        target, _ = relief.map_at((120.0, 100.0), 2, radius=44.0)
        found = register(source, target)
        assert not found.accepted
        assert found.reason.startswith("not unique"), found.reason


def test_fine_forms_tell_places_apart(pair):
    """Ground that has the same large forms and other fine ones fits worse; another sample of the same does not."""
    source, target, truth = pair
    config = ClosureConfig(threads=1)
    rng = np.random.default_rng(0)
    other = {}
    for name in ("gradient_x", "gradient_y"):
        known = np.isfinite(target[name])
        noise = gaussian_filter(rng.normal(size=known.shape), 1.5)
        large = gaussian_filter(np.where(known, target[name], 0.0), 3.0) / gaussian_filter(known * 1.0, 3.0)
        noise *= np.std((target[name] - large)[known]) / noise.std()
        other[name] = np.where(known, large + noise, np.nan).astype(np.float32)
    a = make_registration_map(source, config)
    b = make_registration_map(target, config)
    start = Alignment(truth[:3, :3], centre_of(truth, a, b), centre_of(truth, a, b))
    pose = refine(start, a, b, config)
    found = []
    for map_ in (target, changed(target, **other)):
        there = make_registration_map(map_, config)
        what = compute_evidence(pose, a, there, config)
        assert what is not None
        found.append(compute_octaves(pose, what, a, there, config))
    assert compare_fits(found[1], found[0]) > 3.1
    assert compare_fits(found[0], found[1]) < -3.1
    assert compare_fits(found[0], found[0]) == 0.0


def test_of_two_fits_to_one_pose_the_settled_one_counts(pair):
    """A fit whose steps ran out a hair before the end must not spoil the verdict on a pose that another one reached."""
    source, target, truth = pair
    config = ClosureConfig(threads=1)
    a, b = make_registration_map(source, config), make_registration_map(target, config)
    pose = refine(Alignment(truth[:3, :3], centre_of(truth, a, b), centre_of(truth, a, b)), a, b, config)
    found = compute_evidence(pose, a, b, config)
    assert found is not None
    done = VerifiedPose(pose, found, 30.0)
    hasty = VerifiedPose(
        dataclasses.replace(pose, converged=False), dataclasses.replace(found, converged=False), 30.1
    )
    assert decide([hasty, done], a, b, config, 2, SelfSimilarity(config)).accepted
    assert not decide([hasty], a, b, config, 1, SelfSimilarity(config)).accepted


def centre_of(T: np.ndarray, source: RegistrationMap, target: RegistrationMap) -> np.ndarray:
    """t of an Alignment, in cells."""
    corner = np.array([*target.origin, target.base])
    return (T[:3, 3] - corner + T[:3, :3] @ source.middle) / target.resolution


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_noise_is_not_ground(noise):
    """Two maps of a plain hold nothing but noise, whatever level of it the maps were told."""
    plain = World(np.zeros((256, 256)))
    for seed in range(3):
        source, _ = plain.map_at((100.0, 100.0), seed, noise=noise)
        target, _ = plain.map_at((100.0, 100.0), seed + 10, noise=noise)
        assert not register(source, target).accepted


def test_the_same_maps_give_the_same_answer(pair):
    source, target, _ = pair
    one = register(source, target, ClosureConfig(threads=1))
    for threads in (1, 2, 3):
        again = register(source, target, ClosureConfig(threads=threads))
        np.testing.assert_array_equal(one.T_target_source, again.T_target_source)
        np.testing.assert_array_equal(one.covariance, again.covariance)
        assert one.probability == again.probability


def test_slopes_that_disagree_are_refused(pair):
    """Slopes are the second witness: heights alone do not get a closure through."""
    source, target, _ = pair
    rng = np.random.default_rng(0)
    other = {}
    for name in ("gradient_x", "gradient_y"):
        other[name] = target[name].copy()
        known = np.isfinite(other[name])
        other[name][known] = rng.permutation(other[name][known])
    assert not register(source, changed(target, **other)).accepted


def test_variances_decide_which_cells_count(world: World):
    """Rubbish that the map itself declares uncertain must not spoil the pose."""
    source, T_source = world.map_at((100.0, 100.0), 1)
    target, T_target = world.map_at((104.0, 100.0), 2)
    columns = np.indices(target.grid.shape)[1]
    bad = columns < target.grid.shape[1] // 4
    rng = np.random.default_rng(3)
    layers = {name: layer.copy() for name, layer in target.layers.items()}
    for name in ("elevation", "gradient_x", "gradient_y"):
        layers[name][bad] += rng.normal(scale=20.0, size=int(bad.sum())).astype(np.float32)
    for name in ("variance", "gradient_x_variance", "gradient_y_variance"):
        layers[name][bad] = 1e3
    found = register(source, dataclasses.replace(target, layers=layers))
    assert found.accepted, found.reason
    shift, _ = pose_error(found.T_target_source, T_target @ inverse(T_source), np.zeros(3))
    assert shift < 0.2


def test_a_runner_up_is_reported(pair):
    source, target, _ = pair
    found = register(source, target)
    assert found.candidates > 1
    if found.runner_up is not None:
        assert found.runner_up.surplus < found.score
        assert_rigid(found.T_runner_up)


def nothing(found: Registration) -> bool:
    return not found.accepted and found.probability == 0.0 and bool(np.isinf(found.covariance[0, 0]))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda m: changed(m, elevation=np.full(m.grid.shape, np.nan, np.float32)), "empty"),
        (
            lambda m: changed(
                m, **{n: np.zeros(m.grid.shape, np.float32) for n in ("gradient_x", "gradient_y")}
            ),
            "flat",
        ),
        (lambda m: cut(m, 6, 6), "too small"),
        (lambda m: cut(m, 3, 45), "too"),
        (lambda m: dataclasses.replace(m, layers={"elevation": m["elevation"]}), "no layer"),
        (lambda m: changed(m, gradient_x=m["gradient_x"][1:]), "shape"),
        (lambda m: dataclasses.replace(m, grid=Grid(m.grid.origin, m.grid.shape, 0.5)), "resolutions"),
    ],
)
def test_bad_maps_are_refused_with_the_reason(pair, spoil, reason):
    source, target, _ = pair
    for found in (register(spoil(source), target), register(source, spoil(target))):
        assert nothing(found)
        assert reason in found.reason


def cut(map_: GPGMap, rows: int, columns: int) -> GPGMap:
    layers = {name: layer[20 : 20 + rows, :columns].copy() for name, layer in map_.layers.items()}
    shape = next(iter(layers.values())).shape
    return GPGMap(Grid(map_.grid.origin, shape, map_.grid.resolution), layers)


def test_heights_far_beyond_the_tilt_prior_are_refused(world: World):
    """Frames are gravity-aligned: a map tilted by 20 degrees is not the same ground."""
    source, _ = world.map_at((100.0, 100.0), 1, tilt=np.deg2rad(20.0))
    target, _ = world.map_at((100.0, 100.0), 2)
    assert not register(source, target).accepted


def test_the_stated_errors_are_those_that_happen(world: World):
    """Squared Mahalanobis distances of the truth are within their chi-square, and not far below its mean: these maps
    have no way, and might have been bent for all that is known."""
    distances = []
    for k in range(6):
        source, T_source = world.map_at((60.0 + 20 * k, 90.0), 20 + k, yaw=0.5 * k, tilt=0.01)
        target, T_target = world.map_at((72.0 + 20 * k, 98.0), 50 + k, tilt=0.01)
        found = register(source, target, ClosureConfig(common_error=0.0))
        assert found.accepted, found.reason
        truth = T_target @ inverse(T_source)
        turn = truth[:3, :3] @ found.T_target_source[:3, :3].T
        error = np.array([*(truth - found.T_target_source)[:3, 3], turn[2, 1], turn[0, 2], turn[1, 0]])
        distances.append(error @ np.linalg.solve(found.covariance, error))
    assert max(distances) < chi2.ppf(0.999, 6)
    assert 1.0 < np.mean(distances) < 12.0


def test_what_little_is_shared_is_told(pair):
    """Poses are looked for from `min_overlap` on; a right one may come out at less, by weight, but not at any share."""
    source, target, _ = pair
    config = ClosureConfig(min_overlap=0.2)
    clear = register(source, target, config).evidence
    for found, enough, little in (
        (dataclasses.replace(clear, surplus=30.0), 0.13, 0.11),
        (clear, 0.07, 0.05),
    ):
        assert not pose_objection(dataclasses.replace(found, overlap=enough), config)
        assert f"too little overlap: {little:.1%} of the smaller map" in pose_objection(
            dataclasses.replace(found, overlap=little), config
        )


def test_an_error_common_to_a_map_is_added(pair):
    source, target, _ = pair
    narrow, wide = (register(source, target, ClosureConfig(common_error=e)).covariance for e in (0.0, 0.5))
    assert np.linalg.eigvalsh(wide - narrow).min() > -1e-12
    assert wide[2, 2] - narrow[2, 2] >= 0.3**2


def test_a_contour_is_where_the_pose_slides():
    """On a wall that runs along y, x is known and y is not: the covariance says so."""
    x = np.broadcast_to(np.arange(256.0), (256, 256))
    wall = World(4.0 / (1.0 + np.exp(-(x - 128.0) / 2.0)) + 0.02 * fractal_small(x.shape))
    source, T_source = wall.map_at((126.0, 100.0), 1)
    target, T_target = wall.map_at((130.0, 104.0), 2)
    found = register(source, target)
    sigma = np.sqrt(np.diag(found.covariance))
    assert sigma[1] > 1.4 * sigma[0]
    truth = T_target @ inverse(T_source)
    assert abs(apply(found.T_target_source, np.zeros((1, 3))) - apply(truth, np.zeros((1, 3))))[0, 0] < 0.5


def fractal_small(shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(4).normal(size=shape)


def test_settings_are_checked():
    with pytest.raises(ConfigError, match=r"closure\.yaw_step"):
        ClosureConfig(yaw_step=90.0)
    with pytest.raises(ConfigError, match=r"closure\.candidates"):
        ClosureConfig(candidates=0)
