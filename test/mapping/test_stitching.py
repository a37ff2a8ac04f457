"""The global map from submaps' statistics: as good as mapping everything at once, and mended when poses are."""

from __future__ import annotations

import dataclasses
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gpgmap_ros.config import Config, MappingConfig, SubmapConfig
from gpgmap_ros.geometry import apply, inverse
from gpgmap_ros.mapping import (
    ArchiveError,
    ElevationMap,
    StitchError,
    SubmapStore,
    stitch,
    stitch_tiles,
    stitching,
)
from gpgmap_ros.mapping.coarse_ground import CoarseGround
from gpgmap_ros.mapping.pseudo_points import CellSums
from gpgmap_ros.mapping.submaps import Submap, SubmapBuilder
from gpgmap_ros.storage.archive import read_archive, write_archive

Array = NDArray[np.float64]

CONFIG = Config(
    mapping=MappingConfig(
        kernel="rbf", learn_noise=False, resolution=0.1, length_scale=0.5, relief_std=0.3, finest_std=0.001
    ),
    submap=SubmapConfig(size=8.0, resolution=0.1, length_scale=0.5),
)
NOISE = 0.03
PLACES = {0: (0.0, 0.0, 0.3), 1: (2.4, 0.7, 1.4), 2: (4.4, 2.6, 2.5)}
"""x, y and heading of the submaps."""


def terrain(xy: Array, seed: int = 3, count: int = 300) -> Array:
    """Relief as the prior imagines it: RBF with the configured scale, by random Fourier features."""
    rng = np.random.default_rng(seed)
    mapping = CONFIG.mapping
    frequency = rng.normal(size=(count, 2)) / mapping.length_scale
    phase = rng.uniform(0.0, 2.0 * np.pi, count)
    return mapping.relief_std * np.sqrt(2.0 / count) * np.cos(xy @ frequency.T + phase).sum(axis=1)


def pose(x: float, y: float, yaw: float, z: float = 0.8, roll: float = 0.0, pitch: float = 0.0) -> Array:
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("ZYX", [yaw, pitch, roll]).as_matrix()
    T[:3, 3] = x, y, z
    return T


