"""What the data say about the coefficients: W' R^-1 W and W' R^-1 z from the moments of the blocks."""

from __future__ import annotations

from typing import Final

import numpy as np

from gp_core.compiled import compiled
from gp_core.grid.markov.splines import ORDER, PIECES, products

NEIGHBOURS: Final = 13
"""Pairs of coefficients that meet in a block, seen from the lower one: (dy, dx) with dy = 0, dx = 0 ... 2, and with
dy = 1 and 2, dx = -2 ... 2 (`neighbour`)."""
_PAIRS: Final = np.array([(p, q) for p in range(ORDER) for q in range(p, ORDER)])
_PRODUCTS: Final = np.ascontiguousarray(products()[_PAIRS[:, 0], _PAIRS[:, 1]])
"""(6, 5) monomial coefficients of the products of splines p <= q."""
_PAIR_OF: Final = np.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])
_PIECES: Final = np.ascontiguousarray(PIECES)


@compiled()
def neighbour(dy, dx):  # type: ignore[no-untyped-def]
    """Place of the neighbour (dy, dx) among the 13."""
    return dx if dy == 0 else 5 * dy + dx


@compiled(fastmath={"contract"})
def add_blocks(weights, heights, gain, first, last, top, left, low, high, begin, end, stencil, right):  # type: ignore[no-untyped-def]
    """Add W' R^-1 W to stencil (n_y, n_x, 13) and W' R^-1 z to right (K, n_y, n_x), each times `gain`.

    weights: (J, I, 7, 7) and heights: (K, J, I, 6, 6), moments of the window's blocks
    first, last: columns of blocks that count, first ... last - 1
    top, left: block whose first coefficient is (0, 0) of the arrays
    low, high, begin, end: coefficients to be written are those of rows low ... high - 1, columns begin ... end - 1
    """
    half = np.empty((6, 5))
    T = np.empty((6, 6))
    for j in range(max(top + low - ORDER + 1, 0), min(top + high, weights.shape[0])):
        for b in range(max(left + begin - ORDER + 1, first, 0), min(left + end, last, weights.shape[1])):
            M = weights[j, b]
            if M[0, 0] == 0.0:
                continue
            for p in range(6):
                for c in range(5):
                    total = 0.0
                    for a in range(5):
                        total += _PRODUCTS[p, a] * M[a, c]
                    half[p, c] = gain * total
            for p in range(6):
                for q in range(6):
                    total = 0.0
                    for c in range(5):
                        total += half[p, c] * _PRODUCTS[q, c]
                    T[p, q] = total
            for p_y in range(ORDER):
                y = j - top + p_y
                if not low <= y < high:
                    continue
                for p_x in range(ORDER):
                    x = b - left + p_x
                    if not begin <= x < end:
                        continue
                    values = stencil[y, x]
                    for q_y in range(p_y, ORDER):
                        pairs = T[_PAIR_OF[p_y, q_y]]
                        for q_x in range(p_x if q_y == p_y else 0, ORDER):
                            values[neighbour(q_y - p_y, q_x - p_x)] += pairs[_PAIR_OF[p_x, q_x]]
                    for m in range(right.shape[0]):
                        H = heights[m, j, b]
                        total = 0.0
                        for a in range(ORDER):
                            for c in range(ORDER):
                                total += _PIECES[p_y, a] * _PIECES[p_x, c] * H[a, c]
                        right[m, y, x] += gain * total
