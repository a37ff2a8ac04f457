"""One cloud in, the map out: frames, filters and counts of the pipeline."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

import numpy as np
import pytest

from gpgmap_ros.config import (
    Config,
    ConfigError,
    FilterConfig,
    GateConfig,
    MappingConfig,
    NoiseConfig,
    SubmapConfig,
    with_settings,
)
from gpgmap_ros.geometry import apply, inverse, transform_from
from gpgmap_ros.mapping import ArchiveError
from gpgmap_ros.slam.first_start import compile_mapping
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline

CONFIG = Config(
    map_frame="world",
    mapping=MappingConfig(resolution=0.2, size_x=6.0, size_y=6.0, length_scale=1.0),
    filter=FilterConfig(min_range=0.5, max_range=20.0, min_height=-3.0, max_height=1.0),
    gate=GateConfig(enabled=False),
    submap=SubmapConfig(enabled=False),
)
T_MAP_SENSOR = transform_from([50.0, -20.0, 3.0], [0.05, -0.1, 0.3, 0.9])


def plane_points(rng: np.random.Generator, count: int) -> np.ndarray:
    """Points of the plane z = 1 + 0.3 (x - 50), in the map's frame."""
    xy = rng.uniform(-2.9, 2.9, (count, 2)) + T_MAP_SENSOR[:2, 3]
    return np.column_stack([xy, 1.0 + 0.3 * (xy[:, 0] - 50.0)])


def test_a_tilted_sensor_sees_the_plane_where_it_is() -> None:
    pipeline = MappingPipeline(CONFIG)
    assert pipeline.gpgmap() is None
    points = plane_points(np.random.default_rng(0), 4000)
    report = pipeline.add_cloud(apply(inverse(T_MAP_SENSOR), points), T_MAP_SENSOR, stamp=7)
    assert (report.points, report.filtered, report.outside, report.used) == (4000, 0, 0, 4000)
    gpgmap = pipeline.gpgmap()
    assert gpgmap is not None
    assert gpgmap.frame_id == "world"
    x, _ = np.meshgrid(gpgmap.grid.x, gpgmap.grid.y)
    np.testing.assert_allclose(gpgmap["elevation"], 1.0 + 0.3 * (x - 50.0), atol=0.03)
    # at the very edge the gradient is less certain
    np.testing.assert_allclose(gpgmap["gradient_x"][2:-2, 2:-2], 0.3, atol=0.05)


def test_every_point_is_accounted_for() -> None:
    sensor = T_MAP_SENSOR[:3, 3]
    # too near, tree, ground, off the map, ground again in the same voxel, no return
    offsets = np.array(
        [[0.1, 0, 0], [1, 0, 2.0], [1.01, 0.01, -1.99], [10.0, 0, -2.0], [1.02, 0.02, -1.98], [np.nan, 0, 0]]
    )
    config = dataclasses.replace(CONFIG, filter=dataclasses.replace(CONFIG.filter, voxel_size=0.05))
    report = MappingPipeline(config).add_cloud(
        apply(inverse(T_MAP_SENSOR), sensor + offsets), T_MAP_SENSOR, stamp=1
    )
    counts = dataclasses.asdict(report)
    expected = {"points": 6, "used": 1, "outside": 1, "not_finite": 1, "range": 1, "height": 1, "thinned": 1}
    assert {name: count for name, count in counts.items() if count} == expected
    assert report.points == report.filtered + report.outside + report.used


def test_the_stamp_is_that_of_the_newest_cloud() -> None:
    pipeline = MappingPipeline(CONFIG)
    points = apply(inverse(T_MAP_SENSOR), plane_points(np.random.default_rng(1), 50))
    for stamp in (10, 30, 20):
        pipeline.add_cloud(points, T_MAP_SENSOR, stamp)
    gpgmap = pipeline.gpgmap()
    assert gpgmap is not None
    assert gpgmap.stamp == 30


