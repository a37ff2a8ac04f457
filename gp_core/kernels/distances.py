"""Squared distances between points, and the symmetric matrices made from them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist

from gp_core.arrays import Array
from gp_core.parallel import map_blocks

_COMPILED = 20_000
"""Entries from which on compiled loops are used: they take a moment to load, and then a third of scipy's time."""
_SHARED = 2_000_000
"""Entries from which on several threads share the work."""
_ROWS = 64
"""Rows of a symmetric matrix that are worked on at a time: 512 bytes of each column, and a part that stays in cache."""


def squared_distances(A: Array, B: Array, out: Array | None = None) -> Array:
    """(N, M) with |a_i - b_j|^2, formed from differences: exact zeros, no cancellation.

    out: C-ordered
    """
    if len(A) * len(B) < _COMPILED:
        distances: Array = cdist(A, B, "sqeuclidean", out=out)
        return distances
    from gp_core.kernels.loops import fill_squared_distances

    result = np.empty((len(A), len(B))) if out is None else out
    fill_squared_distances(np.ascontiguousarray(A), np.ascontiguousarray(B.T), 0, result)
    return result


def symmetric_matrix(A: Array, apply: Callable[[Array], None]) -> Array:
    """(N, N) with f(|a_i - a_j|^2): the upper half is computed by blocks of rows, each copied to the lower half.

    apply: replaces squared distances by f of them, in place
    """
    n = len(A)
    if n * n < _COMPILED:
        K = squared_distances(A, A)
        apply(K)
        return K
    from gp_core.kernels.loops import fill_squared_distances, place_rows

    K = np.empty((n, n))
    columns = np.ascontiguousarray(A.T)
    A = np.ascontiguousarray(A)

    def fill(start: int) -> None:
        rows = A[start : start + _ROWS]
        part = np.empty((len(rows), n - start))  # one piece that stays in cache
        fill_squared_distances(rows, columns, start, part)
        apply(part)
        place_rows(part, K, start)

    starts = range(0, n, _ROWS)
    if n * n < _SHARED:
        for start in starts:
            fill(start)
    else:
        map_blocks(fill, starts)
    return K
