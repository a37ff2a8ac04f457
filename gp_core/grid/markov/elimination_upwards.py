"""Elimination of the boxes of a dissection, from the leaves to the whole lattice.

The front of a box holds what its pivots (p) and its border (m) have: the prior of the box, the data that touch its
pivots, and what its two halves left on their borders. With P_pp and E = P_mp from it, X = P_pp^-1 and F = E X,

    L = P_mm - F E',     r_m = b_m - F r_p

go to the parent's front; substitution_downwards.py has the way back. L is what the data in the box say about its
border: nothing without data, so that boxes in holes cost nothing here. All in float64: across a hole, single precision
loses the long waves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid.markov.border_sums import add_to_border, add_to_pivots, add_vectors
from gp_core.grid.markov.dissection import Indices
from gp_core.grid.markov.flat_matrices import matrix, triangle_row, triangle_size
from gp_core.grid.markov.fronts import (
    BACK_AT,
    BORDER,
    DEPTH,
    FIRST,
    INVERSE_AT,
    KEPT_AT,
    KEPT_VECTOR_AT,
    MIXED,
    NODES,
    OUTER,
    OWN,
    PIVOTS,
    RUN_COUNT,
    RUNS,
    SECOND,
)
from gp_core.grid.symmetric import factorise, invert, padded

_PANEL = 64
"""Rows of a symmetric product that are computed at once, up to the diagonal."""


class _Waiting(NamedTuple):
    """What boxes that are not kept leave for their parents: L and r_m one after the other.

    stacks: (2, room) of the boxes of even and of odd depth, as L is written while those of its halves are read
    used: (2,) numbers on each stack
    at: (boxes,) where those of a box begin
    """

    stacks: Array
    used: Indices
    at: Indices


class _Work(NamedTuple):
    """Memory for the matrices of the largest front; those of any box are at the beginning.

    own, root, square: P_pp, then its factor, and what its inversion needs, in padded rows
    inverse, mixed, back: X, E, F
    panel: some rows of F E'
    r: (p + m, K); vector: (p,) one column of r
    place: (n_y n_x,) of each coefficient in the front, -1 for those outside
    """

    own: Array
    root: Array
    square: Array
    inverse: Array
    mixed: Array
    back: Array
    panel: Array
    r: Array
    vector: Array
    place: Any


@compiled(fastmath={"contract"})  # as `invert`, which becomes part of it
def eliminate(order, tables, equations, gain, factors, kept, room):  # type: ignore[no-untyped-def]
    """Upwards through the boxes of a job; False if a matrix was not positive definite.

    order: children before parents
    tables: `FrontTables`, equations: `Equations`; results: `Factors` with `filled` given, `KeptBorders`
    gain: 1 + share of the boxes' own precision that is added for safety
    room: size of a stack for the boxes that are not kept
    """
    boxes, filled = tables.boxes, factors.filled
    waiting = _Waiting(
        np.empty((2, room)), np.zeros(2, dtype=np.int64), np.empty(boxes.shape[0], dtype=np.int64)
    )
    work = _make_work(order, boxes, equations)
    for k in order:
        if not filled[k]:
            continue
        p, m = boxes[k, PIVOTS], boxes[k, BORDER]
        front = tables.nodes[boxes[k, NODES] : boxes[k, NODES] + p + m]
        P, E = matrix(work.own, 0, p, padded(p)), matrix(work.mixed, 0, m, p)
        _take_prior(k, tables, gain, P, work.mixed)
        _take_data(front, tables.n_x, equations, work, P, E)
        for half in range(FIRST, SECOND + 1):
            child = boxes[k, half]
            if child >= 0 and filled[child]:
                L, vectors = _results_of(child, boxes, kept, waiting)
                runs = tables.runs[boxes[child, RUNS] : boxes[child, RUNS] + boxes[child, RUN_COUNT]]
                add_to_pivots(runs, p, L, P, E)
                add_vectors(runs, vectors, work.r)
        if not factorise(P):
            return False
        inverse = matrix(work.inverse, 0, p, p)
        _invert_pivots(P, work, inverse, matrix(factors.inverse, boxes[k, INVERSE_AT], p, p))
        _solve_pivots(front, inverse, work, factors.solved)
        _release_halves(k, boxes, filled, waiting)
        if m > 0:
            F = matrix(work.back, 0, m, p)
            np.dot(E, inverse, F)
            _keep_back(work.back, m * p, factors.back, boxes[k, BACK_AT])
            _reserve(k, boxes, work.r.shape[1], waiting)
            L, vectors = _results_of(k, boxes, kept, waiting)
            _reduce_vectors(F, work, vectors)
            _reduce_border(F, E, matrix(tables.precision, boxes[k, OUTER], m, m), work.panel, L)
            _add_borders_of_halves(k, tables, filled, kept, waiting, L)
    return True


@njit(inline="always")
def _make_work(order, boxes, equations):  # type: ignore[no-untyped-def]
    """Memory for the largest front of a job."""
    most_p, most_m = 0, 0
    for k in order:
        most_p, most_m = max(most_p, boxes[k, PIVOTS]), max(most_m, boxes[k, BORDER])
    size = most_p * padded(most_p)
    return _Work(
        np.empty(size),
        np.empty(size),
        np.empty(size),
        np.empty(most_p * most_p),
        np.empty(most_m * most_p),
        np.empty(most_m * most_p),
        np.empty(_PANEL * most_m),
        np.empty((most_p + most_m, equations.right.shape[0])),
        np.empty(most_p),
        np.full(equations.stencil.shape[0], -1, dtype=np.int32),
    )


@njit(inline="always")
def _take_prior(k, tables, gain, P, mixed):  # type: ignore[no-untyped-def]
    """Write the prior of the box into P and E, which is the beginning of `mixed`."""
    boxes, precision = tables.boxes, tables.precision
    p, m = boxes[k, PIVOTS], boxes[k, BORDER]
    own = matrix(precision, boxes[k, OWN], p, p)
    for a in range(p):
        for b in range(p):
            P[a, b] = own[a, b]
        for b in range(p, P.shape[1]):
            P[a, b] = 0.0
        P[a, a] *= gain
    prior = precision[boxes[k, MIXED] : boxes[k, MIXED] + m * p]
    for a in range(m * p):
        mixed[a] = prior[a]


@njit(inline="always")
def _take_data(front, n_x, equations, work, P, E):  # type: ignore[no-untyped-def]
    """Start r with the right-hand sides of the pivots, and add the data that touch them to P and E."""
    right, r, place, p = equations.right, work.r, work.place, P.shape[0]
    for a in range(front.size):
        place[front[a]] = a
        for side in range(r.shape[1]):
            r[a, side] = right[side, front[a]] if a < p else 0.0
    _add_data(front, p, n_x, place, equations.stencil, P, E)
    for a in range(front.size):
        place[front[a]] = -1


@compiled()
def _add_data(front, p, n_x, place, stencil, P, E):  # type: ignore[no-untyped-def]
    """Add what the data say about pairs of a pivot and a coefficient of the front."""
    n_y = stencil.shape[0] // n_x
    for a in range(p):
        node = front[a]
        if stencil[node, 0] == 0.0:
            continue
        y, x = node // n_x, node % n_x
        for dy in range(-2, 3):
            for dx in range(-2, 3):
                if 0 <= y + dy < n_y and 0 <= x + dx < n_x:
                    other = node + dy * n_x + dx
                    b = place[other]
                    if b < 0 or (b < p and b < a):
                        continue
                    if dy > 0 or (dy == 0 and dx >= 0):
                        value = stencil[node, 5 * dy + dx]
                    else:
                        value = stencil[other, -5 * dy - dx]
                    if b < p:
                        P[a, b] += value
                    else:
                        E[b - p, a] += value


@compiled()
def _results_of(k, boxes, kept, waiting):  # type: ignore[no-untyped-def]
    """L and r_m (m, K) of a box: among those that are kept, or on the stack of its depth."""
    m = boxes[k, BORDER]
    size = triangle_size(m)
    if boxes[k, KEPT_AT] >= 0:
        start, first = boxes[k, KEPT_AT], boxes[k, KEPT_VECTOR_AT]
        return kept.triangles[start : start + size], kept.vectors[first : first + m]
    stack, start = waiting.stacks[boxes[k, DEPTH] % 2], waiting.at[k]
    return stack[start : start + size], matrix(stack, start + size, m, kept.vectors.shape[1])


@njit(inline="always")
def _reserve(k, boxes, sides, waiting):  # type: ignore[no-untyped-def]
    """Make room for the results of a box on the stack of its depth, unless they are kept."""
    if boxes[k, KEPT_AT] < 0:
        m, parity = boxes[k, BORDER], boxes[k, DEPTH] % 2
        waiting.at[k] = waiting.used[parity]
        waiting.used[parity] += triangle_size(m) + m * sides


@njit(inline="always")
def _release_halves(k, boxes, filled, waiting):  # type: ignore[no-untyped-def]
    """Free the room of the halves of a box: their numbers stay until the next box of their depth is eliminated."""
    used, other = waiting.used, 1 - boxes[k, DEPTH] % 2
    for half in range(FIRST, SECOND + 1):
        child = boxes[k, half]
        if child >= 0 and filled[child] and boxes[child, KEPT_AT] < 0:
            used[other] = min(used[other], waiting.at[child])


@njit(inline="always")
def _invert_pivots(U, work, inverse, kept_inverse):  # type: ignore[no-untyped-def]
    """X = (U' U)^-1, in both precisions."""
    p = U.shape[0]
    C = matrix(work.square, 0, p, padded(p))
    invert(U, matrix(work.root, 0, p, padded(p)), C)
    for a in range(p):
        for b in range(a + 1):
            inverse[a, b] = C[a, b]
            inverse[b, a] = C[a, b]
            kept_inverse[a, b] = C[a, b]
            kept_inverse[b, a] = C[a, b]


@njit(inline="always")
def _solve_pivots(front, inverse, work, solved):  # type: ignore[no-untyped-def]
    """X r_p, written to the places of the pivots."""
    r, p = work.r, inverse.shape[0]
    vector = work.vector[:p]
    for side in range(r.shape[1]):
        for b in range(p):
            vector[b] = r[b, side]
        for a in range(p):
            solved[front[a], side] = _dot(inverse[a], vector)


@njit(inline="always")
def _keep_back(back, size, kept_back, start):  # type: ignore[no-untyped-def]
    """Copy F to its place in those of all boxes, in float32."""
    out = kept_back[start : start + size]
    for a in range(size):
        out[a] = back[a]


@njit(inline="always")
def _reduce_vectors(F, work, out):  # type: ignore[no-untyped-def]
    """r_m = b_m - F r_p."""
    m, p = F.shape
    r, vector = work.r, work.vector[:p]
    for side in range(r.shape[1]):
        for b in range(p):
            vector[b] = r[b, side]
        for a in range(m):
            out[a, side] = r[p + a, side] - _dot(F[a], vector)


@compiled(fastmath={"contract", "reassoc"})
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(a.size):
        total += a[k] * b[k]
    return total


@njit(inline="always")
def _reduce_border(F, E, prior, panel, L):  # type: ignore[no-untyped-def]
    """L = P_mm - F E' of the box's own P_mm, the lower triangle in panels of rows up to the diagonal."""
    m = F.shape[0]
    for first in range(0, m, _PANEL):
        last = min(first + _PANEL, m)
        product = matrix(panel, 0, last - first, last)
        np.dot(F[first:last], E[:last].T, product)
        for a in range(first, last):
            row, prior_row, product_row = triangle_row(L, a), prior[a], product[a - first]
            for b in range(a + 1):
                row[b] = prior_row[b] - product_row[b]


@njit(inline="always")
def _add_borders_of_halves(k, tables, filled, kept, waiting, L):  # type: ignore[no-untyped-def]
    """Add what the halves of a box left on the part of their borders that is its own border too."""
    boxes = tables.boxes
    for half in range(FIRST, SECOND + 1):
        child = boxes[k, half]
        if child >= 0 and filled[child]:
            runs = tables.runs[boxes[child, RUNS] : boxes[child, RUNS] + boxes[child, RUN_COUNT]]
            add_to_border(runs, boxes[k, PIVOTS], _results_of(child, boxes, kept, waiting)[0], L)


@compiled()
def find_filled(order, boxes, nodes, stencil, filled):  # type: ignore[no-untyped-def]
    """Note for each box of a job whether there are data that touch its pivots, or those of the boxes in it."""
    for k in order:
        filled[k] = False
        start = boxes[k, NODES]
        for a in range(start, start + boxes[k, PIVOTS]):
            if stencil[nodes[a], 0] > 0.0:
                filled[k] = True
                break
        for half in range(FIRST, SECOND + 1):
            child = boxes[k, half]
            if child >= 0 and filled[child]:
                filled[k] = True
