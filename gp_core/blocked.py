"""Cholesky factor and inverse of large matrices by blocks, on several threads.

Each thread calls a BLAS that has one thread (see `gp_core.parallel`). The matrices are worked on in place, without
copies. Fortran order throughout; the upper triangle is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from gp_core import blas
from gp_core.arrays import Array
from gp_core.parallel import Task, WorkerPool

BLOCK = 256
"""Size up to which a diagonal block is left to LAPACK on one thread."""
_SMALL = 96
"""Size up to which a triangle is inverted by LAPACK."""
LEAST_SIZE = 768
"""Smaller matrices are left to LAPACK on one thread."""


def factorise(A: Array, threads: int) -> int:
    """Turn the lower triangle of A into L with A = L L'; 0, or the order of the first minor that is not positive.

    By halves: L_11 from A_11, L_21 = A_21 L_11'^-1, then L_22 from A_22 - L_21 L_21'.
    """
    with WorkerPool(threads) as pool:
        return _factorise(A, pool)


def _factorise(A: Array, pool: WorkerPool) -> int:
    n = len(A)
    if n <= BLOCK:
        return blas.factorise(A)
    half = _half(n)
    first, below, last = A[:half, :half], A[half:, :half], A[half:, half:]
    info = _factorise(first, pool)
    if info:
        return info
    pool.run(partial(blas.solve_right, first, below[rows]) for rows in _chunks(n - half, pool.threads))
    pool.run(_square_tasks(last, below, -1.0, pool.threads))
    info = _factorise(last, pool)
    return info + half if info else 0


def invert_triangle(L: Array, threads: int) -> None:
    """Turn the lower triangle of L into that of T = L^-1.

    One diagonal block per thread first; then neighbours are joined: T_21 = -T_22 L_21 T_11.
    """
    if threads == 1:
        _invert_alone(L)
        return
    edges = [0, len(L)]
    for _ in range((threads - 1).bit_length()):
        edges = sorted({*edges, *((a + b) // 2 for a, b in pairwise(edges))})
    with WorkerPool(threads) as pool:
        pool.run(partial(_invert_alone, L[a:b, a:b]) for a, b in pairwise(edges))
        while len(edges) > 2:
            joints = list(zip(edges[0::2], edges[1::2], edges[2::2], strict=False))
            pool.run(task for joint in joints for task in _right_tasks(L, joint, threads))
            pool.run(task for joint in joints for task in _left_tasks(L, joint, threads))
            edges = sorted({*edges[0::2], edges[-1]})


def _invert_alone(L: Array) -> None:
    """invert_triangle on the calling thread: by halves, since LAPACK takes far longer for small ones than products."""
    n = len(L)
    if n <= _SMALL:
        blas.invert_triangle(L)
        return
    half = n // 2
    _invert_alone(L[:half, :half])
    _invert_alone(L[half:, half:])
    blas.multiply_right(L[:half, :half], L[half:, :half])
    blas.multiply_left(L[half:, half:], L[half:, :half], -1.0)


def _right_tasks(L: Array, joint: tuple[int, int, int], threads: int) -> Iterator[Task]:
    """L_21 := L_21 T_11, by rows."""
    a, b, c = joint
    for rows in _chunks(c - b, threads):
        yield partial(blas.multiply_right, L[a:b, a:b], L[b:c, a:b][rows])


def _left_tasks(L: Array, joint: tuple[int, int, int], threads: int) -> Iterator[Task]:
    """L_21 := -T_22 L_21, by columns."""
    a, b, c = joint
    for columns in _chunks(b - a, threads):
        yield partial(blas.multiply_left, L[b:c, b:c], L[b:c, a:b][:, columns], -1.0)


def multiply_triangle(T: Array, threads: int) -> None:
    """Turn the lower triangle of T into that of P = T'T.

    By halves: P_11 = T_11'T_11 + T_21'T_21, P_21 = T_22'T_21, P_22 = T_22'T_22.
    """
    if threads == 1:
        blas.multiply_triangle(T)
        return
    with WorkerPool(threads) as pool:
        _multiply_triangle(T, pool)


def _multiply_triangle(T: Array, pool: WorkerPool) -> None:
    n = len(T)
    if n <= BLOCK:
        blas.multiply_triangle(T)
        return
    half = _half(n)
    first, below, last = T[:half, :half], T[half:, :half], T[half:, half:]
    _multiply_triangle(first, pool)
    pool.run(_square_tasks(first, below, 1.0, pool.threads, trans=True))
    pool.run(
        partial(blas.multiply_left, last, below[:, columns], 1.0, True)
        for columns in _chunks(half, pool.threads)
    )
    _multiply_triangle(last, pool)


def squared_norms(T: Array, B: Array) -> Array:
    """(M,) with |T b|^2 for the rows b of B (M, N) and a lower triangular T (N, N), zeros above."""
    total = np.zeros(len(B))
    for start in range(0, len(T), BLOCK):
        stop = min(start + BLOCK, len(T))
        V = B[:, :stop] @ T[start:stop, :stop].T
        total += np.einsum("mn,mn->m", V, V)
    return total


def _square_tasks(C: Array, A: Array, scale: float, threads: int, trans: bool = False) -> Iterator[Task]:
    """The lower triangle of C += scale A A', or scale A'A if `trans`, by columns of about equal work."""
    n = len(C)
    shares = np.linspace(0.0, 1.0, 2 * threads + 1)
    edges = np.unique(np.round(n * (1.0 - np.sqrt(1.0 - shares))).astype(int)).tolist()
    for start, stop in pairwise(edges):
        yield partial(_add_square_columns, C, A, scale, trans, start, stop)


def _add_square_columns(C: Array, A: Array, scale: float, trans: bool, start: int, stop: int) -> None:
    if trans:
        blas.add_square(C[start:stop, start:stop], A[:, start:stop], scale, trans=True)
        blas.add_product(C[stop:, start:stop], A[:, stop:], A[:, start:stop], scale, trans_a=True)
    else:
        blas.add_square(C[start:stop, start:stop], A[start:stop], scale, trans=False)
        blas.add_product(C[stop:, start:stop], A[stop:], A[start:stop], scale, trans_b=True)


def _half(n: int) -> int:
    """The place to cut n at: near the middle, at a multiple of the block."""
    return max(BLOCK, (n // 2 + BLOCK // 2) // BLOCK * BLOCK)


def _chunks(n: int, parts: int) -> Iterator[slice]:
    """Up to `parts` slices of about equal length, and of at least 64 where n allows."""
    step = max(64, -(-n // parts))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
