"""The solver for rough kernels (gp_core.grid.markov): nested dissection, and strips of rows for the likelihood."""

from __future__ import annotations

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.axes import Grid
from gp_core.grid.marginal_likelihood import CandidateLikelihood, MarginalLikelihood
from gp_core.grid.markov.kept_tables import KeptFronts, keep_prior
from gp_core.grid.markov.likelihood import strip_evidence
from gp_core.grid.markov.prior import MarkovPrior
from gp_core.grid.markov.sampling import draw_samples
from gp_core.grid.markov.strips import StripModel
from gp_core.grid.markov.surface import MarkovSurface
from gp_core.grid.prior import Prior
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.trend import TrendBasis
from gp_core.grid.workers import Workers, single_threaded_blas


class DissectionSolver:
    """Nested dissection for the posterior and for samples, strips of rows for the likelihood."""

    def __init__(self, prior: MarkovPrior, lag: float = 0.0) -> None:
        self.prior = prior
        self._lag = lag
        self._likelihood_model: StripModel | None = None
        self._fronts = KeptFronts(prior)

    def keep_tables(self, tolerance: float | None) -> None:
        if tolerance is not None:
            keep_prior(self.prior, tolerance)
        self._fronts.keep()

    def surface(self, grid: Grid, s: Statistics, right_hand_sides: int, workers: Workers) -> MarkovSurface:
        return MarkovSurface(self._fronts, grid, s.y, s.x, right_hand_sides, workers, self._lag)

    def samples(self, n: int, s: Statistics, grid: Grid, workers: Workers, rng: np.random.Generator) -> Array:
        return draw_samples(n, self._fronts, s, grid, workers, rng)

    def likelihood(
        self, s: Statistics, workers: Workers, basis: TrendBasis, *, gradient: bool, max_parts: int | None
    ) -> MarginalLikelihood:
        model = self._make_likelihood_model()
        chosen = None if max_parts is None else _choose_strips(model, s, max_parts)
        return strip_evidence(
            model, s, workers, trend=basis.count, center=basis.center, strips=chosen, gradient=gradient
        )

    def candidate_likelihood(
        self, s: Statistics, workers: Workers, basis: TrendBasis, max_parts: int
    ) -> CandidateLikelihood:
        model = self._make_likelihood_model()
        chosen = _choose_strips(model, s, max_parts)

        def evaluate(candidate: Prior, noise_factor: float) -> MarginalLikelihood:
            return strip_evidence(
                model.with_kernel(candidate.kernel),
                s,
                workers,
                trend=basis.count,
                center=basis.center,
                noise_factor=noise_factor,
                strips=chosen,
            )

        return evaluate

    def _make_likelihood_model(self) -> StripModel:
        """Made when it is first needed."""
        if self._likelihood_model is None:
            with single_threaded_blas():
                self._likelihood_model = StripModel.for_likelihood(self.prior)
        return self._likelihood_model


def _choose_strips(model: StripModel, s: Statistics, max_strips: int) -> Mask | None:
    """At most `max_strips` strips, evenly spread; None, for all in their order, where there are no more."""
    count = -(-s.x.count // model.core)
    if count <= max_strips:
        return None
    chosen: Mask = np.zeros(count, dtype=np.bool_)
    chosen[:: -(-count // max_strips)] = True
    return chosen
