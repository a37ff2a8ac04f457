"""Squared distances between points, and what is made from them: matrices, and sums over their entries.

Large matrices are worked on by compiled loops, in blocks of rows that stay in cache; small ones by numpy and scipy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
from scipy.spatial.distance import cdist

from gp_core.arrays import Array
from gp_core.parallel import map_blocks

_COMPILED = 20_000
"""Entries from which on compiled loops are used: they take a moment to load, and then a third of scipy's time."""
_NARROW = 8
"""Columns up to which they are not: they go along rows, and where these are short numpy takes a third of their time."""
_SHARED = 2_000_000
"""Entries from which on several threads share the work."""
_ROWS = 64
"""Rows of a symmetric matrix that are worked on at a time: 512 bytes of each column, and a part that stays in cache."""
GAUSSIAN = 0
"""The profile exp(-s / 2) to the compiled loops; 1, 3 and 5 are those of Matern with 2 nu of that (see `loops`)."""

Block = TypeVar("Block")
Result = TypeVar("Result")


def is_large(n: int, m: int) -> bool:
    """Whether a matrix (n, m) is worked on by compiled loops."""
    return n * m >= _COMPILED and m > _NARROW


def squared_distances(A: Array, B: Array, out: Array | None = None) -> Array:
    """(N, M) with |a_i - b_j|^2, formed from differences: exact zeros, no cancellation.

    out: C-ordered
    """
    if not is_large(len(A), len(B)):
        distances: Array = cdist(A, B, "sqeuclidean", out=out)
        return distances
    from gp_core.kernels.loops import fill_squared_distances

    result = np.empty((len(A), len(B))) if out is None else out
    fill_squared_distances(np.ascontiguousarray(A), np.ascontiguousarray(B.T), 0, result)
    return result


def profile_matrix(A: Array, B: Array, profile: int, out: Array) -> None:
    """out (N, M) := f(|a_i - b_j|^2), by compiled loops.

    out: C-ordered
    """
    from gp_core.kernels.loops import fill_profile

    fill_profile(profile, np.ascontiguousarray(A), np.ascontiguousarray(B.T), 0, out)


def symmetric_matrix(A: Array, apply: Callable[[Array], None], profile: int | None = None) -> Array:
    """(N, N) with f(|a_i - a_j|^2): the upper half is computed by blocks of rows, each copied to the lower half.

    apply: replaces squared distances by f of them, in place
    profile: f, if the compiled loops know it: they then do what `apply` does
    """
    n = len(A)
    if not is_large(n, n):
        K = squared_distances(A, A)
        apply(K)
        return K
    from gp_core.kernels.loops import fill_profile, fill_squared_distances, place_rows

    K = np.empty((n, n))
    columns = np.ascontiguousarray(A.T)
    A = np.ascontiguousarray(A)

    def fill(start: int) -> None:
        rows = A[start : start + _ROWS]
        part = np.empty((len(rows), n - start))  # one piece that stays in cache
        if profile is None:
            fill_squared_distances(rows, columns, start, part)
            apply(part)
        else:
            fill_profile(profile, rows, columns, start, part)
        place_rows(part, K, start)

    _share(fill, range(0, n, _ROWS), n * n)
    return K


def sum_over_pairs(A: Array, B: Array, W: Array, upper: bool, profile: int, n_sums: int) -> Array:
    """(n_sums,) sums over i, j, with s = |a_i - b_j|^2 and g = W_ij f'(s): no matrix is formed.

    W: (N, M); with `upper` what is below its diagonal is taken to be 0
    n_sums: 1 for sum W f, 2 for sum g s as well, or 1 + D for sum g (a_id - b_jd)^2 per input d as well
    """
    from gp_core.kernels.loops import contract_profile

    A, columns = np.ascontiguousarray(A), np.ascontiguousarray(B.T)

    def contract(start: int) -> Array:
        sums = np.empty(n_sums)
        stop = start + _ROWS
        contract_profile(profile, W[start:stop], A[start:stop], columns, start if upper else -len(A), sums)
        return sums

    parts = _share(contract, range(0, len(A), _ROWS), W.size)
    total: Array = np.sum(parts, axis=0)
    return total


def _share(work: Callable[[Block], Result], blocks: Iterable[Block], entries: int) -> list[Result]:
    """work(block) for each block, on several threads where there are enough entries in all."""
    return map_blocks(work, blocks) if entries >= _SHARED else [work(block) for block in blocks]