def cloud(centre: tuple[float, float], seed: int, half: float = 2.5, count: int = 9000) -> Array:
    """Points of the world around a place, with noise."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform(-half, half, (count, 2)) + centre
    return np.column_stack([xy, terrain(xy) + rng.normal(scale=NOISE, size=count)])


def submap_at(id: int, T_world_submap: Array, points: Array, config: Config = CONFIG) -> Submap:
    """What the robot makes of the points when it thinks that its frame stands upright at its own origin."""
    builder = SubmapBuilder(config, np.eye(4), stamp=10 + id, session=10)
    builder.add(apply(inverse(T_world_submap), points), np.full(len(points), NOISE**2), np.eye(4), 10 + id)
    submap = builder.finish(id, "request")
    assert submap is not None
    return submap


@pytest.fixture(scope="module")
def poses() -> dict[int, Array]:
    return {
        id: pose(x, y, yaw, z=0.5 + 0.2 * id, roll=0.02, pitch=-0.015) for id, (x, y, yaw) in PLACES.items()
    }


@pytest.fixture(scope="module")
def submaps(poses: dict[int, Array]) -> list[Submap]:
    return [submap_at(id, T, cloud(PLACES[id][:2], id)) for id, T in poses.items()]


@pytest.fixture(scope="module")
def stitched(submaps: list[Submap], poses: dict[int, Array]) -> stitching.GPGMap:
    return stitch(submaps, poses, CONFIG)


def all_at_once(grid: stitching.Grid) -> ElevationMap:
    """Every point in one map on the same cells."""
    size = {"size_x": grid.shape[1] * grid.resolution, "size_y": grid.shape[0] * grid.resolution}
    x_min, y_min, x_max, y_max = grid.bounds
    whole = ElevationMap(
        dataclasses.replace(CONFIG.mapping, **size), (0.5 * (x_min + x_max), 0.5 * (y_min + y_max)), mean=0.0
    )
    points = np.concatenate([cloud(place[:2], id) for id, place in PLACES.items()])
    whole.add(points, np.full(len(points), NOISE**2))
    return whole


def test_it_equals_mapping_everything_at_once(stitched: stitching.GPGMap) -> None:
    whole = all_at_once(stitched.grid)
    np.testing.assert_allclose(whole.grid.origin, stitched.grid.origin, atol=1e-9)
    posterior = whole.posterior()
    known = ~whole.unknown(posterior) & stitched.known
    assert known.sum() > 0.97 * (~whole.unknown(posterior)).sum()
    error = (stitched["elevation"] - posterior.mean)[known] / np.sqrt(posterior.variance[known])
    # what is lost is the curvature of the ground in a cell: a millimetre where the ground is well known
    assert np.sqrt(np.mean(error**2)) < 0.45
    well = known & (posterior.variance < 0.006**2)
    assert well.sum() > 4000
    assert np.sqrt(np.mean((stitched["elevation"] - posterior.mean)[well] ** 2)) < 0.0018
    ratio = stitched["variance"][known] / posterior.variance[known]
    assert 0.97 < np.median(ratio) < 1.03
    assert np.percentile(ratio, 5) > 0.9
    slope = (stitched["gradient_x"] - posterior.gradient[..., 0])[known]
    assert np.sqrt(np.mean(slope**2 / posterior.gradient_variance[..., 0][known])) < 0.35
    # and the truth is where both say it is
    x, y = np.meshgrid(stitched.grid.x, stitched.grid.y)
    truth = terrain(np.column_stack([x.ravel(), y.ravel()])).reshape(x.shape)
    inner = stitched["variance"] < 0.01**2
    assert inner.sum() > 1000
    z = (stitched["elevation"] - truth)[inner] / np.sqrt(stitched["variance"][inner])
    assert 0.7 < np.sqrt(np.mean(z**2)) < 1.4


def test_the_kernel_and_the_learned_noise_are_those_of_the_map() -> None:
    """Blocks 0.4 m high on level ground: a smooth kernel rings beside them, and states too small a variance there."""

    def ground(xy: Array) -> Array:
        return 0.4 * ((np.abs(xy - np.round(xy / 1.6) * 1.6) < 0.25).all(axis=1)).astype(np.float64)

    rng = np.random.default_rng(4)
    xy = rng.uniform(-4.0, 4.0, (60000, 2))
    points = np.column_stack([xy, ground(xy) + rng.normal(scale=0.5 * NOISE, size=len(xy))])
    submap = submap_at(0, np.eye(4), points)
    rough = dataclasses.replace(CONFIG, mapping=MappingConfig(resolution=0.1))
    errors, beyond = {}, {}
    for name, config in (("rbf", CONFIG), ("rough", rough)):
        gpgmap = stitch([submap], {0: np.eye(4)}, config)
        x, y = np.meshgrid(gpgmap.grid.x, gpgmap.grid.y)
        at = np.column_stack([x.ravel(), y.ravel()])
        # cells a little away from the edges of blocks
        level = np.ones(x.shape, dtype=bool)
        for step in np.ndindex(3, 3):
            level &= (ground(at + 0.15 * (np.array(step) - 1)) == ground(at)).reshape(x.shape)
        level &= (np.abs(at) < 3.5).all(axis=1).reshape(x.shape)
        error = (gpgmap["elevation"] - ground(at).reshape(x.shape))[level]
        errors[name] = float(np.sqrt(np.mean(error**2)))
        beyond[name] = float(np.mean(np.abs(error) > 2.0 * np.sqrt(gpgmap["variance"][level])))
    assert errors["rough"] < 0.6 * errors["rbf"]
    assert beyond["rough"] < 0.1 < 0.3 < beyond["rbf"]


def test_a_corrected_pose_mends_the_map(
    submaps: list[Submap], poses: dict[int, Array], stitched: stitching.GPGMap
) -> None:
    drifted = dict(poses)
    drifted[2] = pose(0.5, -0.3, 0.06, z=0.1) @ poses[2]
    wrong = stitch(submaps, drifted, CONFIG)

    def error(gpgmap: stitching.GPGMap) -> float:
        x, y = np.meshgrid(gpgmap.grid.x, gpgmap.grid.y)
        near = gpgmap.known & (np.hypot(x - 4.0, y - 2.5) < 1.5)
        truth = terrain(np.column_stack([x.ravel(), y.ravel()])).reshape(x.shape)
        return float(np.sqrt(np.mean((gpgmap["elevation"] - truth)[near] ** 2)))

    assert error(wrong) > 0.08
    assert error(stitched) < 0.012


def test_tiles_join_without_a_step_on_a_hillside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slope of a quarter, seven times the prior's standard deviation high: cut small, it is the same map."""
    rng = np.random.default_rng(5)
    xy = rng.uniform(-4.0, 4.0, (30000, 2))
    hill = np.column_stack([xy, terrain(xy) + 0.25 * xy[:, 0] + rng.normal(scale=NOISE, size=len(xy))])
    submap = submap_at(0, np.eye(4), hill)
    whole = stitch([submap], {0: np.eye(4)}, CONFIG)
    monkeypatch.setattr(stitching, "TILE_CELLS", 23)
    tiles = list(stitch_tiles([submap], {0: np.eye(4)}, CONFIG))
    assert len(tiles) == 16
    cut = stitch([submap], {0: np.eye(4)}, CONFIG)
    assert cut.grid == whole.grid
    inner = whole.known & cut.known & (whole["variance"] < 0.02**2)
    assert inner.sum() > 0.8 * whole.known.size
    error = (cut["elevation"] - whole["elevation"])[inner] / np.sqrt(whole["variance"][inner])
    assert np.percentile(np.abs(error), 99) < 0.02
    slope = (cut["gradient_x"] - whole["gradient_x"])[inner] / np.sqrt(whole["gradient_x_variance"][inner])
    assert np.percentile(np.abs(slope), 99) < 0.02
    np.testing.assert_allclose(np.mean(cut["gradient_x"][inner]), 0.25, atol=0.05)