def test_two_clouds_know_more_than_one() -> None:
    pipeline = MappingPipeline(CONFIG)
    rng = np.random.default_rng(2)
    variances = []
    for stamp in range(2):
        pipeline.add_cloud(apply(inverse(T_MAP_SENSOR), plane_points(rng, 300)), T_MAP_SENSOR, stamp)
        gpgmap = pipeline.gpgmap()
        assert gpgmap is not None
        variances.append(gpgmap["variance"])
    assert (variances[1] < variances[0]).mean() > 0.99


# ------------------------------------------------ a flat world of 3 x 3 m around the robot, seen from 1 m above

FLAT = Config(
    mapping=MappingConfig(resolution=0.1, size_x=3.0, size_y=3.0, length_scale=0.4, relief_std=0.5),
    filter=FilterConfig(min_range=0.2, max_range=20.0),
    gate=GateConfig(enabled=False),
    submap=SubmapConfig(enabled=False),
)
GATED = dataclasses.replace(
    FLAT, gate=GateConfig(enabled=True, confirmations=3, refresh_period=0.0, threshold=4.0, tolerance=0.15)
)
ABOVE = transform_from([0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0])


def flat_cloud(seed: int, count: int = 9000, box: float = 0.0) -> np.ndarray:
    """Sensor-frame points of the ground at z = 0, with a box of the given height on x, y in [0.3, 1.1]."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform(-1.5, 1.5, (count, 2))
    z = np.where((np.abs(xy - 0.7) < 0.4).all(axis=1), box, 0.0) + rng.normal(0.0, 0.01, count)
    return np.column_stack([xy, z - 1.0])


def heights(pipeline: MappingPipeline) -> tuple[float, float]:
    """Elevation in the middle of the box, and of the ground far from it."""
    gpgmap = pipeline.gpgmap()
    assert gpgmap is not None
    return float(gpgmap["elevation"][22, 22]), float(gpgmap["elevation"][5, 5])


def test_a_passing_object_leaves_no_trace_and_a_lasting_change_is_learned() -> None:
    pipeline = MappingPipeline(GATED)
    for stamp in range(1, 5):
        pipeline.add_cloud(flat_cloud(stamp), ABOVE, stamp)
    passing = [pipeline.add_cloud(flat_cloud(10 + k, box=0.6), ABOVE, 10 + k) for k in range(2)]
    assert all(report.held > 100 for report in passing)
    assert all(report.released == 0 for report in passing)
    np.testing.assert_allclose(heights(pipeline), (0.0, 0.0), atol=0.02)
    gone = pipeline.add_cloud(flat_cloud(20), ABOVE, 20)
    assert gone.held == 0
    lasting = [pipeline.add_cloud(flat_cloud(30 + k, box=0.6), ABOVE, 30 + k) for k in range(8)]
    assert [report.released > 0 for report in lasting[:3]] == [False, False, True]
    # Without forgetting, five clouds of ground would weigh against six of the box. The smooth prior swings over by
    # a tenth on a box that is two length scales wide.
    np.testing.assert_allclose(heights(pipeline), (0.6, 0.0), atol=0.1)


def test_without_the_gate_the_past_weighs_as_much_as_the_present() -> None:
    pipeline = MappingPipeline(FLAT)
    for stamp in range(1, 5):
        pipeline.add_cloud(flat_cloud(stamp, box=0.6 if stamp > 2 else 0.0), ABOVE, stamp)
    assert heights(pipeline)[0] == pytest.approx(0.3, abs=0.05)


def test_a_wall_is_an_edge_and_not_a_change() -> None:
    """The smooth map misses a step of a metre by half of it: that must not look like news for ever."""
    pipeline = MappingPipeline(GATED)
    reports = []
    for stamp in range(1, 16):
        cloud = flat_cloud(stamp)
        cloud[cloud[:, 0] > 0.5, 2] += 1.0
        reports.append(pipeline.add_cloud(cloud, ABOVE, stamp))
    assert sum(report.held for report in reports[5:]) < 0.01 * sum(report.points for report in reports[5:])
    assert sum(report.released for report in reports[5:]) == 0


def test_the_map_follows_the_robot_unless_told_to_stay() -> None:
    ahead = transform_from([2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0])
    for rolling, x in ((True, 2.0), (False, 0.0)):
        config = dataclasses.replace(FLAT, mapping=dataclasses.replace(FLAT.mapping, rolling=rolling))
        pipeline = MappingPipeline(config)
        assert not pipeline.add_cloud(flat_cloud(0), ABOVE, 1).moved
        report = pipeline.add_cloud(flat_cloud(1), ahead, 2)
        assert report.moved == rolling
        gpgmap = pipeline.gpgmap()
        assert gpgmap is not None
        assert float(np.mean(gpgmap.grid.x)) == pytest.approx(x)
        assert gpgmap.known.mean() > 0.9


def test_an_uncertain_pose_makes_an_uncertain_map() -> None:
    """5 cm of unknown height of the sensor are at least 5 cm in the map, however many points one cloud has."""
    std = []
    for covariance in (None, np.diag([0.0, 0.0, 0.05**2, 0.0, 0.0, 0.0])):
        pipeline = MappingPipeline(FLAT)
        pipeline.add_cloud(flat_cloud(0, 20_000), ABOVE, 1, pose_covariance=covariance)
        gpgmap = pipeline.gpgmap()
        assert gpgmap is not None
        std.append(float(np.sqrt(np.median(gpgmap["variance"]))))
    assert std[0] < 0.02
    assert 0.03 < std[1] < 0.08


def test_what_a_clouds_points_have_in_common_is_not_averaged_away() -> None:
    config = dataclasses.replace(FLAT, noise=NoiseConfig(common_std=0.03))
    pipeline = MappingPipeline(config)
    for count in (2000, 40_000):
        pipeline.reset()
        pipeline.add_cloud(flat_cloud(0, count), ABOVE, 1)
        gpgmap = pipeline.gpgmap()
        assert gpgmap is not None
        assert 0.02 < float(np.sqrt(np.median(gpgmap["variance"]))) < 0.05


def test_a_robot_that_stands_still_keeps_a_map_that_can_change() -> None:
    """The same cloud a thousand times over is no more than the finest knowledge; then the world weighs as much."""
    finest = 0.01
    pipeline = MappingPipeline(with_settings(FLAT, {"mapping.finest_std": finest}))
    cloud = flat_cloud(0)
    for stamp in range(1, 1001):
        pipeline.add_cloud(cloud, ABOVE, stamp)
    gpgmap = pipeline.gpgmap()
    assert gpgmap is not None
    assert 0.3 * finest < float(np.sqrt(np.median(gpgmap["variance"]))) < 1.1 * finest
    for stamp in range(2000, 2080):
        pipeline.add_cloud(cloud + np.array([0.0, 0.0, 0.1]), ABOVE, stamp)
    np.testing.assert_allclose(heights(pipeline), 0.1, atol=0.02)


def test_reset_forgets() -> None:
    pipeline = MappingPipeline(FLAT)
    pipeline.add_cloud(flat_cloud(0), ABOVE, 5)
    pipeline.reset()
    assert pipeline.gpgmap() is None
    pipeline.add_cloud(flat_cloud(0)[:100], ABOVE, 3)
    gpgmap = pipeline.gpgmap()
    assert gpgmap is not None
    assert gpgmap.stamp == 3


NOT_RIGID = np.diag([1.0, 1.0, 2.0, 1.0])
MIRROR = np.diag([1.0, 1.0, -1.0, 1.0])
FAR = transform_from([1e9, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("pose", "covariance", "message"),
    [
        (np.full((4, 4), np.nan), None, "T_map_sensor must be a finite"),
        (np.eye(3), None, "T_map_sensor must be a finite 4 x 4"),
        (NOT_RIGID, None, "not a rotation matrix"),
        (MIRROR, None, "not a rotation matrix"),
        (FAR, None, "1e\\+09 m away"),
        (ABOVE, np.full((6, 6), np.nan), "covariance is not finite"),
    ],
)
def test_an_absurd_pose_is_refused_and_changes_nothing(
    pose: np.ndarray, covariance: np.ndarray | None, message: str
) -> None:
    pipeline = MappingPipeline(FLAT)
    pipeline.add_cloud(flat_cloud(0), ABOVE, 1)
    before = pipeline.gpgmap()
    with pytest.raises(ValueError, match=message):
        pipeline.add_cloud(flat_cloud(1), pose, 2, pose_covariance=covariance)
    with pytest.raises(ValueError, match=r"points must be floats of shape \(N, 3\)"):
        pipeline.add_cloud(np.zeros((5, 2)), ABOVE, 2)
    after = pipeline.gpgmap()
    assert before is not None
    assert after is not None
    assert after.stamp == 1
    np.testing.assert_array_equal(before["elevation"], after["elevation"])


def test_rubbish_is_refused_or_ignored_and_never_changes_the_map() -> None:
    """Clouds and poses out of the random number generator: ValueError or no point used, and the map as it was."""
    rng = np.random.default_rng(11)
    pipeline = MappingPipeline(GATED)
    for stamp in (1, 2):
        pipeline.add_cloud(flat_cloud(stamp), ABOVE, stamp)
    before = pipeline.gpgmap()
    assert before is not None
    scales = np.array([1e-30, 0.01, 1e6, 1e30, 1e200, np.inf, np.nan])
    refused = 0
    for _ in range(300):
        cloud = rng.normal(size=(rng.integers(0, 20), 3)) * rng.choice(scales, (1, 3))
        if rng.random() < 0.5:
            pose = rng.normal(size=(4, 4)) * rng.choice(scales)
        else:  # a true pose, far above everything
            pose = transform_from([0.0, 0.0, 1e4], rng.normal(size=4))
        covariance = rng.normal(size=(6, 6)) * rng.choice(scales) if rng.random() < 0.3 else None
        try:
            assert pipeline.add_cloud(cloud, pose, 3, covariance).used == 0
        except ValueError:
            refused += 1
    assert 50 < refused < 290
    after = pipeline.gpgmap()
    assert after is not None
    assert after.grid == before.grid
    np.testing.assert_array_equal(after["elevation"], before["elevation"])
    assert pipeline.fallbacks == 0
    assert pipeline.disputed == 0


def test_points_may_come_in_any_float_layout() -> None:
    cloud = flat_cloud(0, 500).astype(np.float32)
    padded = np.zeros((500, 4), dtype=np.float32)
    padded[:, :3] = cloud
    frozen = cloud.copy()
    frozen.flags.writeable = False
    for same in (
        cloud,
        padded[:, :3],
        frozen,
        cloud.astype(">f4"),
        cloud.astype(np.float64),
        np.asfortranarray(cloud),
    ):
        pipeline = MappingPipeline(FLAT)
        assert pipeline.add_cloud(same, ABOVE, 1).used == 500
    with pytest.raises(ValueError, match="points must be floats"):
        MappingPipeline(FLAT).add_cloud(cloud.astype(np.int32), ABOVE, 1)


def test_clouds_without_a_single_good_point_change_nothing() -> None:
    pipeline = MappingPipeline(GATED)
    for stamp, cloud in enumerate((np.empty((0, 3)), np.full((10, 3), np.nan), np.zeros((4, 3))), 1):
        report = pipeline.add_cloud(cloud, ABOVE, stamp)
        assert (report.used, report.filtered) == (0, len(cloud))
    gpgmap = pipeline.gpgmap()
    assert gpgmap is not None
    assert not gpgmap.known.any()


# ------------------------------------------------ settings at run time, files


def test_settings_that_may_change_do_and_the_others_are_refused() -> None:
    pipeline = MappingPipeline(FLAT)
    pipeline.add_cloud(flat_cloud(0), ABOVE, 1)
    pipeline.reconfigure(with_settings(FLAT, {"filter.max_range": 1.2, "traversability.max_slope": 0.1}))
    report = pipeline.add_cloud(flat_cloud(1), ABOVE, 2)
    assert report.range > 1000
    gpgmap = pipeline.gpgmap()
    assert gpgmap is not None
    assert gpgmap.config.traversability.max_slope == 0.1
    before = pipeline.config
    with pytest.raises(ConfigError, match=r"mapping.resolution: cannot change while a map is being made"):
        pipeline.reconfigure(with_settings(before, {"mapping.resolution": 0.2, "filter.max_range": 9.0}))
    assert pipeline.config is before


def files(tmp_path: Path) -> Config:
    return dataclasses.replace(FLAT, map_folder=str(tmp_path / "maps"))


def test_a_saved_map_comes_back_and_goes_on_as_if_it_had_never_been_away(tmp_path: Path) -> None:
    config = files(tmp_path)
    first, second = MappingPipeline(config), MappingPipeline(config)
    first.add_cloud(flat_cloud(0, box=0.3), ABOVE, 7)
    path = first.save("yard")
    assert path == tmp_path / "maps" / "yard.npz"
    second.add_cloud(flat_cloud(5), transform_from([50.0, 0.0, 3.0], [0.0, 0.0, 0.0, 1.0]), 99)
    second.load("yard")
    for stamp in (8, 9):
        a, b = first.gpgmap(), second.gpgmap()
        assert a is not None
        assert b is not None
        assert a.stamp == b.stamp
        assert a.grid == b.grid
        for name in ("elevation", "variance", "gradient_x", "gradient_y_variance"):
            np.testing.assert_allclose(a[name], b[name], rtol=1e-3, atol=1e-5)
        for pipeline in (first, second):
            pipeline.add_cloud(flat_cloud(stamp), ABOVE, stamp)


def test_what_cannot_be_loaded_changes_nothing(tmp_path: Path) -> None:
    pipeline = MappingPipeline(files(tmp_path))
    with pytest.raises(ArchiveError, match="there is no map yet"):
        pipeline.save("yard")
    pipeline.add_cloud(flat_cloud(0), ABOVE, 7)
    path = pipeline.save("yard")
    before = heights(pipeline)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    other = with_settings(files(tmp_path), {"mapping.rough_length": 20.0, "map_frame": "elsewhere"})
    elsewhere = MappingPipeline(other)
    for name, message in (
        ("yard", "damaged"),
        ("none", "no such file"),
        ("../yard", "is not a valid map name"),
    ):
        with pytest.raises(ArchiveError, match=message):
            pipeline.load(name)
    path.write_bytes(whole)
    message = r"other settings: map_frame odom \(here elsewhere\), mapping.rough_length"
    with pytest.raises(ArchiveError, match=message):
        elsewhere.load("yard")
    assert elsewhere.gpgmap() is None
    assert heights(pipeline) == before


def test_without_a_folder_nothing_is_written() -> None:
    pipeline = MappingPipeline(FLAT)
    pipeline.add_cloud(flat_cloud(0), ABOVE, 1)
    for act in (pipeline.save, pipeline.load):
        with pytest.raises(ArchiveError, match="set map_folder"):
            act("yard")


def test_compiling_leaves_no_trace(tmp_path: Path) -> None:
    compile_mapping(files(tmp_path))
    assert not (tmp_path / "maps").exists()
    pipeline = MappingPipeline(files(tmp_path))
    with pytest.warns(DeprecationWarning, match=r"use gpgmap_ros\.slam\.first_start\.compile_mapping"):
        pipeline.warm_up()
    assert pipeline.gpgmap() is None


def test_the_old_home_still_gives_the_pipeline_with_a_warning() -> None:
    old = importlib.import_module("gpgmap_ros.pipeline")
    with pytest.warns(DeprecationWarning, match=r"use gpgmap_ros\.slam\.MappingPipeline"):
        assert old.MappingPipeline is MappingPipeline
