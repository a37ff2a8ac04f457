"""The whole pipeline on a drive over real relief with rocks: right, honest, not fooled by edges or poses."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.demo.drive import Frame, drive, sensor_mount, start_pose
from gpgmap_ros.demo.terrain import Terrain, rover_terrain
from gpgmap_ros.geometry import apply
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline

CONFIG = with_settings(
    Config(),
    {
        "mapping.size_x": 10.0,
        "mapping.size_y": 10.0,
        "mapping.length_scale": 0.4,
        "mapping.relief_std": 0.7,
        "filter.max_range": 12.0,
        "submap.size": 16.0,
        "submap.resolution": 0.1,
        "submap.length_scale": 0.4,
        "submap.max_distance": 8.0,
    },
)


@pytest.fixture(scope="module")
def terrain() -> Terrain:
    return rover_terrain(np.random.default_rng(7))


@pytest.fixture(scope="module")
def frames(terrain: Terrain) -> list[Frame]:
    return list(drive(terrain, np.random.default_rng(8), duration=15.0, rate=2.0))


def errors(gpgmap: GPGMap, T_world_map: np.ndarray, terrain: Terrain) -> tuple[np.ndarray, np.ndarray]:
    """Elevation less truth, and its standard deviation, at the known cells."""
    known = gpgmap.known
    x, y = np.meshgrid(gpgmap.grid.x, gpgmap.grid.y)
    cells = apply(T_world_map, np.column_stack([x[known], y[known], gpgmap["elevation"][known]]))
    return cells[:, 2] - terrain.height_at(cells[:, 0], cells[:, 1]), np.sqrt(gpgmap["variance"][known])


def test_map_and_submaps_of_a_drive_are_the_terrain(terrain: Terrain, frames: list[Frame]) -> None:
    pipeline = MappingPipeline(CONFIG)
    submaps, held, points = [], 0, 0
    for frame in frames:
        stamp = round(frame.time * 1e9) + 1
        pose = frame.T_odom_base @ sensor_mount()
        report = pipeline.add_cloud(frame.points, pose, stamp, T_base_sensor=sensor_mount())
        held, points = held + report.held, points + report.points
        submaps += [report.submap] if report.submap else []
    assert held < 1e-3 * points  # rocks have edges: they are not change
    gpgmap = pipeline.gpgmap()
    assert gpgmap is not None
    error, std = errors(gpgmap, start_pose(terrain), terrain)
    assert gpgmap.known.mean() > 0.9
    assert np.sqrt(np.mean(error**2)) < 0.04
    assert np.mean(np.abs(error) < 2.0 * std) > 0.85
    rest = pipeline.finish_submap()
    assert rest is not None
    submaps.append(rest)
    assert [submap.ended_by for submap in submaps] == ["distance", "distance", "request"]
    for submap in submaps:
        error, _ = errors(submap.gpgmap, start_pose(terrain) @ submap.T_map_submap, terrain)
        assert np.median(np.abs(error)) < 0.01
        assert np.sqrt(np.mean(error**2)) < 0.06


def test_a_shaky_pose_that_says_so_gives_an_honest_map(terrain: Terrain, frames: list[Frame]) -> None:
    """3 cm and 0.3 deg of error at every cloud: with the covariance the map knows, without it does not."""
    stds = np.array([0.0, 0.0, 0.03, 0.005, 0.005, 0.0])
    config = with_settings(CONFIG, {"submap.enabled": False})
    share, rms = [], []
    for covariance in (np.diag(stds**2), None):
        rng = np.random.default_rng(1)
        pipeline = MappingPipeline(config)
        for frame in frames:
            wrong = rng.normal(size=6) * stds
            pose = frame.T_odom_base @ sensor_mount()
            pose[:3, 3] += wrong[:3]
            pose[:3, :3] = Rotation.from_rotvec(wrong[3:]).as_matrix() @ pose[:3, :3]
            pipeline.add_cloud(frame.points, pose, round(frame.time * 1e9) + 1, covariance, sensor_mount())
        gpgmap = pipeline.gpgmap()
        assert gpgmap is not None
        error, std = errors(gpgmap, start_pose(terrain), terrain)
        share.append(np.mean(np.abs(error) < 2.0 * std))
        rms.append(np.sqrt(np.mean(error**2)))
    assert share[0] > 0.9, share
    assert share[1] < share[0] - 0.08, "it does not know, whatever it learns from the scatter"
    assert rms[0] < 1.1 * rms[1], "knowing the errors costs no accuracy"
