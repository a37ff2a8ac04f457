"""Symmetric positive definite matrices of some hundred rows, by their upper triangle.

LAPACK is made for larger ones: at this size it spends as much time on calls, packing and transposing as on sums.
These loops add eight rows at a time to another one, which compilers vectorise. Rows are padded to `LANES` (`padded`),
so that no loop has a remainder; what is left of the diagonal is of no meaning.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from gp_core.compiled import compiled

LANES: Final = 8
"""Numbers that a loop handles at once: its length is a multiple of this."""
_ROWS: Final = 8
"""Rows that are added in one pass; the loops below write them out."""


@njit(inline="always")
def padded(n):  # type: ignore[no-untyped-def]
    """Columns that a matrix of n rows needs here."""
    return -(-n // LANES) * LANES


@compiled(fastmath={"contract"})
def factorise(P):  # type: ignore[no-untyped-def]
    """Replace P (n, padded n) by U with P = U' U; False, and no result, if it is not positive definite."""
    n, size = P.shape
    zero, one = P.dtype.type(0.0), P.dtype.type(1.0)
    for first in range(0, n, _ROWS):
        last = min(first + _ROWS, n)
        left = first - first % LANES
        for k in range(first, last):
            row = P[k, left:]
            for m in range(first, k):
                above = P[m, left:]
                a = above[k - left]
                for j in range(size - left):
                    row[j] -= a * above[j]
            pivot = row[k - left]
            if not pivot > zero:
                return False
            a = one / np.sqrt(pivot)
            for j in range(size - left):
                row[j] *= a
        if last - first < _ROWS:
            break
        for i in range(last, n):
            left = i - i % LANES
            row = P[i, left:]
            u0, u1, u2, u3 = P[first, left:], P[first + 1, left:], P[first + 2, left:], P[first + 3, left:]
            u4, u5, u6, u7 = (
                P[first + 4, left:],
                P[first + 5, left:],
                P[first + 6, left:],
                P[first + 7, left:],
            )
            a0, a1, a2, a3 = u0[i - left], u1[i - left], u2[i - left], u3[i - left]
            a4, a5, a6, a7 = u4[i - left], u5[i - left], u6[i - left], u7[i - left]
            for j in range(size - left):
                row[j] -= (a0 * u0[j] + a1 * u1[j] + a2 * u2[j] + a3 * u3[j]) + (
                    a4 * u4[j] + a5 * u5[j] + a6 * u6[j] + a7 * u7[j]
                )
    return True


@compiled()
def factorise_measured(P, diagonal):  # type: ignore[no-untyped-def]
    """`factorise`; returns the largest P_ii and the largest P_ii / U_ii^2, by which a row is larger than what the rows
    before leave of it; infinity if P is not positive definite.

    diagonal: (n,) room
    """
    for i in range(diagonal.size):
        diagonal[i] = P[i, i]
    if not factorise(P):
        return np.inf, np.inf
    largest, cancelled = 0.0, 0.0
    for i in range(diagonal.size):
        whole, left = np.float64(diagonal[i]), np.float64(P[i, i])
        largest, cancelled = max(largest, whole), max(cancelled, whole / (left * left))
    return largest, cancelled


@compiled(inline="always", fastmath={"contract"})
def invert(U, X, C):  # type: ignore[no-untyped-def]
    """Lower triangle of C = (U' U)^-1; X and C (n, padded n), X is room for the inverse of U', which is lower."""
    n = U.shape[0]
    zero, one = U.dtype.type(0.0), U.dtype.type(1.0)
    X[:] = zero
    for i in range(n):
        row = X[i]
        width = (i + LANES) // LANES * LANES
        whole = i - i % _ROWS
        for k in range(0, whole, _ROWS):
            x0, x1, x2, x3 = X[k], X[k + 1], X[k + 2], X[k + 3]
            x4, x5, x6, x7 = X[k + 4], X[k + 5], X[k + 6], X[k + 7]
            a0, a1, a2, a3 = U[k, i], U[k + 1, i], U[k + 2, i], U[k + 3, i]
            a4, a5, a6, a7 = U[k + 4, i], U[k + 5, i], U[k + 6, i], U[k + 7, i]
            for j in range(k + _ROWS):
                row[j] -= (a0 * x0[j] + a1 * x1[j] + a2 * x2[j] + a3 * x3[j]) + (
                    a4 * x4[j] + a5 * x5[j] + a6 * x6[j] + a7 * x7[j]
                )
        for k in range(whole, i):
            above = X[k]
            a = U[k, i]
            for j in range(width):
                row[j] -= a * above[j]
        row[i] = one
        a = one / U[i, i]
        for j in range(width):
            row[j] *= a
    C[:] = zero
    for i in range(n):
        row = C[i]
        width = (i + LANES) // LANES * LANES
        first = n - (n - i) // _ROWS * _ROWS
        for k in range(i, first):
            below = X[k]
            a = below[i]
            for j in range(width):
                row[j] += a * below[j]
        for k in range(first, n, _ROWS):
            x0, x1, x2, x3 = X[k], X[k + 1], X[k + 2], X[k + 3]
            x4, x5, x6, x7 = X[k + 4], X[k + 5], X[k + 6], X[k + 7]
            a0, a1, a2, a3, a4, a5, a6, a7 = x0[i], x1[i], x2[i], x3[i], x4[i], x5[i], x6[i], x7[i]
            for j in range(width):
                row[j] += (a0 * x0[j] + a1 * x1[j] + a2 * x2[j] + a3 * x3[j]) + (
                    a4 * x4[j] + a5 * x5[j] + a6 * x6[j] + a7 * x7[j]
                )


