"""Maps of tree crowns are told from maps of ground, and refused."""

from __future__ import annotations

import numpy as np
import pytest

from gpgmap_ros.closure import ClosureConfig, NotComparable, register
from gpgmap_ros.closure.acceptance import MAX_DETAIL_SLOPE
from gpgmap_ros.closure.registration.canopy import detail_slope
from gpgmap_ros.closure.registration.registration_map import make_registration_map
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping import GPGMap, gpgmap_from_points

SMOOTH = with_settings(
    Config(),
    {
        "mapping.kernel": "rbf",
        "mapping.learn_noise": False,
        "mapping.length_scale": 2.5,
        "mapping.relief_std": 6.0,
    },
)
"""As submaps are made."""


def hills(xy: np.ndarray) -> np.ndarray:
    """Steep ground: slopes of up to 45 degrees, over tens of metres."""
    return 8.0 * np.sin(xy[:, 0] / 11.0) + 6.0 * np.cos(xy[:, 1] / 9.0) + 0.1 * np.sin(2.0 * xy.sum(axis=1))


def map_of(crowns: bool, seed: int = 0) -> GPGMap:
    rng = np.random.default_rng(seed)
    xy = rng.uniform(-20.0, 20.0, (6000, 2))
    z = hills(xy) + rng.normal(0.0, 0.03, len(xy))
    if crowns:
        trees = np.random.default_rng(9).uniform(-20.0, 20.0, (90, 2))
        off = np.hypot(*(xy[:, None] - trees).transpose(2, 0, 1))
        height = np.where(off < 2.5, 12.0 * np.sqrt(np.clip(1.0 - (off / 2.5) ** 2, 0.0, None)), 0.0).max(
            axis=1
        )
        z = z + height * rng.uniform(0.6, 1.0, len(xy))  # leaves let some beams in
    return gpgmap_from_points(np.column_stack([xy, z]), 0.5, SMOOTH)


def test_crowns_are_refused_and_the_hill_under_them_is_not() -> None:
    ground = make_registration_map(map_of(crowns=False), ClosureConfig())
    assert detail_slope(ground.slope_x, ground.slope_y, ground.weight > 0.0) < 0.3 * MAX_DETAIL_SLOPE
    with pytest.raises(
        NotComparable, match=r"no ground: its slopes change by \d+ deg.*use filter.lowest_surface"
    ):
        make_registration_map(map_of(crowns=True), ClosureConfig())
    found = register(map_of(crowns=True), map_of(crowns=False, seed=1))
    assert not found.accepted
    assert found.reason.startswith("source: the map is no ground")


def test_steep_but_smooth_slopes_are_ground() -> None:
    """An even slope of 60 degrees has no detail at all."""
    slope = np.full((40, 40), np.tan(np.radians(60.0)))
    assert detail_slope(slope, 0.0 * slope, np.ones(slope.shape, dtype=bool)) < 1e-9
    assert detail_slope(slope, slope, np.zeros(slope.shape, dtype=bool)) == 0.0
