"""Small algorithms that compiled loops inline: a definite 6 x 6 system, and the value of a rank."""

from __future__ import annotations

from numba import njit


@njit(inline="always")
def solve_definite(H, g, x):  # type: ignore[no-untyped-def] # pragma: no cover
    """x = H^-1 g of a positive definite matrix by H = L D L'; H and g are used up.

    Not numpy's solver: that one brings code for copies and error messages along, and all of it would be compiled.
    """
    n = g.size
    for k in range(n):
        for i in range(k + 1, n):
            ratio = H[i, k] / H[k, k]
            g[i] -= ratio * g[k]
            for j in range(i, n):
                H[i, j] -= ratio * H[k, j]
                H[j, i] = H[i, j]
    for k in range(n - 1, -1, -1):
        x[k] = g[k]
        for j in range(k + 1, n):
            x[k] -= H[k, j] * x[j]
        x[k] /= H[k, k]


@njit(inline="always")
def select_rank(values, count, rank):  # type: ignore[no-untyped-def] # pragma: no cover
    """The value of this rank, from 0, of the first `count`; none before it is larger afterwards (Hoare's selection)."""
    first, last = 0, count - 1
    while first < last:
        pivot = values[(first + last) // 2]
        i, j = first, last
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if rank <= j:
            last = j
        elif rank >= i:
            first = i
        else:
            break
    return values[rank]
