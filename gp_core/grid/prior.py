"""What the rest of the engine needs of a prior on the lattice, whichever solver it was made for."""

from __future__ import annotations

from typing import Protocol

from gp_core.arrays import Array
from gp_core.grid.moments import MomentOrders
from gp_core.kernels import Kernel


class Prior(Protocol):
    """A kernel projected on a lattice of blocks."""

    @property
    def kernel(self) -> Kernel:
        """Stationary kernel on (x, y)."""
        ...

    @property
    def spacing(self) -> tuple[float, float]:
        """(h_x, h_y), sides of a block."""
        ...

    @property
    def correlation_length(self) -> tuple[float, float]:
        """(l_x, l_y), distance along the axis at which the correlation is exp(-1/2)."""
        ...

    @property
    def scale(self) -> tuple[float, float]:
        """(s_x, s_y), the finest correlation length of a sum of scales."""
        ...

    @property
    def information(self) -> float:
        """Density of information that the lattice was chosen for."""
        ...

    @property
    def unresolved(self) -> float:
        """Variance that the lattice does not resolve: added to the noise of every point."""
        ...

    def shares_across(self, width: float) -> Array:
        """(2, 2) of the variances of d/dx and d/dy, carried and unresolved, what shows in the difference of heights
        across `width`."""
        ...

    @property
    def orders(self) -> MomentOrders:
        """Of the moments that its splines need."""
        ...
