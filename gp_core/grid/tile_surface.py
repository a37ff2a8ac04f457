"""The posterior of a window under a smooth kernel: mean and variance at cells, points and blocks, by tiles."""

from __future__ import annotations

from typing import Final

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.axes import Grid
from gp_core.grid.layers import MeanLayers, VarianceLayers, mean_at, variance_at
from gp_core.grid.local_noise import block_coefficients
from gp_core.grid.markov.detail import Detail, DetailAt
from gp_core.grid.mean_tiles import MeanField
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.tile_prior import TilePrior
from gp_core.grid.tiles import TileModel
from gp_core.grid.tiling import Images
from gp_core.grid.variance_tiles import VarianceField
from gp_core.grid.workers import Workers, single_threaded_blas

_FACTOR_BYTES: Final = 1100
"""Memory per cell up to which the factors of the mean's tiles are kept: a full map then stays below 2 KB."""


_NO_DETAIL: Final = "a surface of tiles has no detail: estimate_detail finds none"


class TileSurface:
    """Tiles and layers of a window, brought up to date where the data have changed.

    prior, models: as shared by all windows of a kernel; models: tiles of the mean and of the variance
    grid: the cells
    s: statistics of the window, of which only the axes are looked at here
    right_hand_sides: the heights, and the functions of a trend
    """

    def __init__(
        self,
        prior: TilePrior,
        models: tuple[TileModel, TileModel],
        grid: Grid,
        s: Statistics,
        right_hand_sides: int,
        workers: Workers,
    ) -> None:
        self.prior = prior
        self._workers = workers
        mean, variance = models
        cells = mean.x.core * mean.x.spacing * mean.y.core * mean.y.spacing / grid.resolution**2
        keep = 2 * mean.rank**2 <= _FACTOR_BYTES * cells
        self.means = MeanField(mean, s.y, s.x, right_hand_sides, keep_factors=keep)
        self.variances = VarianceField(variance, s.y, s.x)
        self._images = Images.covering([self.means, self.variances], right_hand_sides)
        with single_threaded_blas():
            self._mean_layers = MeanLayers(self.means, grid.y, grid.x)
            self._variance_layers = VarianceLayers(self.variances, prior, grid.y, grid.x)

    @property
    def fallbacks(self) -> int:
        return self.means.fallbacks + self.variances.fallbacks

    @property
    def nbytes(self) -> int:
        arrays = (
            self._images.weights,
            self._images.heights,
            self.variances.pairs,
            self._mean_layers.layers,
            self._variance_layers.layers,
            self._variance_layers.rest,
        )
        return self.means.nbytes + sum(array.nbytes for array in arrays)

    @property
    def mean_layers(self) -> Array:
        """(K, 3, ny, nx) height, d/dx and d/dy of every right-hand side."""
        return self._mean_layers.layers

    @property
    def variance_layers(self) -> Array:
        """(3, ny, nx) their variances."""
        return self._variance_layers.layers

    @property
    def unresolved_layers(self) -> Array:
        """(3, ny, nx) of these variances, what the lattice lacks: of smooth kernels next to nothing."""
        return np.zeros_like(self.variance_layers)

    def draw(self, blocks: Mask, s: Statistics, right_hand_sides: list[Array], gain: float) -> None:
        """Copy the statistics of the given blocks (J, I), each times `gain`."""
        self._images.draw_weights(blocks, s, gain)
        for k, moments in enumerate(right_hand_sides):
            self._images.draw_heights(blocks, moments, gain, k)

    def mark(self, blocks: Mask, s: Statistics) -> None:
        """Mark the tiles that depend on the given blocks (J, I) as out of date."""
        self.means.mark(blocks, s)
        self.variances.mark(blocks, s)

    def inherit(self, old: TileSurface, left: Mask, s: Statistics) -> None:
        """Copy tiles that are still valid from an earlier window. left: (J, I) its blocks that are not covered here."""
        with single_threaded_blas():
            for new, before in ((self.means, old.means), (self.variances, old.variances)):
                new.inherit(before, left)
                new.find_empty(s)
            self._mean_layers.draw(~self.means.stale, self._workers)
            self._variance_layers.draw(~self.variances.stale, self._workers)

    def solve(self, s: Statistics, gain: float, prompt: bool = False) -> None:
        """Solve all tiles that are out of date and update the layers: nothing is left for later."""
        with single_threaded_blas():
            stale = self.means.stale, self.variances.stale
            # The mean's jobs are the longer ones: begun first, they end together with the others.
            means = self.means.jobs(self._images, s, gain)
            variances = self.variances.jobs(self._images, s, gain)
            failed = self._workers.run_all(means + variances)
            self.means.fallbacks += sum(failed[: len(means)])
            self.variances.fallbacks += sum(failed[len(means) :])
            self._mean_layers.draw(stale[0], self._workers)
            self._variance_layers.draw(stale[1], self._workers)

    def renew(self, s: Statistics, gain: float) -> bool:
        return False

    def at(self, x: Array, y: Array) -> tuple[Array, Array]:
        """(K, 3, N) means and (3, N) variances of value, d/dx and d/dy at points (N,)."""
        return mean_at(self.means, x, y), variance_at(self.variances, self.prior, x, y)

    def block_means(self) -> Array:
        """(K, J, I, 6, 6) monomial coefficients of the mean of every right-hand side on every block."""
        with single_threaded_blas():
            return block_coefficients(self.means)

    def estimate_detail(self, s: Statistics, squares: Array) -> Detail | None:
        """None: what a smooth kernel has below its lattice is within the error of the lattice."""
        return None

    def detail_blocks(self, s: Statistics, detail: Detail) -> tuple[Array, Array, Array]:
        raise NotImplementedError(_NO_DETAIL)

    def detail_at(self, x: Array, y: Array, s: Statistics, detail: Detail) -> DetailAt:
        raise NotImplementedError(_NO_DETAIL)

    def detail_layers(self, s: Statistics, detail: Detail) -> DetailAt:
        raise NotImplementedError(_NO_DETAIL)

    def detail_unresolved(self, detail: Detail) -> float:
        raise NotImplementedError(_NO_DETAIL)

    def block_variances(self) -> Array:
        """(J, I) variance in the middle of every block."""
        t = self.variances.tiling
        with single_threaded_blas():
            middles = VarianceLayers(self.variances, self.prior, t.y.middles, t.x.middles)
            middles.draw(np.ones_like(self.variances.stale), self._workers)
        return np.ascontiguousarray(middles.layers[0])
