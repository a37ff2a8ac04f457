"""The two ways to a posterior: tiles of modes for smooth kernels, strips of rows for rough ones.

`GridGP` keeps the statistics and asks its solver for everything that depends on the prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.axes import Grid
from gp_core.grid.likelihood import Evidence, evidence
from gp_core.grid.markov.likelihood import strip_evidence
from gp_core.grid.markov.prior import MarkovPrior
from gp_core.grid.markov.sampling import strip_samples
from gp_core.grid.markov.strips import StripModel
from gp_core.grid.markov.surface import MarkovSurface
from gp_core.grid.prior import Prior
from gp_core.grid.sampling import posterior_samples
from gp_core.grid.statistics import COUNT, Mask, Statistics
from gp_core.grid.surface import Surface
from gp_core.grid.tiles import TileModel, TileSize, make_tile_model, tile_blocks
from gp_core.grid.tiling import TileField
from gp_core.grid.workers import Workers, single_threaded_blas


@dataclass(frozen=True)
class Tiles:
    """Sizes of the tiles for the mean, for the variance and for the likelihood.

    The mean needs the widest halo: across a hole, information about it travels farthest.
    """

    mean: TileSize
    variance: TileSize
    likelihood: TileSize


SMOOTH: Final = Tiles(
    TileSize(core=5.0, halo=4.0, window=1.8, cutoff=4e-8),
    TileSize(core=4.0, halo=2.0, window=0.7, cutoff=3e-7),
    TileSize(core=4.0, halo=3.0, window=2.0, cutoff=1e-8),
)
SMOOTH_FIT: Final = TileSize(core=5.0, halo=0.5, window=2.0, cutoff=3e-9, most=260)

CandidateEvidence = Callable[[Prior | MarkovPrior, float], Evidence]
"""The likelihood, with gradient, of another prior on the same lattice and a factor on all noise variances."""


class Solver(Protocol):
    """What `GridGP` needs of a prior."""

    @property
    def prior(self) -> Prior | MarkovPrior: ...

    def surface(
        self, grid: Grid, s: Statistics, right_hand_sides: int, workers: Workers
    ) -> Surface | MarkovSurface:
        """The posterior of a window with the axes of `s`, to be brought up to date with it."""
        ...

    def samples(self, n: int, s: Statistics, grid: Grid, workers: Workers, rng: np.random.Generator) -> Array:
        """(n, ny, nx) draws of f given statistics of z - z_0, for a mean of z_0."""
        ...

    def evidence(
        self,
        s: Statistics,
        workers: Workers,
        trend: int,
        center: tuple[float, float],
        *,
        gradient: bool,
        parts: int | None = None,
    ) -> Evidence:
        """The likelihood of all points; of at most so many tiles or strips, taken as independent, with `parts`."""
        ...

    def candidate_evidence(
        self, s: Statistics, workers: Workers, trend: int, center: tuple[float, float], parts: int
    ) -> CandidateEvidence:
        """For a search over kernels."""
        ...


def make_solver(prior: Prior | MarkovPrior, tiles: Tiles | None) -> Solver:
    """tiles: sizes for a smooth kernel; None for those that hold the engine's bounds."""
    if isinstance(prior, MarkovPrior):
        return StripSolver(prior)
    return TileSolver(prior, tiles or SMOOTH)


