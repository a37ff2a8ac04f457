"""The prior of every box of a dissection, and the plan by which a lattice is solved: made once, shared by all windows.

With x_m the border of a box and x_p its pivots, the kernel's exact covariances give

    x_p = B x_m + e,    e ~ N(0, V),    B = C_pm C_mm^-1,    V = C_pp - B C_mp,

and the prior is the product of these over all boxes: among all with this order of elimination, the one with the least
Kullback-Leibler divergence from the kernel (Schaefer, Katzfuss and Owhadi, 2021). Every coefficient has exactly the
kernel's variance, and every pair in the front of one box its covariance, at the edges of a map as in the middle. A box
adds W = V^-1 on the pivots, -B' W between border and pivots and B' W B on the border to the precision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from scipy import linalg

from gp_core.arrays import Array
from gp_core.grid.markov.dissection import (
    PERIOD,
    Box,
    Indices,
    Shape,
    Sparse,
    dissect,
    leaves_for,
    shape_nodes,
)
from gp_core.grid.markov.front_arrays import FrontTables
from gp_core.grid.markov.normal_equations import NEIGHBOURS, neighbour
from gp_core.grid.markov.prior import MarkovPrior, falloff, lags_within
from gp_core.grid.markov.splines import DEGREE, ORDER
from gp_core.grid.workers import single_threaded_blas

_JITTER: Final = 1e-10
"""Of the prior variance, added to every coefficient: long kernels on fine lattices are singular to rounding."""
_SPARSE_FROM: Final[tuple[tuple[float, Sparse], ...]] = (
    (6.0, ((0, (0, 2, 4, 6)),)),
    (4.5, ((1, (3,)),)),
    (3.0, ()),
    (0.0, ((1, (3,)),)),
)
"""Power of the spectrum's decay from which on separators have these sparse coefficients; 3.6 for nu = 1, 4.2 for 5/4,
4.75 for 3/2. Two lines alone hold all that nu = 1 carries across them. Of nu = 5/4 they leave errors of 0.015 to 0.019
standard deviations, which a quarter less work is worth; of 3/2 they leave 0.044."""
_MOST_STIFFNESS: Final = 2e3
"""Prior variance of a coefficient times its precision given those around it, up to which float32 holds the elimination:
across a hole, rounding changes variances by up to 0.2 % at 1e3, by 1 % at 5e3 and by several % at 2e4."""
_INFORMATION_IN_SINGLE: Final = 1e3
"""Of the data of a block, in units of that precision, up to which it does: what many points in one spot leave open is a
difference of numbers as large as these."""
_MOST_INFORMATION: Final = 1e5
"""Likewise up to which float64 does, and means are corrected by factors that are kept in float32."""
_LEAVES_OF_JOB: Final = 9
"""Of the smallest boxes whose results are kept between two solutions."""

_QUARTERS: Final = 2
"""Depth of the boxes that are quarters of the lattice."""
_PLANS: Final = 2
"""Sizes of lattices whose plans are kept."""

# Columns of `Plan.boxes`
(PIVOTS, BORDER, FIRST, SECOND, PARENT, NODES, RUNS, RUN_COUNT, OWN, MIXED, OUTER, BACK, VARIANCE, BACK_REST,
 BACK_AT, INVERSE_AT, KEPT_AT, SHARED_AT, DEPTH, COLUMNS) = range(20)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """Boxes that are solved together: one whose results are kept, and those in it up to the next that are kept.

    boxes: indices, children before parents
    parent: job of the parent box; -1 for the whole lattice
    stack_up: numbers of the matrices that wait at most for their parents
    stack_down: numbers of the covariances on the longest way from the root to a leaf
    """

    boxes: Indices = field(repr=False)
    parent: int
    depth: int
    stack_up: int = 0
    stack_down: int = 0


@dataclass(frozen=True)
class Plan:
    """A dissected lattice as flat arrays for compiled loops.

    size: (n_y, n_x) coefficients
    boxes: (boxes, 19) numbers and offsets into the other arrays
    nodes: pivots and border of every box
    runs: (runs, 3) where the border of a box lies in its parent's front: first in the border, first there, length
    own: W of every shape, in float64
    coupled: -B' W and the lower triangle of B' W B of every shape, in the precision of the elimination
    back: -B' and the lower triangle of V of every shape, in float32
    back_rest: of every shape, what float32 leaves of -B', in float32: the sum of both is exact to 2^-48
    jobs: parents first; job_of: (n_y n_x,) the one that has a coefficient among its pivots
    lengths: of the arrays of a solution: F, triangles of P_pp^-1, kept triangles, and covariances of kept boxes'
        borders
    """

    size: tuple[int, int]
    boxes: Indices = field(repr=False)
    nodes: Any = field(repr=False)
    runs: Indices = field(repr=False)
    own: Array = field(repr=False)
    coupled: Any = field(repr=False)
    back: Any = field(repr=False)
    back_rest: Any = field(repr=False)
    jobs: list[Job] = field(repr=False)
    job_of: Indices = field(repr=False)
    lengths: tuple[int, ...]

    @cached_property
    def owners(self) -> Any:
        """(n_y n_x, 13) the job of each pair of near coefficients: the deeper one of the two's own."""
        n_y, n_x = self.size
        depth = np.array([job.depth for job in self.jobs])
        out = np.empty((n_y, n_x, NEIGHBOURS), dtype=np.min_scalar_type(len(self.jobs)))
        own = self.job_of.reshape(n_y, n_x)
        out[:] = own[..., None]
        for dy in range(ORDER):
            for dx in range(0 if dy == 0 else -DEGREE, ORDER):
                here = np.s_[: n_y - dy, max(0, -dx) : n_x - max(0, dx)]
                other = own[dy:, max(0, dx) : n_x + min(0, dx)]
                pairs = out[..., neighbour(dy, dx)]
                pairs[here] = np.where(depth[other] > depth[own[here]], other, own[here])
        return out.reshape(-1, NEIGHBOURS)

    @cached_property
    def quarter_of_job(self) -> Indices:
        """(jobs,) the job of the quarter of the lattice that each is a part of; those above quarters are their own."""
        out = np.arange(len(self.jobs))
        for k, job in enumerate(self.jobs):
            if job.depth > _QUARTERS:
                out[k] = out[job.parent]
        return out

    @property
    def tables(self) -> FrontTables:
        """The arrays as the compiled loops take them."""
        return FrontTables(
            self.boxes,
            self.nodes,
            self.runs,
            self.own,
            self.coupled,
            self.back,
            self.back_rest,
            self.size[1],
        )

    @property
    def precision(self) -> np.dtype[Any]:
        """Type of the numbers that are eliminated: float32 or float64."""
        dtype: np.dtype[Any] = self.coupled.dtype
        return dtype


