"""Which cell of a layer is which element of an image, a GridMap and an OccupancyGrid: exact, not square."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core.grid import Grid
from gpgmap_ros.mapping.conversions import (
    grid_map_from_layer,
    grid_map_geometry,
    image_from_layer,
    layer_from_grid_map,
    layer_from_image,
    layer_from_occupancy,
    occupancy_from_layer,
    points_from_layer,
)

GRID = Grid(origin=(10.0, -4.0), shape=(2, 3), resolution=0.5)  # 3 cells along x, 2 along y
LAYER = np.array([[0, 1, 2], [10, 11, 12]], dtype=np.float32)  # layer[iy, ix] = 10 iy + ix


def test_an_image_has_north_up() -> None:
    image = image_from_layer(LAYER)
    assert image.tolist() == [[10, 11, 12], [0, 1, 2]]
    assert image.flags.c_contiguous
    assert image.dtype == np.float32
    assert image_from_layer(LAYER.astype(np.uint8)).dtype == np.uint8


def test_a_grid_map_starts_at_the_largest_x_and_y_and_runs_against_x_first() -> None:
    assert grid_map_from_layer(LAYER).tolist() == [12, 11, 10, 2, 1, 0]


def test_a_grid_map_read_by_its_own_rules_has_every_cell_at_its_place() -> None:
    """grid_map: position of index (i, j) = centre + half length - (index + 1/2) resolution, data column-major."""
    geometry = grid_map_geometry(GRID)
    (label_0, size_0, stride_0), (label_1, size_1, stride_1) = geometry.dimensions
    assert (label_0, label_1) == ("column_index", "row_index")
    assert (size_0, stride_0, size_1, stride_1) == (2, 6, 3, 3)
    matrix = grid_map_from_layer(LAYER).reshape((size_1, size_0), order="F")
    for i in range(geometry.rows):
        for j in range(geometry.columns):
            x = geometry.centre[0] + geometry.length_x / 2 - (i + 0.5) * geometry.resolution
            y = geometry.centre[1] + geometry.length_y / 2 - (j + 0.5) * geometry.resolution
            ix, iy = int(np.argmin(np.abs(GRID.x - x))), int(np.argmin(np.abs(GRID.y - y)))
            assert x == pytest.approx(GRID.x[ix])
            assert y == pytest.approx(GRID.y[iy])
            assert matrix[i, j] == LAYER[iy, ix]


def test_an_occupancy_grid_keeps_the_order_and_turns_safety_into_risk() -> None:
    safe = np.array([[1.0, 0.0, np.nan], [0.25, 0.996, 0.5]], dtype=np.float32)
    risk = occupancy_from_layer(safe)
    assert risk.tolist() == [0, 100, -1, 75, 0, 50]
    assert risk.dtype == np.int8
    # round-off around the ends of a probability must not wrap around
    assert occupancy_from_layer(np.array([[1.0 + 1e-7, -1e-7]])).tolist() == [0, 100]


def test_there_and_back() -> None:
    rng = np.random.default_rng(0)
    grid = Grid((0.0, 0.0), (5, 7), 0.1)
    layer = rng.uniform(size=grid.shape).astype(np.float32)
    layer[2, 3] = np.nan
    np.testing.assert_array_equal(layer_from_image(image_from_layer(layer)), layer)
    np.testing.assert_array_equal(
        layer_from_grid_map(grid_map_from_layer(layer), grid_map_geometry(grid)), layer
    )
    np.testing.assert_allclose(layer_from_occupancy(occupancy_from_layer(layer), grid), layer, atol=0.0051)
    with pytest.raises(ValueError, match="34 values cannot fill a GridMap of 7 rows and 5 columns"):
        layer_from_grid_map(np.zeros(34), grid_map_geometry(grid))


def test_the_surface_is_the_known_cells() -> None:
    layer = LAYER.copy()
    layer[0, 1] = np.nan
    points = points_from_layer(layer, GRID)
    np.testing.assert_allclose(points[0], [10.25, -3.75, 0.0])
    np.testing.assert_allclose(points[2], [10.25, -3.25, 10.0])
    assert points.shape == (5, 3)
    assert points.dtype == np.float32