class TileSolver:
    """Tiles of modes, for smooth kernels."""

    def __init__(self, prior: Prior, tiles: Tiles) -> None:
        self.prior = prior
        self._tiles = tiles
        self._likelihood: TileModel | None = None
        with single_threaded_blas():
            self._models = make_tile_model(prior, tiles.mean), make_tile_model(prior, tiles.variance)

    def surface(self, grid: Grid, s: Statistics, right_hand_sides: int, workers: Workers) -> Surface:
        return Surface(self.prior, self._models, grid, s, right_hand_sides, workers)

    def samples(self, n: int, s: Statistics, grid: Grid, workers: Workers, rng: np.random.Generator) -> Array:
        return posterior_samples(n, self.prior, self._models[0], s, grid, workers, rng)

    def evidence(
        self,
        s: Statistics,
        workers: Workers,
        trend: int,
        center: tuple[float, float],
        *,
        gradient: bool,
        parts: int | None = None,
    ) -> Evidence:
        with single_threaded_blas():
            if self._likelihood is None:
                self._likelihood = make_tile_model(self.prior, self._tiles.likelihood)
            field = TileField(self._likelihood, s.y, s.x)
            chosen = None if parts is None or field.stale.size <= parts else _spread_tiles(field, s, parts)
            return evidence(
                self.prior, self._likelihood, s, trend=trend, center=center, tiles=chosen, gradient=gradient
            )

    def candidate_evidence(
        self, s: Statistics, workers: Workers, trend: int, center: tuple[float, float], parts: int
    ) -> CandidateEvidence:
        blocks = tile_blocks(self.prior, SMOOTH_FIT)
        chosen = _spread_tiles(TileField(make_tile_model(self.prior, SMOOTH_FIT, blocks), s.y, s.x), s, parts)

        def found(candidate: Prior | MarkovPrior, noise_factor: float) -> Evidence:
            if not isinstance(candidate, Prior):
                raise ValueError("a smooth kernel can't become a rough one on its lattice: make a new map")
            return evidence(
                candidate,
                make_tile_model(candidate, SMOOTH_FIT, blocks),
                s,
                trend=trend,
                center=center,
                noise_factor=noise_factor,
                tiles=chosen,
            )

        return found


class StripSolver:
    """Strips of rows, for rough kernels."""

    def __init__(self, prior: MarkovPrior) -> None:
        self.prior = prior
        self._likelihood: StripModel | None = None
        with single_threaded_blas():
            self._model = StripModel.for_posterior(prior)

    def surface(self, grid: Grid, s: Statistics, right_hand_sides: int, workers: Workers) -> MarkovSurface:
        return MarkovSurface(self._model, grid, s.y, s.x, right_hand_sides, workers)

    def samples(self, n: int, s: Statistics, grid: Grid, workers: Workers, rng: np.random.Generator) -> Array:
        return strip_samples(n, self._model, s, grid, workers, rng)

    def evidence(
        self,
        s: Statistics,
        workers: Workers,
        trend: int,
        center: tuple[float, float],
        *,
        gradient: bool,
        parts: int | None = None,
    ) -> Evidence:
        model = self._for_likelihood()
        chosen = None if parts is None else _spread_strips(model, s, parts)
        return strip_evidence(model, s, workers, trend=trend, center=center, strips=chosen, gradient=gradient)

    def candidate_evidence(
        self, s: Statistics, workers: Workers, trend: int, center: tuple[float, float], parts: int
    ) -> CandidateEvidence:
        model = self._for_likelihood()
        chosen = _spread_strips(model, s, parts)

        def found(candidate: Prior | MarkovPrior, noise_factor: float) -> Evidence:
            return strip_evidence(
                model.with_kernel(candidate.kernel),
                s,
                workers,
                trend=trend,
                center=center,
                noise_factor=noise_factor,
                strips=chosen,
            )

        return found

    def _for_likelihood(self) -> StripModel:
        if self._likelihood is None:
            with single_threaded_blas():
                self._likelihood = StripModel.for_likelihood(self.prior)
        return self._likelihood


def _spread_tiles(tiles: TileField, s: Statistics, most: int) -> Mask:
    """At most `most` tiles with data, those of a regular subset."""
    touched = tiles.touched(s.totals[..., COUNT] > 0.0)
    step = 1
    while touched[::step, ::step].sum() > most:
        step += 1
    chosen: Mask = np.zeros_like(touched)
    chosen[::step, ::step] = touched[::step, ::step]
    return chosen


def _spread_strips(model: StripModel, s: Statistics, most: int) -> Mask | None:
    """At most `most` strips, evenly spread; None, for all in their order, where there are no more."""
    count = -(-s.x.count // model.core)
    if count <= most:
        return None
    chosen: Mask = np.zeros(count, dtype=np.bool_)
    chosen[:: -(-count // most)] = True
    return chosen
