"""Means and covariances of the coefficients of a dissection, from the whole lattice back to the leaves.

With X and F from elimination_upwards.py, pivots p and border m of a box,

    m_p = X r_p - F' m_m,    S_mp = -S_mm F,    S_pp = X + F' S_mm F

(Takahashi, Fagan and Chin, 1973, for whole blocks). A box without data has F = -B', X = V of the prior. All terms of S
are positive, and float32 will do; means stay in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gp_core.compiled import compiled
from gp_core.grid.markov.flat_matrices import SHORT, matrix
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


class _FrontCovariance(NamedTuple):
    """The posterior covariance of a front, in float32.

    border: (m, m) S_mm; mixed: (m, p) -S_mp; own: (p, p) S_pp
    """

    border: Any
    mixed: Any
    own: Any


@compiled(fastmath={"contract"})
def substitute(order, tables, factors, shared, moments, room):  # type: ignore[no-untyped-def]
    """Downwards through the boxes of a job: the posterior of its coefficients.

    order: children before parents, taken backwards
    tables: `FrontTables`, factors: `Factors`; results: `Moments`
    shared: covariances of the borders of kept boxes, where those of the job's root are read and deeper ones are written
    room: numbers of the covariances on the longest way from the root to a leaf
    """
    boxes, filled = tables.boxes, factors.filled
    stack = np.empty(room, dtype=np.float32)
    at = np.empty(boxes.shape[0], dtype=np.int64)
    place = np.full(moments.means.shape[1], -1, dtype=np.int32)
    most = 0
    for k in order:
        most = max(most, boxes[k, PIVOTS])
    product = np.empty(most * most, dtype=np.float32)
    mean = np.empty(most)
    for step in range(order.size - 1, -1, -1):
        k = order[step]
        p, m = boxes[k, PIVOTS], boxes[k, BORDER]
        front = tables.nodes[boxes[k, NODES] : boxes[k, NODES] + p + m]
        at[k] = _take_border(k, tables, shared, stack, at)
        S = _covariance_on(stack, at[k], m, p)
        if filled[k]:
            F = matrix(factors.back, boxes[k, BACK_AT], m, p)
            X = matrix(factors.inverse, boxes[k, INVERSE_AT], p, p)
        else:
            F = matrix(tables.back, boxes[k, BACK], m, p)
            X = matrix(tables.back, boxes[k, VARIANCE], p, p)
        _find_covariance(F, X, matrix(product, 0, p, p), S)
        _find_means(front, F, filled[k], factors.solved, mean[:p], moments.means)
        for a in range(p + m):
            place[front[a]] = a
        _keep(front, p, tables.n_x, place, S.own, S.mixed, moments.covariances)
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
def _find_covariance(F, X, square, S):  # type: ignore[no-untyped-def]
    """-S_mp = S_mm F and S_pp = X + F' S_mm F; square: (p, p) room for the product."""
    m, p = F.shape
    own = S.own
    if m > 0:
        np.dot(S.border, F, S.mixed)
        np.dot(F.T, S.mixed, square)
        for a in range(p):
            for b in range(p):
                own[a, b] = X[a, b] + square[a, b]
    else:
        for a in range(p):
            for b in range(p):
                own[a, b] = X[a, b]


@njit(inline="always")
def _find_means(front, F, with_data, solved, own, means):  # type: ignore[no-untyped-def]
    """m_p = X r_p - F' m_m; own: (p,) room for one of them."""
    m, p = F.shape
    for side in range(means.shape[0]):
        for a in range(p):
            own[a] = solved[front[a], side] if with_data else 0.0
        for b in range(m):
            row, value = F[b], means[side, front[p + b]]
            for a in range(p):
                own[a] -= row[a] * value
        for a in range(p):
            means[side, front[a]] = own[a]


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
