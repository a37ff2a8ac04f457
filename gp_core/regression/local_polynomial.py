"""Weighted least squares around many queries at once: the compiled loops of locally weighted regression.

Around a query q the polynomial b'p((x_i - q) / unit) is fitted with weights w_i. The loops gather the normal
equations of a block of queries, scale their columns to unit length and solve them by Cholesky; those that
are close to singular are left to a pseudo-inverse. No loop holds more than one query's neighbours.

Shapes: M queries, N training points, K neighbours, D inputs, F monomials, O outputs.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gp_core.arrays import Array
from gp_core.compiled import compiled

Indices = npt.NDArray[np.intp]

_RANK_TOLERANCE = 1e-10
_SAFE_PIVOT = 1e-6
"""Cholesky pivots of a unit-diagonal matrix below this are left to the pseudo-inverse."""
_SAME_DISTANCE = 1e-9
"""Neighbours whose distances differ by less than this, relative to the farthest, count as equally far."""


def fit_around(
    X: Array, Y: Array, robust: Array, queries: Array, neighbours: Indices, weights: Array, pairs: Indices
) -> Array:
    """b (M, F, O) from given weights; NaN where no neighbour has any weight.

    X: (N, D) training points, Y: (N, O) targets
    robust: (N,) factors on the weights; ignored at a query where they leave nothing
    queries: (M, D)
    neighbours: (M, K) indices into X, or (M, 0) if column i of the weights belongs to point i
    weights: (M, K) not negative
    pairs: (F, 2), the monomial f is e[pairs[f, 0]] e[pairs[f, 1]] with e = (1, x_1, ..., x_D)
    """
    normal = np.zeros((len(queries), len(pairs), len(pairs)))
    right = np.zeros((len(queries), len(pairs), Y.shape[1]))
    _gather(X, Y, robust, queries, neighbours, weights, pairs, normal, right)
    return _solve(normal, right)


def fit_on_a_line(
    x: Array, Y: Array, robust: Array, queries: Array, nearest: int, degree: int, unit: Array
) -> Array:
    """b (M, F, O) with tricube weights on the `nearest` points of one sorted input.

    x: (N,) ascending, Y: (N, O) in the same order, robust: (N,) factors on the weights
    queries: (M,)
    unit: (M,) is filled with the length that b's powers are in
    """
    normal = np.zeros((len(queries), degree + 1, degree + 1))
    right = np.zeros((len(queries), degree + 1, Y.shape[1]))
    _gather_on_a_line(x, Y, robust, queries, nearest, normal, right, unit)
    return _solve(normal, right)


def _solve(normal: Array, right: Array) -> Array:
    """Solve in place; singular systems get the solution of least norm, empty ones NaN."""
    singular = np.zeros(len(normal), dtype=np.bool_)
    length = np.empty(normal.shape[:2])
    empty = normal[:, 0, 0] <= 0.0
    _eliminate(normal, right, length, singular)
    rows = np.flatnonzero(singular)
    if len(rows):
        system = normal[rows]
        b = np.linalg.pinv(system, rcond=_RANK_TOLERANCE, hermitian=True) @ right[rows]
        right[rows] = b / length[rows][:, :, None]
    right[empty] = np.nan
    return right


@compiled()
def _gather(
    X: Any,
    Y: Any,
    robust: Any,
    queries: Any,
    neighbours: Any,
    weights: Any,
    pairs: Any,
    normal: Any,
    right: Any,
) -> None:
    D, F, outputs = X.shape[1], len(pairs), Y.shape[1]
    e = np.ones(D + 1)
    p = np.empty(F)
    all_points = neighbours.shape[1] == 0
    for m in range(len(queries)):
        downweighted = False
        for j in range(weights.shape[1]):
            i = j if all_points else neighbours[m, j]
            if weights[m, j] * robust[i] > 0.0:
                downweighted = True
                break
        for j in range(weights.shape[1]):
            i = j if all_points else neighbours[m, j]
            w = weights[m, j] * robust[i] if downweighted else weights[m, j]
            if not w > 0.0:
                continue
            for d in range(D):
                e[d + 1] = X[i, d] - queries[m, d]
            for f in range(F):
                p[f] = e[pairs[f, 0]] * e[pairs[f, 1]]
            for f in range(F):
                wp = w * p[f]
                for g in range(f + 1):
                    normal[m, f, g] += wp * p[g]
                for o in range(outputs):
                    right[m, f, o] += wp * Y[i, o]


_FAST: Final = {"reassoc", "contract", "nsz"}
"""What the compiler may assume of sums, so that it can form them by vectors."""


@compiled(fastmath=_FAST)
def _gather_on_a_line(
    x: Any, Y: Any, robust: Any, queries: Any, nearest: int, normal: Any, right: Any, unit: Any
) -> None:
    n, F, outputs = len(x), normal.shape[1], Y.shape[1]
    u = np.empty(n)
    w = np.empty(n)
    moments = np.empty(2 * F - 1)
    for m in range(len(queries)):
        start, stop, reach, alike = _find_window(x, queries[m], nearest)
        size = stop - start
        unit[m] = reach if reach > 0.0 else 1.0
        _weigh(x[start:stop], queries[m], robust[start:stop], reach, alike, u, w)
        _sum_moments(u[:size], w[:size], F, moments)
        for f in range(F):
            for g in range(f + 1):
                normal[m, f, g] = moments[f + g]
        for o in range(outputs):
            t0, t1, t2 = 0.0, 0.0, 0.0
            for j in range(size):
                wy = w[j] * Y[start + j, o]
                t0 += wy
                t1 += wy * u[j]
                t2 += wy * u[j] * u[j]
            right[m, 0, o] = t0
            if F > 1:
                right[m, 1, o] = t1
            if F > 2:
                right[m, 2, o] = t2


@compiled(fastmath=_FAST)
def _find_window(x: Any, q: float, nearest: int) -> Any:
    """Start and stop of the `nearest` points, the distance of the farthest, and whether all are equally far."""
    n = len(x)
    low, high = 0, n - nearest
    while low < high:  # the window whose ends are equally far, or nearly so
        middle = (low + high) // 2
        if q - x[middle] > x[middle + nearest] - q:
            low = middle + 1
        else:
            high = middle
    start, stop = low, low + nearest
    reach = max(abs(q - x[start]), abs(x[stop - 1] - q))
    closest = np.inf
    for i in range(start, stop):
        closest = min(closest, abs(x[i] - q))
    alike = closest >= reach * (1.0 - _SAME_DISTANCE)
    if alike:  # also where reach is 0: the tricube vanishes, and ties are neighbours too
        margin = reach * (1.0 + _SAME_DISTANCE)
        while start > 0 and q - x[start - 1] <= margin:
            start -= 1
        while stop < n and x[stop] - q <= margin:
            stop += 1
    return start, stop, reach, alike


@compiled(fastmath=_FAST)
def _weigh(x: Any, q: float, robust: Any, reach: float, alike: bool, u: Any, w: Any) -> None:
    """Distances u in units of the reach, and weights w: tricube times robust, unless that leaves nothing."""
    size = len(x)
    scale = 1.0 / reach if reach > 0.0 else 1.0
    for j in range(size):
        u[j] = (x[j] - q) * scale
    total = 0.0
    for j in range(size):
        c = abs(u[j])
        c = max(1.0 - c * c * c, 0.0)
        w[j] = c * c * c if not alike else 1.0
        total += w[j] * robust[j]
    if total > 0.0:
        for j in range(size):
            w[j] *= robust[j]


@compiled(fastmath=_FAST)
def _sum_moments(u: Any, w: Any, F: int, moments: Any) -> None:
    """moments[k] = sum_j w_j u_j^k for k < 2 F - 1."""
    size = len(u)
    moments[:] = 0.0
    if F == 1:
        for j in range(size):
            moments[0] += w[j]
    elif F == 2:
        s0, s1, s2 = 0.0, 0.0, 0.0
        for j in range(size):
            wu = w[j] * u[j]
            s0 += w[j]
            s1 += wu
            s2 += wu * u[j]
        moments[0], moments[1], moments[2] = s0, s1, s2
    else:
        s0, s1, s2, s3, s4 = 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(size):
            square = u[j] * u[j]
            wu, w2 = w[j] * u[j], w[j] * square
            s0 += w[j]
            s1 += wu
            s2 += w2
            s3 += wu * square
            s4 += w2 * square
        moments[0], moments[1], moments[2], moments[3], moments[4] = s0, s1, s2, s3, s4


@compiled()
def _eliminate(normal: Any, right: Any, length: Any, singular: Any) -> None:
    """Systems given by their lower triangles; where `singular`, both are left scaled for the pseudo-inverse."""
    F, outputs = right.shape[1], right.shape[2]
    L = np.empty((F, F))
    for m in range(len(normal)):
        # Columns scaled to unit length: rank is then judged alike whatever the neighbourhood's size.
        for f in range(F):
            length[m, f] = np.sqrt(max(normal[m, f, f], 1e-300))
        for f in range(F):
            for g in range(f + 1):
                normal[m, f, g] /= length[m, f] * length[m, g]
                normal[m, g, f] = normal[m, f, g]
            for o in range(outputs):
                right[m, f, o] /= length[m, f]
        for f in range(F):
            for g in range(f + 1):
                value = normal[m, f, g]
                for h in range(g):
                    value -= L[f, h] * L[g, h]
                if f > g:
                    L[f, g] = value / L[g, g]
                elif value > _SAFE_PIVOT:
                    L[f, f] = np.sqrt(value)
                else:
                    singular[m] = True
                    L[f, f] = 1.0
        if singular[m]:
            continue
        for o in range(outputs):
            for f in range(F):
                value = right[m, f, o]
                for g in range(f):
                    value -= L[f, g] * right[m, g, o]
                right[m, f, o] = value / L[f, f]
            for f in range(F - 1, -1, -1):
                value = right[m, f, o]
                for g in range(f + 1, F):
                    value -= L[g, f] * right[m, g, o]
                right[m, f, o] = value / L[f, f]
            for f in range(F):
                right[m, f, o] /= length[m, f]


def tricube(distance: Array, reach: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Weights (M, K) that fall to 0 at reach (M,), and which rows have all their neighbours equally far (M,).

    There the tricube vanishes on all of them, so they weigh 1.
    """
    alike = distance.min(axis=1) >= reach * (1.0 - _SAME_DISTANCE)
    with np.errstate(divide="ignore", invalid="ignore"):
        u = distance / reach[:, None]
    weights = np.maximum(1.0 - u**3, 0.0) ** 3
    weights[alike] = distance[alike] <= reach[alike, None] * (1.0 + _SAME_DISTANCE)
    return weights, alike


def monomial_pairs(exponents: Indices) -> Indices:
    """(F, 2) for monomials of degree 2 or less given by their powers (F, D), see `fit_around`."""
    pairs = np.zeros((len(exponents), 2), dtype=np.intp)
    for f, powers in enumerate(exponents):
        inputs = np.repeat(np.arange(len(powers)), powers) + 1
        pairs[f, : len(inputs)] = inputs
    return pairs
