"""The process behind every terrain map: its tables take a while to compute and are made once."""

from __future__ import annotations

from functools import lru_cache

from gp_core.grid import Blocks, Grid, GridGP, Tiles, TileSize
from gp_core.kernels import RBF

__all__ = ["GLANCE", "Blocks", "process_on", "prototype"]

EXPECTED_NOISE_VARIANCE = 0.1**2
"""Square metres, of one point: the lattice is made for it. Every point comes with a variance of its own, which in a
dense cloud is about this, because what its points have in common counts in full for each of them (mapping/noise.py)."""

GLANCE = Tiles(
    mean=TileSize(core=4.0, halo=2.0, window=1.0, cutoff=1e-6),
    variance=TileSize(core=4.0, halo=1.0, window=0.4, cutoff=1e-6),
    likelihood=TileSize(core=4.0, halo=1.0, window=1.0, cutoff=1e-6),
)
"""Tiles for a surface that points are compared with, not one that is given away: a quarter of the time. Where there are
points its mean is within a tenth of a point's standard deviation for half of the cells, within one for 99 %."""


@lru_cache(maxsize=8)
def prototype(
    length_scale: float, relief_std: float, resolution: float, tiles: Tiles | None = None
) -> GridGP:
    """A process with the tables of its kernel, shared by every window."""
    kernel = relief_std**2 * RBF(length_scale)
    return GridGP(Grid((0.0, 0.0), (1, 1), resolution), kernel, EXPECTED_NOISE_VARIANCE, tiles=tiles)


def process_on(grid: Grid, mean: float, length_scale: float, relief_std: float) -> GridGP:
    """A process without points: f ~ GP(mean, relief_std^2 RBF(length_scale)) on the cells of `grid`."""
    return prototype(length_scale, relief_std, grid.resolution).like(grid, mean)
