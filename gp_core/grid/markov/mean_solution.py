"""P^-1 r by the factors of a dissection, and what a mean leaves of the normal equations.

With F and X of every box (elimination_upwards.py), pivots p and border m, x = P^-1 r is found by

    upwards:  x_p = X r_p,  r_m -= F r_p        downwards:  x_p -= F' x_m.

F and X are float32, and heights are thousands of standard deviations from the prior's mean: x is off by a share of
itself (1e-7 where points are everywhere, up to 1e-4 across holes) that may be too much. So means are corrected by what
they leave of the equations (iterative refinement: Higham, 2002). That is computed in float64, of the prior as it is and
not as it was eliminated:

    r = b - A m - Q m,    Q m = sum over boxes of [I -B]' W (m_p - B m_m).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid.markov.flat_matrices import matrix, triangle_of, triangle_row
from gp_core.grid.markov.front_arrays import Factors
from gp_core.grid.markov.fronts import (
    BACK,
    BACK_AT,
    BACK_REST,
    BORDER,
    FIRST,
    INVERSE_AT,
    NODES,
    OWN,
    PIVOTS,
    SECOND,
    VARIANCE,
    Plan,
)
from gp_core.grid.workers import Workers


def solve(r: Array, plan: Plan, factors: Factors, workers: Workers) -> Array:
    """P^-1 r for right-hand sides (K, N).

    The halves of the lattice are independent but for the pivots of the whole, which each sums apart.
    """
    tables, boxes = plan.tables, plan.boxes
    out = np.zeros_like(r)
    halves = _halves(boxes)
    copies = [r.copy() for _ in halves] or [r.copy()]
    whole = tables.nodes[boxes[0, NODES] : boxes[0, NODES] + boxes[0, PIVOTS]]
    for copy in copies[1:]:
        copy[:, whole] = 0.0
    calls = [(*half, tables, factors, copy, out) for half, copy in zip(halves, copies, strict=False)]
    workers.run(_upwards, calls)
    root = copies[0]
    for copy in copies[1:]:
        root[:, whole] += copy[:, whole]
    _upwards(0, 1, tables, factors, root, out)
    _downwards(0, 1, tables, factors, out)
    workers.run(_downwards, [(*half, tables, factors, out) for half in halves])
    return out


def residual(means: Array, right: Array, stencil: Array, plan: Plan, workers: Workers) -> Array:
    """b - A m - Q m of means (K, N), with b = right (K, N) and the stencil (N, 13) of A."""
    out = right.copy()
    for mean, rest in zip(means, out, strict=True):
        add_stencil_product(-stencil, mean, plan.size[1], rest)
    parts = [(0, 1), *_halves(plan.boxes)]
    sums = [np.zeros_like(means) for _ in parts]
    workers.run(
        _add_prior_product,
        [(*part, plan.tables, means, total) for part, total in zip(parts, sums, strict=True)],
    )
    for total in sums:
        out -= total
    return out


def _halves(boxes: Any) -> list[tuple[int, int]]:
    """First box, and the one after the last, of each half of the lattice: boxes are numbered with their halves behind
    them."""
    first, second = int(boxes[0, FIRST]), int(boxes[0, SECOND])
    return [] if first < 0 else [(first, second), (second, len(boxes))]


@compiled()
def _matrices(k, tables, factors):  # type: ignore[no-untyped-def]
    """F (m, p) and the lower triangle of X of a box: its own, or the prior's where no data touch it."""
    boxes = tables.boxes
    p, m = boxes[k, PIVOTS], boxes[k, BORDER]
    if factors.filled[k]:
        inverse = triangle_of(factors.inverse, boxes[k, INVERSE_AT], p)
        return matrix(factors.back, boxes[k, BACK_AT], m, p), inverse
    return matrix(tables.back, boxes[k, BACK], m, p), triangle_of(tables.back, boxes[k, VARIANCE], p)


