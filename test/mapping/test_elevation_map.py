"""The elevation map on terrain whose truth is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpgmap_ros.config import Config, MappingConfig, with_settings
from gpgmap_ros.mapping import ElevationMap, GPGMap, gpgmap_from_points
from gpgmap_ros.mapping.elevation_map import map_around


def hills(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 0.3 * np.sin(1.3 * x) + 0.2 * np.cos(0.9 * y)


def hill_points(rng: np.random.Generator, count: int, half: float, noise: float = 0.02) -> np.ndarray:
    xy = rng.uniform(-half, half, (count, 2))
    return np.column_stack([xy, hills(*xy.T) + rng.normal(0, noise, count)])


SMOOTH = MappingConfig(kernel="rbf", learn_noise=False, resolution=0.1, length_scale=0.8, relief_std=0.5)
CONFIG = dataclasses.replace(SMOOTH, size_x=5.0, size_y=4.0)


def mapped(points: np.ndarray, config: MappingConfig = CONFIG) -> GPGMap:
    elevation_map = ElevationMap(config, centre=(0.0, 0.0))
    elevation_map.add(points, np.full(len(points), 0.02**2))
    return elevation_map.gpgmap()


ROUGH = dataclasses.replace(CONFIG, kernel="matern32")


@pytest.mark.parametrize("config", [CONFIG, dataclasses.replace(CONFIG, kernel="matern52")])
def test_elevation_and_gradient_are_right_and_know_how_right(config: MappingConfig) -> None:
    gpgmap = mapped(hill_points(np.random.default_rng(0), 8000, 3.0), config)
    x, y = np.meshgrid(gpgmap.grid.x, gpgmap.grid.y)
    error = gpgmap["elevation"] - hills(x, y)
    std = np.sqrt(gpgmap["variance"])
    assert gpgmap.known.all()
    assert np.sqrt(np.mean(error**2)) < 0.01
    assert 0.90 < np.mean(np.abs(error) < 2 * std) <= 1.0
    for axis, truth in (("x", 0.39 * np.cos(1.3 * x)), ("y", -0.18 * np.sin(0.9 * y))):
        error, std = gpgmap[f"gradient_{axis}"] - truth, np.sqrt(gpgmap[f"gradient_{axis}_variance"])
        assert np.sqrt(np.mean(error**2)) < 0.05
        assert 0.90 < np.mean(np.abs(error) < 2 * std) <= 1.0
    np.testing.assert_allclose(
        gpgmap["gradient_magnitude"], np.hypot(gpgmap["gradient_x"], gpgmap["gradient_y"]), rtol=1e-5
    )


def test_the_approximate_posterior_is_within_the_noise_and_changes_nothing() -> None:
    points = hill_points(np.random.default_rng(5), 4000, 3.0)
    seen = points[np.hypot(points[:, 0] - 0.5, points[:, 1]) > 0.7]  # a hole as wide as a length scale
    elevation_map = ElevationMap(CONFIG, centre=(0.0, 0.0))
    elevation_map.add(seen, np.full(len(seen), 0.1**2))
    approximate = elevation_map.approximate_posterior()
    surface = elevation_map.posterior()
    assert elevation_map.approximate_posterior() is surface, "the surface is there: there is nothing to save"
    off = np.abs(approximate.mean - surface.mean) / np.sqrt(surface.variance + 0.1**2)
    assert np.quantile(off, 0.99) < 0.3
    assert off.max() < 1.0
    assert np.quantile(np.abs(approximate.gradient - surface.gradient), 0.99) < 0.1
    np.testing.assert_array_equal(elevation_map.unknown(approximate), elevation_map.unknown(surface))
    elevation_map.add(seen + np.array([0.0, 0.0, 1.0]), np.full(len(seen), 0.01**2))
    assert np.median(elevation_map.approximate_posterior().mean - surface.mean) > 0.9, (
        "new points are in the next one"
    )


def test_comparing_points_with_a_rough_map_leaves_nothing_undone() -> None:
    rng = np.random.default_rng(5)
    config = dataclasses.replace(ROUGH, learn_noise=False)
    compared, other = (ElevationMap(config, centre=(0.0, 0.0)) for _ in range(2))
    for n in (20_000, 600, 600, 600):
        points = hill_points(rng, n, 3.0)
        compared.add(points, np.full(n, 0.02**2))
        other.add(points, np.full(n, 0.02**2))
        surface = compared.approximate_posterior()
    expected, whole = other.posterior(), compared.posterior()
    known = expected.variance < 0.01
    ratio = surface.variance[known] / expected.variance[known]
    assert np.median(ratio) > 1.03, "nobody waits for variances that are too large"
    assert np.abs(surface.mean - expected.mean)[known].max() < 0.001
    assert np.median(whole.variance[known] / expected.variance[known]) < 1.01
    assert compared.posterior() is whole


def test_ground_seen_since_the_last_surface_is_known_in_the_next() -> None:
    rng = np.random.default_rng(6)
    config = dataclasses.replace(ROUGH, size_x=12.0, size_y=6.0)
    compared, other = (ElevationMap(config, centre=(0.0, 0.0)) for _ in range(2))
    for x in (
        -4.5,
        -3.0,
        -1.5,
        0.0,
        1.5,
        3.0,
    ):  # as a sensor drives on: each time more ground than is known so far
        points = hill_points(rng, 8_000, 2.4) * [0.5, 1.0, 1.0] + [x, 0.0, 0.0]
        compared.add(points, np.full(len(points), 0.02**2))
        other.add(points, np.full(len(points), 0.02**2))
        surface = compared.approximate_posterior()
    expected = ~other.unknown(other.posterior())
    assert expected.mean() > 0.4
    assert (expected & compared.unknown(surface)).sum() < 0.01 * expected.sum()


def test_boulders_are_mapped_better_with_the_rough_kernel() -> None:
    rng = np.random.default_rng(2)
    centres, radii = rng.uniform(-2.4, 2.4, (40, 2)), rng.uniform(0.1, 0.3, 40)

    def boulders(xy: np.ndarray) -> np.ndarray:
        squared = radii**2 - ((xy[:, None] - centres) ** 2).sum(axis=2)
        return np.sqrt(np.maximum(squared, 0.0)).max(axis=1)

    xy = rng.uniform(-2.5, 2.5, (12000, 2))
    z = boulders(xy)
    error, outside = {}, {}
    for config in (
        MappingConfig(size_x=5.0, size_y=5.0, kernel="rbf", learn_noise=False),
        MappingConfig(size_x=5.0, size_y=5.0),
    ):
        gpgmap = mapped(np.column_stack([xy, z + rng.normal(0.0, 0.01, len(z))]), config)
        off = gpgmap["elevation"].ravel() - boulders(gpgmap.grid.centers.reshape(-1, 2))
        error[config.kernel] = float(np.sqrt(np.mean(off**2)))
        outside[config.kernel] = float(np.mean(np.abs(off) > 2.0 * np.sqrt(gpgmap["variance"].ravel())))
    assert error["matern54"] < 0.8 * error["rbf"], error
    assert outside["matern54"] < 0.5 * outside["rbf"], outside


def test_unknown_is_nan_and_its_variance_is_the_priors() -> None:
    points = hill_points(np.random.default_rng(1), 3000, 3.0)
    gpgmap = mapped(points[points[:, 0] < -0.5])
    x, _ = np.meshgrid(gpgmap.grid.x, gpgmap.grid.y)
    far = x > -0.5 + 3.0 * CONFIG.length_scale
    assert far.any()
    for layer in ("elevation", "gradient_x", "gradient_y", "gradient_magnitude"):
        assert np.isnan(gpgmap[layer][far]).all()
        assert np.isfinite(gpgmap[layer][x < -0.5]).all()
    assert np.isfinite(gpgmap["variance"]).all()
    np.testing.assert_allclose(gpgmap["variance"][far], CONFIG.relief_std**2, rtol=0.02)


def test_a_map_without_points_is_unknown_everywhere() -> None:
    gpgmap = ElevationMap(CONFIG, centre=(0.0, 0.0)).gpgmap()
    assert not gpgmap.known.any()
    np.testing.assert_allclose(gpgmap["variance"], CONFIG.relief_std**2, rtol=0.01)


def test_layers_are_float32_with_y_first() -> None:
    gpgmap = mapped(hill_points(np.random.default_rng(2), 500, 3.0))
    assert gpgmap.grid.shape == (40, 50)
    for name, layer in gpgmap.layers.items():
        assert layer.dtype == (np.uint8 if name == "gradient_visual" else np.float32)
        assert layer.shape == (40, 50)


def test_the_map_is_centred_on_whole_cells() -> None:
    grid = ElevationMap(CONFIG, centre=(10.03, -7.98)).grid
    x0, y0, x1, y1 = grid.bounds
    assert abs((x0 + x1) / 2 - 10.03) <= 0.051
    assert abs((y0 + y1) / 2 + 7.98) <= 0.051
    np.testing.assert_allclose(np.array([x0, y0]) / 0.1, np.round(np.array([x0, y0]) / 0.1), atol=1e-6)


def test_points_outside_are_counted_out() -> None:
    elevation_map = ElevationMap(CONFIG, centre=(0.0, 0.0))
    points = np.array([[0.0, 0.0, 1.0], [100.0, 0.0, 1.0]])
    assert elevation_map.add(points, np.full(2, 1e-4)) == 1


def test_the_same_points_give_the_same_map_bit_for_bit() -> None:
    points = hill_points(np.random.default_rng(3), 4000, 3.0)
    first, second = mapped(points), mapped(points)
    for name in first.layers:
        np.testing.assert_array_equal(first[name], second[name])


def test_heights_of_mountains_keep_their_centimetres() -> None:
    points = hill_points(np.random.default_rng(4), 4000, 3.0)
    low = mapped(points)
    high = mapped(points + np.array([0.0, 0.0, 5000.0]))
    np.testing.assert_allclose(high["elevation"], low["elevation"] + 5000.0, atol=1e-3)


def test_from_points() -> None:
    points = hill_points(np.random.default_rng(5), 4000, 2.0) + np.array([100.0, 50.0, 0.0])
    gpgmap = gpgmap_from_points(points, resolution=0.2)
    x0, y0, x1, y1 = gpgmap.grid.bounds
    assert x0 <= points[:, 0].min()
    assert x1 >= points[:, 0].max()
    assert y0 <= points[:, 1].min()
    assert y1 >= points[:, 1].max()
    x, y = np.meshgrid(gpgmap.grid.x - 100.0, gpgmap.grid.y - 50.0)
    inner = (np.abs(x) < 1.8) & (np.abs(y) < 1.8)
    np.testing.assert_allclose(gpgmap["elevation"][inner], hills(x, y)[inner], atol=0.04)


def test_from_points_follows_a_given_config() -> None:
    points = hill_points(np.random.default_rng(6), 4000, 2.0)
    smooth = gpgmap_from_points(points, 0.2, Config(mapping=dataclasses.replace(SMOOTH, length_scale=3.0)))
    sharp = gpgmap_from_points(points, 0.2, Config(mapping=SMOOTH))
    assert np.nanmean(smooth["variance"]) < np.nanmean(sharp["variance"])


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.zeros((3, 2)), r"must be \(N, 3\), got \(3, 2\)"),
        (np.empty((0, 3)), "no points"),
        ([[0.0, 0.0, np.nan], [1.0, 1.0, 1.0]], "1 of 2 points are not finite"),
    ],
)
def test_points_that_cannot_be_mapped_are_refused(points: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gpgmap_from_points(points, 0.1)


def test_an_unknown_layer_is_named() -> None:
    with pytest.raises(KeyError, match="no layer 'slop'; there are elevation, variance"):
        mapped(hill_points(np.random.default_rng(7), 100, 2.0))["slop"]


ROLLING = dataclasses.replace(SMOOTH, size_x=4.0, size_y=3.0, follow_share=0.2)


def add_hills(elevation_map: ElevationMap, seed: int, centre: tuple[float, float], rise: float = 0.0) -> None:
    points = hill_points(np.random.default_rng(seed), 3000, 1.4) + np.array([*centre, rise])
    points[:, 2] += hills(points[:, 0], points[:, 1]) - hills(
        points[:, 0] - centre[0], points[:, 1] - centre[1]
    )
    elevation_map.add(points, np.full(len(points), 0.02**2))


def test_the_map_stays_while_the_robot_is_near_the_middle() -> None:
    elevation_map = ElevationMap(ROLLING, centre=(0.0, 0.0))
    grid = elevation_map.grid
    assert not elevation_map.follow(np.array([0.79, -0.59]))
    assert elevation_map.grid == grid
    assert elevation_map.follow(np.array([0.81, 0.0]))
    assert elevation_map.grid.origin == pytest.approx(grid.shift(0, 8).origin)
    assert elevation_map.follow(np.array([0.81, -0.73]))
    assert elevation_map.grid.origin == pytest.approx(grid.shift(-7, 8).origin)


def test_what_lies_in_both_windows_is_kept_as_if_the_map_had_always_been_there() -> None:
    moved, still = ElevationMap(ROLLING, (0.0, 0.0)), ElevationMap(ROLLING, (1.2, 0.3))
    add_hills(moved, 0, (0.6, 0.1))
    add_hills(still, 0, (0.6, 0.1))
    assert moved.follow(np.array([1.2, 0.3]))
    assert moved.grid == still.grid
    a, b = moved.gpgmap(), still.gpgmap()
    x, y = np.meshgrid(a.grid.x, a.grid.y)
    inside = (x < 1.3) & (y > -0.9) & (x > 0.3)  # seen from both, away from what each has seen alone
    np.testing.assert_allclose(a["elevation"][inside], b["elevation"][inside], atol=0.005)
    np.testing.assert_allclose(a["variance"][inside], b["variance"][inside], rtol=0.05, atol=1e-6)


def test_leaving_and_coming_back_forgets_what_was_left() -> None:
    elevation_map = ElevationMap(ROLLING, (0.0, 0.0))
    add_hills(elevation_map, 1, (0.0, 0.0))
    assert elevation_map.gpgmap().known.mean() > 0.5
    elevation_map.follow(np.array([100.0, 0.0]))
    assert not elevation_map.gpgmap().known.any()
    elevation_map.follow(np.array([0.0, 0.0]))
    assert not elevation_map.gpgmap().known.any()


def test_a_map_that_climbs_takes_the_ground_around_it_as_its_mean() -> None:
    """Driving up 30 m must not leave a map whose guesses are where it began."""
    elevation_map = ElevationMap(dataclasses.replace(ROLLING, length_scale=0.3), (0.0, 0.0))
    for step in range(6):
        x = 1.2 * step
        elevation_map.follow(np.array([x, 0.0]))
        rng = np.random.default_rng(step)
        xy = rng.uniform(-1.4, 1.4, (3000, 2)) + np.array([x, 0.0])
        elevation_map.add(np.column_stack([xy, 5.0 * xy[:, 0]]), np.full(len(xy), 0.02**2))
    mean = elevation_map.posterior().mean
    x, y = np.meshgrid(elevation_map.grid.x - 6.0, elevation_map.grid.y)
    inside = (np.abs(x) < 1.2) & (np.abs(y) < 1.2)
    np.testing.assert_allclose(mean[inside], 5.0 * (x[inside] + 6.0), atol=0.1)
    beyond = (x > 1.9) & (np.abs(y) < 1.0)  # almost two length scales from any point
    assert np.abs(mean[beyond] - 30.0).max() < 10.0


def test_forgetting_is_local() -> None:
    elevation_map = ElevationMap(ROLLING, (0.0, 0.0))
    add_hills(elevation_map, 2, (0.0, 0.0))
    before = elevation_map.gpgmap()
    corner = np.arange(-1.0, 0.01, 0.1)
    elevation_map.forget(np.stack(np.meshgrid(corner, corner), axis=-1).reshape(-1, 2))
    after = elevation_map.gpgmap()
    x, y = np.meshgrid(before.grid.x, before.grid.y)
    distance = np.hypot(x + 0.5, y + 0.5)
    assert (after["variance"][distance < 0.2] > 5.0 * before["variance"][distance < 0.2]).all()
    far = (distance > 1.6) & (np.abs(x) < 1.2) & (np.abs(y) < 1.2)
    np.testing.assert_allclose(after["elevation"][far], before["elevation"][far], atol=2e-3)
    elevation_map.forget(np.array([[50.0, 50.0]]))
    np.testing.assert_allclose(elevation_map.gpgmap()["elevation"], after["elevation"], atol=1e-6)


@pytest.mark.parametrize("kernel", ["matern54", "matern32", "rbf"])
def test_all_that_was_seen_in_cells_is_forgotten(kernel: str) -> None:
    """Blocks are not cells: some of the smaller ones hold the centre of none."""
    elevation_map = ElevationMap(dataclasses.replace(ROLLING, kernel=kernel), (0.0, 0.0))
    add_hills(elevation_map, 4, (0.0, 0.0))
    centres = elevation_map.grid.centers
    left = centres[centres[..., 0] < 0.0]
    elevation_map.forget(left)
    blocks = elevation_map.blocks()
    assert blocks is not None
    spacing = np.array(blocks.spacing)
    x = (blocks.index[:, 1] + 0.5) * spacing[0]
    assert x.min() > -0.5 * ROLLING.resolution, "none is left among the cells"
    assert np.sum(x > 0.0) > 0.4 * len(x), "what lies beside them is"
    elevation_map.forget(centres.reshape(-1, 2))
    assert elevation_map.count == 0.0


def test_a_map_is_what_its_blocks_are() -> None:
    elevation_map = ElevationMap(ROLLING, (0.0, 0.0))
    add_hills(elevation_map, 3, (0.0, 0.0), rise=700.0)
    other = ElevationMap(ROLLING, (0.0, 0.0))
    other.restore(elevation_map.blocks())
    np.testing.assert_allclose(other.gpgmap()["elevation"], elevation_map.gpgmap()["elevation"], atol=1e-4)
    coarser = ElevationMap(MappingConfig(length_scale=1.1), (0.0, 0.0))
    with pytest.raises(ValueError, match="the length scale, relief or resolution was another"):
        coarser.restore(elevation_map.blocks())


def test_heights_far_beyond_all_points_are_not_known() -> None:
    """A smooth kernel, told of noise far below the roughness of the ground, swings where points end."""
    rng = np.random.default_rng(3)
    xy = rng.uniform(0.0, 60.0, (20000, 2))
    xy = xy[np.hypot(*(xy - 30.0).T) < 28.0 + 2.0 * np.sin(5.0 * np.arctan2(*(xy - 30.0).T))]
    z = 3.0 * rng.standard_normal(len(xy))
    settings = {"mapping.kernel": "rbf", "mapping.learn_noise": False, "mapping.length_scale": 10.0}
    config = with_settings(Config(), {**settings, "mapping.relief_std": 3.0})
    points = np.column_stack([xy, z])
    elevation_map = map_around(points, 2.0, config)
    elevation_map.add(points, np.full(len(points), 1e-4))
    posterior, known = elevation_map.posterior(), ~elevation_map.unknown(elevation_map.posterior())
    assert np.abs(posterior.mean).max() > 2.0 * np.abs(z).max(), "it does not swing: the test shows nothing"
    assert np.abs(posterior.mean[known]).max() < np.abs(z).max() + 3.0
    assert known.mean() > 0.5
