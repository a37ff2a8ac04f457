"""Matrices and lower triangles that lie in flat arrays, row by row."""

from __future__ import annotations

from numba import njit

from gp_core.compiled import compiled

SHORT = 8
"""Numbers below which a view of a row costs more than it saves."""


@compiled()
def matrix(flat, start, rows, columns):  # type: ignore[no-untyped-def]
    """The matrix (rows, columns) that begins at `start`."""
    return flat[start : start + rows * columns].reshape((rows, columns))


@njit(inline="always")
def triangle_size(n):  # type: ignore[no-untyped-def]
    """Numbers in a lower triangle of n rows; also where its row n would begin."""
    return n * (n + 1) // 2


@njit(inline="always")
def triangle_of(flat, start, n):  # type: ignore[no-untyped-def]
    """The lower triangle of n rows that begins at `start`."""
    return flat[start : start + triangle_size(n)]


@njit(inline="always")
def triangle_row(triangle, k):  # type: ignore[no-untyped-def]
    """Row k of a lower triangle."""
    first = k * (k + 1) // 2
    return triangle[first : first + k + 1]
