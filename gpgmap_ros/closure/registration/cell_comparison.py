"""Both maps at one cell of the source: what every loop over the shared cells of two maps compares.

`compare_cell` transforms a cell of the source into the target and interpolates the target there. Fields are
(6, rows, columns), as in `RegistrationMap.fields`.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gpgmap_ros.closure.registration.registration_map import (
    HEIGHT,
    HEIGHT_VARIANCE,
    SLOPE_VARIANCE,
    SLOPE_X,
    SLOPE_Y,
    WEIGHT,
    Field,
)

VARIANCE_FLOOR = 1e-7
"""Variance, in cells squared, that is added to every cell: maps of exact data have none of their own."""


class MapPair(NamedTuple):
    """source, target: fields of both maps; source_centre: (2,) about which the source is rotated
    stride: cells of the source that are visited, in x and y; use_variance: else every cell has variance 1."""

    source: Field
    target: Field
    source_centre: Array
    stride: int
    use_variance: bool


@compiled()
def transform_cell(
    i: int, j: int, z: float, centre: Array, R: Array, t: Array
) -> tuple[float, float, float]:  # pragma: no cover
    """Where cell (i, j) of a source of that centre, at height z, lies in the target."""
    x, y = j - centre[0], i - centre[1]
    return (
        R[0, 0] * x + R[0, 1] * y + R[0, 2] * z + t[0],
        R[1, 0] * x + R[1, 1] * y + R[1, 2] * z + t[1],
        R[2, 0] * x + R[2, 1] * y + R[2, 2] * z + t[2],
    )


@compiled()
def has_support(x: float, y: float, fields: Field) -> bool:  # pragma: no cover
    """Whether (x, y) lies between four cells of positive weight."""
    _, ny, nx = fields.shape
    if not (x >= 0.0 and y >= 0.0 and x <= nx - 1 and y <= ny - 1):
        return False
    ix, iy = min(int(x), nx - 2), min(int(y), ny - 2)
    for i in range(iy, iy + 2):
        for j in range(ix, ix + 2):
            if not fields[WEIGHT, i, j] > 0.0:
                return False
    return True


@compiled()
def bilinear(x: float, y: float, fields: Field, k: int) -> float:  # pragma: no cover
    """Bilinear interpolation of field k."""
    _, ny, nx = fields.shape
    ix, iy = min(int(x), nx - 2), min(int(y), ny - 2)
    fx, fy = x - ix, y - iy
    low = (1.0 - fx) * fields[k, iy, ix] + fx * fields[k, iy, ix + 1]
    high = (1.0 - fx) * fields[k, iy + 1, ix] + fx * fields[k, iy + 1, ix + 1]
    return (1.0 - fy) * low + fy * high  # type: ignore[no-any-return]


@compiled()
def interpolate_height(x: float, y: float, fields: Field) -> float:  # pragma: no cover
    """Sum of bilinear shares of z_ij + (x - x_ij) . g_ij / 2: exact for a quadratic surface."""
    _, ny, nx = fields.shape
    ix, iy = min(int(x), nx - 2), min(int(y), ny - 2)
    fx, fy = x - ix, y - iy
    height = 0.0
    for a in range(2):
        for b in range(2):
            share = (fy if a else 1.0 - fy) * (fx if b else 1.0 - fx)
            i, j = iy + a, ix + b
            tangent = (fx - b) * fields[SLOPE_X, i, j] + (fy - a) * fields[SLOPE_Y, i, j]
            height += share * (fields[HEIGHT, i, j] + 0.5 * tangent)
    return height


@compiled()
def rotate_slope(R: Array, gx: float, gy: float) -> tuple[float, float]:  # pragma: no cover
    """Slope of a surface after its normal (-g, 1) is turned by R."""
    n_x = -R[0, 0] * gx - R[0, 1] * gy + R[0, 2]
    n_y = -R[1, 0] * gx - R[1, 1] * gy + R[1, 2]
    n_z = max(-R[2, 0] * gx - R[2, 1] * gy + R[2, 2], 1e-3)
    return -n_x / n_z, -n_y / n_z


@njit(inline="always")
def compare_cell(maps, R, t, i, j):  # type: ignore[no-untyped-def] # pragma: no cover
    """Cell (i, j) of the source at its place in the target, if both know it there.

    shared, q (3,), weight w_A w_B, residual of the height, slopes of source (rotated) and target, variances of height
    and slope
    """
    a, b = maps.source, maps.target
    qx, qy, qz = transform_cell(i, j, a[HEIGHT, i, j], maps.source_centre, R, t)
    if not has_support(qx, qy, b):
        return False, qx, qy, qz, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    v, u = 1.0, 1.0
    if maps.use_variance:
        v = a[HEIGHT_VARIANCE, i, j] + bilinear(qx, qy, b, HEIGHT_VARIANCE)
        u = a[SLOPE_VARIANCE, i, j] + bilinear(qx, qy, b, SLOPE_VARIANCE)
    weight = a[WEIGHT, i, j] * bilinear(qx, qy, b, WEIGHT)
    residual = qz - interpolate_height(qx, qy, b)
    ax, ay = rotate_slope(R, a[SLOPE_X, i, j], a[SLOPE_Y, i, j])
    bx, by = bilinear(qx, qy, b, SLOPE_X), bilinear(qx, qy, b, SLOPE_Y)
    return True, qx, qy, qz, weight, residual, ax, ay, bx, by, v + VARIANCE_FLOOR, u + VARIANCE_FLOOR
