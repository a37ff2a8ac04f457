"""What `GridGP` needs of a solver, and the choice of one: tiles for smooth kernels, nested dissection for rough ones.

The kernel decides in `make_prior`, and only there. A further solver is one more class with the methods of `Solver`,
and one more case in `make_solver`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.axes import Grid
from gp_core.grid.dissection_solver import DissectionSolver
from gp_core.grid.marginal_likelihood import CandidateLikelihood, MarginalLikelihood
from gp_core.grid.markov.kept_tables import load_prior
from gp_core.grid.markov.prior import MarkovPrior
from gp_core.grid.markov.spacing import choose_spacing
from gp_core.grid.markov.strips import prior_on
from gp_core.grid.prior import Prior
from gp_core.grid.statistics import Statistics
from gp_core.grid.surface import Surface
from gp_core.grid.tile_prior import (
    INFORMATION,
    TOLERANCE,
    TilePrior,
    blocks_per_length,
    make_tile_prior,
    measure_kernel,
)
from gp_core.grid.tile_solver import DEFAULT_TILES, Tiles, TileSolver
from gp_core.grid.trend import TrendBasis
from gp_core.grid.workers import Workers
from gp_core.kernels import Kernel


class Solver(Protocol):
    """Everything of a map that depends on the prior; tables are shared by all its windows."""

    @property
    def prior(self) -> Prior: ...

    def keep_tables(self, tolerance: float | None) -> None:
        """Write to disk, for later processes, what takes long to compute and does not depend on data.

        tolerance: for which `make_prior` has chosen the spacing; None if it was given
        """
        ...

    def surface(self, grid: Grid, s: Statistics, right_hand_sides: int, workers: Workers) -> Surface:
        """The posterior of a window with the axes of `s`, not solved yet."""
        ...

    def samples(self, n: int, s: Statistics, grid: Grid, workers: Workers, rng: np.random.Generator) -> Array:
        """(n, ny, nx) draws of f given statistics of z - z_0, for a mean of z_0."""
        ...

    def likelihood(
        self, s: Statistics, workers: Workers, basis: TrendBasis, *, gradient: bool, max_parts: int | None
    ) -> MarginalLikelihood:
        """The likelihood of all points; of at most `max_parts` tiles or strips, taken as independent, if given."""
        ...

    def candidate_likelihood(
        self, s: Statistics, workers: Workers, basis: TrendBasis, max_parts: int
    ) -> CandidateLikelihood:
        """The likelihood of other priors on the same lattice, for a search over kernels."""
        ...


def make_prior(
    kernel: Kernel,
    spacing: tuple[float, float] | None,
    tolerance: float = TOLERANCE,
    information: float = INFORMATION,
) -> TilePrior | MarkovPrior:
    """The prior of `kernel` on the lattice of the given spacing, or on the one that its spectrum requires.

    A smooth kernel gets a `TilePrior`; a rough one, for which no lattice is fine enough to have few modes, a
    `MarkovPrior`.

    kernel: stationary, decaying, without a white part
    spacing: (h_x, h_y) to use; None to choose it
    tolerance: for the choice, in posterior standard deviations
    information: a, how well the data may be expected to determine the map
    """
    kept = load_prior(kernel, tolerance, information) if spacing is None else None
    if kept is not None:
        return kept
    variance, length = measure_kernel(kernel)
    q = blocks_per_length(kernel, length, variance, tolerance, information)
    if q is None:
        spacing = spacing or choose_spacing(kernel, length, variance, information)
        return prior_on(kernel, spacing, length, information)
    return make_tile_prior(kernel, spacing, length, variance, q, information)


def make_solver(prior: Prior, tiles: Tiles | None, variance_lag: float = 0.0) -> Solver:
    """The solver for a prior of `make_prior`.

    tiles: sizes for a smooth kernel; None for those that hold the engine's error bounds
    variance_lag: of a rough kernel, see `GridGP`
    """
    if isinstance(prior, MarkovPrior):
        return DissectionSolver(prior, variance_lag)
    if isinstance(prior, TilePrior):
        return TileSolver(prior, tiles or DEFAULT_TILES)
    raise TypeError(f"no solver for a prior of type {type(prior).__name__}: make it with make_prior")
