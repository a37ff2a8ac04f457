"""Cholesky factor and inverse of large matrices by blocks, on several threads.

Each thread calls a BLAS that has one thread (see `gp_core.parallel`). The matrices are worked on in place: besides
them there is one panel of memory. Fortran order throughout; the upper triangle is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from scipy.linalg import blas, lapack

from gp_core.arrays import Array
from gp_core.parallel import single_threaded_blas

BLOCK = 128
"""Columns of a panel."""
LEAST_SIZE = 768
"""Smaller matrices are left to LAPACK on one thread."""

Work = Callable[[slice], None]


def factorise(A: Array, threads: int) -> int:
    """Turn the lower triangle of A into L with A = L L'; 0, or the order of the first minor that is not positive.

    Left-looking: panel k of L needs the columns before it, L_k = (A_k - L_<k L_<k') L_kk'^-1.
    """
    n = len(A)
    with single_threaded_blas(), ThreadPoolExecutor(threads) as pool:
        for start in range(0, n, BLOCK):
            stop = min(start + BLOCK, n)
            panel = np.array(A[start:, start:stop], order="F")
            if start:
                before, own = A[start:, :start], A[start:stop, :start]
                _share(pool, threads, partial(_subtract_product, panel, before, own), n - start)
            lower, info = lapack.dpotrf(np.asfortranarray(panel[: stop - start]), lower=1, clean=1)
            if info != 0:
                return int(start + info)
            np.copyto(A[start:stop, start:stop], lower, where=np.tri(stop - start, dtype=bool))
            below, target = panel[stop - start :], A[stop:, start:stop]
            _share(pool, threads, partial(_solve_rows, lower, below, target), n - stop)
    return 0


def invert_triangle(L: Array, threads: int) -> None:
    """Turn the lower triangle of L into that of T = L^-1, row panel by row panel: T_ij = -L_ii^-1 L_i< T_<j."""
    n = len(L)
    with single_threaded_blas(), ThreadPoolExecutor(threads) as pool:
        for start in range(0, n, BLOCK):
            stop = min(start + BLOCK, n)
            lower = np.asfortranarray(np.tril(L[start:stop, start:stop]))
            row = np.array(L[start:stop, :start], order="F")
            list(pool.map(partial(_invert_columns, L, lower, row), _chunks(start, BLOCK)))
            inverse, _ = lapack.dtrtri(lower, lower=1)
            np.copyto(L[start:stop, start:stop], inverse, where=np.tri(stop - start, dtype=bool))


def multiply_triangle(T: Array, threads: int) -> None:
    """Turn the lower triangle of T into that of T'T, row panel by row panel: panel i needs the rows from i on."""
    n = len(T)
    with single_threaded_blas(), ThreadPoolExecutor(threads) as pool:
        for start in range(0, n, BLOCK):
            stop = min(start + BLOCK, n)
            column = np.array(T[start:, start:stop], order="F")
            column[: stop - start] = np.tril(column[: stop - start])
            _share(pool, threads, partial(_multiply_columns, T[start:], column), start)
            diagonal = column.T @ column
            np.copyto(T[start:stop, start:stop], diagonal, where=np.tri(stop - start, dtype=bool))


def squared_norms(T: Array, B: Array) -> Array:
    """(M,) with |T b|^2 for the rows b of B (M, N) and a lower triangular T (N, N), zeros above."""
    total = np.zeros(len(B))
    for rows in _chunks(len(T), 2 * BLOCK):
        V = B[:, : rows.stop] @ T[rows, : rows.stop].T
        total += np.einsum("mn,mn->m", V, V)
    return total


def _subtract_product(panel: Array, left: Array, right: Array, rows: slice) -> None:
    """panel -= left right', of some rows."""
    panel[rows] -= left[rows] @ right.T


def _solve_rows(lower: Array, panel: Array, out: Array, rows: slice) -> None:
    """out = panel lower'^-1, of some rows."""
    part = np.asfortranarray(panel[rows])
    out[rows] = blas.dtrsm(1.0, lower, part, side=1, lower=1, trans_a=1, overwrite_b=1)


def _invert_columns(T: Array, lower: Array, row: Array, columns: slice) -> None:
    """Some columns of the row panel of T that begins where those of `row` end."""
    start = row.shape[1]
    known = _lower_columns(T, columns.start, columns.stop, start)
    product = np.asfortranarray(row[:, columns.start :] @ known)
    T[start : start + len(lower), columns] = blas.dtrsm(-1.0, lower, product, lower=1, overwrite_b=1)


def _multiply_columns(T: Array, column: Array, columns: slice) -> None:
    """The first rows of T become those of column'T, in some columns."""
    T[: column.shape[1], columns] = column.T @ T[:, columns]


def _lower_columns(T: Array, first: int, last: int, stop: int) -> Array:
    """T[first:stop, first:last] with zeros above the diagonal, which the stored upper triangle need not hold."""
    part = np.array(T[first:stop, first:last], order="F")
    size = last - first
    part[:size] = np.tril(part[:size])
    return part


def _share(pool: ThreadPoolExecutor, threads: int, work: Work, n: int) -> None:
    """work(rows) over n rows, two parts per thread."""
    if n:
        list(pool.map(work, _chunks(n, max(64, -(-n // (2 * threads))))))


def _chunks(n: int, step: int) -> Iterator[slice]:
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
