"""Noise that the map learns by place: the layer, the intervals of measured points, and what stays as it was."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpgmap_ros.config import Config, MappingConfig
from gpgmap_ros.mapping import ElevationMap, gpgmap_from_points
from gpgmap_ros.mapping.layers import NOISE_VARIANCE

SMOOTH, COARSE, STATED = 0.01, 0.06, 0.03
"""Standard deviations of the points on the left half, on the right half, and what the sensor is said to have."""
PLAIN = MappingConfig(kernel="rbf", size_x=8.0, size_y=6.0, relief_std=0.5)
kernels = pytest.mark.parametrize("kernel", ["rbf", "matern54"])


def measured(seed: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    xy = rng.uniform([-4.0, -3.0], [4.0, 3.0], (count, 2))
    std = np.where(xy[:, 0] < 0.0, SMOOTH, COARSE)
    return np.column_stack([xy, 0.2 * np.sin(xy[:, 0]) + rng.normal(size=count) * std])


def learning_map(kernel: str, clouds: int = 1) -> ElevationMap:
    config = dataclasses.replace(PLAIN, kernel=kernel, learn_noise=True)
    out = ElevationMap(config, (0.0, 0.0))
    for seed in range(clouds):
        points = measured(seed, 20_000)
        out.add(points, np.full(len(points), STATED**2))
        out.posterior()
    return out


@kernels
def test_the_layer_says_how_far_points_scatter_where(kernel: str) -> None:
    gpgmap = learning_map(kernel, clouds=2).gpgmap()
    std = np.sqrt(gpgmap[NOISE_VARIANCE])
    assert NOISE_VARIANCE in gpgmap.layers
    assert np.median(std[:, :35]) == pytest.approx(SMOOTH, rel=0.35)
    assert np.median(std[:, 45:]) == pytest.approx(COARSE, rel=0.2)
    assert np.isfinite(std).all()


@kernels
def test_intervals_hold_their_share_of_new_points(kernel: str) -> None:
    learned = learning_map(kernel)
    stated = ElevationMap(dataclasses.replace(PLAIN, kernel=kernel, learn_noise=False), (0.0, 0.0))
    stated.add(measured(0, 20_000), np.full(20_000, STATED**2))
    new = measured(99, 6000)
    left = new[:, 0] < 0.0

    def shares(elevation_map: ElevationMap, level: float) -> tuple[float, float]:
        low, high = elevation_map.measured_interval(new[:, :2], level)
        inside = (new[:, 2] >= low) & (new[:, 2] <= high)
        return float(inside[left].mean()), float(inside[~left].mean())

    for level in (0.68, 0.95):
        for share in shares(learned, level):
            assert abs(share - level) < 0.05
    smooth, coarse = shares(stated, 0.95)
    assert smooth > 0.99, "without learning, one number serves both halves"
    assert coarse < 0.75


def test_it_is_learned_again_as_the_map_moves_and_goes_on() -> None:
    elevation_map = learning_map("rbf")
    assert elevation_map.follow(np.array([2.0, 0.0, 0.0]))
    points = measured(7, 20_000)
    elevation_map.add(points, np.full(len(points), STATED**2))
    std = np.sqrt(elevation_map.gpgmap()[NOISE_VARIANCE])
    x = elevation_map.grid.x
    assert np.median(std[:, (x > 0.5) & (x < 3.5)]) == pytest.approx(COARSE, rel=0.2)
    assert np.median(std[:, x < -0.5]) == pytest.approx(SMOOTH, rel=0.35)


def test_a_map_without_points_and_one_without_learning() -> None:
    empty = ElevationMap(dataclasses.replace(PLAIN, learn_noise=True), (0.0, 0.0))
    assert np.isnan(empty.gpgmap()[NOISE_VARIANCE]).all()
    with pytest.raises(ValueError, match="no points yet"):
        empty.measured_interval(np.zeros((1, 2)))
    plain = ElevationMap(dataclasses.replace(PLAIN, learn_noise=False), (0.0, 0.0))
    plain.add(measured(0, 3000), np.full(3000, STATED**2))
    assert NOISE_VARIANCE not in plain.gpgmap().layers
    low, high = plain.measured_interval(np.array([[0.0, 0.0]]), 0.6827)
    assert 0.5 * float(high[0] - low[0]) == pytest.approx(STATED, rel=0.1)
    with pytest.raises(ValueError, match="level"):
        plain.measured_interval(np.zeros((1, 2)), 95.0)


def test_the_function_for_points_learns_too() -> None:
    config = Config(mapping=dataclasses.replace(PLAIN, kernel="matern32", learn_noise=True))
    gpgmap = gpgmap_from_points(measured(3, 20_000), 0.1, config)
    std = np.sqrt(gpgmap[NOISE_VARIANCE])
    assert np.median(std[:, 45:]) > 2.5 * np.median(std[:, :35])


@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_a_plane_is_followed_up_to_the_edges_of_the_points(noise: float) -> None:
    """It has no relief to learn from: any level fits, and one too high would draw the slope towards the mean."""
    rng = np.random.default_rng(3)
    xy = rng.uniform(-5.0, 5.0, (3000, 2))
    z = 0.4 * xy[:, 0] - 0.2 * xy[:, 1] + noise * rng.normal(size=len(xy))
    gpgmap = gpgmap_from_points(np.column_stack([xy, z]), 0.1)
    x, y = np.meshgrid(gpgmap.grid.x, gpgmap.grid.y)
    error = (gpgmap["elevation"] - (0.4 * x - 0.2 * y)) / np.sqrt(gpgmap["variance"])
    edge = np.maximum(np.abs(x), np.abs(y)) > 4.0
    assert np.nanmean(error[edge] ** 2) < 2.0


@pytest.mark.parametrize("kernel", ["rbf", "matern54", "matern32", "matern52"])
@pytest.mark.parametrize("resolution", [0.05, 2.0])
def test_ground_is_known_some_cells_from_the_points(kernel: str, resolution: float) -> None:
    """Whatever the kernel, and in cells: not metres away, because a rough kernel has the length of hills."""
    rng = np.random.default_rng(5)
    size = 80.0 * resolution
    config = MappingConfig(
        kernel=kernel, resolution=resolution, size_x=size, size_y=size, length_scale=5.0 * resolution,
        relief_std=10.0 * resolution,
    )  # fmt: skip
    xy = rng.uniform(-0.25 * size, 0.25 * size, (8000, 2))
    z = resolution * (np.sin(xy[:, 0] / (4.0 * resolution)) + 0.1 * rng.normal(size=len(xy)))
    elevation_map = ElevationMap(config, (0.0, 0.0))
    elevation_map.add(np.column_stack([xy, z]), np.full(len(xy), (0.1 * resolution) ** 2))
    gpgmap = elevation_map.gpgmap()
    x, y = np.meshgrid(gpgmap.grid.x, gpgmap.grid.y)
    cells = (np.maximum(np.abs(x), np.abs(y)) - 0.25 * size) / resolution
    assert gpgmap.known[cells < 0.5].all()
    assert not gpgmap.known[cells > 10.0].any()


@pytest.mark.parametrize("resolution", [0.03, 0.1, 10.0])
def test_a_learned_level_makes_no_ground_unknown(resolution: float) -> None:
    """On ground far smoother than the prior the level is far above 1, though the sensor is as it was stated.

    Rings of a LiDAR, the outer ones stated to be as uncertain as a pose that is poorly known makes them.
    """
    rng = np.random.default_rng(6)
    radius, angle = np.repeat([4.0, 8.0, 12.0, 16.0, 21.0, 27.0], 400), rng.uniform(0.0, 2.0 * np.pi, 2400)
    xy = (radius + 0.05 * rng.normal(size=2400))[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    std = np.where(radius < 15.0, 0.01, 2.0)
    z = 0.1 * xy[:, 0] + 0.02 * np.sin(0.3 * xy[:, 1]) + std * rng.normal(size=2400)
    size = 70.0 * resolution
    config = MappingConfig(resolution=resolution, size_x=size, size_y=size)
    elevation_map = ElevationMap(config, (0.0, 0.0), mean=0.0)
    elevation_map.add(np.column_stack([xy, z]) * resolution, (std * resolution) ** 2)
    known = {}
    for level in (1.0, 0.1, 17.0, 100.0):
        elevation_map.set_noise_level(level)
        known[level] = ~elevation_map.unknown(elevation_map.posterior())
    row, column = np.floor(xy.T[::-1] + 35.0).astype(int)
    assert known[1.0][row, column].all()
    for level in (0.1, 17.0, 100.0):
        assert known[level][row, column].all(), "a cell that holds points is known"
        assert np.mean(known[level] != known[1.0]) < 0.05, "nor is more known because of a level"
