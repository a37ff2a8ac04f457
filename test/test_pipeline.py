"""One cloud in, the map out: frames, filters and counts of the pipeline."""

from __future__ import annotations

import numpy as np

from gpgmap_ros.config import Config, FilterConfig, MappingConfig
from gpgmap_ros.geometry import apply, inverse, transform_from
from gpgmap_ros.pipeline import MappingPipeline

CONFIG = Config(
    map_frame="world",
    mapping=MappingConfig(resolution=0.2, size_x=6.0, size_y=6.0, length_scale=1.0),
    filter=FilterConfig(min_range=0.5, max_range=20.0, min_height=-3.0, max_height=1.0),
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
    np.testing.assert_allclose(gpgmap["gradient_x"], 0.3, atol=0.05)


def test_every_point_is_accounted_for() -> None:
    sensor = T_MAP_SENSOR[:3, 3]
    offsets = np.array(
        [[0.1, 0, 0], [1, 0, 2.0], [1, 0, -2.0], [10.0, 0, -2.0]]
    )  # self, tree, ground, off the map
    pipeline = MappingPipeline(CONFIG)
    report = pipeline.add_cloud(apply(inverse(T_MAP_SENSOR), sensor + offsets), T_MAP_SENSOR, stamp=1)
    assert (report.points, report.filtered, report.outside, report.used) == (4, 2, 1, 1)


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
