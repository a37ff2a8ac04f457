"""Which points are used, and what is said of the others."""

from __future__ import annotations

import numpy as np
import pytest

from gpgmap_ros.config import FilterConfig
from gpgmap_ros.geometry import apply, inverse, transform_from
from gpgmap_ros.mapping.cells import cell_ids, first_of_each
from gpgmap_ros.mapping.filters import REASONS, lowest_layer, lowest_surface, select_ground

# turned half round and pitched down: every frame differs from every other
T_MAP_SENSOR = transform_from([10.0, 20.0, 5.0], [0.0, 0.2, 0.95, 0.1])
T_BASE_SENSOR = transform_from([0.5, 0.0, 1.2], [0.0, 0.1, 0.0, 1.0])
OPEN = {"min_range": 0.0, "max_range": 100.0, "min_height": -50.0, "max_height": 50.0}


def select(
    xyz_map: np.ndarray, mount: np.ndarray | None = None, **settings: float
) -> tuple[np.ndarray, dict[str, int]]:
    """What is left of points given in the map's frame, and the reasons that are not zero."""
    config = FilterConfig(**{**OPEN, **settings})
    found = select_ground(apply(inverse(T_MAP_SENSOR), xyz_map), T_MAP_SENSOR, mount, config)
    assert tuple(found.dropped) == REASONS
    assert len(found.xyz) + sum(found.dropped.values()) == len(xyz_map)
    return found.xyz, {reason: count for reason, count in found.dropped.items() if count}


def test_points_arrive_in_the_maps_frame() -> None:
    points = np.random.default_rng(0).uniform(-5.0, 5.0, (50, 3)) + T_MAP_SENSOR[:3, 3]
    left, dropped = select(points)
    np.testing.assert_allclose(left, points, atol=1e-9)
    assert dropped == {}


def test_range_is_from_the_sensor() -> None:
    offsets = np.array([[0.1, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, -40.0]])
    left, dropped = select(T_MAP_SENSOR[:3, 3] + offsets, min_range=0.5, max_range=30.0)
    np.testing.assert_allclose(left, (T_MAP_SENSOR[:3, 3] + offsets)[[1]])
    assert dropped == {"range": 2}


def test_the_height_band_is_level_and_from_the_base_where_that_is_known() -> None:
    far = 20.0  # where the pitch of the sensor would matter
    band = {"min_height": -3.0, "max_height": 1.0}

    def at(height: float, origin: np.ndarray) -> np.ndarray:
        return np.array([[origin[0] + far, origin[1], origin[2] + height]])

    sensor, base = T_MAP_SENSOR[:3, 3], (T_MAP_SENSOR @ inverse(T_BASE_SENSOR))[:3, 3]
    for origin, mount in ((sensor, None), (base, T_BASE_SENSOR)):
        for height, used in ((-3.1, 0), (-2.9, 1), (0.9, 1), (1.1, 0)):
            assert len(select(at(height, origin), mount, **band)[0]) == used


def test_the_self_box_turns_with_the_robot() -> None:
    box = {"self_min_x": -0.5, "self_max_x": 1.0, "self_min_y": -0.4, "self_max_y": 0.4, "self_max_z": 2.0}
    inside, outside = (
        np.array([[0.9, -0.3, 1.9]]),
        np.array([[1.1, 0.0, 1.0], [0.9, 0.5, 1.0], [0.9, 0.3, 2.1]]),
    )
    for T_map_box, mount in ((T_MAP_SENSOR, None), (T_MAP_SENSOR @ inverse(T_BASE_SENSOR), T_BASE_SENSOR)):
        left, dropped = select(apply(T_map_box, np.vstack([inside, outside])), mount, **box)
        np.testing.assert_allclose(left, apply(T_map_box, outside), atol=1e-9)
        assert dropped == {"robot": 1}


def test_bad_coordinates_are_counted_and_gone() -> None:
    points = np.array([[1.0, 1.0, -1.0], [np.nan, 0, 0], [0, np.inf, 0], [1e300, 0, 0], [2.0, 1.0, -1.0]])
    found = select_ground(points, T_MAP_SENSOR, None, FilterConfig())
    assert found.dropped["not_finite"] == 3
    assert len(found.xyz) == 2


def test_an_empty_cloud_stays_empty() -> None:
    config = FilterConfig(voxel_size=0.1, lowest_surface=True)
    found = select_ground(np.empty((0, 3)), T_MAP_SENSOR, None, config)
    assert found.xyz.shape == (0, 3)
    assert sum(found.dropped.values()) == 0


@pytest.mark.parametrize("dimensions", [2, 3])
def test_cells_agree_with_a_dictionary(dimensions: int) -> None:
    points = np.random.default_rng(1).normal(0.0, 1.0, (5000, dimensions)) - 0.3
    numbers: dict[tuple[int, ...], int] = {}
    expected = [
        numbers.setdefault(tuple(int(i) for i in np.floor(point / 0.25)), len(numbers)) for point in points
    ]
    ids = cell_ids(points, 0.25)
    assert ids.tolist() == expected
    first = first_of_each(ids)
    assert first.sum() == len(numbers)
    assert all(expected.index(expected[n]) == n for n in np.flatnonzero(first)[:50])


