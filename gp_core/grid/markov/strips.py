"""How a map is cut into strips for the likelihood, and the prior of one: made once for a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gp_core.grid.markov.chain import Chain, make_chain
from gp_core.grid.markov.prior import MarkovPrior, falloff, make_markov_prior
from gp_core.grid.markov.splines import DEGREE
from gp_core.kernels import Kernel

MOST_ROWS: Final = 4
"""Rows of coefficients to a group for the smoothest of the rough kernels, such as a Matern of nu = 5/2."""
_SMOOTHER: Final = 6.0
"""Power of the spectrum's decay (2 nu + 2) from which on four rows are needed; below, three."""
CORE: Final = 12
HALO: Final = 8
"""Columns of blocks: data screen each other."""


@dataclass(frozen=True)
class StripModel:
    """Strips of equal width and their prior, for the likelihood.

    core: columns of blocks whose points a strip answers for
    halo: columns of blocks on the left of them whose points are given
    """

    prior: MarkovPrior
    chain: Chain
    core: int = CORE
    halo: int = HALO

    @staticmethod
    def for_likelihood(prior: MarkovPrior) -> StripModel:
        return StripModel(prior, make_chain(prior, rows_of(prior), CORE + HALO + DEGREE))

    def with_kernel(self, kernel: Kernel) -> StripModel:
        """Strips for the likelihood of another kernel on the same lattice, with the same number of rows to a group."""
        prior = prior_on(kernel, self.prior.spacing, self.prior.correlation_length, self.prior.information)
        return StripModel(prior, make_chain(prior, self.chain.rows, self.chain.width), self.core, self.halo)


def rows_of(prior: MarkovPrior) -> int:
    """Rows of coefficients to a group."""
    return MOST_ROWS if falloff(prior.kernel, prior.spacing) > _SMOOTHER else MOST_ROWS - 1


def prior_on(
    kernel: Kernel, spacing: tuple[float, float], length: tuple[float, float], information: float
) -> MarkovPrior:
    """The prior of a kernel, with the covariances that strips and the near ones of a lattice need."""
    return make_markov_prior(kernel, spacing, length, information, 2 * MOST_ROWS, CORE + HALO + DEGREE)
