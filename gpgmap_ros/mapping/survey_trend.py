"""The coarse trend of a survey: a smooth surface that the relief is a deviation from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

from gp_core.arrays import Array
from gp_core.compiled import compiled

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Trend:
    """A cubic B-spline with its coefficients at the middles of coarse cells: smooth, as a GP is; level beyond them.

    origin: x and y of the middle of cell (0, 0); edge: of a cell
    """

    heights: Array
    origin: tuple[float, float]
    edge: float

    def at(self, xy: Array) -> Array:
        """(N,) heights at positions (N, 2)."""
        return _spline_heights(xy, self.heights, *self.origin, self.edge)  # type: ignore[no-any-return]

    def with_gradient(self, xy: Array) -> tuple[Array, Array]:
        """(N,) heights and their gradients (N, 2)."""
        return _spline(xy, self.heights, *self.origin, self.edge)  # type: ignore[no-any-return]


def trend_of(xyz: Array, edge: float) -> Trend:
    """The coarse relief of points (N, 3): means in cells of the given edge, smoothed over their neighbours."""
    low = xyz[:, :2].min(axis=0)
    index = np.floor((xyz[:, :2] - low) / edge).astype(np.int64)
    columns, rows = index.max(axis=0) + 1
    flat = index[:, 1] * columns + index[:, 0]
    count = np.bincount(flat, minlength=rows * columns).reshape(rows, columns).astype(np.float64)
    mean = float(xyz[:, 2].mean())
    total = np.bincount(flat, xyz[:, 2] - mean, minlength=rows * columns).reshape(rows, columns)
    heights = _smooth(np.where(count > 0, total / np.maximum(count, 1.0), 0.0), count > 0)
    return Trend(heights + mean, (float(low[0] + edge / 2.0), float(low[1] + edge / 2.0)), edge)


def _smooth(average: Array, known: Mask) -> Array:
    """Known cells smoothed over their neighbours; holes filled from the same with cells twice as large, and so on.

    The number of levels is the logarithm of the number of cells: it ends however far apart the known cells are.
    """
    weight = gaussian_filter(known.astype(np.float64), 0.7, mode="constant")
    reached = weight > 1e-3
    heights = np.where(
        reached,
        gaussian_filter(np.where(known, average, 0.0), 0.7, mode="constant") / np.maximum(weight, 1e-3),
        0.0,
    )
    if reached.all() or average.size == 1:
        return heights
    count, total = _sum_two_by_two(known.astype(np.float64)), _sum_two_by_two(np.where(known, average, 0.0))
    coarse = _smooth(total / np.maximum(count, 1.0), count > 0.0)
    # middles of the fine cells in units of the coarse ones; level beyond the outermost middles
    at = np.meshgrid(*((np.arange(size) - 0.5) / 2.0 for size in average.shape), indexing="ij")
    filled = map_coordinates(coarse, np.stack(at), order=1, mode="nearest")
    return np.where(reached, heights, filled)


def _sum_two_by_two(cells: Array) -> Array:
    """Sums over squares of two by two cells."""
    rows, columns = cells.shape
    even = np.pad(cells, ((0, rows % 2), (0, columns % 2)))
    return even[0::2, 0::2] + even[0::2, 1::2] + even[1::2, 0::2] + even[1::2, 1::2]


@compiled()
def _spline_heights(xy, heights, x0, y0, edge):  # type: ignore[no-untyped-def]
    """(N,) heights of the spline at positions (N, 2)."""
    out = np.empty(len(xy))
    for n in range(len(xy)):
        out[n] = spline_height(xy[n, 0], xy[n, 1], heights, x0, y0, edge)
    return out


@njit(inline="always")
def spline_height(x, y, heights, x0, y0, edge):  # type: ignore[no-untyped-def]
    """Height of the spline at one position; unrolled, because it is called for every point of a survey."""
    rows, columns = heights.shape
    u, v = (x - x0) / edge, (y - y0) / edge
    i, j = int(np.floor(u)), int(np.floor(v))
    s, t = u - i, v - j
    s1, t1 = 1.0 - s, 1.0 - t
    a0, a3 = s1 * s1 * s1 / 6.0, s * s * s / 6.0
    a1, a2 = 2.0 / 3.0 - 0.5 * s * s * (2.0 - s), 2.0 / 3.0 - 0.5 * s1 * s1 * (2.0 - s1)
    b = (t1 * t1 * t1 / 6.0, 2.0 / 3.0 - 0.5 * t * t * (2.0 - t),
         2.0 / 3.0 - 0.5 * t1 * t1 * (2.0 - t1), t * t * t / 6.0)  # fmt: skip
    i0, i1 = min(max(i - 1, 0), columns - 1), min(max(i, 0), columns - 1)
    i2, i3 = min(max(i + 1, 0), columns - 1), min(max(i + 2, 0), columns - 1)
    total = 0.0
    for m in range(4):
        row = heights[min(max(j + m - 1, 0), rows - 1)]
        total += b[m] * (a0 * row[i0] + a1 * row[i1] + a2 * row[i2] + a3 * row[i3])
    return total


@compiled()
def _spline(xy, heights, x0, y0, edge):  # type: ignore[no-untyped-def]
    rows, columns = heights.shape
    out = np.zeros(len(xy))
    gradient = np.zeros((len(xy), 2))
    b, d = np.empty((2, 4)), np.empty((2, 4))
    for n in range(len(xy)):
        u, v = (xy[n, 0] - x0) / edge, (xy[n, 1] - y0) / edge
        i, j = int(np.floor(u)), int(np.floor(v))
        for axis, t in ((0, u - i), (1, v - j)):
            w = 1.0 - t
            b[axis, 0], b[axis, 3] = w * w * w / 6.0, t * t * t / 6.0
            b[axis, 1] = 2.0 / 3.0 - 0.5 * t * t * (2.0 - t)
            b[axis, 2] = 2.0 / 3.0 - 0.5 * w * w * (2.0 - w)
            d[axis, 0], d[axis, 3] = -0.5 * w * w, 0.5 * t * t
            d[axis, 1] = 1.5 * t * t - 2.0 * t
            d[axis, 2] = 2.0 * w - 1.5 * w * w
        for m in range(4):
            row = min(max(j + m - 1, 0), rows - 1)
            h = g = 0.0
            for k in range(4):
                value = heights[row, min(max(i + k - 1, 0), columns - 1)]
                h += b[0, k] * value
                g += d[0, k] * value
            out[n] += b[1, m] * h
            gradient[n, 0] += b[1, m] * g / edge
            gradient[n, 1] += d[1, m] * h / edge
    return out, gradient