def test_thinning_keeps_the_first_point_of_each_voxel() -> None:
    points = np.array(
        [[0.51, 0.1, 0.1], [0.99, 0.4, 0.4], [0.49, 0.1, 0.1], [0.6, 0.3, 0.6], [0.51, 0.1, 0.1]]
    )
    points += T_MAP_SENSOR[:3, 3]  # whole multiples of half a metre
    left, dropped = select(points, voxel_size=0.5)
    np.testing.assert_allclose(left, points[[0, 2, 3]])
    assert dropped == {"thinned": 2}


LOWEST = FilterConfig(lowest_surface=True, lowest_cell=0.5, lowest_tolerance=0.1, lowest_support=2)


def test_under_a_roof_only_the_floor_is_used() -> None:
    rng = np.random.default_rng(2)
    xy = rng.uniform(-3.0, 3.0, (4000, 2))
    roofed = rng.random(4000) < 0.5
    xyz = np.column_stack([xy, np.where(roofed, 2.5, 0.0) + rng.uniform(0.0, 0.05, 4000)])
    np.testing.assert_array_equal(lowest_surface(xyz, LOWEST), ~roofed)


def test_a_stray_return_below_the_ground_is_not_the_ground() -> None:
    ground = np.column_stack([np.full((6, 2), 0.2), np.linspace(0.0, 0.08, 6)])
    xyz = np.vstack([[[0.2, 0.2, -1.0]], ground, [[0.2, 0.2, 0.5]]])
    assert lowest_surface(xyz, LOWEST).tolist() == [False, *[True] * 6, False]


def test_where_nothing_is_supported_the_lowest_point_is_used() -> None:
    xyz = np.array([[0.2, 0.2, 3.0], [0.2, 0.2, 1.0], [0.7, 0.2, 1.2]])
    assert lowest_surface(xyz, LOWEST).tolist() == [False, True, True]


@pytest.mark.parametrize("cell", [0.2, 0.5, 2.0, 4.0])
def test_ground_under_trees_at_any_cell_size(cell: float) -> None:
    """A slope of 22 degrees with stems and crowns; under a third of the crowns no beam has reached the ground."""
    rng = np.random.default_rng(4)
    xy = rng.uniform(-15.0, 15.0, (12000, 2))
    slope = 0.4 * xy[:, 0] + 0.3 * np.sin(xy[:, 1])
    trees = rng.uniform(-14.0, 14.0, (40, 2))
    near = np.hypot(*(xy[:, None] - trees).transpose(2, 0, 1)).min(axis=1)
    dense = np.hypot(*(xy[:, None] - trees[:13]).transpose(2, 0, 1)).min(axis=1) < 1.5
    leaf = (near < 1.5) & ((rng.random(len(xy)) < 0.7) | dense)
    stem = near < 0.15
    height = np.where(
        leaf, rng.uniform(3.0, 8.0, len(xy)), np.where(stem, rng.uniform(0.6, 3.0, len(xy)), 0.0)
    )
    xyz = np.column_stack([xy, slope + height + rng.normal(0.0, 0.02, len(xy))])
    kept = lowest_surface(xyz, FilterConfig(lowest_surface=True, lowest_cell=cell))
    assert kept[height == 0.0].mean() > 0.97
    assert kept[height > 0.0].mean() < 0.01


def test_rocks_are_ground() -> None:
    """A boulder half a metre high, with steep sides: low enough to be no crown."""
    x, y = (axis.ravel() for axis in np.meshgrid(*[np.arange(-3.0, 3.0, 0.05)] * 2))
    on_rock = np.hypot(x, y) < 0.6
    xyz = np.column_stack([x, y, np.where(on_rock, 0.45, 0.0)])
    kept = lowest_surface(xyz, FilterConfig(lowest_surface=True, lowest_cell=0.1))
    assert kept.mean() > 0.98
    assert kept[on_rock].mean() > 0.9


def test_the_lowest_layer_agrees_with_a_loop() -> None:
    rng = np.random.default_rng(3)
    xyz = np.column_stack(
        [rng.uniform(0.0, 2.0, (600, 2)), rng.choice([0.0, 0.3, 1.0], 600) + rng.normal(0, 0.06, 600)]
    )
    expected = np.zeros(600, dtype=bool)
    cells = np.floor(xyz[:, :2] / 0.5).astype(int)
    for cell in np.unique(cells, axis=0):
        here = np.flatnonzero((cells == cell).all(axis=1))
        z = xyz[here, 2]
        floors = [low for low in sorted(z) if ((z >= low) & (z <= low + 0.1)).sum() >= 3]
        low = floors[0] if floors else z.min()
        expected[here] = (z >= low) & (z <= low + 0.1)
    found, _ = lowest_layer(xyz[:, 2].copy(), cell_ids(xyz[:, :2], 0.5), 0.1, 3)
    np.testing.assert_array_equal(found, expected)
