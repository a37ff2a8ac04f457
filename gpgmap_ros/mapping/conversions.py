"""Layers as other people index them, and back: the only place where axes are turned.

A layer is `layer[iy, ix]`; y and x grow with the index, cell (0, 0) is at the corner with the smallest coordinates.

    layer, 2 x 3              Image (north up)     GridMap, flat            OccupancyGrid, flat
    y ^ [1,0] [1,1] [1,2]     row 0: 10 11 12      12 11 10 02 01 00        00 01 02 10 11 12
      | [0,0] [0,1] [0,2]     row 1: 00 01 02      from the +x,+y corner    as the layer
      +-----------------> x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Grid

UNKNOWN = -1
"""What OccupancyGrid says of a cell it knows nothing about."""
FREE, OCCUPIED = 0, 100
"""What it says of a cell without risk, and of one that is certainly not traversable."""


def image_from_layer(layer: NDArray[Any]) -> NDArray[Any]:
    """Rows from the largest y to the smallest, contiguous, in the layer's type: float32 is 32FC1, uint8 is mono8."""
    return np.ascontiguousarray(layer[::-1])


def layer_from_image(image: NDArray[Any]) -> NDArray[Any]:
    """The inverse of `image_from_layer`."""
    return np.ascontiguousarray(image[::-1])


@dataclass(frozen=True)
class GridMapGeometry:
    """Numbers of a grid_map_msgs/GridMapInfo, and the layout of each of its data arrays.

    length_x, length_y: extent in metres; centre: x and y of the middle, which is the message's pose.
    rows: cells along x, row 0 at the largest x; columns: cells along y, column 0 at the largest y.
    """

    resolution: float
    length_x: float
    length_y: float
    centre: tuple[float, float]
    rows: int
    columns: int

    @property
    def dimensions(self) -> tuple[tuple[str, int, int], tuple[str, int, int]]:
        """(label, size, stride) of the Float32MultiArray's two dimensions: the labels say column-major."""
        return (
            ("column_index", self.columns, self.rows * self.columns),
            ("row_index", self.rows, self.rows),
        )


def grid_map_geometry(grid: Grid) -> GridMapGeometry:
    columns, rows = grid.shape
    x_min, y_min, x_max, y_max = grid.bounds
    centre = ((x_min + x_max) / 2.0, (y_min + y_max) / 2.0)
    return GridMapGeometry(grid.resolution, x_max - x_min, y_max - y_min, centre, rows, columns)


def grid_map_from_layer(layer: NDArray[Any]) -> NDArray[np.float32]:
    """Flat data (ny * nx,) of one GridMap layer.

    grid_map keeps a matrix M[i, j] whose row i counts against x and whose column j counts against y, both from the
    +x,+y corner, stored column by column: that is the layer read backwards.
    """
    return np.ascontiguousarray(layer[::-1, ::-1], dtype=np.float32).reshape(-1)


def layer_from_grid_map(data: NDArray[Any], geometry: GridMapGeometry) -> NDArray[np.float32]:
    """The inverse of `grid_map_from_layer`."""
    if data.size != geometry.rows * geometry.columns:
        raise ValueError(
            f"{data.size} values cannot fill a GridMap of {geometry.rows} rows and {geometry.columns} columns"
        )
    return np.ascontiguousarray(data.reshape(geometry.columns, geometry.rows)[::-1, ::-1], dtype=np.float32)


def occupancy_from_layer(traversability: NDArray[Any]) -> NDArray[np.int8]:
    """Flat data (ny * nx,) of an OccupancyGrid: 100 (1 - P(traversable)), rounded; -1 where it is NaN.

    The message's origin is the corner of cell (0, 0), `grid.origin`.
    """
    risk = np.rint(100.0 * (1.0 - np.clip(traversability, 0.0, 1.0)))
    return np.where(np.isnan(risk), UNKNOWN, risk).astype(np.int8).reshape(-1)


def obstacles_from_layer(traversability: NDArray[Any], max_risk: float) -> NDArray[np.int8]:
    """Flat data (ny * nx,) of an OccupancyGrid with 0, 100 and -1 alone: 100 where 1 - P(traversable) > max_risk.

    For readers that take every value below 100 for free, as Nav2's static layer does by default.
    """
    with np.errstate(invalid="ignore"):
        cells = np.where(1.0 - np.asarray(traversability, dtype=np.float64) > max_risk, OCCUPIED, FREE)
    return np.where(np.isnan(traversability), UNKNOWN, cells).astype(np.int8).reshape(-1)


def layer_from_occupancy(data: NDArray[np.int8], grid: Grid) -> NDArray[np.float32]:
    """The inverse of `occupancy_from_layer`, to the nearest hundredth."""
    risk = np.asarray(data, dtype=np.float32).reshape(grid.shape)
    return np.where(risk == UNKNOWN, np.float32(np.nan), np.float32(1.0) - risk / np.float32(100.0))


def points_from_layer(elevation: NDArray[Any], grid: Grid) -> NDArray[np.float32]:
    """The known cells as points (N, 3), in the order of the layer: the surface as a cloud."""
    iy, ix = np.nonzero(np.isfinite(elevation))
    return np.column_stack([grid.x[ix], grid.y[iy], elevation[iy, ix]]).astype(np.float32)


def triangles_of(known: NDArray[np.bool_]) -> NDArray[np.int32]:
    """(M, 3) numbers of known cells, counted in the order of the layer; seen from above, counter-clockwise."""
    number = np.cumsum(known.ravel()).reshape(known.shape).astype(np.int32) - 1
    whole = known[:-1, :-1] & known[1:, :-1] & known[:-1, 1:] & known[1:, 1:]
    sw, se, nw, ne = (
        part[whole] for part in (number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:])
    )
    return np.concatenate([np.column_stack([sw, se, ne]), np.column_stack([sw, ne, nw])])
