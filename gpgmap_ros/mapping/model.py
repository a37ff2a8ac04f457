"""The map's model of terrain: the prior over heights, and the Gaussian process with that prior on a grid.

The relief f(x, y) ~ GP(mean, k) with k = relief_std^2 RBF(length_scale), or, in cells, k = rough_relief^2
Matern(rough_length) of the smoothness that `mapping.kernel` names. Everything that depends on the kernel is in this
file: what it is made of, its variances at a point, how far a point counts, and the settings that must agree for two
maps to be merged.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache

import numpy as np

from gp_core.grid import Grid, GridGP, Tiles, TileSize
from gp_core.grid.markov.detail import compile_detail
from gp_core.kernels import RBF, Matern
from gp_core.kernels.base import Kernel
from gpgmap_ros.arrays import Array
from gpgmap_ros.config import MappingConfig

SMOOTHNESS = {"matern54": 1.25, "matern32": 1.5, "matern52": 2.5}
"""nu of the rough kernels by name: above 1, because a rougher surface has no gradient to map."""

ROUGH_INFORMATION = 100.0
"""Prior variance over noise variance of a point for which the lattice of a rough kernel is made: blocks of about a
cell, whatever its size."""
EXPECTED_NOISE_VARIANCE = 0.1**2
"""Square metres, of one point: the lattice of the smooth kernel is made for it. Every point comes with a variance of
its own, which in a dense cloud is about this, because what its points have in common counts in full for each of them
(mapping/noise.py)."""

APPROXIMATE_TILES = Tiles(
    mean=TileSize(core=4.0, halo=2.0, window=1.0, cutoff=1e-6),
    variance=TileSize(core=4.0, halo=1.0, window=0.4, cutoff=1e-6),
    likelihood=TileSize(core=4.0, halo=1.0, window=1.0, cutoff=1e-6),
)
"""Tiles of the approximate posterior that points are compared with: a quarter of the time. Where there are points its
mean is within a tenth of a point's standard deviation for half of the cells, within one for 99 %."""

WINDOW_SCALES = 9.0
"""Length scales around a window of a large map whose points are solved with it: as far as the engine itself looks."""
ROUGH_HALO = 16.0
"""The same in cells, of a rough kernel: nearer points hide those behind them. With 0.1 points per cell or more, means
at the edge of a window differ from those with a wide halo by no more than means in its middle do, 0.02 posterior
standard deviations (rms), which is the solver's own error; with a point in 50 cells by up to 0.07. The local scale of
the variances is learned from the blocks up to 12 cells away."""
ROUGH_BLOCK_BYTES = 2900
"""Of one block while a rough kernel is solved: measured with windows of 256 cells and their halos."""
KNOWN_CELLS = 5.0
"""Length scale in cells of the smooth kernel beyond whose data a map with a rough kernel is known just as far: its own
length is that of hills, and would call ground known that is metres from any point."""
FINE_BLOCKS = 1.5
"""Cells along a block, at most, for the ground in it to be no higher or lower than the means of the blocks around."""
CORRELATION = 0.5
"""At the distance that stands for a kernel's length when it is read back: any value well between 0 and 1 will do."""


def is_rough(mapping: MappingConfig) -> bool:
    """Whether the kernel is one of the matern ones, whose posterior the engine solves another way."""
    return mapping.kernel in SMOOTHNESS


def has_fine_blocks(mapping: MappingConfig) -> bool:
    """Whether blocks are about as small as cells, so that the mean height of a block's points is that of its ground."""
    return is_rough(mapping) and max(block_spacing(mapping)) <= FINE_BLOCKS * mapping.resolution


def model_settings(mapping: MappingConfig) -> tuple[str, ...]:
    """Settings of the group `mapping` that the kernel depends on: statistics of maps with other values do not fit."""
    return (
        "kernel",
        *(("rough_length", "rough_relief") if is_rough(mapping) else ("length_scale", "relief_std")),
    )


def correlation_length(mapping: MappingConfig) -> float:
    """Length scale of the kernel, metres."""
    return mapping.rough_length * mapping.resolution if is_rough(mapping) else mapping.length_scale


