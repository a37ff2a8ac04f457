"""Reading a surface between its cells, and turning it: what refinement and overlay do with every cell.

fields: (6, rows, columns), as in `Surface.fields`
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gpgmap_ros.closure.surface import HEIGHT, SLOPE_X, SLOPE_Y, WEIGHT, Field

Array = NDArray[np.float64]

FLOOR = 1e-7
"""Variance, in cells squared, that is added to every cell: maps of exact data have none of their own."""


@compiled()
def landed(
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
def covered(x: float, y: float, fields: Field) -> bool:  # pragma: no cover
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
def between(x: float, y: float, fields: Field, k: int) -> float:  # pragma: no cover
    """Bilinear interpolation of field k."""
    _, ny, nx = fields.shape
    ix, iy = min(int(x), nx - 2), min(int(y), ny - 2)
    fx, fy = x - ix, y - iy
    low = (1.0 - fx) * fields[k, iy, ix] + fx * fields[k, iy, ix + 1]
    high = (1.0 - fx) * fields[k, iy + 1, ix] + fx * fields[k, iy + 1, ix + 1]
    return (1.0 - fy) * low + fy * high


@compiled()
def height_between(x: float, y: float, fields: Field) -> float:  # pragma: no cover
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
def turned_slope(R: Array, gx: float, gy: float) -> tuple[float, float]:  # pragma: no cover
    """Slope of a surface after its normal (-g, 1) is turned by R."""
    n_x = -R[0, 0] * gx - R[0, 1] * gy + R[0, 2]
    n_y = -R[1, 0] * gx - R[1, 1] * gy + R[1, 2]
    n_z = max(-R[2, 0] * gx - R[2, 1] * gy + R[2, 2], 1e-3)
    return -n_x / n_z, -n_y / n_z


@compiled()
def rotation(omega: Array) -> Array:  # pragma: no cover
    """exp of the rotation vector (3,): I + sin(a)/a K + (1 - cos(a))/a^2 K^2 (Rodrigues)."""
    x, y, z = omega[0], omega[1], omega[2]
    angle2 = x * x + y * y + z * z
    angle = np.sqrt(angle2)
    s, c = (np.sin(angle) / angle, (1.0 - np.cos(angle)) / angle2) if angle > 1e-6 else (1.0, 0.5)
    R = np.empty((3, 3))
    R[0, 0], R[0, 1], R[0, 2] = 1.0 - c * (y * y + z * z), c * x * y - s * z, c * x * z + s * y
    R[1, 0], R[1, 1], R[1, 2] = c * x * y + s * z, 1.0 - c * (x * x + z * z), c * y * z - s * x
    R[2, 0], R[2, 1], R[2, 2] = c * x * z - s * y, c * y * z + s * x, 1.0 - c * (x * x + y * y)
    return R
