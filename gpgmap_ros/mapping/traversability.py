"""Where the robot can drive, as a probability: slopes from the gradient's posterior, steps from the elevation's.

    P(traversable) = P(|g| <= tan(max_slope)) P(step <= max_step)

Steep places are stepped places, so the two events help each other: the product errs on the careful side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import ndtr

from gpgmap_ros.arrays import Array
from gpgmap_ros.config import TraversabilityConfig

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
REACH = 4.0  # standard deviations that hold all but 6e-5 of a Gaussian: over more of them, nodes are spent on nothing
BLOCK = 1 << 16  # cells at a time: the integral has twenty numbers for each, and a map has millions
MIN_STD = 1e-6  # m/m or m; keeps what is said to be exact from dividing by zero


def probability_gentle(
    gradient_x: Array, gradient_y: Array, variance_x: Array, variance_y: Array, limit: float
) -> Array:
    """P(|g| <= limit) for g ~ N((gradient_x, gradient_y), diag(variance_x, variance_y)), element by element.

        integral over u in [-limit, limit] of  N(u) [F(c(u)) - F(-c(u))] du,   c(u) = sqrt(limit^2 - u^2)

    F is the distribution function of the other component; u = limit sin(t) makes the ends of the disc smooth. By
    Gauss-Legendre quadrature: off by less than 1e-4 in 999 of 1000 cells, by 2e-3 at worst. NaN where an input is NaN
    or a variance is infinite.
    """
    inputs = np.broadcast_arrays(gradient_x, gradient_y, variance_x, variance_y)
    out = np.empty(inputs[0].size)
    x, y, x_variance, y_variance = (part.reshape(-1) for part in inputs)
    for start in range(0, out.size, BLOCK):
        block = slice(start, start + BLOCK)
        out[block] = _integrate_block(x[block], y[block], x_variance[block], y_variance[block], limit)
    return out.reshape(inputs[0].shape)


def _integrate_block(
    gradient_x: Array, gradient_y: Array, variance_x: Array, variance_y: Array, limit: float
) -> Array:
    """`probability_gentle` of some cells (N,)."""
    mean = np.stack([gradient_x, gradient_y]).astype(np.float64)
    std = np.sqrt(np.stack([variance_x, variance_y]).astype(np.float64))
    std = np.maximum(std, MIN_STD)
    out = np.full(mean.shape[1:], np.nan)
    valid = np.isfinite(mean).all(axis=0) & np.isfinite(std).all(axis=0)
    # most of a well-known map is beyond doubt: |g| is not within five standard deviations of the limit
    length, spread = np.hypot(*mean), 5.0 * std.max(axis=0)
    out[valid & (length + spread <= limit)], out[valid & (length - spread >= limit)] = 1.0, 0.0
    valid &= np.abs(length - limit) < spread
    mean, std = np.abs(mean[:, valid]), std[:, valid]  # the disc is symmetric
    swap = _smoothness(mean[::-1], std[::-1], limit) > _smoothness(mean, std, limit)
    mean, std = (np.where(swap, pair[::-1], pair) for pair in (mean, std))
    low, high = (np.clip(mean[0] + side * REACH * std[0], -limit, limit) for side in (-1.0, 1.0))
    from_angle, to_angle = np.arcsin(low / limit), np.arcsin(high / limit)
    total = np.zeros(mean.shape[1])
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        angle = from_angle + 0.5 * (node + 1.0) * (to_angle - from_angle)
        half = limit * np.cos(angle)
        density = np.exp(-0.5 * ((limit * np.sin(angle) - mean[0]) / std[0]) ** 2)
        total += (
            weight * half * density * (ndtr((half - mean[1]) / std[1]) - ndtr((-half - mean[1]) / std[1]))
        )
    total *= 0.5 * (to_angle - from_angle) / (std[0] * math.sqrt(2.0 * math.pi))
    out[valid] = np.clip(total, 0.0, 1.0)
    return out


def _smoothness(mean: Array, std: Array, limit: float) -> Array:
    """Over how many standard deviations of u = component 0 the bracket in `probability_gentle` goes from 0 to 1.

    Where the edge of the disc passes the mean it has the slope u / v, which squeezes the spread of v; where it is
    level its curvature 1 / limit does.
    """
    u, v = limit * mean / np.maximum(np.hypot(*mean), 1e-12)
    by_slope = std[1] * np.maximum(v, std[1]) / np.maximum(u, 1e-12)
    out: Array = np.minimum(by_slope, np.sqrt(2.0 * limit * std[1])) / std[0]
    return out


def probability_low_step(
    elevation: Array, variance: Array, resolution: float, config: TraversabilityConfig
) -> Array:
    """P(step <= max_step) at every cell: the lowest of the four directions through it.

    A step is the difference of the heights half a `step_distance` to either side. Its variance is the sum of the two:
    heights close by err together, so this is an upper bound. Directions with an unknown end are left out; a cell with
    none is NaN only if it is unknown itself.
    """
    lowest = np.where(np.isfinite(elevation), 1.0, np.nan)
    for ahead, behind, middle in opposite_ends(elevation.shape, resolution, config.step_distance):
        rise = elevation[ahead].astype(np.float64) - elevation[behind]
        std = np.sqrt(np.maximum(variance[ahead].astype(np.float64) + variance[behind], MIN_STD**2))
        low = ndtr((config.max_step - rise) / std) - ndtr((-config.max_step - rise) / std)
        lowest[middle] = np.where(np.isnan(low), lowest[middle], np.minimum(lowest[middle], low))
    return lowest


Window = tuple[slice, slice]


def opposite_ends(
    shape: tuple[int, ...], resolution: float, distance: float
) -> Iterator[tuple[Window, Window, Window]]:
    """For the four directions: cells ahead, cells behind, and the cells in the middle between them."""
    straight = max(1, round(distance / (2.0 * resolution)))
    diagonal = max(1, round(straight / math.sqrt(2.0)))
    for dy, dx in ((0, straight), (straight, 0), (diagonal, diagonal), (diagonal, -diagonal)):
        if 2 * abs(dy) >= shape[0] or 2 * abs(dx) >= shape[1]:
            continue  # the map is too small to have both ends
        yield tuple(  # type: ignore[misc]
            (_part(shape[0], dy, side * dy), _part(shape[1], dx, side * dx)) for side in (1, -1, 0)
        )


def _part(count: int, margin: int, offset: int) -> slice:
    """The cells `margin` away from both ends of an axis, shifted by `offset`."""
    margin = abs(margin)
    return slice(margin + offset, count - margin + offset)


def traversability(layers: Any, resolution: float, config: TraversabilityConfig) -> Array:
    """P(slope <= max_slope and step <= max_step); NaN where unknown. float32, in bands of rows: see `BLOCK`."""
    rows, columns = layers["elevation"].shape
    ends = opposite_ends((rows, columns), resolution, config.step_distance)
    reach = max((middle[0].start for _, _, middle in ends), default=0)
    height = max(BLOCK // max(columns, 1), 1)
    out = np.empty((rows, columns), np.float32)
    for row in range(0, rows, height):
        band = slice(row, min(row + height, rows))
        around = slice(max(row - reach, 0), min(row + height + reach, rows))
        gentle = probability_gentle(
            layers["gradient_x"][band],
            layers["gradient_y"][band],
            layers["gradient_x_variance"][band],
            layers["gradient_y_variance"][band],
            math.tan(config.max_slope),
        )
        low = probability_low_step(
            layers["elevation"][around], layers["variance"][around], resolution, config
        )
        out[band] = gentle * low[row - around.start : band.stop - around.start]
    return out
