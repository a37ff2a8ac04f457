"""What the rays of a cloud say of the cells that they pass through: the compiled loops of clearing.py.

Of the points of each cell there are sums: how many, of their weights in the map, of their weighted heights, of what
single heights are uncertain by, squared, and of x, y and their products, from the cell's middle. They are those of the
highest layer in the cell; of what is clearly below it there are the sums of weights and weighted heights.

    place: x and y of the window's corner, edge of the cells
    sums: (SUMS, ny, nx)
    limits: tolerance, threshold, standard deviation of the rays' height and of their direction
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from gp_core.compiled import compiled

COUNT, WEIGHT, HEIGHT, VARIANCE, X, Y, XX, XY, YY, LOW_WEIGHT, LOW_HEIGHT, SUMS = range(12)
STEP: Final = 0.75
"""Cells from one look at a ray to the next: it may miss the corner of a cell, which the rays beside it do not."""


@compiled()
def compared_heights(sums, height):  # type: ignore[no-untyped-def]
    """The highest of the heights (ny, nx) of the points of each cell, written here; NaN where there are none."""
    top = -np.inf
    for m in range(height.shape[0]):
        for k in range(height.shape[1]):
            height[m, k] = np.nan
            if sums[COUNT, m, k] > 0.0:
                height[m, k] = sums[HEIGHT, m, k] / sums[WEIGHT, m, k]
                top = max(top, height[m, k])
    return top


@compiled()
def take_points(sensor, xyz, variance, place, sums, limits):  # type: ignore[no-untyped-def]
    """Add points (N, 3), with the variances (N,) that the map weights them by, to the sums of their cells."""
    for n in range(xyz.shape[0]):
        m, k = _cell(xyz[n, 0], xyz[n, 1], place, sums)
        if m < 0:
            continue
        z, weight = xyz[n, 2], 1.0 / variance[n]
        count, noise = sums[COUNT, m, k], limits[2] ** 2 + (limits[3] * _distance(sensor, xyz[n])) ** 2
        if count > 0.0:
            depth = sums[HEIGHT, m, k] / sums[WEIGHT, m, k] - z
            if abs(depth) > limits[0] and abs(depth) > _limit(
                _own_slope(sums, m, k), sums[VARIANCE, m, k] / count, noise, limits
            ):
                if depth > 0.0:
                    sums[LOW_WEIGHT, m, k] += weight
                    sums[LOW_HEIGHT, m, k] += weight * z
                    continue
                sums[LOW_WEIGHT, m, k] += sums[WEIGHT, m, k]
                sums[LOW_HEIGHT, m, k] += sums[HEIGHT, m, k]
                sums[:LOW_WEIGHT, m, k] = 0.0
        sums[COUNT, m, k] += 1.0
        sums[WEIGHT, m, k] += weight
        sums[HEIGHT, m, k] += weight * z
        sums[VARIANCE, m, k] += noise
        x, y = xyz[n, 0] - _middle(place, 0, k), xyz[n, 1] - _middle(place, 1, m)
        sums[X, m, k] += x
        sums[Y, m, k] += y
        sums[XX, m, k] += x * x
        sums[XY, m, k] += x * y
        sums[YY, m, k] += y * y


@compiled()
def follow_rays(sensor, xyz, turn, top, height, place, sums, limits, highest, below, beside):  # type: ignore[no-untyped-def]
    """Look where rays pass below what the points of each cell show.

    A ray says nothing of the cell before its end: it may have ended at what is there.

    turn: every so manieth ray is followed, and the first of them
    height: (ny, nx) that they are compared with; top: the highest
    highest: (ny, nx) of the points in each cell, -inf without
    below: (ny, nx) whether a ray is deeper than the tolerance
    beside: (2, ny, nx) how far from the middle of the points the nearest ray that contradicts them passes on each side,
        inf without
    """
    edge, rows, columns = place[2], sums.shape[1], sums.shape[2]
    for n in range(xyz.shape[0]):
        m, k = _cell(xyz[n, 0], xyz[n, 1], place, sums)
        if m >= 0:
            highest[m, k] = max(highest[m, k], xyz[n, 2])
        d_x, d_y, d_z = xyz[n, 0] - sensor[0], xyz[n, 1] - sensor[1], xyz[n, 2] - sensor[2]
        length = np.sqrt(d_x * d_x + d_y * d_y)
        if n % turn[0] != turn[1] or length < edge:
            continue
        begin = 0.0
        if sensor[2] > top:  # nothing to meet before the ray is as low as the highest ground
            if d_z >= 0.0:
                continue
            begin = (top - sensor[2]) / d_z
        full = np.sqrt(d_x * d_x + d_y * d_y + d_z * d_z)
        steps = int(length / (STEP * edge)) + 1
        u, v = (sensor[0] - place[0]) / edge, (sensor[1] - place[1]) / edge
        u_step, v_step, z_step = d_x / edge / steps, d_y / edge / steps, d_z / steps
        last_m, last_k = -1, -1
        for step in range(int(begin * steps), steps - 1):
            x, y = u + (step + 0.5) * u_step, v + (step + 0.5) * v_step
            if x < 0.0 or y < 0.0 or x >= columns or y >= rows:
                continue
            m, k = int(y), int(x)
            depth = height[m, k] - sensor[2] - (step + 0.5) * z_step
            if depth > limits[0] and (m != last_m or k != last_k):  # not where nothing is known
                last_m, last_k = m, k
                below[m, k] = True
                far = (step + 0.5) / steps * full
                if depth > _limit_at(m, k, far, sums, limits):
                    count = sums[COUNT, m, k]
                    from_x = sensor[0] - _middle(place, 0, k) - sums[X, m, k] / count
                    from_y = sensor[1] - _middle(place, 1, m) - sums[Y, m, k] / count
                    off = (from_y * d_x - from_x * d_y) / length
                    side = 0 if off > 0.0 else 1
                    beside[side, m, k] = min(beside[side, m, k], abs(off))


@compiled()
def judge(sensor, place, sums, limits, height, highest, beside, agreed, contradicted):  # type: ignore[no-untyped-def]
    """Mark cells (ny, nx) that points there or in a cell around agree with, and those that a cloud contradicts.

    These are those where its rays pass on both sides of the middle of the points, closer together than the points are
    wide, each with those of the cells around that rays contradict too: a post that stands there may fit in between.
    """
    rows, columns = height.shape
    for m in range(rows):
        for k in range(columns):
            if np.isnan(height[m, k]):
                continue
            top = -np.inf
            for j in range(max(m - 1, 0), min(m + 2, rows)):
                for i in range(max(k - 1, 0), min(k + 2, columns)):
                    top = max(top, highest[j, i])
            d_x, d_y = _middle(place, 0, k) - sensor[0], _middle(place, 1, m) - sensor[1]
            squared = d_x * d_x + d_y * d_y
            depth, far = height[m, k] - top, np.sqrt(squared + (height[m, k] - sensor[2]) ** 2)
            if depth <= limits[0] or depth <= _limit_at(m, k, far, sums, limits):
                agreed[m, k] = True
            elif min(beside[0, m, k], beside[1, m, k]) < np.inf and squared > 0.0:
                length = np.sqrt(squared)
                contradicted[m, k] = _is_seen_through(
                    m, k, -d_y / length, d_x / length, beside, sums, place[2]
                )


@compiled()
def _is_seen_through(m, k, n_x, n_y, beside, sums, edge):  # type: ignore[no-untyped-def]
    """Whether the rays on both sides of a cell's points are closer together than the points are wide.

    n_x, n_y: unit vector across the rays; the width is that of a band of even density with the points' variance along
    it, less what they scatter by
    """
    middle = (n_x * sums[X, m, k] + n_y * sums[Y, m, k]) / sums[COUNT, m, k]
    count, noise, first, second, left, right = 0.0, 0.0, 0.0, 0.0, np.inf, np.inf
    for j in range(max(m - 1, 0), min(m + 2, sums.shape[1])):
        for i in range(max(k - 1, 0), min(k + 2, sums.shape[2])):
            if beside[0, j, i] < np.inf or beside[1, j, i] < np.inf:
                s = sums[:, j, i]
                at = ((i - k) * n_x + (j - m) * n_y) * edge
                along = n_x * s[X] + n_y * s[Y]
                count += s[COUNT]
                noise += s[VARIANCE]
                first += along + s[COUNT] * at
                second += n_x * n_x * s[XX] + 2.0 * n_x * n_y * s[XY] + n_y * n_y * s[YY]
                second += 2.0 * at * along + s[COUNT] * at * at
                for ray in (beside[0, j, i], -beside[1, j, i]):
                    off = at + along / s[COUNT] + ray - middle
                    if off > 0.0:
                        left = min(left, off)
                    else:
                        right = min(right, -off)
    variance = second / count - (first / count) ** 2 - noise / count
    return (left + right) ** 2 <= 12.0 * variance


@njit(inline="always")
def _distance(a, b):  # type: ignore[no-untyped-def]
    return np.sqrt((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 + (a[2] - b[2]) ** 2)


@njit(inline="always")
def _cell(x, y, place, sums):  # type: ignore[no-untyped-def]
    """Row and column of a position, -1 outside."""
    k = int(np.floor((x - place[0]) / place[2]))
    m = int(np.floor((y - place[1]) / place[2]))
    if k < 0 or m < 0 or k >= sums.shape[2] or m >= sums.shape[1]:
        return -1, -1
    return m, k


@compiled()
def _limit_at(m, k, far, sums, limits):  # type: ignore[no-untyped-def]
    """Depth below a cell that a ray of length `far` may have without contradicting it."""
    ray = limits[2] ** 2 + (limits[3] * far) ** 2
    return _limit(_own_slope(sums, m, k), sums[VARIANCE, m, k] / sums[COUNT, m, k], ray, limits)


@njit(inline="always")
def _limit(rise, variance, ray, limits):  # type: ignore[no-untyped-def]
    return limits[0] + rise + limits[1] * np.sqrt(variance + ray)


@compiled()
def _own_slope(sums, m, k):  # type: ignore[no-untyped-def]
    """Rise of the points' heights over one cell; where a cell beside has none, it is taken to be as high."""
    here = sums[HEIGHT, m, k] / sums[WEIGHT, m, k]
    squared = 0.0
    for axis in range(2):
        low = high = here
        j, i = (m, k - 1) if axis == 0 else (m - 1, k)
        if j >= 0 and i >= 0 and sums[COUNT, j, i] > 0.0:
            low = sums[HEIGHT, j, i] / sums[WEIGHT, j, i]
        j, i = (m, k + 1) if axis == 0 else (m + 1, k)
        if j < sums.shape[1] and i < sums.shape[2] and sums[COUNT, j, i] > 0.0:
            high = sums[HEIGHT, j, i] / sums[WEIGHT, j, i]
        squared += (0.5 * (high - low)) ** 2
    return np.sqrt(squared)


@njit(inline="always")
def _middle(place, axis, index):  # type: ignore[no-untyped-def]
    """x (axis 0) or y (1) of the middle of a column or row of cells."""
    return place[axis] + (index + 0.5) * place[2]