def test_the_ground_at_large_follows_hills_and_knows_its_slope() -> None:
    grid = stitching.Grid((0.0, 0.0), (100, 200), 0.5)
    rng = np.random.default_rng(1)
    xy = rng.uniform(0.0, 1.0, (20000, 2)) * [60.0, 50.0]  # nothing is known of the eastern part
    ground = CoarseGround([np.column_stack([xy, 0.4 * xy[:, 0] - 0.2 * xy[:, 1] + 300.0])], grid, 10.0)
    inner = rng.uniform(5.0, 45.0, (200, 2))
    np.testing.assert_allclose(ground.height(inner), 0.4 * inner[:, 0] - 0.2 * inner[:, 1] + 300.0, atol=2.5)
    everywhere = rng.uniform(0.0, 1.0, (200, 2)) * [99.9, 49.9]
    assert (np.abs(ground.height(everywhere) - 310.0) < 25.0).all()
    step = 1e-5
    for axis, slope in enumerate(ground.gradient(everywhere).T):
        ahead = everywhere + step * np.eye(2)[axis]
        np.testing.assert_allclose(
            slope, (ground.height(ahead) - ground.height(everywhere)) / step, atol=1e-4
        )


def test_the_slope_of_a_long_hillside_is_that_of_its_heights() -> None:
    """Longer than the nodes of the ground are apart, so that most of the slope is the ground's."""
    config = dataclasses.replace(
        CONFIG,
        mapping=dataclasses.replace(CONFIG.mapping, length_scale=0.5),
        submap=dataclasses.replace(CONFIG.submap, size=60.0),
    )
    rng = np.random.default_rng(2)
    xy = rng.uniform(-1.0, 1.0, (40000, 2)) * [28.0, 1.0]
    hill = np.column_stack([xy, 0.3 * xy[:, 0] + rng.normal(scale=NOISE, size=len(xy))])
    gpgmap = stitch([submap_at(0, np.eye(4), hill, config)], {0: np.eye(4)}, config)
    inner = (np.abs(gpgmap.grid.x)[None, :] < 26.0) & (np.abs(gpgmap.grid.y)[:, None] < 0.6)
    assert gpgmap.known[inner].all()
    np.testing.assert_allclose(gpgmap["gradient_x"][inner], 0.3, atol=0.1)
    assert abs(float(np.mean(gpgmap["gradient_x"][inner])) - 0.3) < 0.005
    x = np.broadcast_to(gpgmap.grid.x, gpgmap.grid.shape)
    np.testing.assert_allclose(gpgmap["elevation"][inner], 0.3 * x[inner], atol=0.03)


