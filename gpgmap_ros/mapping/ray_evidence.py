"""What the rays of a cloud say of the cells that they pass through: the compiled loops of clearing.py.

Of the points of each cell there are sums: how many, of their weights in the map, of their weighted heights, of what
single heights are uncertain by, squared, and of x and y. They are those of the highest layer in the cell; of what is
clearly below it there are the sums of weights and weighted heights.

    place: x and y of the window's corner, edge of the cells
    sums: (SUMS, ny, nx)
    limits: tolerance, threshold, standard deviation of the rays' height and of their direction
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from gp_core.compiled import compiled

COUNT, WEIGHT, HEIGHT, VARIANCE, X, Y, LOW_WEIGHT, LOW_HEIGHT, SUMS = range(9)
SECTORS: Final = 8
"""Of the directions from the middle of a cell's points to a ray that passes by: as many as a byte has bits."""
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
        sums[X, m, k] += xyz[n, 0]
        sums[Y, m, k] += xyz[n, 1]


@compiled()
def follow_rays(sensor, xyz, turn, top, height, place, sums, limits, supported, rays, sides):  # type: ignore[no-untyped-def]
    """Mark cells that points agree with, and count the rays that contradict each.

    turn: every so manieth ray is followed, and the first of them; height: (ny, nx) that they are
    compared with; top: the highest
    rays: (2, ny, nx) those that contradict a cell, and those deeper than the tolerance; sides: (ny, nx) bits of the
        sectors in which the former pass
    """
    edge, rows, columns = place[2], sums.shape[1], sums.shape[2]
    for n in range(xyz.shape[0]):
        m, k = _cell(xyz[n, 0], xyz[n, 1], place, sums)
        if m >= 0 and not np.isnan(height[m, k]):
            depth, far = height[m, k] - xyz[n, 2], _distance(sensor, xyz[n])
            if depth <= limits[0] or depth <= _limit_at(m, k, far, sums, limits):
                supported[m, k] = True
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
        for step in range(int(begin * steps), steps):
            x, y = u + (step + 0.5) * u_step, v + (step + 0.5) * v_step
            if x < 0.0 or y < 0.0 or x >= columns or y >= rows:
                continue
            m, k = int(y), int(x)
            depth = height[m, k] - sensor[2] - (step + 0.5) * z_step
            if depth > limits[0] and (m != last_m or k != last_k):  # not where nothing is known
                last_m, last_k = m, k
                rays[1, m, k] += 1
                far = (step + 0.5) / steps * full
                if depth > _limit_at(m, k, far, sums, limits):
                    rays[0, m, k] += 1
                    sides[m, k] |= _side(m, k, sensor, d_x / length, d_y / length, far, sums, limits)


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


@compiled()
def _side(m, k, sensor, u_x, u_y, far, sums, limits):  # type: ignore[no-untyped-def]
    """The bit of the sector in which a ray of direction (u_x, u_y) passes by the middle of a cell's points.

    None where it is nearer to it than it is sure of: nobody knows then on which side.
    """
    count = sums[COUNT, m, k]
    x, y = sums[X, m, k] / count, sums[Y, m, k] / count
    off = (sensor[0] - x) * -u_y + (sensor[1] - y) * u_x  # of the ray, along its normal (-u_y, u_x)
    if off * off < limits[2] ** 2 + (limits[3] * far) ** 2:
        return np.uint8(0)
    angle = np.arctan2(off * u_x, off * -u_y)
    return np.uint8(1 << (int(np.floor((angle / (2.0 * np.pi) + 1.0) * SECTORS + 0.5)) % SECTORS))
