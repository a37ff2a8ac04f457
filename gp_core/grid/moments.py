"""Which moments of its points a block keeps: those that the splines of its lattice need, and no others."""

from __future__ import annotations

from typing import Final, NamedTuple


class MomentOrders(NamedTuple):
    """Monomials along each axis.

    weights: in the moments of the weights, for products of two functions
    heights: in the moments of the heights, for one function
    """

    weights: int
    heights: int

    @property
    def block_bytes(self) -> int:
        """Memory of the statistics of one block, with its three totals."""
        return 8 * (self.weights**2 + self.heights**2 + 3)


QUINTIC: Final = MomentOrders(weights=7, heights=6)
"""For the splines of smooth kernels (interpolation.py). Products of two have degree 10, but what the kernel lets
through is smooth on a block: beyond degree 6 there is less than a millionth of it."""
QUADRATIC: Final = MomentOrders(weights=5, heights=3)
"""For those of rough kernels (markov/splines.py), whose products have degree 4."""
KNOWN_ORDERS: Final = (QUINTIC, QUADRATIC)
