"""What the data say about the coefficients: W' R^-1 W and W' R^-1 z from the moments of the blocks."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from gp_core.compiled import compiled
from gp_core.grid.markov.splines import ORDER, PIECES, products

NEIGHBOURS: Final = 13
"""Pairs of coefficients that meet in a block, seen from the lower one: (dy, dx) with dy = 0, dx = 0 ... 2, and with
dy = 1 and 2, dx = -2 ... 2 (`neighbour`)."""
_PAIRS: Final = np.array([(p, q) for p in range(ORDER) for q in range(p, ORDER)])
_PRODUCTS: Final = np.ascontiguousarray(products()[_PAIRS[:, 0], _PAIRS[:, 1]])
"""(6, 5) monomial coefficients of the products of splines p <= q."""
_BY_POWER: Final = tuple(np.ascontiguousarray(column) for column in _PRODUCTS.T)
"""5 x (6,) those of one power each."""
_PAIR_OF: Final = np.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])
_PIECES: Final = np.ascontiguousarray(PIECES)


@compiled()
def neighbour(dy, dx):  # type: ignore[no-untyped-def]
    """Place of the neighbour (dy, dx) among the 13."""
    return dx if dy == 0 else 5 * dy + dx


@compiled(fastmath={"contract"})
def add_blocks(weights, heights, gain, first, last, top, left, low, high, begin, end, stencil, right):  # type: ignore[no-untyped-def]
    """Add W' R^-1 W to stencil (n_y, n_x, 13) and W' R^-1 z to right (K, n_y, n_x), each times `gain`.

    weights: (J, I, 5, 5) and heights: (K, J, I, 3, 3), moments of the window's blocks
    first, last: columns of blocks that count, first ... last - 1
    top, left: block whose first coefficient is (0, 0) of the arrays
    low, high, begin, end: coefficients to be written are those of rows low ... high - 1, columns begin ... end - 1
    """
    T, R = np.empty((6, 6)), np.empty((ORDER, ORDER))
    for j in range(max(top + low - ORDER + 1, 0), min(top + high, weights.shape[0])):
        for b in range(max(left + begin - ORDER + 1, first, 0), min(left + end, last, weights.shape[1])):
            if weights[j, b, 0, 0] == 0.0:
                continue
            y, x = j - top, b - left
            _pair_sums(weights[j, b], gain, T)
            # Nearly all blocks: without a question for each of the 45 sums the loop is unrolled, nearly twice as fast.
            if low <= y and y + ORDER <= high and begin <= x and x + ORDER <= end:
                for p_y in range(ORDER):
                    for p_x in range(ORDER):
                        _add_pairs(T, p_y, p_x, stencil[y + p_y, x + p_x])
            else:
                for p_y in range(max(low - y, 0), min(high - y, ORDER)):
                    for p_x in range(max(begin - x, 0), min(end - x, ORDER)):
                        _add_pairs(T, p_y, p_x, stencil[y + p_y, x + p_x])
            for m in range(right.shape[0]):
                _height_sums(heights[m, j, b], gain, R)
                for p_y in range(max(low - y, 0), min(high - y, ORDER)):
                    for p_x in range(max(begin - x, 0), min(end - x, ORDER)):
                        right[m, y + p_y, x + p_x] += R[p_y, p_x]


@njit(inline="always")
def _pair_sums(M, gain, T):  # type: ignore[no-untyped-def]
    """T (6, 6): the sums over the points of a block of products of two splines, by pairs along y and along x."""
    for p in range(6):
        row, out = _PRODUCTS[p], T[p]
        h_0 = h_1 = h_2 = h_3 = h_4 = 0.0
        for a in range(5):
            value = gain * row[a]
            h_0 += value * M[a, 0]
            h_1 += value * M[a, 1]
            h_2 += value * M[a, 2]
            h_3 += value * M[a, 3]
            h_4 += value * M[a, 4]
        by_0, by_1, by_2, by_3, by_4 = _BY_POWER
        for q in range(6):
            out[q] = h_0 * by_0[q] + h_1 * by_1[q] + h_2 * by_2[q] + h_3 * by_3[q] + h_4 * by_4[q]


@njit(inline="always")
def _add_pairs(T, p_y, p_x, values):  # type: ignore[no-untyped-def]
    """Add the sums of spline (p_y, p_x) of a block with those that come after it to the stencil (13,) of the former."""
    for q_y in range(p_y, ORDER):
        pairs = T[_PAIR_OF[p_y, q_y]]
        for q_x in range(p_x if q_y == p_y else 0, ORDER):
            values[neighbour(q_y - p_y, q_x - p_x)] += pairs[_PAIR_OF[p_x, q_x]]


@njit(inline="always")
def _height_sums(H, gain, R):  # type: ignore[no-untyped-def]
    """R (3, 3): the sums over the points of a block of heights times splines."""
    for p_y in range(ORDER):
        of_y = _PIECES[p_y]
        c_0 = gain * (of_y[0] * H[0, 0] + of_y[1] * H[1, 0] + of_y[2] * H[2, 0])
        c_1 = gain * (of_y[0] * H[0, 1] + of_y[1] * H[1, 1] + of_y[2] * H[2, 1])
        c_2 = gain * (of_y[0] * H[0, 2] + of_y[1] * H[1, 2] + of_y[2] * H[2, 2])
        for p_x in range(ORDER):
            of_x = _PIECES[p_x]
            R[p_y, p_x] = of_x[0] * c_0 + of_x[1] * c_1 + of_x[2] * c_2
