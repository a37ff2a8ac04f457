"""Reading a surface between its cells, and turning it: what refinement and overlay do with every cell."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gpgmap_ros.closure.surface import Field

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
def covered(x: float, y: float, w: Field) -> bool:  # pragma: no cover
    """Whether (x, y) lies between four cells of positive weight."""
    ny, nx = w.shape
    if not (x >= 0.0 and y >= 0.0 and x <= nx - 1 and y <= ny - 1):
        return False
    ix, iy = min(int(x), nx - 2), min(int(y), ny - 2)
    return w[iy, ix] > 0.0 and w[iy, ix + 1] > 0.0 and w[iy + 1, ix] > 0.0 and w[iy + 1, ix + 1] > 0.0


@compiled()
def between(x: float, y: float, field: Field) -> float:  # pragma: no cover
    """Bilinear interpolation."""
    ny, nx = field.shape
    ix, iy = min(int(x), nx - 2), min(int(y), ny - 2)
    fx, fy = x - ix, y - iy
    low = (1.0 - fx) * field[iy, ix] + fx * field[iy, ix + 1]
    high = (1.0 - fx) * field[iy + 1, ix] + fx * field[iy + 1, ix + 1]
    return (1.0 - fy) * low + fy * high


@compiled()
def height_between(x: float, y: float, z: Field, gx: Field, gy: Field) -> float:  # pragma: no cover
    """Sum of bilinear shares of z_ij + (x - x_ij) . g_ij / 2: exact for a quadratic surface."""
    ny, nx = z.shape
    ix, iy = min(int(x), nx - 2), min(int(y), ny - 2)
    fx, fy = x - ix, y - iy
    height = 0.0
    for a in range(2):
        for b in range(2):
            share = (fy if a else 1.0 - fy) * (fx if b else 1.0 - fx)
            i, j = iy + a, ix + b
            height += share * (z[i, j] + 0.5 * ((fx - b) * gx[i, j] + (fy - a) * gy[i, j]))
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
    angle2 = np.sum(omega**2)
    angle = np.sqrt(angle2)
    s, c = (np.sin(angle) / angle, (1.0 - np.cos(angle)) / angle2) if angle > 1e-6 else (1.0, 0.5)
    K = np.array([[0.0, -omega[2], omega[1]], [omega[2], 0.0, -omega[0]], [-omega[1], omega[0], 0.0]])
    return np.eye(3) + s * K + c * np.dot(K, K)
