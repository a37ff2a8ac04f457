"""Compiled inner loops of the kernels of a distance; imported where the matrices are large enough to pay for it.

A profile f(s) of the squared distance s is stated by a number, so that distances, profile and sums are one pass:

    GAUSSIAN          exp(-s / 2)
    1, 3, 5 (2 nu)    e^-t, (1 + t) e^-t, (1 + t + t^2 / 3) e^-t,   t = sqrt(2 nu s)
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from gp_core.arrays import Array
from gp_core.compiled import compiled

_TILE: Final = 16
"""Side of the squares by which a matrix is transposed."""
_CHUNK: Final = 512
"""Columns worked on at a time, so that all that is made of them stays in the first cache."""
_LOG2_E: Final = 1.4426950408889634
_LOG_2_HIGH: Final = 6.93147180369123816490e-01
_LOG_2_LOW: Final = 1.90821492927058770002e-10
"""log 2 is the sum of both; an integer of up to 11 bits times the first is exact."""
_SHIFT: Final = 6755399441055744.0
"""1.5 2^52: a number that is added to it is rounded to an integer, which is then in its lowest bits."""
_LEAST_EXPONENT: Final = -708.0
"""exp of less is below the smallest normal number and is taken to be 0."""


@compiled()
def fill_squared_distances(A: Array, B_columns: Array, start: int, out: Array) -> None:
    """out[i, j] = |a_i - b_(start + j)|^2: one input at a time, by vectors.

    A: (N, D)
    B_columns: (D, M), the inputs of B as rows
    out: (N, M - start)
    """
    for i in range(A.shape[0]):
        _fill_row(A[i], B_columns, start, out[i])


@compiled()
def _fill_row(a: Array, B_columns: Array, start: int, out: Array) -> None:
    for d in range(a.size):
        coordinate, other = a[d], B_columns[d, start : start + out.size]
        if d == 0:
            for j in range(out.size):
                out[j] = (coordinate - other[j]) * (coordinate - other[j])
        else:
            for j in range(out.size):
                out[j] += (coordinate - other[j]) * (coordinate - other[j])


@compiled(fastmath={"contract"})
def exponentiate(x: Array, powers: npt.NDArray[np.int64]) -> None:
    """x := exp(x) for x (N,) <= 0 or NaN, within one unit of the last place.

    exp(x) = 2^k exp(r) with k = round(x / log 2) and |r| <= log(2) / 2, where Taylor's polynomial of degree 13 is exact
    to rounding. Without branches or calls, so that the compiler uses vectors on every CPU: numpy does so only for
    AVX-512 and takes three times as long elsewhere.

    powers: (N,) or more, to work with
    """
    as_numbers = powers.view(np.float64)
    for i in range(x.size):
        value = x[i]
        shifted = max(value, _LEAST_EXPONENT) * _LOG2_E + _SHIFT
        k = shifted - _SHIFT
        r = (value - k * _LOG_2_HIGH) - k * _LOG_2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        x[i] = 0.0 if value < _LEAST_EXPONENT else p * (r * r) + r + 1.0
        as_numbers[i] = shifted
    for i in range(x.size):
        powers[i] = (powers[i] + 1023) << 52  # the bits of 2^k
    for i in range(x.size):
        x[i] *= as_numbers[i]


@compiled(fastmath={"contract"})
def _apply_profile(profile: int, s: Array, slope: Array, powers: npt.NDArray[np.int64]) -> None:
    """s := f(s), and slope := f'(s), 0 where it is singular; `slope` may be empty, then it is left out."""
    n, with_slope = s.size, slope.size > 0
    if profile == 0:
        for j in range(n):
            s[j] *= -0.5
        exponentiate(s, powers)
        if with_slope:
            for j in range(n):
                slope[j] = -0.5 * s[j]
        return
    t = np.empty(n)
    for j in range(n):
        t[j] = np.sqrt(profile * s[j])
    for j in range(n):
        s[j] = -t[j]
    exponentiate(s, powers)
    if profile == 1 and with_slope:
        for j in range(n):
            slope[j] = -0.5 * s[j] / t[j] if t[j] > 0.0 else 0.0
    elif profile == 3:
        if with_slope:
            for j in range(n):
                slope[j] = -1.5 * s[j]
        for j in range(n):
            s[j] *= 1.0 + t[j]
    elif profile == 5:
        if with_slope:
            for j in range(n):
                slope[j] = (-5.0 / 6.0) * (1.0 + t[j]) * s[j]
        for j in range(n):
            s[j] *= 1.0 + t[j] + t[j] * t[j] / 3.0


@compiled()
def fill_profile(profile: int, A: Array, B_columns: Array, start: int, out: Array) -> None:
    """out[i, j] = f(|a_i - b_(start + j)|^2), as in `fill_squared_distances`."""
    powers = np.empty(_CHUNK, dtype=np.int64)
    for i in range(A.shape[0]):
        for left in range(0, out.shape[1], _CHUNK):
            part = out[i, left : left + _CHUNK]
            _fill_row(A[i], B_columns, start + left, part)
            _apply_profile(profile, part, part[:0], powers)


@compiled()
def place_rows(part: Array, K: Array, start: int) -> None:
    """K[start + i, start + j] = K[start + j, start + i] = part[i, j], square by square."""
    n_rows, n_columns = part.shape
    for i in range(n_rows):
        K[start + i, start:] = part[i]
    for top in range(0, n_rows, _TILE):
        for left in range(top, n_columns, _TILE):
            for j in range(left, min(left + _TILE, n_columns)):
                target = K[start + j, start + top : start + n_rows]
                for i in range(min(_TILE, target.size)):
                    target[i] = part[top + i, j]


@compiled()
def contract_profile(profile: int, W: Array, A: Array, B_columns: Array, diagonal: int, sums: Array) -> None:
    """Sums over the entries (i, j), j >= i + diagonal; no other entry of W is read.

    With s = |a_i - b_j|^2 and g = W_ij f'(s):

    W: (N, M)
    A, B_columns: (N, D) and (D, M)
    sums: sum W f(s) first; then sum g s if it holds one number more, or sum g (a_id - b_jd)^2 for d = 1 .. D
    """
    powers = np.empty(_CHUNK, dtype=np.int64)
    s, f, slope = np.empty(_CHUNK), np.empty(_CHUNK), np.empty(_CHUNK)
    sums[:] = 0.0
    for i in range(W.shape[0]):
        for left in range(max(0, i + diagonal), W.shape[1], _CHUNK):
            w = W[i, left : left + _CHUNK]
            n = w.size
            _fill_row(A[i], B_columns, left, s[:n])
            f[:n] = s[:n]
            _apply_profile(profile, f[:n], slope[:n], powers)
            _add_sums(w, s[:n], f[:n], slope[:n], A[i], B_columns, left, sums)


@compiled(fastmath={"contract", "reassoc"})
def _add_sums(
    w: Array, s: Array, f: Array, slope: Array, a: Array, B_columns: Array, left: int, sums: Array
) -> None:
    """What the columns from `left` on of one row add."""
    value = 0.0
    for j in range(w.size):
        value += w[j] * f[j]
        slope[j] *= w[j]
    sums[0] += value
    if sums.size == 2:
        total = 0.0
        for j in range(w.size):
            total += slope[j] * s[j]
        sums[1] += total
        return
    for d in range(sums.size - 1):
        coordinate, other = a[d], B_columns[d, left : left + w.size]
        total = 0.0
        for j in range(w.size):
            total += slope[j] * ((coordinate - other[j]) * (coordinate - other[j]))
        sums[1 + d] += total