@compiled(fastmath={"contract", "reassoc"})
def _upwards(first, last, tables, factors, r, out):  # type: ignore[no-untyped-def]
    """out_p = X r_p and r_m -= F r_p, from box last - 1 to box `first`: halves before what they are halves of."""
    boxes = tables.boxes
    room = np.empty((2, r.shape[1]))
    for k in range(last - 1, first - 1, -1):
        p, m = boxes[k, PIVOTS], boxes[k, BORDER]
        front = tables.nodes[boxes[k, NODES] : boxes[k, NODES] + p + m]
        own, product = room[0, :p], room[1, :p]
        for side in range(r.shape[0]):
            nothing = True
            for a in range(p):
                own[a] = r[side, front[a]]
                nothing = nothing and own[a] == 0.0
            if nothing:
                continue
            F, X = _matrices(k, tables, factors)
            for a in range(p):
                row, value, total = triangle_row(X, a), own[a], 0.0
                for b in range(a):
                    total += row[b] * own[b]
                    product[b] += row[b] * value
                product[a] = total + row[a] * value
            for a in range(p):
                out[side, front[a]] = product[a]
            for a in range(m):
                row, total = F[a], 0.0
                for b in range(p):
                    total += row[b] * own[b]
                r[side, front[p + a]] -= total


@compiled(fastmath={"contract", "reassoc"})
def _downwards(first, last, tables, factors, out):  # type: ignore[no-untyped-def]
    """out_p -= F' out_m, from box `first` to box last - 1."""
    boxes = tables.boxes
    room = np.empty(out.shape[1])
    for k in range(first, last):
        p, m = boxes[k, PIVOTS], boxes[k, BORDER]
        front = tables.nodes[boxes[k, NODES] : boxes[k, NODES] + p + m]
        F, _ = _matrices(k, tables, factors)
        own = room[:p]
        for side in range(out.shape[0]):
            for a in range(p):
                own[a] = out[side, front[a]]
            for b in range(m):
                row, value = F[b], out[side, front[p + b]]
                for a in range(p):
                    own[a] -= row[a] * value
            for a in range(p):
                out[side, front[a]] = own[a]


@compiled(fastmath={"contract", "reassoc"})
def _add_prior_product(first, last, tables, x, out):  # type: ignore[no-untyped-def]
    """out += Q x for the boxes `first` to last - 1; x, out: (K, N)."""
    boxes = tables.boxes
    room = np.empty((2, x.shape[1]))
    for k in range(first, last):
        p, m = boxes[k, PIVOTS], boxes[k, BORDER]
        front = tables.nodes[boxes[k, NODES] : boxes[k, NODES] + p + m]
        W = matrix(tables.own, boxes[k, OWN], p, p)
        back = matrix(tables.back, boxes[k, BACK], m, p)
        rest = matrix(tables.back_rest, boxes[k, BACK_REST], m, p)
        error, weighted = room[0, :p], room[1, :p]
        for side in range(x.shape[0]):
            for a in range(p):
                error[a] = x[side, front[a]]
            for b in range(m):
                row, row_rest, value = back[b], rest[b], x[side, front[p + b]]
                for a in range(p):
                    error[a] += (np.float64(row[a]) + np.float64(row_rest[a])) * value
            for a in range(p):
                row, total = W[a], 0.0
                for b in range(p):
                    total += row[b] * error[b]
                weighted[a] = total
                out[side, front[a]] += total
            for b in range(m):
                row, row_rest, total = back[b], rest[b], 0.0
                for a in range(p):
                    total += (np.float64(row[a]) + np.float64(row_rest[a])) * weighted[a]
                out[side, front[p + b]] += total


@compiled(fastmath={"contract"})
def add_stencil_product(stencil, x, n_x, out):  # type: ignore[no-untyped-def]
    """out += A x for the symmetric A that a stencil (n, 13) stands for.

    x, out: (N,) with N >= n; there is nothing in the rows of A beyond
    """
    n_y = x.size // n_x
    for node in range(stencil.shape[0]):
        row = stencil[node]
        if row[0] == 0.0:
            continue
        y, at = node // n_x, node % n_x
        value = x[node]
        total = row[0] * value
        for dy in range(min(3, n_y - y)):
            for dx in range(1 if dy == 0 else -2, 3):
                if 0 <= at + dx < n_x:
                    weight = row[dx if dy == 0 else 5 * dy + dx]
                    other = node + dy * n_x + dx
                    total += weight * x[other]
                    out[other] += weight * value
        out[node] += total
