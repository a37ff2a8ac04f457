"""What a solver keeps of the posterior over one window: the interface of every implementation."""

from __future__ import annotations

from typing import Protocol, Self

from gp_core.arrays import Array
from gp_core.grid.markov.detail import Detail, DetailAt
from gp_core.grid.statistics import Mask, Statistics


class Surface(Protocol):
    """Posterior of a window, brought up to date where the data have changed.

    K right-hand sides: the heights, and the functions of a trend. J x I blocks, ny x nx cells.
    """

    @property
    def fallbacks(self) -> int:
        """Parts so far whose fast factorisation failed."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory of the solution and of its layers."""
        ...

    @property
    def mean_layers(self) -> Array:
        """(K, 3, ny, nx) value, d/dx and d/dy of every right-hand side at the cells."""
        ...

    @property
    def variance_layers(self) -> Array:
        """(3, ny, nx) variances of value, d/dx and d/dy at the cells."""
        ...

    @property
    def unresolved_layers(self) -> Array:
        """(3, ny, nx) of these variances, what the lattice lacks: detail below its blocks."""
        ...

    def draw(self, blocks: Mask, s: Statistics, right_hand_sides: list[Array], gain: float) -> None:
        """Copy the statistics of the given blocks (J, I), each times `gain`."""
        ...

    def mark(self, blocks: Mask, s: Statistics) -> None:
        """Mark the parts that depend on the given blocks (J, I) as out of date."""
        ...

    def inherit(self, old: Self, left: Mask, s: Statistics) -> None:
        """Copy what is still valid from the surface of an earlier window.

        left: (J, I) blocks of the earlier window with data that this window does not cover
        """
        ...

    def solve(self, s: Statistics, gain: float, prompt: bool = False) -> None:
        """Solve all parts that are out of date and update the layers.

        prompt: variances that are too large may be left to `renew`
        """
        ...

    def renew(self, s: Statistics, gain: float) -> bool:
        """Solve the variances that were left, of the statistics that were solved last; whether there were any."""
        ...

    def at(self, x: Array, y: Array) -> tuple[Array, Array]:
        """(K, 3, N) means and (3, N) variances of value, d/dx and d/dy at points (N,)."""
        ...

    def block_means(self) -> Array:
        """(K, J, I, 6, 6) monomial coefficients of the mean of every right-hand side on every block."""
        ...

    def estimate_detail(self, s: Statistics, squares: Array) -> Detail | None:
        """Relief below the lattice that the points show, from the squares (J, I) of their residuals; None of none.

        Some surfaces have no such stage.
        """
        ...

    def detail_blocks(self, s: Statistics, detail: Detail) -> tuple[Array, Array, Array]:
        """(J, I, 3, 3) monomial coefficients of the mean detail on every block, and of its points the leverages (J, I)
        in it and what it leaves (J, I) of those in the splines, as a share."""
        ...

    def detail_at(self, x: Array, y: Array, s: Statistics, detail: Detail) -> DetailAt:
        """How detail changes what the splines say at points (N,)."""
        ...

    def detail_layers(self, s: Statistics, detail: Detail) -> DetailAt:
        """The same at the cells (ny, nx)."""
        ...

    def detail_unresolved(self, detail: Detail) -> float:
        """Variance of the relief that neither splines nor detail carry."""
        ...

    def block_variances(self) -> Array:
        """(J, I) variance in the middle of every block."""
        ...