PlanKey = tuple[int, int, bool]
"""Leaves along y and x, and whether a plan is eliminated in float32."""


class Fronts:
    """The prior of boxes of every shape that was asked for.

    single: whether float32 holds the elimination (`_MOST_STIFFNESS`)
    information_in_single: of the data of a block up to which it does
    most_information: of the data of a block that is used; more would not be seen in the map
    """

    def __init__(self, prior: MarkovPrior) -> None:
        self.prior = prior
        power = falloff(prior.kernel, prior.spacing)
        self._sparse = next(sparse for least, sparse in _SPARSE_FROM if power > least)
        stiffest = self._stiffest()
        variance = float(prior.lags[prior.reach])
        self.single = variance * stiffest <= _MOST_STIFFNESS
        self.information_in_single = _INFORMATION_IN_SINGLE * stiffest
        self.most_information = _MOST_INFORMATION * stiffest
        self._plans: dict[PlanKey, Plan] = {}

    def plan(self, n_y: int, n_x: int, *, single: bool | None = None) -> Plan:
        """For a lattice of at least n_y x n_x coefficients. single: eliminated in float32; what the prior allows."""
        in_single = self.single if single is None else single
        key = leaves_for(n_y), leaves_for(n_x), in_single
        if key not in self._plans:
            while len(self._plans) >= _PLANS:
                del self._plans[next(iter(self._plans))]
            with single_threaded_blas():
                self._plans[key] = self._make_plan(key)
        return self._plans[key]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": {}}

    def _stiffest(self) -> float:
        """The largest precision of a coefficient given all others of its leaf and border."""
        leaf = Shape((1, 1), (2, 2), self._sparse)
        with single_threaded_blas():
            _, V = _conditional(leaf, lags_within(self.prior, 2 * PERIOD, 2 * PERIOD))
            return float(np.diagonal(linalg.inv(V)).max())

    def _make_plan(self, key: PlanKey) -> Plan:
        *leaves, in_single = key
        boxes = dissect((leaves[0], leaves[1]), self._sparse)
        n_y, n_x = (n * PERIOD for n in leaves)
        lags = lags_within(self.prior, n_y, n_x)
        tables = _Tables(np.dtype(np.float32 if in_single else np.float64))
        offsets = {
            shape: tables.add(_shape_tables(shape, lags))
            for shape in dict.fromkeys(box.shape for box in boxes)
        }
        return _flatten(boxes, (n_y - 2, n_x - 2), offsets, tables)


