"""Covariances of near coefficients of a dissection, from the whole lattice back to the leaves.

With X and F from elimination_upwards.py, pivots p and border m of a box,

    S_mp = -S_mm F,    S_pp = X + F' S_mm F

(Takahashi, Fagan and Chin, 1973, for whole blocks). A box without data has F = -B', X = V of the prior. All terms are
positive, and float32 will do.

Where there are data, they screen the pivots from most of the border: rows of F that carry next to nothing of the
border's variance to any pivot are left out of the products, which in the upper boxes are nearly all rows.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from gp_core.compiled import compiled
from gp_core.grid.markov.flat_matrices import SHORT, matrix, triangle_of, triangle_row
from gp_core.grid.markov.fronts import (
    BACK,
    BACK_AT,
    BORDER,
    FIRST,
    INVERSE_AT,
    KEPT_AT,
    NODES,
    PARENT,
    PIVOTS,
    RUN_COUNT,
    RUNS,
    SECOND,
    SHARED_AT,
    VARIANCE,
)

_SCREENED: Final = 1e-5
"""Share of the pivots' variances given the border, summed over the pivots, that one border coefficient must add to
them to count."""
_SMALL: Final = 120
"""Coefficients of a border of which none is far enough from the pivots to be left out."""
_MOST_ROWS: Final = 0.75
"""Share of the border's coefficients from which on all of them count: to gather them costs too."""


class _Work(NamedTuple):
    """Memory for the products of the largest front, in float32; those of any box are at the beginning.

    chosen: (m,) the rows of F that count
    precision: (p,) of each pivot given the border
    square: (p, p); border, back, mixed: the chosen rows of S_mm, F and -S_mp
    """

    chosen: Any
    precision: Any
    square: Any
    border: Any
    back: Any
    mixed: Any


class _FrontCovariance(NamedTuple):
    """The posterior covariance of a front, in float32.

    border: (m, m) S_mm; mixed: (m, p) -S_mp; own: (p, p) S_pp
    """

    border: Any
    mixed: Any
    own: Any


@compiled(fastmath={"contract"})
def substitute(order, tables, factors, shared, covariances, room):  # type: ignore[no-untyped-def]
    """Downwards through the boxes of a job: the covariances (n_y n_x, 13) of its coefficients.

    order: children before parents, taken backwards
    tables: `FrontTables`, factors: `Factors`
    shared: covariances of the borders of kept boxes, where those of the job's root are read and deeper ones are written
    room: numbers of the covariances on the longest way from the root to a leaf
    """
    boxes, filled = tables.boxes, factors.filled
    stack = np.empty(room, dtype=np.float32)
    at = np.empty(boxes.shape[0], dtype=np.int64)
    place = np.full(covariances.shape[0], -1, dtype=np.int32)
    work = _make_work(order, boxes)
    for step in range(order.size - 1, -1, -1):
        k = order[step]
        p, m = boxes[k, PIVOTS], boxes[k, BORDER]
        front = tables.nodes[boxes[k, NODES] : boxes[k, NODES] + p + m]
        at[k] = _take_border(k, tables, shared, stack, at)
        S = _covariance_on(stack, at[k], m, p)
        if filled[k]:
            F = matrix(factors.back, boxes[k, BACK_AT], m, p)
            X = triangle_of(factors.inverse, boxes[k, INVERSE_AT], p)
        else:
            F = matrix(tables.back, boxes[k, BACK], m, p)
            X = triangle_of(tables.back, boxes[k, VARIANCE], p)
        _find_covariance(F, X, work, S)
        for a in range(p + m):
            place[front[a]] = a
        _keep(front, p, tables.n_x, place, S.own, S.mixed, covariances)
        for a in range(p + m):
            place[front[a]] = -1
        _share_borders(k, tables, S, shared)


@njit(inline="always")
def _take_border(k, tables, shared, stack, at):  # type: ignore[no-untyped-def]
    """Write S_mm of a box to the stack, from its parent's front or the shared ones; returns where it is."""
    boxes = tables.boxes
    m, parent = boxes[k, BORDER], boxes[k, PARENT]
    start = 0
    if boxes[k, KEPT_AT] < 0:
        q, n = boxes[parent, PIVOTS], boxes[parent, BORDER]
        above = _covariance_on(stack, at[parent], n, q)
        start = at[parent] + n * n + n * q + q * q
        runs = tables.runs[boxes[k, RUNS] : boxes[k, RUNS] + boxes[k, RUN_COUNT]]
        _gather(runs, q, above.own, above.mixed, above.border, matrix(stack, start, m, m))
    else:
        first = boxes[k, SHARED_AT]
        for a in range(m * m):
            stack[a] = shared[first + a]
    return start


@njit(inline="always")
def _covariance_on(stack, start, m, p):  # type: ignore[no-untyped-def]
    """The three parts of the covariance of a front, one after the other on the stack."""
    border = matrix(stack, start, m, m)
    mixed = matrix(stack, start + m * m, m, p)
    return _FrontCovariance(border, mixed, matrix(stack, start + m * m + m * p, p, p))


@njit(inline="always")
def _make_work(order, boxes):  # type: ignore[no-untyped-def]
    """Memory for the largest front of a job."""
    most_p, most_m, most = 0, 0, 0
    for k in order:
        p, m = boxes[k, PIVOTS], boxes[k, BORDER]
        most_p, most_m, most = max(most_p, p), max(most_m, m), max(most, m * p)
    return _Work(
        np.empty(most_m, dtype=np.int64),
        np.empty(most_p, dtype=np.float32),
        np.empty(most_p * most_p, dtype=np.float32),
        np.empty(most_m * most_m, dtype=np.float32),
        np.empty(most, dtype=np.float32),
        np.empty(most, dtype=np.float32),
    )


