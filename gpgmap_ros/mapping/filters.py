"""Which points of a cloud are used, and how far each may be trusted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.config import FilterConfig, NoiseConfig

Array = NDArray[np.float64]


def ranges_from(xyz: Array, sensor: Array) -> Array:
    """Distances (N,) of points (N, 3) from the sensor's position (3,)."""
    offsets = xyz - sensor
    return np.sqrt(np.einsum("ij,ij->i", offsets, offsets))


def keep_ground(xyz: Array, sensor: Array, ranges: Array, config: FilterConfig) -> NDArray[np.bool_]:
    """Mask (N,) of the points within range and height band; heights are relative to the sensor."""
    height = xyz[:, 2] - sensor[2]
    in_range = (ranges >= config.min_range) & (ranges <= config.max_range)
    return in_range & (height >= config.min_height) & (height <= config.max_height)


def height_variance(ranges: Array, config: NoiseConfig) -> Array:
    """Variance (N,) of the heights: (height_std + range_factor * range)^2."""
    return (config.height_std + config.range_factor * ranges) ** 2