class _Tables:
    """The matrices of all shapes, one after the other in arrays of the precision that is needed of them.

    parts: of own, coupled, back and back_rest of a `Plan`
    """

    def __init__(self, precision: np.dtype[Any]) -> None:
        self._types = np.dtype(np.float64), precision, np.dtype(np.float32), np.dtype(np.float32)
        self._parts: tuple[list[Any], ...] = ([], [], [], [])
        self._used = [0, 0, 0, 0]

    def add(self, shape_tables: tuple[Array, ...]) -> tuple[int, ...]:
        """Where W, -B' W, B' W B, -B', V, and the rest of -B' of a shape are."""
        W, mixed, outer, back, V = shape_tables
        rest = back - back.astype(self._types[2])
        return tuple(
            self._append(k, table)
            for k, table in ((0, W), (1, mixed), (1, _lower(outer)), (2, back), (2, _lower(V)), (3, rest))
        )

    def _append(self, k: int, table: Array) -> int:
        start = self._used[k]
        self._parts[k].append(table.astype(self._types[k]).ravel())
        self._used[k] += table.size
        return start

    def arrays(self) -> tuple[Any, Any, Any, Any]:
        own, coupled, back, back_rest = (np.concatenate(parts) for parts in self._parts)
        return own, coupled, back, back_rest


def _shape_tables(shape: Shape, lags: Array) -> tuple[Array, Array, Array, Array, Array]:
    """W (p, p), -B' W (m, p), B' W B (m, m), -B' (m, p), V (p, p)."""
    B, V = _conditional(shape, lags)
    W = linalg.inv(V)
    W = 0.5 * (W + W.T)
    outer = B.T @ W @ B
    return W, -B.T @ W, 0.5 * (outer + outer.T), -B.T, V


def _conditional(shape: Shape, lags: Array) -> tuple[Array, Array]:
    """B (p, m) and V (p, p) of the pivots of a box given its border."""
    pivots, border = shape_nodes(shape)
    at = np.concatenate([pivots, border])
    R_y, R_x = lags.shape[0] // 2, lags.shape[1] // 2
    C = lags[R_y + np.subtract.outer(at[:, 0], at[:, 0]), R_x + np.subtract.outer(at[:, 1], at[:, 1])]
    C[np.diag_indices(len(at))] *= 1.0 + _JITTER
    p = len(pivots)
    B = linalg.solve(C[p:, p:], C[p:, :p], assume_a="pos").T if len(border) else np.zeros((p, 0))
    V = C[:p, :p] - B @ C[p:, :p]
    return B, 0.5 * (V + V.T)


