"""Compiled inner loops of the kernels of a distance; imported where the matrices are large enough to pay for it."""

from __future__ import annotations

from gp_core.arrays import Array
from gp_core.compiled import compiled

_TILE = 16
"""Side of the squares by which a matrix is transposed."""


@compiled()
def fill_squared_distances(A: Array, B_columns: Array, start: int, out: Array) -> None:
    """out[i, j] = |a_i - b_(start + j)|^2: one input at a time, by vectors.

    A: (N, D)
    B_columns: (D, M), the inputs of B as rows
    out: (N, M - start)
    """
    n, D = A.shape
    for i in range(n):
        target = out[i]
        for d in range(D):
            a, other = A[i, d], B_columns[d, start:]
            if d == 0:
                for j in range(target.size):
                    target[j] = (a - other[j]) * (a - other[j])
            else:
                for j in range(target.size):
                    target[j] += (a - other[j]) * (a - other[j])


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
