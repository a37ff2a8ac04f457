"""The coefficients of a strip as a Markov chain of groups of rows.

    x_0 ~ N(0, C),    x_(k+1) = T x_k + e_k,    e_k ~ N(0, V),    T = C_10 C^-1,    V = C - T C_10'

with C and C_10 the covariances of the kernel within a group of rows and between two neighbouring ones. Any two
neighbouring groups have exactly the covariance of the kernel, in the middle of the map as at its edges; groups farther
apart depend on each other through those between them. Two rows to a group carry a Matern kernel of nu = 1, three one of
nu = 3/2 and 5/2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy import linalg

from gp_core.arrays import Array
from gp_core.grid.markov.prior import MarkovPrior

_JITTER: Final = 1e-10
"""Of the prior variance, added to every coefficient: long kernels on fine lattices are singular to rounding."""


@dataclass(frozen=True)
class Chain:
    """Precision of the chain, group by group, n = rows x width.

    rows: of coefficients in a group
    width: coefficients in a row of the strip
    first: (n, n) C^-1, what the first group is worth by itself
    arriving: (n, n) V^-1, what a group has from the one before it
    leaving: (n, n) T' V^-1 T, what a group has from the one after it
    coupling: (n, n) -V^-1 T, between a group (columns) and the next (rows)
    """

    rows: int
    width: int
    first: Array = field(repr=False)
    arriving: Array = field(repr=False)
    leaving: Array = field(repr=False)
    coupling: Array = field(repr=False)


def make_chain(prior: MarkovPrior, rows: int, width: int) -> Chain:
    C = prior.block_covariance(2 * rows, width)
    n = rows * width
    C[np.diag_indices(2 * n)] *= 1.0 + _JITTER
    now, across = C[:n, :n], C[n:, :n]
    factor = linalg.cho_factor(now, lower=True)
    T = linalg.cho_solve(factor, across.T).T
    V = now - T @ across.T
    inverse = _symmetric(linalg.cho_solve(linalg.cho_factor(_symmetric(V), lower=True), np.eye(n)))
    coupling = -inverse @ T
    return Chain(
        rows=rows,
        width=width,
        first=_symmetric(linalg.cho_solve(factor, np.eye(n))),
        arriving=inverse,
        leaving=_symmetric(-T.T @ coupling),
        coupling=np.ascontiguousarray(coupling),
    )


def _symmetric(matrix: Array) -> Array:
    return np.ascontiguousarray(0.5 * (matrix + matrix.T))