def _flatten(
    boxes: list[Box],
    size: tuple[int, int],
    offsets: dict[Shape, tuple[int, ...]],
    tables: _Tables,
) -> Plan:
    out = np.full((len(boxes), COLUMNS), -1, dtype=np.int64)
    nodes, runs = [], []
    node_count = run_count = 0
    lengths = [0, 0, 0, 0]
    deepest = _deepest_job(boxes)
    jobs: list[Job] = []
    job_of_box = np.full(len(boxes), -1)
    members: list[list[int]] = []
    for k, box in enumerate(boxes):
        p, m = box.pivots.size, box.border.size
        found = (
            _runs(box.places, boxes[box.parent].pivots.size)
            if box.parent >= 0
            else np.zeros((0, 3), np.int64)
        )
        out[k, PIVOTS], out[k, BORDER], out[k, PARENT], out[k, DEPTH] = p, m, box.parent, box.depth
        out[k, FIRST : FIRST + len(box.children)] = box.children
        out[k, NODES], out[k, RUNS], out[k, RUN_COUNT] = node_count, run_count, len(found)
        out[k, OWN : BACK_REST + 1] = offsets[box.shape]
        out[k, BACK_AT], out[k, INVERSE_AT] = lengths[:2]
        lengths[0] += p * m
        lengths[1] += _triangle(p)
        kept = box.depth <= 2 or (box.depth <= deepest and box.depth % 2 == 0)
        if kept:
            out[k, KEPT_AT], out[k, SHARED_AT] = lengths[2:]
            lengths[2] += _triangle(m)
            lengths[3] += m * m
            job_of_box[k] = len(members)
            members.append([])
            jobs.append(
                Job(
                    np.zeros(0, dtype=np.int64),
                    -1 if box.parent < 0 else int(job_of_box[box.parent]),
                    box.depth,
                )
            )
        else:
            job_of_box[k] = job_of_box[box.parent]
        members[job_of_box[k]].append(k)
        nodes += [box.pivots, box.border]
        runs.append(found)
        node_count += p + m
        run_count += len(found)
    # Boxes are numbered as they are met, depth first: backwards, children come before parents.
    jobs = [_sized_job(np.array(own[::-1]), job, out) for job, own in zip(jobs, members, strict=True)]
    job_of = np.empty(size[0] * size[1], dtype=np.int64)
    for k, box in enumerate(boxes):
        job_of[box.pivots] = job_of_box[k]
    return Plan(
        size, out, np.concatenate(nodes).astype(np.int32), np.concatenate(runs), *tables.arrays(), jobs, job_of,
        tuple(lengths),
    )  # fmt: skip


def _sized_job(order: Indices, job: Job, boxes: Indices) -> Job:
    """The job with the sizes of its stacks."""
    waiting = most = 0
    own = set(order.tolist())
    down = dict.fromkeys(own, 0)
    for k in order:
        for child in boxes[k, FIRST : SECOND + 1]:
            if child in own:
                waiting -= _triangle(int(boxes[child, BORDER]))
        if boxes[k, KEPT_AT] < 0:
            waiting += _triangle(int(boxes[k, BORDER]))
            most = max(most, waiting)
    for k in order[::-1]:
        p, m = int(boxes[k, PIVOTS]), int(boxes[k, BORDER])
        above = down[int(boxes[k, PARENT])] if int(boxes[k, PARENT]) in own else 0
        down[int(k)] = above + m * m + m * p + p * p
    return Job(order, job.parent, job.depth, most, max(down.values()))


def _lower(matrix: Array) -> Array:
    """The lower triangle of a symmetric matrix, row by row."""
    return np.asarray(matrix[np.tril_indices(len(matrix))])


def _triangle(m: int) -> int:
    return m * (m + 1) // 2


def _deepest_job(boxes: list[Box]) -> int:
    leaves = boxes[0].shape.leaves[0] * boxes[0].shape.leaves[1]
    depth = 0
    while leaves >= _LEAVES_OF_JOB * 2 ** (depth + 2):
        depth += 2
    return depth


def _runs(places: Indices, pivots: int) -> Indices:
    """(runs, 3) first, first place and length of consecutive places, none of them with both pivots and border."""
    breaks = np.flatnonzero((np.diff(places) != 1) | (places[1:] == pivots)) + 1
    first = np.concatenate([[0], breaks])
    length = np.diff(np.concatenate([first, [places.size]]))
    return np.stack([first, places[first], length], axis=-1)
