"""Which points are used, and how far they are trusted."""

from __future__ import annotations

import numpy as np

from gpgmap_ros.config import FilterConfig, NoiseConfig
from gpgmap_ros.mapping.filters import height_variance, keep_ground, ranges_from


def test_range_and_height_are_relative_to_the_sensor() -> None:
    sensor = np.array([10.0, 20.0, 5.0])
    offsets = np.array([[0.1, 0, 0], [3, 0, -1], [0, 40, 0], [2, 0, 1.5], [2, 0, -4]])
    xyz = sensor + offsets
    ranges = ranges_from(xyz, sensor)
    np.testing.assert_allclose(ranges, np.linalg.norm(offsets, axis=1))
    config = FilterConfig(min_range=0.5, max_range=30.0, min_height=-3.0, max_height=1.0)
    assert keep_ground(xyz, sensor, ranges, config).tolist() == [False, True, False, False, False]


def test_noise_grows_with_range() -> None:
    variance = height_variance(np.array([0.0, 10.0]), NoiseConfig(height_std=0.02, range_factor=0.003))
    np.testing.assert_allclose(variance, [0.02**2, 0.05**2])
