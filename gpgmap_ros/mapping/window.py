"""The process behind every terrain map: its tables take a while to compute and are made once."""

from __future__ import annotations

from functools import lru_cache

from gp_core.grid import Blocks, Grid, GridGP
from gp_core.kernels import RBF

__all__ = ["Blocks", "process_on", "prototype"]

EXPECTED_NOISE_VARIANCE = 0.1**2
"""Square metres, of one point: the lattice is made for it. Every point comes with a variance of its own, which in a
dense cloud is about this, because what its points have in common counts in full for each of them (mapping/noise.py)."""


@lru_cache(maxsize=4)
def prototype(length_scale: float, relief_std: float, resolution: float) -> GridGP:
    """A process with the tables of its kernel, shared by every window."""
    kernel = relief_std**2 * RBF(length_scale)
    return GridGP(Grid((0.0, 0.0), (1, 1), resolution), kernel, EXPECTED_NOISE_VARIANCE)


def process_on(grid: Grid, mean: float, length_scale: float, relief_std: float) -> GridGP:
    """A process without points: f ~ GP(mean, relief_std^2 RBF(length_scale)) on the cells of `grid`."""
    return prototype(length_scale, relief_std, grid.resolution).like(grid, mean)