def test_only_the_submaps_with_a_pose_are_stitched(submaps: list[Submap], poses: dict[int, Array]) -> None:
    one = stitch(submaps, {1: poses[1]}, CONFIG)
    assert one.known.sum() < 0.6 * stitch(submaps, poses, CONFIG).known.sum()
    assert one.stamp == submaps[1].last_stamp
    with pytest.raises(StitchError, match="no submap has a pose"):
        stitch(submaps, {}, CONFIG)


def test_a_map_that_is_too_large_is_refused_with_the_remedy(
    submaps: list[Submap], poses: dict[int, Array]
) -> None:
    far = dict(poses) | {2: pose(5000.0, 4000.0, 0.0)}
    with pytest.raises(StitchError, match=r"cells of 1\.\d m or more, or stitch tile by tile"):
        stitch(submaps, far, CONFIG)
    # tile by tile it does, and only where there is something
    tiles = list(stitch_tiles(submaps, far, CONFIG))
    assert 2 <= len(tiles) <= 8
    assert any(tile.known[0].any() or tile.known.any() for tile in tiles)
    coarse = stitch(submaps, far, CONFIG, resolution=4.0)
    assert coarse.grid.resolution == 4.0
    assert coarse.known.any()


def test_memory_holds_a_few_submaps_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SubmapStore(tmp_path, CONFIG)
    poses = {}
    for id in range(6):
        place = (2.0 * id, 0.0)
        poses[id] = pose(*place, 0.1)
        store.add(submap_at(id, poses[id], cloud(place, id, half=1.5, count=1500)))
    monkeypatch.setattr(stitching, "KEPT", 2)
    monkeypatch.setattr(stitching, "TILE_CELLS", 30)
    stitcher = stitching.Stitcher(store, poses, CONFIG)
    tiles = 0
    for _ in stitcher:
        tiles += 1
        assert len(stitcher._cache) <= 2
    assert tiles >= 5


# ------------------------------------------------ the points that submaps keep


def test_a_window_holds_its_own_points_of_many_submaps(
    monkeypatch: pytest.MonkeyPatch, submaps: list[Submap], poses: dict[int, Array]
) -> None:
    """Of forty passes over one place each window needs the points in it, not all that reach it at once."""
    monkeypatch.setattr(stitching, "TILE_CELLS", 16)
    count = 40
    passes = [dataclasses.replace(submaps[0], id=id) for id in range(count)]
    stitcher = stitching.Stitcher(passes, dict.fromkeys(range(count), poses[0]), CONFIG)
    ground = CoarseGround((stitcher._points(part)[0] for part in stitcher._parts), stitcher.grid, 20.0)
    tile = stitcher._tile_grid(1, 1)
    assert stitcher._window(tile, 0, stitcher._parts, ground) is not None  # what is made at first
    tracemalloc.start()
    stitcher._window(tile, 0, stitcher._parts, ground)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert passes[0].points is not None
    of_submap = 4 * len(passes[0].points.variance) * np.dtype(np.float64).itemsize
    assert peak < 0.75 * count * of_submap, peak / of_submap


def test_points_keep_weight_centre_and_mean_height_of_each_cell() -> None:
    points = cloud((0.0, 0.0), 1, half=1.9, count=4000)
    points[:, :2] = np.where(points[:, :1] > 0.5, points[:, :2] * 0.5, points[:, :2])  # crowded in places
    variance = np.random.default_rng(2).uniform(0.5, 2.0, len(points)) * NOISE**2
    sums = CellSums(8.0, 0.1, 1e-9)
    for part in np.array_split(np.arange(len(points)), 3):  # cloud by cloud
        sums.add(points[part], variance[part])
    kept = sums.points()
    cell = np.floor(points[:, :2] / 0.1).astype(int)
    order = {tuple(at): n for n, at in enumerate(np.floor(kept.xyz[:, :2] / 0.1).astype(int))}
    assert len(order) == len(kept) == len(np.unique(cell, axis=0))
    of = np.array([order[tuple(at)] for at in cell])
    weight = np.bincount(of, 1.0 / variance)
    np.testing.assert_allclose(1.0 / kept.variance, weight)
    for axis in range(3):
        mean = np.bincount(of, points[:, axis] / variance) / weight
        np.testing.assert_allclose(kept.xyz[:, axis], mean, atol=1e-9)


