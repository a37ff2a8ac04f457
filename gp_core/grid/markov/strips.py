"""How a map is cut into strips, and the prior of one: made once for a kernel and shared by all its windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gp_core.grid.markov.chain import Chain, make_chain
from gp_core.grid.markov.prior import MarkovPrior, make_markov_prior
from gp_core.grid.markov.splines import DEGREE
from gp_core.kernels import Kernel

ROWS: Final = 3
"""Rows of coefficients to a group: what a Matern kernel of nu = 3/2 or 5/2 needs; two would do for nu = 1."""
CORE: Final = 12
HALO: Final = 8
"""Columns: at the spacing that `choose_spacing` finds, a wider halo changes the mean by less than 0.002 deviations."""


@dataclass(frozen=True)
class StripModel:
    """Strips of equal width and their prior.

    core: columns of coefficients that a strip answers for
    halo: columns that it sees besides: on each side for the posterior, on the left only for the likelihood
    """

    prior: MarkovPrior
    chain: Chain
    core: int
    halo: int

    @staticmethod
    def for_posterior(prior: MarkovPrior) -> StripModel:
        return StripModel(prior, make_chain(prior, ROWS, CORE + 2 * HALO), CORE, HALO)

    @staticmethod
    def for_likelihood(prior: MarkovPrior) -> StripModel:
        return StripModel(prior, make_chain(prior, ROWS, CORE + HALO + DEGREE), CORE, HALO)

    def with_kernel(self, kernel: Kernel) -> StripModel:
        """The same strips with another kernel on the same lattice."""
        prior = prior_on(kernel, self.prior.spacing, self.prior.correlation_length, self.prior.information)
        return StripModel(prior, make_chain(prior, self.chain.rows, self.chain.width), self.core, self.halo)


def prior_on(
    kernel: Kernel, spacing: tuple[float, float], length: tuple[float, float], information: float
) -> MarkovPrior:
    """The prior of a kernel for strips of either kind."""
    return make_markov_prior(kernel, spacing, length, information, 2 * ROWS, CORE + 2 * HALO)