def terrain_kernel(mapping: MappingConfig) -> Kernel:
    """The prior covariance of heights, k(x, x'); kernels are hashable, so that equal ones share their tables."""
    length = correlation_length(mapping)
    form = Matern(length, nu=SMOOTHNESS[mapping.kernel]) if is_rough(mapping) else RBF(length)
    kernel: Kernel = prior_variance(mapping) * form
    return kernel


def prior_variance(mapping: MappingConfig) -> float:
    """Variance of a height before any data, k(x, x)."""
    return prior_std(mapping) ** 2


def known_variance(mapping: MappingConfig) -> float:
    """Variance up to which a cell is known.

    Of the smooth kernel it is `known_variance_ratio` of the prior variance, which is reached at a distance d from a
    place where the height is known. Of a rough one it is the variance at that d, in cells.
    """
    ratio, prior = mapping.known_variance_ratio, prior_variance(mapping)
    if not is_rough(mapping) or ratio >= 1.0:
        return ratio * prior
    reach = np.array([[known_reach(mapping), 0.0]])
    correlation = float(terrain_kernel(mapping)(reach, np.zeros((1, 2)))[0, 0]) / prior
    return prior * (1.0 - correlation**2)


def known_reach(mapping: MappingConfig) -> float:
    """Metres from a place where the height is known exactly within which cells are known."""
    ratio = mapping.known_variance_ratio
    if ratio >= 1.0:
        return float("inf")
    length = KNOWN_CELLS * mapping.resolution if is_rough(mapping) else mapping.length_scale
    return float(length * np.sqrt(-np.log1p(-ratio)))


def known_variance_at_level(mapping: MappingConfig, level: float, stated: Array) -> Array:
    """What `known_variance` has become with all noise variances multiplied by a learned level above 1.

    A level says how large noise is against the prior's relief; on smooth ground it is 20 where the sensor is as stated.
    So which cells are known must not depend on it. A cell that is just known, at correlation c with points of stated
    variance r, has prior (1 - c^2 / (1 + r / prior)) = known_variance; with level r it is what is returned.

    stated: variance r of the points around. More than `known_variance` allows for c = 1 takes several points
    """
    limit, prior = known_variance(mapping), prior_variance(mapping)
    if limit >= prior:
        return np.full(np.shape(stated), limit)
    noise = np.minimum(stated / prior, limit / (prior - limit))
    return np.asarray(prior - (prior - limit) * (1.0 + noise) / (1.0 + level * noise))


def prior_std(mapping: MappingConfig) -> float:
    """Standard deviation of a height before any data, metres."""
    return mapping.rough_relief * mapping.resolution if is_rough(mapping) else mapping.relief_std


def expected_noise_variance(mapping: MappingConfig) -> float:
    """Noise variance of a point for which the lattice is made."""
    return prior_variance(mapping) / ROUGH_INFORMATION if is_rough(mapping) else EXPECTED_NOISE_VARIANCE


def with_model_of(mapping: MappingConfig, other: MappingConfig) -> MappingConfig:
    """The settings with the kernel of others, and what it depends on."""
    return dataclasses.replace(mapping, **{name: getattr(other, name) for name in model_settings(other)})


def prior_gradient_variance(mapping: MappingConfig) -> float:
    """Variance of each component of the gradient before any data, d^2 k(x, x') / dx dx' at x = x'."""
    nu = SMOOTHNESS.get(mapping.kernel)
    shape = 1.0 if nu is None else nu / (nu - 1.0)
    return shape * prior_variance(mapping) / correlation_length(mapping) ** 2


def window_halo(mapping: MappingConfig) -> float:
    """Metres around a window of a large map whose points are solved with it."""
    return ROUGH_HALO * mapping.resolution if is_rough(mapping) else WINDOW_SCALES * mapping.length_scale


def solver_block_bytes(mapping: MappingConfig) -> int:
    """Memory that solving takes for each block of statistics, beside that of the statistics and the cells."""
    return ROUGH_BLOCK_BYTES if is_rough(mapping) else 0


