"""Tiles of modes: the solver for smooth kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.axes import Grid
from gp_core.grid.likelihood import tile_likelihood
from gp_core.grid.marginal_likelihood import CandidateLikelihood, MarginalLikelihood
from gp_core.grid.prior import Prior
from gp_core.grid.sampling import posterior_samples
from gp_core.grid.statistics import COUNT, Mask, Statistics
from gp_core.grid.tile_prior import TilePrior
from gp_core.grid.tile_surface import TileSurface
from gp_core.grid.tiles import TileModel, TileSize, make_tile_model, tile_blocks
from gp_core.grid.tiling import TileField
from gp_core.grid.trend import TrendBasis
from gp_core.grid.workers import Workers, single_threaded_blas


@dataclass(frozen=True)
class Tiles:
    """Sizes of the tiles for the mean, for the variance and for the likelihood.

    The mean needs the widest halo: across a hole, information about it travels farthest.
    """

    mean: TileSize
    variance: TileSize
    likelihood: TileSize


DEFAULT_TILES: Final = Tiles(
    TileSize(core=5.0, halo=4.0, window=1.8, cutoff=4e-8),
    TileSize(core=4.0, halo=2.0, window=0.7, cutoff=3e-7),
    TileSize(core=4.0, halo=3.0, window=2.0, cutoff=1e-8),
)
FIT_TILES: Final = TileSize(core=5.0, halo=0.5, window=2.0, cutoff=3e-9, max_modes=260)


class TileSolver:
    """Tiles of modes, for smooth kernels."""

    def __init__(self, prior: TilePrior, tiles: Tiles) -> None:
        self.prior = prior
        self._tiles = tiles
        self._likelihood_model: TileModel | None = None
        with single_threaded_blas():
            self._models = make_tile_model(prior, tiles.mean), make_tile_model(prior, tiles.variance)

    def keep_tables(self, tolerance: float | None) -> None:
        """None are kept: to compute them takes no longer than to read them."""

    def surface(self, grid: Grid, s: Statistics, right_hand_sides: int, workers: Workers) -> TileSurface:
        return TileSurface(self.prior, self._models, grid, s, right_hand_sides, workers)

    def samples(self, n: int, s: Statistics, grid: Grid, workers: Workers, rng: np.random.Generator) -> Array:
        return posterior_samples(n, self.prior, self._models[0], s, grid, workers, rng)

    def likelihood(
        self, s: Statistics, workers: Workers, basis: TrendBasis, *, gradient: bool, max_parts: int | None
    ) -> MarginalLikelihood:
        with single_threaded_blas():
            if self._likelihood_model is None:
                self._likelihood_model = make_tile_model(self.prior, self._tiles.likelihood)
            model = self._likelihood_model
            field = TileField(model, s.y, s.x)
            all_tiles = max_parts is None or field.stale.size <= max_parts
            chosen = None if all_tiles else _choose_tiles(field, s, max_parts or 0)
            return tile_likelihood(self.prior, model, s, basis, tiles=chosen, gradient=gradient)

    def candidate_likelihood(
        self, s: Statistics, workers: Workers, basis: TrendBasis, max_parts: int
    ) -> CandidateLikelihood:
        blocks = tile_blocks(self.prior, FIT_TILES)
        field = TileField(make_tile_model(self.prior, FIT_TILES, blocks), s.y, s.x)
        chosen = _choose_tiles(field, s, max_parts)

        def evaluate(candidate: Prior, noise_factor: float) -> MarginalLikelihood:
            if not isinstance(candidate, TilePrior):
                raise ValueError("a smooth kernel can't become a rough one on its lattice: make a new map")
            model = make_tile_model(candidate, FIT_TILES, blocks)
            return tile_likelihood(candidate, model, s, basis, noise_factor=noise_factor, tiles=chosen)

        return evaluate


def _choose_tiles(tiles: TileField, s: Statistics, max_tiles: int) -> Mask:
    """At most `max_tiles` tiles with data, those of a regular subset."""
    touched = tiles.tiles_touching(s.totals[..., COUNT] > 0.0)
    step = 1
    while touched[::step, ::step].sum() > max_tiles:
        step += 1
    chosen: Mask = np.zeros_like(touched)
    chosen[::step, ::step] = touched[::step, ::step]
    return chosen
