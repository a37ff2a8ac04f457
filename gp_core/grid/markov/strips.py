"""How a map is cut into strips, and the prior of one: made once for a kernel and shared by all its windows."""

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
HALO: Final = 6
SMOOTHER_HALO: Final = 8
WIDE_HALO: Final = 20
"""Columns. Data screen each other, so a narrow halo will do wherever there are some, a little wider for a kernel that
needs four rows; into a hole they reach farther."""


@dataclass(frozen=True)
class Strip:
    """A strip of coefficients: its prior, and the columns that it sees besides its core.

    halo: on each side for the posterior, on the left only for the likelihood
    """

    chain: Chain
    halo: int


@dataclass(frozen=True)
class StripModel:
    """Strips of equal width and their prior.

    core: columns of coefficients that a strip answers for
    narrow: a strip among data
    wide: a strip next to a hole; None for the likelihood, which makes no difference between them
    """

    prior: MarkovPrior
    core: int
    narrow: Strip
    wide: Strip | None

    @staticmethod
    def for_posterior(prior: MarkovPrior) -> StripModel:
        rows = rows_of(prior)
        halos = (SMOOTHER_HALO if rows == MOST_ROWS else HALO), WIDE_HALO
        narrow, wide = (Strip(make_chain(prior, rows, CORE + 2 * halo), halo) for halo in halos)
        return StripModel(prior, CORE, narrow, wide)

    @staticmethod
    def for_likelihood(prior: MarkovPrior) -> StripModel:
        chain = make_chain(prior, rows_of(prior), CORE + SMOOTHER_HALO + DEGREE)
        return StripModel(prior, CORE, Strip(chain, SMOOTHER_HALO), None)

    def with_kernel(self, kernel: Kernel) -> StripModel:
        """Strips for the likelihood of another kernel on the same lattice, with the same number of rows to a group."""
        prior = prior_on(kernel, self.prior.spacing, self.prior.correlation_length, self.prior.information)
        chain = make_chain(prior, self.narrow.chain.rows, self.narrow.chain.width)
        return StripModel(prior, self.core, Strip(chain, self.narrow.halo), None)


def rows_of(prior: MarkovPrior) -> int:
    """Rows of coefficients to a group."""
    return MOST_ROWS if falloff(prior.kernel, prior.spacing) > _SMOOTHER else MOST_ROWS - 1


def prior_on(
    kernel: Kernel, spacing: tuple[float, float], length: tuple[float, float], information: float
) -> MarkovPrior:
    """The prior of a kernel for strips of any kind."""
    return make_markov_prior(kernel, spacing, length, information, 2 * MOST_ROWS, CORE + 2 * WIDE_HALO)