def learned_settings(mapping: MappingConfig, kernel: Kernel) -> dict[str, float]:
    """The numbers among `model_settings` with which `terrain_kernel` gives `kernel`, which has the form of its own."""
    std = float(np.sqrt(kernel.diag(np.zeros((1, 2)))[0]))
    ratio = _half_correlation(kernel) / _half_correlation(terrain_kernel(mapping))
    _, length, relief = model_settings(mapping)
    unit = mapping.resolution if is_rough(mapping) else 1.0
    return {length: getattr(mapping, length) * ratio, relief: std / unit}


def _half_correlation(kernel: Kernel) -> float:
    """Distance at which the correlation has fallen to a half, by bisection of its logarithm."""
    origin = np.zeros((1, 2))
    target = CORRELATION * float(kernel.diag(origin)[0])
    low, high = np.log(1e-6), np.log(1e8)
    for _ in range(60):
        middle = 0.5 * (low + high)
        if float(kernel(origin, np.array([[np.exp(middle), 0.0]]))[0, 0]) > target:
            low = middle
        else:
            high = middle
    return float(np.exp(0.5 * (low + high)))


def cached_gp(mapping: MappingConfig, tiles: Tiles | None = None) -> GridGP:
    """A process without points whose tables, which take a while to compute, are shared by every window.

    tiles: of the solver; those of the exact posterior unless given
    """
    return _cached_gp(
        terrain_kernel(mapping),
        mapping.resolution,
        expected_noise_variance(mapping),
        tiles,
        mapping.variance_lag if is_rough(mapping) else 0.0,
    )


@lru_cache(maxsize=8)
def _cached_gp(
    kernel: Kernel, resolution: float, noise_variance: float, tiles: Tiles | None, variance_lag: float
) -> GridGP:
    grid = Grid((0.0, 0.0), (1, 1), resolution)
    return GridGP(grid, kernel, noise_variance, tiles=tiles, variance_lag=variance_lag)


def warm_up(mapping: MappingConfig, *, approximate: bool) -> None:
    """Compute the tables of a map now; `approximate`: also those of its approximate posterior, if it has one."""
    cached_gp(mapping)
    if approximate and not is_rough(mapping):
        cached_gp(mapping, APPROXIMATE_TILES)


def estimates_detail(mapping: MappingConfig, *, batch: bool) -> bool:
    """Whether a map learns relief below the lattice. batch: it is made of all its points at once"""
    wanted = mapping.detail == "always" or (batch and mapping.detail == "batch")
    return wanted and is_rough(mapping) and mapping.learn_noise


def compile_learning(mapping: MappingConfig, *, batch: bool) -> None:
    """Compile what a map learns with that a few points on level ground do not ask for. batch: see above"""
    if estimates_detail(mapping, batch=batch):
        compile_detail(terrain_kernel(mapping), block_spacing(mapping))


def keep_tables(mapping: MappingConfig) -> None:
    """Keep the tables of the windows solved so far on disk, for later starts with these settings."""
    cached_gp(mapping).keep_tables()


def make_gp(grid: Grid, mean: float, mapping: MappingConfig) -> GridGP:
    """A process without points on the cells of `grid`, which have the resolution of `mapping`."""
    return cached_gp(mapping).like(grid, mean)


def block_spacing(mapping: MappingConfig) -> tuple[float, float]:
    """Edges along x and y of the blocks in which the process keeps its statistics."""
    return cached_gp(mapping).prior.spacing


def finest_block_spacing(mapping: MappingConfig) -> tuple[float, float]:
    """The same with the kernel whose blocks are smallest."""
    kernels = ("rbf", min(SMOOTHNESS, key=SMOOTHNESS.__getitem__))
    spacings = [block_spacing(dataclasses.replace(mapping, kernel=kernel)) for kernel in kernels]
    return min(x for x, _ in spacings), min(y for _, y in spacings)


def fit_gp(
    grid: Grid, mapping: MappingConfig, xyz: Array, variance: Array, expected_variance: float
) -> GridGP:
    """A process of its own with points (N, 3), for learning: its lattice suits `expected_variance` of a point."""
    gp = GridGP(grid, terrain_kernel(mapping), expected_variance)
    gp.update(xyz[:, :2], xyz[:, 2], variance)
    return gp
