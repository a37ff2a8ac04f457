"""The mean of new data by the factors of older ones: conjugate gradients with the dissection as preconditioner.

From scan to scan the precision of a map changes little: P = P_f + D, with P_f the one that was eliminated and D the
stencil by which the data have grown since. What the change of the data leaves of the normal equations at the present
mean m needs no prior,

    r = d(b) - d(A) m,          A = W' R^-1 W,  b = W' R^-1 z,

and (P_f + D) e = r is solved for the change e of the mean by conjugate gradients preconditioned by P_f^-1. Directions
are sums of P_f^-1 r_i, so that P_f times them is the same sum of the r_i: again no prior is needed. If the information
has grown by a tenth, a step takes the error down by a factor of 40.

P_f^-1 r goes upwards and downwards through the boxes with their F and X (elimination_upwards.py).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid.markov.flat_matrices import matrix
from gp_core.grid.markov.front_arrays import Factors
from gp_core.grid.markov.fronts import (
    BACK,
    BACK_AT,
    BORDER,
    FIRST,
    INVERSE_AT,
    NODES,
    PIVOTS,
    SECOND,
    VARIANCE,
    Plan,
)
from gp_core.grid.workers import Workers

_CONVERGED: Final = 0.02
"""Root of e' P e at which the mean is good enough: at no cell is it off by more posterior standard deviations."""
_MOST_STEPS: Final = 16
_TRIED_STEPS: Final = 5
"""Steps after which it is judged by those so far whether they will be enough."""
_LEAST_CURVATURE: Final = 0.5
"""Of P along a step, against P_f: where information was lost since, r' P_f^-1 r is no bound on e' P e any more."""


def improve(
    mean: Array, residual: Array, growth: Array, plan: Plan, factors: Factors, workers: Workers
) -> bool:
    """Add the solution of (P_f + D) e = r to the mean (N,); False, and both unchanged, where that takes too long or the
    factors know more than the data.

    residual: (N,) r; what is left of it is written back
    growth: (N, 13) stencil of D
    """
    r = residual.copy()
    z = _solve(r, plan, factors, workers)
    square = first = float(r @ z)
    step, image = z.copy(), r.copy()  # image: P_f step
    change = np.zeros_like(mean)
    for taken in range(_MOST_STEPS):
        if not np.isfinite(square):
            return False
        if square <= _CONVERGED**2:
            mean += change
            residual[:] = r
            return True
        if taken == _TRIED_STEPS and square * (square / first) ** (_MOST_STEPS / taken - 1.0) > _CONVERGED**2:
            return False
        product = image + _times_stencil(growth, step, plan.size[1])
        curvature = float(step @ product)
        if not curvature > _LEAST_CURVATURE * float(step @ image):
            return False
        along = square / curvature
        change += along * step
        r -= along * product
        z = _solve(r, plan, factors, workers)
        square, before = float(r @ z), square
        step = z + (square / before) * step
        image = r + (square / before) * image
    return False


def _times_stencil(stencil: Array, x: Array, n_x: int) -> Array:
    out = np.zeros_like(x)
    add_stencil_product(stencil, x, n_x, out)
    return out


def _solve(r: Array, plan: Plan, factors: Factors, workers: Workers) -> Array:
    """P_f^-1 r. The halves of the lattice are independent but for the pivots of the whole, which each sums apart."""
    tables, boxes = plan.tables, plan.boxes
    out = np.zeros_like(r)
    halves = _halves(boxes)
    copies = [r.copy() for _ in halves] or [r.copy()]
    whole = tables.nodes[boxes[0, NODES] : boxes[0, NODES] + boxes[0, PIVOTS]]
    for copy in copies[1:]:
        copy[whole] = 0.0
    calls = [(*half, tables, factors, copy, out) for half, copy in zip(halves, copies, strict=False)]
    workers.run(_upwards, calls)
    root = copies[0]
    for copy in copies[1:]:
        root[whole] += copy[whole]
    _upwards(0, 1, tables, factors, root, out)
    _downwards(0, 1, tables, factors, out)
    workers.run(_downwards, [(*half, tables, factors, out) for half in halves])
    return out


def _halves(boxes: Any) -> list[tuple[int, int]]:
    """First box, and the one after the last, of each half of the lattice: boxes are numbered with their halves behind
    them."""
    first, second = int(boxes[0, FIRST]), int(boxes[0, SECOND])
    return [] if first < 0 else [(first, second), (second, len(boxes))]


@compiled()
def _matrices(k, tables, factors):  # type: ignore[no-untyped-def]
    """F (m, p) and X (p, p) of a box: its own, or the prior's where no data touch it."""
    boxes = tables.boxes
    p, m = boxes[k, PIVOTS], boxes[k, BORDER]
    if factors.filled[k]:
        return matrix(factors.back, boxes[k, BACK_AT], m, p), matrix(
            factors.inverse, boxes[k, INVERSE_AT], p, p
        )
    return matrix(tables.back, boxes[k, BACK], m, p), matrix(tables.back, boxes[k, VARIANCE], p, p)


@compiled(fastmath={"contract", "reassoc"})
def _upwards(first, last, tables, factors, r, out):  # type: ignore[no-untyped-def]
    """out_p = X r_p and r_m -= F r_p, from box last - 1 to box `first`: halves before what they are halves of."""
    boxes = tables.boxes
    room = np.empty(r.size)
    for k in range(last - 1, first - 1, -1):
        p, m = boxes[k, PIVOTS], boxes[k, BORDER]
        front = tables.nodes[boxes[k, NODES] : boxes[k, NODES] + p + m]
        own = room[:p]
        nothing = True
        for a in range(p):
            own[a] = r[front[a]]
            nothing = nothing and own[a] == 0.0
        if nothing:
            continue
        F, X = _matrices(k, tables, factors)
        for a in range(p):
            row, total = X[a], 0.0
            for b in range(p):
                total += row[b] * own[b]
            out[front[a]] = total
        for a in range(m):
            row, total = F[a], 0.0
            for b in range(p):
                total += row[b] * own[b]
            r[front[p + a]] -= total


@compiled(fastmath={"contract", "reassoc"})
def _downwards(first, last, tables, factors, out):  # type: ignore[no-untyped-def]
    """out_p -= F' out_m, from box `first` to box last - 1."""
    boxes = tables.boxes
    room = np.empty(out.size)
    for k in range(first, last):
        p, m = boxes[k, PIVOTS], boxes[k, BORDER]
        front = tables.nodes[boxes[k, NODES] : boxes[k, NODES] + p + m]
        F, _ = _matrices(k, tables, factors)
        own = room[:p]
        for a in range(p):
            own[a] = out[front[a]]
        for b in range(m):
            row, value = F[b], out[front[p + b]]
            for a in range(p):
                own[a] -= row[a] * value
        for a in range(p):
            out[front[a]] = own[a]


@compiled(fastmath={"contract"})
def add_stencil_product(stencil, x, n_x, out):  # type: ignore[no-untyped-def]
    """out += A x for the symmetric A that a stencil (N, 13) stands for."""
    n_y = x.size // n_x
    for node in range(x.size):
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