@njit(inline="always")
def _find_covariance(F, X, work, S):  # type: ignore[no-untyped-def]
    """-S_mp = S_mm F and S_pp = X + F' S_mm F, both of the rows of F that count; of X the lower triangle is given."""
    m, p = F.shape
    own = S.own
    if m == 0:
        for a in range(p):
            row = triangle_row(X, a)
            for b in range(a + 1):
                own[a, b] = row[b]
                own[b, a] = row[b]
        return
    square = matrix(work.square, 0, p, p)
    count = m if m < _SMALL else _choose_rows(F, X, S.border, work.precision, work.chosen)
    if count > _MOST_ROWS * m:
        np.dot(S.border.T, F, S.mixed)
        np.dot(F.T, S.mixed, square)
    else:
        border, back = matrix(work.border, 0, count, m), matrix(work.back, 0, count, p)
        _take_rows(S.border, work.chosen, border)
        _take_rows(F, work.chosen, back)
        np.dot(border.T, back, S.mixed)
        mixed = matrix(work.mixed, 0, count, p)
        _take_rows(S.mixed, work.chosen, mixed)
        np.dot(back.T, mixed, square)
    for a in range(p):
        row = triangle_row(X, a)
        for b in range(a + 1):
            own[a, b] = row[b] + square[a, b]
            own[b, a] = row[b] + square[b, a]


@compiled(fastmath={"contract", "reassoc"})
def _choose_rows(F, X, S_mm, precision, chosen):  # type: ignore[no-untyped-def]
    """Note the rows b of F with S_bb sum_a F_ba^2 / X_aa above `_SCREENED`; how many there are."""
    m, p = F.shape
    for a in range(p):
        precision[a] = 1.0 / triangle_row(X, a)[a]
    count = 0
    for b in range(m):
        row, total = F[b], np.float32(0.0)
        for a in range(p):
            total += row[a] * row[a] * precision[a]
        if not total * S_mm[b, b] <= _SCREENED:
            chosen[count] = b
            count += 1
    return count


@compiled()
def _take_rows(source, chosen, out):  # type: ignore[no-untyped-def]
    """The first of the chosen rows, as many as `out` has."""
    for k in range(out.shape[0]):
        row, copy = source[chosen[k]], out[k]
        for b in range(copy.size):
            copy[b] = row[b]


@njit(inline="always")
def _share_borders(k, tables, S, shared):  # type: ignore[no-untyped-def]
    """Write the covariances of the borders of those halves that begin jobs of their own."""
    boxes = tables.boxes
    for half in range(FIRST, SECOND + 1):
        child = boxes[k, half]
        if child >= 0 and boxes[child, KEPT_AT] >= 0:
            n = boxes[child, BORDER]
            runs = tables.runs[boxes[child, RUNS] : boxes[child, RUNS] + boxes[child, RUN_COUNT]]
            target = matrix(shared, boxes[child, SHARED_AT], n, n)
            _gather(runs, boxes[k, PIVOTS], S.own, S.mixed, S.border, target)


@compiled()
def _gather(runs, p, S_pp, T, S_mm, out):  # type: ignore[no-untyped-def]
    """The covariance of a half's border out of that of the front; T is minus that of border and pivots."""
    for s in range(runs.shape[0]):
        to_a, from_a, length_a = runs[s]
        for t in range(runs.shape[0]):
            to_b, from_b, length_b = runs[t]
            if length_b < SHORT and from_a >= p and from_b >= p:
                for a in range(length_a):
                    for b in range(length_b):
                        out[to_a + a, to_b + b] = S_mm[from_a - p + a, from_b - p + b]
            elif length_b < SHORT and from_a >= p:
                for a in range(length_a):
                    for b in range(length_b):
                        out[to_a + a, to_b + b] = -T[from_a - p + a, from_b + b]
            elif from_a < p and from_b < p:
                for a in range(length_a):
                    row, source = out[to_a + a, to_b:], S_pp[from_a + a, from_b:]
                    for b in range(length_b):
                        row[b] = source[b]
            elif from_a >= p and from_b >= p:
                for a in range(length_a):
                    row, source = out[to_a + a, to_b:], S_mm[from_a - p + a, from_b - p :]
                    for b in range(length_b):
                        row[b] = source[b]
            elif from_b < p:
                for a in range(length_a):
                    row, source = out[to_a + a, to_b:], T[from_a - p + a, from_b:]
                    for b in range(length_b):
                        row[b] = -source[b]
            else:
                for b in range(length_b):
                    source = T[from_b - p + b, from_a:]
                    for a in range(length_a):
                        out[to_a + a, to_b + b] = -source[a]


@compiled()
def _keep(front, p, n_x, place, S_pp, T, covariances):  # type: ignore[no-untyped-def]
    """Write the covariances of pairs of a pivot and a near coefficient of the front, at the lower one of the two."""
    n_y = covariances.shape[0] // n_x
    for a in range(p):
        node = front[a]
        y, x = node // n_x, node % n_x
        for dy in range(-2, 3):
            for dx in range(-2, 3):
                if 0 <= y + dy < n_y and 0 <= x + dx < n_x:
                    other = node + dy * n_x + dx
                    b = place[other]
                    if b < 0 or (b < p and b < a):
                        continue
                    value = S_pp[a, b] if b < p else -T[b - p, a]
                    if dy > 0 or (dy == 0 and dx >= 0):
                        covariances[node, 5 * dy + dx] = value
                    else:
                        covariances[other, -5 * dy - dx] = value