def test_a_cell_is_never_better_known_than_the_limit() -> None:
    sums = CellSums(2.0, 0.1, 0.01**2)
    sums.add(np.tile([0.31, 0.12, 5.0], (1000, 1)), np.full(1000, 0.02**2))
    kept = sums.points()
    assert len(kept) == 1
    np.testing.assert_allclose(kept.xyz[0], [0.31, 0.12, 5.0])
    np.testing.assert_allclose(kept.variance, 0.01**2)


def test_points_outside_do_not_count_and_cells_are_forgotten() -> None:
    sums = CellSums(2.0, 0.1, 1e-9)
    grid = np.stack(np.meshgrid(np.arange(-0.95, 1.0, 0.1), np.arange(-0.95, 1.0, 0.1)), axis=-1).reshape(
        -1, 2
    )
    far = np.array([[50.0, 0.0, 1.0], [0.0, -1e7, 1.0]])
    sums.add(np.concatenate([np.column_stack([grid, np.ones(len(grid))]), far]), np.full(len(grid) + 2, 1e-4))
    assert len(sums.points()) == len(grid)
    sums.forget(np.array([[0.05, 0.05], [40.0, 40.0]]), 0.12)
    left = sums.points().xyz[:, :2]
    assert len(left) == len(grid) - 5  # the cell and its four neighbours
    assert np.hypot(*(left - 0.05).T).min() > 0.12


def test_nothing_is_nothing() -> None:
    sums = CellSums(2.0, 0.1, 1e-9)
    sums.add(np.zeros((0, 3)), np.zeros(0))
    assert len(sums.points()) == 0


# ------------------------------------------------ files


def test_the_store_keeps_statistics_and_track(tmp_path: Path, submaps: list[Submap]) -> None:
    store = SubmapStore(tmp_path, CONFIG)
    store.add(submaps[0])
    loaded = store.load(0)
    assert loaded.points is not None
    assert submaps[0].points is not None
    np.testing.assert_allclose(loaded.points.xyz, submaps[0].points.xyz, atol=1e-6)
    np.testing.assert_array_equal(loaded.track.stamps, [10])
    np.testing.assert_allclose(loaded.track.poses, [np.eye(4)])


def test_files_of_an_earlier_version_are_read_but_not_stitched(tmp_path: Path, submaps: list[Submap]) -> None:
    store = SubmapStore(tmp_path, CONFIG)
    path = store.add(submaps[0]).path
    values, arrays = read_archive(path, "submap")
    del values["format"]
    kept = {name: array for name, array in arrays.items() if not name.startswith(("points", "track"))}
    write_archive(path, "submap", values, kept)
    old = SubmapStore(tmp_path, CONFIG)
    assert old.load(0).points is None
    assert len(old.load(0).track.stamps) == 0
    with pytest.raises(StitchError, match="submap 0 was written by an earlier version"):
        stitch(old, {0: np.eye(4)}, CONFIG)
    write_archive(path, "submap", values | {"format": 3}, arrays)
    assert "format 3, this program reads up to 2" in SubmapStore(tmp_path, CONFIG).damaged[path.name]
    write_archive(path, "submap", values | {"format": 2}, kept)
    with pytest.raises(ArchiveError, match="missing"):
        SubmapStore(tmp_path, CONFIG).load(0)


def test_the_former_name_of_stitch_tiles_still_works_and_says_so() -> None:
    from gpgmap_ros import mapping

    with pytest.warns(DeprecationWarning, match=r"use gpgmap_ros\.mapping\.stitching\.stitch_tiles"):
        assert mapping.stitched_tiles is stitch_tiles
