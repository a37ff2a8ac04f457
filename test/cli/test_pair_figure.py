"""What is drawn of two registered maps."""

from __future__ import annotations

import numpy as np

from gp_core.grid import Grid
from gpgmap_ros.viz.pairs import Pair, Side, residual_limit


def side(elevation: np.ndarray) -> Side:
    flat = np.zeros_like(elevation)
    return Side(elevation, flat, flat, np.full_like(elevation, 0.02**2), np.ones_like(elevation))


def test_differences_are_drawn_on_the_scale_of_the_middle_ones():
    """Where maps go on beyond their data they differ by metres: that must not hide centimetres in the middle."""
    rng = np.random.default_rng(0)
    above = rng.normal(scale=0.05, size=(40, 40))
    above[:4] = 30.0
    pair = Pair(Grid((0.0, 0.0), (40, 40), 1.0), side(above), side(np.zeros((40, 40))))
    assert 0.15 < residual_limit(pair) < 0.3


def test_differences_in_standard_deviations_follow_the_variances_that_were_found():
    rng = np.random.default_rng(1)
    above = rng.normal(scale=0.1, size=(40, 40))
    pair = Pair(Grid((0.0, 0.0), (40, 40), 1.0), side(above), side(np.zeros((40, 40))))
    found = 0.1**2 / (2.0 * 0.02**2)
    np.testing.assert_allclose(pair.standardised_residual(found).std(), 1.0, rtol=0.1)
