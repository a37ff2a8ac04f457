"""Cholesky factor and inverse of large matrices by square blocks, on several threads.

Each algorithm is written as a loop over the blocks of the lower triangle, whose steps run as soon as the blocks that
they need are there (see `gp_core.task_graph`). Each thread calls a BLAS that has one thread (see `gp_core.parallel`).
The matrices are worked on in place, without copies. Fortran order throughout; the upper triangle is neither read nor
written.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from gp_core import blas
from gp_core.arrays import Array
from gp_core.task_graph import TaskGraph

BLOCK = 256
"""Largest side of a block: products of larger ones run no faster, and fewer would leave threads without work."""
_LEAST_BLOCK = 128
"""Smallest side of a block that is cut for the sake of more threads: products of smaller ones run slowly."""
_SMALL = 96
"""Size up to which a triangle is inverted by LAPACK."""
LEAST_SIZE = 768
"""Smaller matrices are left to LAPACK on one thread."""


class _Blocks:
    """The blocks of the lower triangle of a matrix A (N, N): `blocks[i, j]` is a view, j <= i < `count`."""

    def __init__(self, A: Array, threads: int) -> None:
        n = len(A)
        wanted = max(-(-n // BLOCK), min(2 * threads, n // _LEAST_BLOCK), 1)
        self.side = -(-n // wanted) if wanted == 1 else -(-n // (8 * wanted)) * 8
        self.count = -(-n // self.side)
        self._A = A

    def __getitem__(self, place: tuple[int, int]) -> Array:
        i, j = place
        side = self.side
        return self._A[i * side : (i + 1) * side, j * side : (j + 1) * side]


class _NotPositiveError(Exception):
    """The order of the first minor that is not positive, in `args`."""


def factorise(A: Array, threads: int) -> int:
    """Turn the lower triangle of A into L with A = L L'; 0, or the order of the first minor that is not positive.

    With the columns k of L, L_kk L_kk' = A_kk and L_ik = A_ik L_kk'^-1, the rest is A_ij -= L_ik L_jk'.
    """
    blocks, graph = _Blocks(A, threads), TaskGraph()
    for k in range(blocks.count):
        graph.add(partial(_factorise_block, blocks[k, k], k * blocks.side), (), (k, k))
        for i in range(k + 1, blocks.count):
            graph.add(partial(blas.solve_right, blocks[k, k], blocks[i, k]), [(k, k)], (i, k))
        for j in range(k + 1, blocks.count):
            graph.add(
                partial(blas.add_square, blocks[j, j], blocks[j, k], -1.0, trans=False), [(j, k)], (j, j)
            )
            for i in range(j + 1, blocks.count):
                task = partial(blas.add_product, blocks[i, j], blocks[i, k], blocks[j, k], -1.0, trans_b=True)
                graph.add(task, [(i, k), (j, k)], (i, j))
    try:
        graph.run(threads)
    except _NotPositiveError as error:
        return int(error.args[0])
    return 0


def _factorise_block(A: Array, before: int) -> None:
    info = blas.factorise(A)
    if info:
        raise _NotPositiveError(before + info)


def invert_triangle(L: Array, threads: int) -> None:
    """Turn the lower triangle of L into that of T = L^-1.

    After step k the first k + 1 rows of blocks are those of T, and each row i below holds -L_i T of these columns:
    L_ik becomes -L_ik T_kk, which times what row k held is added to L_ij, j < k; then row k is multiplied by T_kk.
    """
    if threads == 1:
        _invert_alone(L)
        return
    blocks, graph = _Blocks(L, threads), TaskGraph()
    for k in range(blocks.count):
        graph.add(partial(_invert_alone, blocks[k, k]), (), (k, k))
        for i in range(k + 1, blocks.count):
            graph.add(partial(blas.multiply_right, blocks[k, k], blocks[i, k], -1.0), [(k, k)], (i, k))
            for j in range(k):
                task = partial(blas.add_product, blocks[i, j], blocks[i, k], blocks[k, j], 1.0)
                graph.add(task, [(i, k), (k, j)], (i, j))
        for j in range(k):
            graph.add(partial(blas.multiply_left, blocks[k, k], blocks[k, j]), [(k, k)], (k, j))
    graph.run(threads)


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


def multiply_triangle(T: Array, threads: int) -> None:
    """Turn the lower triangle of T into that of P = T'T.

    Row k of blocks adds T_ki'T_kj to P_ij for j <= i < k, and leaves T_kk'T_kj in its own place.
    """
    if threads == 1:
        blas.multiply_triangle(T)
        return
    blocks, graph = _Blocks(T, threads), TaskGraph()
    for k in range(blocks.count):
        for j in range(k):
            graph.add(partial(blas.add_square, blocks[j, j], blocks[k, j], 1.0, trans=True), [(k, j)], (j, j))
            for i in range(j + 1, k):
                task = partial(blas.add_product, blocks[i, j], blocks[k, i], blocks[k, j], 1.0, trans_a=True)
                graph.add(task, [(k, i), (k, j)], (i, j))
        for j in range(k):
            task = partial(blas.multiply_left, blocks[k, k], blocks[k, j], 1.0, trans=True)
            graph.add(task, [(k, k)], (k, j))
        graph.add(partial(blas.multiply_triangle, blocks[k, k]), (), (k, k))
    graph.run(threads)


def squared_norms(T: Array, B: Array) -> Array:
    """(M,) with |T b|^2 for the rows b of B (M, N) and a lower triangular T (N, N), zeros above."""
    total = np.zeros(len(B))
    for start in range(0, len(T), BLOCK):
        stop = min(start + BLOCK, len(T))
        V = B[:, :stop] @ T[start:stop, :stop].T
        total += np.einsum("mn,mn->m", V, V)
    return total
