"""How near two solutions of one map must be: what docs/grid_gp.md promises, section 8.

On one machine the same calls give the same bits. Everything else (another CPU, another grouping of the tiles, another
order of the points) rounds float32 factors differently, and agrees as stated here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gp_core.grid import GridPosterior

MEAN: Final = 1e-2
"""Posterior standard deviations between two means, and between two gradients in their own."""
VARIANCE: Final = 1e-2
"""Relative difference of two variances."""


def assert_agree(one: GridPosterior, other: GridPosterior) -> None:
    sd = np.sqrt(np.maximum(one.variance, other.variance))
    assert (np.abs(one.mean - other.mean) / sd).max() < MEAN
    gradient_sd = np.sqrt(np.maximum(one.gradient_variance, other.gradient_variance))
    assert (np.abs(one.gradient - other.gradient) / gradient_sd).max() < MEAN
    np.testing.assert_allclose(one.variance, other.variance, rtol=VARIANCE)
    np.testing.assert_allclose(one.gradient_variance, other.gradient_variance, rtol=VARIANCE)