@compiled(fastmath={"reassoc", "contract"})
def product(P, x, out):  # type: ignore[no-untyped-def]
    """out = P x, summed in the precision of out: four rows of the upper triangle at a time, each used twice."""
    n = x.size
    out[:] = 0.0
    whole = n - n % 4
    for i in range(0, whole, 4):
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        s0 = P[i, i] * x0 + P[i, i + 1] * x1 + P[i, i + 2] * x2 + P[i, i + 3] * x3
        s1 = P[i, i + 1] * x0 + P[i + 1, i + 1] * x1 + P[i + 1, i + 2] * x2 + P[i + 1, i + 3] * x3
        s2 = P[i, i + 2] * x0 + P[i + 1, i + 2] * x1 + P[i + 2, i + 2] * x2 + P[i + 2, i + 3] * x3
        s3 = P[i, i + 3] * x0 + P[i + 1, i + 3] * x1 + P[i + 2, i + 3] * x2 + P[i + 3, i + 3] * x3
        p0, p1, p2, p3 = P[i, i + 4 :], P[i + 1, i + 4 :], P[i + 2, i + 4 :], P[i + 3, i + 4 :]
        right, below = x[i + 4 :], out[i + 4 :]
        for j in range(right.size):
            s0 += p0[j] * right[j]
            s1 += p1[j] * right[j]
            s2 += p2[j] * right[j]
            s3 += p3[j] * right[j]
            below[j] += p0[j] * x0 + p1[j] * x1 + p2[j] * x2 + p3[j] * x3
        out[i] += s0
        out[i + 1] += s1
        out[i + 2] += s2
        out[i + 3] += s3
    for i in range(whole, n):
        out[i] += P[i, i] * x[i]
        for j in range(i + 1, n):
            out[i] += P[i, j] * x[j]
            out[j] += P[i, j] * x[i]


@compiled(inline="always")
def pack(U, rows):  # type: ignore[no-untyped-def]
    """The rows of the upper triangle one after the other, (n (n + 1) / 2,), each with 1 / U_ii in front."""
    n = U.shape[0]
    one = rows.dtype.type(1.0)
    at = 0
    for i in range(n):
        rows[at] = one / U[i, i]
        right = U[i, i + 1 : n]
        packed = rows[at + 1 : at + n - i]
        for j in range(right.size):
            packed[j] = right[j]
        at += n - i


@compiled(fastmath={"reassoc", "contract"})
def solve(rows, x):  # type: ignore[no-untyped-def]
    """Replace x by (U' U)^-1 x, in the precision of both; rows: U as `pack` leaves it."""
    n = x.size
    # Four rows at a time, and then the rest; backwards the other way round.
    whole = n - n % 4
    at = 0
    for i in range(0, whole, 4):
        a, b, c, d, end = _four_rows(at, n - i)
        x0 = x[i] * rows[a]
        x1 = (x[i + 1] - rows[a + 1] * x0) * rows[b]
        x2 = (x[i + 2] - rows[a + 2] * x0 - rows[b + 1] * x1) * rows[c]
        x3 = (x[i + 3] - rows[a + 3] * x0 - rows[b + 2] * x1 - rows[c + 1] * x2) * rows[d]
        x[i], x[i + 1], x[i + 2], x[i + 3] = x0, x1, x2, x3
        u0, u1, u2, u3 = rows[a + 4 : b], rows[b + 3 : c], rows[c + 2 : d], rows[d + 1 : end]
        below = x[i + 4 :]
        for j in range(below.size):
            below[j] -= u0[j] * x0 + u1[j] * x1 + u2[j] * x2 + u3[j] * x3
        at = end
    for i in range(whole, n):
        x[i] *= rows[at]
        for j in range(i + 1, n):
            x[j] -= rows[at + j - i] * x[i]
        at += n - i
    for i in range(n - 1, whole - 1, -1):
        at -= n - i
        for j in range(i + 1, n):
            x[i] -= rows[at + j - i] * x[j]
        x[i] *= rows[at]
    for i in range(whole - 4, -1, -4):
        at -= 4 * (n - i) - 6
        a, b, c, d, end = _four_rows(at, n - i)
        u0, u1, u2, u3 = rows[a + 4 : b], rows[b + 3 : c], rows[c + 2 : d], rows[d + 1 : end]
        below = x[i + 4 :]
        s0 = s1 = s2 = s3 = rows.dtype.type(0.0)
        for j in range(below.size):
            s0 += u0[j] * below[j]
            s1 += u1[j] * below[j]
            s2 += u2[j] * below[j]
            s3 += u3[j] * below[j]
        x3 = (x[i + 3] - s3) * rows[d]
        x2 = (x[i + 2] - s2 - rows[c + 1] * x3) * rows[c]
        x1 = (x[i + 1] - s1 - rows[b + 1] * x2 - rows[b + 2] * x3) * rows[b]
        x0 = (x[i] - s0 - rows[a + 1] * x1 - rows[a + 2] * x2 - rows[a + 3] * x3) * rows[a]
        x[i], x[i + 1], x[i + 2], x[i + 3] = x0, x1, x2, x3


@njit(inline="always")
def _four_rows(at, length):  # type: ignore[no-untyped-def]
    """Where four packed rows begin, the first of the given length, and where the next one would."""
    b = at + length
    c = b + length - 1
    d = c + length - 2
    return at, b, c, d, d + length - 3
