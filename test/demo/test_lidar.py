"""The simulated LiDAR against geometry that is known in closed form, and against Open3D's ray caster."""

from __future__ import annotations

import numpy as np
import pytest
from optional import require_open3d

from gpgmap_ros.demo.lidar import SpinningLidar, cast_rays
from gpgmap_ros.demo.terrain import Terrain, rover_terrain


def test_a_plane_is_met_where_it_is() -> None:
    y, x = np.mgrid[0:201, 0:201] * 0.1
    heights = 0.3 * x - 0.2 * y
    origin = np.array([10.0, 10.0, 4.0])
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(500, 3)) * [1, 1, 0.5] - [0, 0, 1.0]
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    ranges = cast_rays(heights, 0.1, origin, directions, 30.0)
    # height above the plane, over the speed at which the ray approaches it
    expected = (origin[2] - 0.3 * 10 + 0.2 * 10) / (
        0.3 * directions[:, 0] - 0.2 * directions[:, 1] - directions[:, 2]
    )
    hit = np.isfinite(ranges)
    assert hit.sum() > 300
    np.testing.assert_allclose(ranges[hit], expected[hit], atol=1e-4)


def test_rays_into_the_sky_or_beyond_the_edge_return_nothing() -> None:
    directions = np.array([[0, 0, 1.0], [1.0, 0, 0], [np.sqrt(0.5), 0, -np.sqrt(0.5)]])
    ranges = cast_rays(np.zeros((11, 11)), 0.1, np.array([0.5, 0.5, 5.0]), directions, 100.0)
    assert np.isnan(ranges).all()


def test_against_open3d() -> None:
    open3d = require_open3d()
    terrain = rover_terrain(np.random.default_rng(1), size=12.0, resolution=0.1)
    rows, columns = terrain.heights.shape
    y, x = np.mgrid[0:rows, 0:columns] * terrain.resolution
    vertices = np.column_stack([x.ravel(), y.ravel(), terrain.heights.ravel()]).astype(np.float32)
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
    triangles = np.concatenate(
        [np.column_stack([corner, corner + 1, corner + columns]),
         np.column_stack([corner + 1, corner + columns + 1, corner + columns])]
    ).astype(np.uint32)  # fmt: skip
    scene = open3d.t.geometry.RaycastingScene()
    scene.add_triangles(open3d.core.Tensor(vertices), open3d.core.Tensor(triangles))
    origin = np.array([6.0, 6.0, float(terrain.height_at(6.0, 6.0)) + 1.2])
    directions = SpinningLidar(turns=90).directions()
    rays = np.hstack([np.broadcast_to(origin, directions.shape), directions]).astype(np.float32)
    expected = scene.cast_rays(open3d.core.Tensor(rays))["t_hit"].numpy()
    ours = cast_rays(terrain.heights, terrain.resolution, origin, directions, 8.0)
    both = np.isfinite(ours) & np.isfinite(expected)
    assert both.sum() > 1000
    # a bilinear patch and its two triangles differ by a little; grazing rays may pass or hit a crest
    difference = np.abs(ours - expected)[both]
    assert np.median(difference) < 0.01
    assert np.mean(difference < 0.1) > 0.97


def test_rocks_cast_shadows() -> None:
    heights = np.zeros((201, 201))
    heights[95:106, 130:134] = 0.5  # a wall 3 m east of the sensor
    terrain = Terrain(heights, 0.1)
    T = np.eye(4)
    T[:3, 3] = 10.0, 10.0, 1.0
    points = SpinningLidar(noise=1e-9).scan(terrain, T, np.random.default_rng(0)) + T[:3, 3]
    behind = (points[:, 0] > 13.45) & (points[:, 0] < 15.5) & (np.abs(points[:, 1] - 10.0) < 0.3)
    beside = (points[:, 0] > 13.45) & (points[:, 0] < 15.5) & (np.abs(points[:, 1] - 12.0) < 0.3)
    assert behind.sum() == 0
    assert beside.sum() > 10


def test_noise_is_along_the_beam() -> None:
    terrain = Terrain(np.zeros((201, 201)), 0.1)
    T = np.eye(4)
    T[:3, 3] = 10.0, 10.0, 1.0
    clean, noisy = (
        SpinningLidar(noise=noise).scan(terrain, T, np.random.default_rng(0)) for noise in (1e-9, 0.05)
    )
    offset = np.linalg.norm(noisy, axis=1) - np.linalg.norm(clean, axis=1)
    assert np.std(offset) == pytest.approx(0.05, rel=0.1)
    np.testing.assert_allclose(np.cross(clean, noisy), 0.0, atol=1e-9)
