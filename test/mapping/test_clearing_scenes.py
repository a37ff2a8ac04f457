"""Visibility clearing with a simulated LiDAR: what leaves is taken out of the map, and what stays is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gpgmap_ros.arrays import Array
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.demo.lidar import SpinningLidar
from gpgmap_ros.demo.terrain import Terrain
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline

CELL = 0.05
LIDAR = SpinningLidar(turns=540, max_range=9.0)
STD = 0.01, np.radians(0.1)
"""Of the poses, in metres and radians, which the pipeline is told."""
COVARIANCE = np.diag([STD[0] ** 2] * 3 + [STD[1] ** 2] * 3)
Box = tuple[float, float, float, float, float]


def terrain(*boxes: Box) -> Terrain:
    """Ground that is not quite level, with boxes on it: x and y from and to, height."""
    at = np.arange(0.0, 20.0 + CELL, CELL)
    x, y = np.meshgrid(at, at)
    heights = 0.1 * np.sin(0.6 * x) + 0.1 * np.cos(0.5 * y)
    for x_0, x_1, y_0, y_1, height in boxes:
        heights[(x >= x_0) & (x <= x_1) & (y >= y_0) & (y <= y_1)] += height
    return Terrain(heights, CELL)


def drive(
    scene: Callable[[int], Terrain],
    clouds: int,
    change: Callable[[int, Array, Array], Array] = lambda _, points, __: points,
    speed: float = 0.1,
) -> tuple[GPGMap, list[int]]:
    """The map after a drive along y = 8, and how many cells each cloud cleared."""
    rng, noise = np.random.default_rng(5), np.random.default_rng(6)
    given = {"clearing.enabled": True, "submap.enabled": False, "mapping.rolling": False}
    pipeline = MappingPipeline(with_settings(Config(), given))
    cleared = []
    for k in range(clouds):
        T = np.eye(4)
        T[:3, 3] = 8.0 + speed * k, 8.0, 1.2
        points = change(k, LIDAR.scan(scene(k), T, rng), T[:3, 3])
        stated = T.copy()
        stated[:3, 3] += noise.normal(0.0, STD[0], 3)
        w = noise.normal(0.0, STD[1], 3)
        stated[:3, :3] += np.array([[0.0, -w[2], w[1]], [w[2], 0.0, -w[0]], [-w[1], w[0], 0.0]])
        stamp = 1_000_000_000 + k * 100_000_000
        cleared.append(pipeline.add_cloud(points.astype(np.float32), stated, stamp, COVARIANCE).cleared)
    gpgmap = pipeline.gpgmap()
    assert gpgmap is not None
    return gpgmap, cleared


def height_off(gpgmap: GPGMap, area: tuple[float, float, float, float], truth: Terrain) -> Array:
    """How much too high the map is in an area, x and y from and to, NaN where nothing is known."""
    grid = gpgmap.grid
    in_x = (grid.x >= area[0]) & (grid.x <= area[1])
    in_y = (grid.y >= area[2]) & (grid.y <= area[3])
    x, y = np.meshgrid(grid.x[in_x], grid.y[in_y])
    return np.asarray(gpgmap["elevation"])[np.ix_(in_y, in_x)] - truth.height_at(x, y)


VEHICLE = 11.0, 13.0, 10.0, 11.2, 1.5
AROUND = 10.5, 13.5, 9.5, 11.7


def test_a_vehicle_that_parked_and_left_is_gone_after_a_few_clouds() -> None:
    parked, empty = terrain(VEHICLE), terrain()
    there, _ = drive(lambda _: parked, 15)
    assert np.nanmax(height_off(there, AROUND, empty)) > 1.0
    gone, _ = drive(lambda k: parked if k < 15 else empty, 30)
    assert np.nanmax(height_off(gone, AROUND, empty)) < 0.15


BUSH = 10.5, 11.5, 9.5, 10.5, 0.8


def in_a_bush(k: int, points: Array, sensor: Array) -> Array:
    """A third of the rays that would pass through a bush end in it."""
    rng = np.random.default_rng(200 + k)
    share = np.arange(0.0, 1.0, 0.005)
    at = sensor + share[:, None] * points[:, None]
    x_0, x_1, y_0, y_1, height = BUSH
    inside = (at[..., 0] > x_0) & (at[..., 0] < x_1) & (at[..., 1] > y_0) & (at[..., 1] < y_1)
    inside &= at[..., 2] < height
    hit = inside.any(axis=1) & (rng.random(len(points)) < 1.0 / 3.0)
    first = np.argmax(inside, axis=1) + rng.random(len(points)) * inside.sum(axis=1)
    return np.where(hit[:, None], share[np.minimum(first.astype(int), 199)][:, None] * points, points)


def test_what_rays_pass_through_and_also_hit_stays() -> None:
    empty = terrain()
    _, cleared = drive(lambda _: empty, 60, in_a_bush, speed=0.02)
    assert sum(cleared) == 0


@pytest.mark.parametrize(
    "boxes",
    [
        pytest.param([(9.0, 18.0, 9.0, 9.1, 0.8)], id="wall along the way"),
        pytest.param([(x, x + 0.05, 9.0, 9.05, 1.0) for x in np.arange(9.0, 16.0, 0.8)], id="posts"),
        pytest.param([(x, x, 9.0, 9.0, 0.8) for x in 0.2 * np.arange(45, 85)], id="fence"),
        pytest.param(
            [(9.0 + d, 9.0 + d + 0.1, 8.6 + 0.1 * d, 8.65 + 0.1 * d, 0.5) for d in np.arange(0.0, 7.0, 0.1)],
            id="edge at a grazing angle",
        ),
        pytest.param(
            [(6.0, 18.0, 9.0 + 0.05 * i, 9.0 + 0.05 * i, 0.6 - 0.05 * abs(i)) for i in range(-11, 12)],
            id="ridge",
        ),
    ],
)
def test_thin_edges_that_rays_pass_beside_stay(boxes: list[Box]) -> None:
    scene = terrain(*boxes)
    _, cleared = drive(lambda _: scene, 50, speed=0.15)
    assert sum(cleared) == 0
