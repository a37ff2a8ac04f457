"""Elimination of the boxes of a dissection, from the leaves to the whole lattice.

The front of a box holds what its pivots (p) and its border (m) have: the prior of the box, the data that touch its
pivots, and what its two halves left on their borders. With P_pp and E = P_mp from it, X = P_pp^-1 and F = E X,

    L = P_mm - F E'

goes to the parent's front; substitution_downwards.py has the way back, mean_solution.py the means. L is what the data
in the box say about its border: nothing without data, so that boxes in holes cost nothing here.

In float32 where the prior and the data allow it (`Fronts.single`), else in float64: the smoother the kernel, the more
of the long waves across a hole is lost to rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gp_core.compiled import compiled
from gp_core.grid.markov.border_sums import add_to_border, add_to_pivots
from gp_core.grid.markov.dissection import Indices
from gp_core.grid.markov.flat_matrices import matrix, triangle_of, triangle_row, triangle_size
from gp_core.grid.markov.fronts import (
    BACK_AT,
    BORDER,
    DEPTH,
    FIRST,
    INVERSE_AT,
    KEPT_AT,
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
    """What boxes that are not kept leave for their parents: L one after the other.

    stacks: (2, room) of the boxes of even and of odd depth, as L is written while those of its halves are read
    used: (2,) numbers on each stack
    at: (boxes,) where that of a box begins
    """

    stacks: Any
    used: Indices
    at: Indices


class _Work(NamedTuple):
    """Memory for the matrices of the largest front; those of any box are at the beginning.

    own, root, square: P_pp, then its factor, and what its inversion needs, in padded rows
    mixed: E; inverse: X; back: F, of no size where it is found in float32, in which it is kept
    panel: some rows of F E'
    place: (n_y n_x,) of each coefficient in the front, -1 for those outside
    """

    own: Any
    root: Any
    square: Any
    mixed: Any
    inverse: Any
    back: Any
    panel: Any
    place: Any


@compiled(fastmath={"contract"})  # as `invert`, which becomes part of it
def eliminate(order, tables, stencil, gain, factors, triangles, in_single, room):  # type: ignore[no-untyped-def]
    """Upwards through the boxes of a job; False if a matrix was not positive definite.

    order: children before parents
    tables: `FrontTables`; stencil: (n_y n_x, 13) W' R^-1 W
    gain: 1 + share of the boxes' own precision that is added for safety
    results: `Factors` with `filled` given, and `triangles`, L of the boxes that are kept
    in_single: whether the numbers are float32: then F is written to its place; None if it is copied there
    room: size of a stack for the boxes that are not kept
    """
    boxes, filled = tables.boxes, factors.filled
    waiting = _Waiting(
        np.empty((2, room), dtype=triangles.dtype),
        np.zeros(2, dtype=np.int64),
        np.empty(boxes.shape[0], dtype=np.int64),
    )
    work = _make_work(order, boxes, stencil.shape[0], triangles.dtype, in_single)
    for k in order:
        if not filled[k]:
            continue
        p, m = boxes[k, PIVOTS], boxes[k, BORDER]
        front = tables.nodes[boxes[k, NODES] : boxes[k, NODES] + p + m]
        P, E = matrix(work.own, 0, p, padded(p)), matrix(work.mixed, 0, m, p)
        _take_prior(k, tables, gain, P, work.mixed)
        _take_data(front, tables.n_x, stencil, work.place, P, E)
        for half in range(FIRST, SECOND + 1):
            child = boxes[k, half]
            if child >= 0 and filled[child]:
                runs = tables.runs[boxes[child, RUNS] : boxes[child, RUNS] + boxes[child, RUN_COUNT]]
                add_to_pivots(runs, p, _triangle_of(child, boxes, triangles, waiting), P, E)
        if not factorise(P):
            return False
        X = matrix(work.inverse, 0, p, p)
        _invert_pivots(P, work, X, triangle_of(factors.inverse, boxes[k, INVERSE_AT], p))
        _release_halves(k, boxes, filled, waiting)
        if m > 0:
            F = _place(in_single, work.back, factors.back, boxes[k, BACK_AT], m, p)
            np.dot(E, X, F)
            _keep(in_single, work.back, factors.back, boxes[k, BACK_AT], m * p)
            _reserve(k, boxes, waiting)
            L = _triangle_of(k, boxes, triangles, waiting)
            _reduce_border(F, E, triangle_of(tables.coupled, boxes[k, OUTER], m), work.panel, L)
            _add_borders_of_halves(k, tables, filled, triangles, waiting, L)
    return True


@njit(inline="always")
def _make_work(order, boxes, nodes, precision, in_single):  # type: ignore[no-untyped-def]
    """Memory for the largest front of a job."""
    most_p, most_m = 0, 0
    for k in order:
        most_p, most_m = max(most_p, boxes[k, PIVOTS]), max(most_m, boxes[k, BORDER])
    size = most_p * padded(most_p)
    copied = 1 if in_single is None else 0
    return _Work(
        np.empty(size, dtype=precision),
        np.empty(size, dtype=precision),
        np.empty(size, dtype=precision),
        np.empty(most_m * most_p, dtype=precision),
        np.empty(most_p * most_p, dtype=precision),
        np.empty(copied * most_m * most_p, dtype=precision),
        np.empty(_PANEL * most_m, dtype=precision),
        np.full(nodes, -1, dtype=np.int32),
    )


@compiled()
def _place(in_single, room, kept, start, rows, columns):  # type: ignore[no-untyped-def]
    """The matrix that begins at `start` of those that are kept, or room for it in float64.

    numba leaves out what does not hold for None: what is returned has one type.
    """
    if in_single is None:
        return matrix(room, 0, rows, columns)
    return matrix(kept, start, rows, columns)


@compiled()
def _keep(in_single, room, kept, start, size):  # type: ignore[no-untyped-def]
    """Copy a matrix from its room in float64 to its place."""
    if in_single is None:
        out = kept[start : start + size]
        for a in range(size):
            out[a] = room[a]


@njit(inline="always")
def _take_prior(k, tables, gain, P, mixed):  # type: ignore[no-untyped-def]
    """Write the prior of the box into P and E, which is the beginning of `mixed`."""
    boxes = tables.boxes
    p, m = boxes[k, PIVOTS], boxes[k, BORDER]
    own = matrix(tables.own, boxes[k, OWN], p, p)
    for a in range(p):
        for b in range(p):
            P[a, b] = own[a, b]
        for b in range(p, P.shape[1]):
            P[a, b] = 0.0
        P[a, a] *= gain
    prior = tables.coupled[boxes[k, MIXED] : boxes[k, MIXED] + m * p]
    for a in range(m * p):
        mixed[a] = prior[a]


@njit(inline="always")
def _take_data(front, n_x, stencil, place, P, E):  # type: ignore[no-untyped-def]
    """Add the data that touch the pivots to P and E."""
    for a in range(front.size):
        place[front[a]] = a
    _add_data(front, P.shape[0], n_x, place, stencil, P, E)
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
def _triangle_of(k, boxes, triangles, waiting):  # type: ignore[no-untyped-def]
    """L of a box: among those that are kept, or on the stack of its depth."""
    size = triangle_size(boxes[k, BORDER])
    if boxes[k, KEPT_AT] >= 0:
        return triangles[boxes[k, KEPT_AT] : boxes[k, KEPT_AT] + size]
    return waiting.stacks[boxes[k, DEPTH] % 2, waiting.at[k] : waiting.at[k] + size]


@njit(inline="always")
def _reserve(k, boxes, waiting):  # type: ignore[no-untyped-def]
    """Make room for L of a box on the stack of its depth, unless it is kept."""
    if boxes[k, KEPT_AT] < 0:
        parity = boxes[k, DEPTH] % 2
        waiting.at[k] = waiting.used[parity]
        waiting.used[parity] += triangle_size(boxes[k, BORDER])


@njit(inline="always")
def _release_halves(k, boxes, filled, waiting):  # type: ignore[no-untyped-def]
    """Free the room of the halves of a box: their numbers stay until the next box of their depth is eliminated."""
    used, other = waiting.used, 1 - boxes[k, DEPTH] % 2
    for half in range(FIRST, SECOND + 1):
        child = boxes[k, half]
        if child >= 0 and filled[child] and boxes[child, KEPT_AT] < 0:
            used[other] = min(used[other], waiting.at[child])


@njit(inline="always")
def _invert_pivots(U, work, X, kept):  # type: ignore[no-untyped-def]
    """X = (U' U)^-1, of which the lower triangle is kept."""
    p = U.shape[0]
    C = matrix(work.square, 0, p, padded(p))
    invert(U, matrix(work.root, 0, p, padded(p)), C)
    for a in range(p):
        row = triangle_row(kept, a)
        for b in range(a + 1):
            X[a, b] = C[a, b]
            X[b, a] = C[a, b]
            row[b] = C[a, b]


@njit(inline="always")
def _reduce_border(F, E, prior, panel, L):  # type: ignore[no-untyped-def]
    """L = P_mm - F E' of the box's own P_mm, lower triangles, in panels of rows up to the diagonal."""
    m = F.shape[0]
    for first in range(0, m, _PANEL):
        last = min(first + _PANEL, m)
        product = matrix(panel, 0, last - first, last)
        np.dot(F[first:last], E[:last].T, product)
        for a in range(first, last):
            row, prior_row, product_row = triangle_row(L, a), triangle_row(prior, a), product[a - first]
            for b in range(a + 1):
                row[b] = prior_row[b] - product_row[b]


@njit(inline="always")
def _add_borders_of_halves(k, tables, filled, triangles, waiting, L):  # type: ignore[no-untyped-def]
    """Add what the halves of a box left on the part of their borders that is its own border too."""
    boxes = tables.boxes
    for half in range(FIRST, SECOND + 1):
        child = boxes[k, half]
        if child >= 0 and filled[child]:
            runs = tables.runs[boxes[child, RUNS] : boxes[child, RUNS] + boxes[child, RUN_COUNT]]
            add_to_border(runs, boxes[k, PIVOTS], _triangle_of(child, boxes, triangles, waiting), L)


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
