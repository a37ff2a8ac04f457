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
_LEAVES_OF_JOB: Final = 9
"""Of the smallest boxes whose results are kept between two solutions."""

_QUARTERS: Final = 2
"""Depth of the boxes that are quarters of the lattice."""
_PLANS: Final = 2
"""Sizes of lattices whose plans are kept."""

# Columns of `Plan.boxes`
(PIVOTS, BORDER, FIRST, SECOND, PARENT, NODES, RUNS, RUN_COUNT, OWN, MIXED, OUTER, BACK, VARIANCE,
 BACK_AT, INVERSE_AT, KEPT_AT, KEPT_VECTOR_AT, DEPTH, SHARED_AT, COLUMNS) = range(20)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """Boxes that are solved together: one whose results are kept, and those in it up to the next that are kept.

    boxes: indices, children before parents
    parent: job of the parent box; -1 for the whole lattice
    up: (2,) numbers of the matrices, and of the vectors of one right-hand side, that wait at most for their parents
    stack_down: numbers of the covariances on the longest way from the root to a leaf
    """

    boxes: Indices = field(repr=False)
    parent: int
    depth: int
    up: tuple[int, int] = (0, 0)
    stack_down: int = 0

    def stack_up(self, right_hand_sides: int) -> int:
        return self.up[0] + right_hand_sides * self.up[1]


@dataclass(frozen=True)
class Plan:
    """A dissected lattice as flat arrays for compiled loops.

    size: (n_y, n_x) coefficients
    boxes: (boxes, 19) numbers and offsets into the other arrays
    nodes: pivots and border of every box
    runs: (runs, 3) where the border of a box lies in its parent's front: first in the border, first there, length
    precision: W, -B' W and B' W B of every shape, in float64
    back: -B' and V of every shape, in float32
    jobs: parents first; job_of: (n_y n_x,) the one that has a coefficient among its pivots
    lengths: of the arrays of a solution: F, P_pp^-1, kept triangles, kept vectors (for one right-hand side), and
        covariances of kept boxes' borders
    """

    size: tuple[int, int]
    boxes: Indices = field(repr=False)
    nodes: Any = field(repr=False)
    runs: Indices = field(repr=False)
    precision: Array = field(repr=False)
    back: Any = field(repr=False)
    jobs: list[Job] = field(repr=False)
    job_of: Indices = field(repr=False)
    lengths: tuple[int, ...]

    @cached_property
    def owners(self) -> Indices:
        """(n_y n_x, 13) the job that eliminates each pair of near coefficients: the deeper one of the two's own."""
        n_y, n_x = self.size
        depth = np.array([job.depth for job in self.jobs])
        out = np.empty((n_y, n_x, NEIGHBOURS), dtype=np.int64)
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
        return FrontTables(self.boxes, self.nodes, self.runs, self.precision, self.back, self.size[1])


class Fronts:
    """The prior of boxes of every shape that was asked for."""

    def __init__(self, prior: MarkovPrior) -> None:
        self.prior = prior
        power = falloff(prior.kernel, prior.spacing)
        self._sparse = next(sparse for least, sparse in _SPARSE_FROM if power > least)
        self._plans: dict[tuple[int, int], Plan] = {}

    def plan(self, n_y: int, n_x: int) -> Plan:
        """For a lattice of at least n_y x n_x coefficients."""
        leaves = leaves_for(n_y), leaves_for(n_x)
        if leaves not in self._plans:
            while len(self._plans) >= _PLANS:
                del self._plans[next(iter(self._plans))]
            with single_threaded_blas():
                self._plans[leaves] = self._make_plan(leaves)
        return self._plans[leaves]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": {}}

    def _make_plan(self, leaves: tuple[int, int]) -> Plan:
        boxes = dissect(leaves, self._sparse)
        n_y, n_x = (n * PERIOD for n in leaves)
        lags = lags_within(self.prior, n_y, n_x)
        precision: list[Array] = []
        back: list[Any] = []
        offsets: dict[Shape, tuple[int, ...]] = {}
        used = [0, 0]
        for shape in dict.fromkeys(box.shape for box in boxes):
            starts = []
            for k, table in enumerate(_shape_tables(shape, lags)):
                in_single = k >= 3
                starts.append(used[in_single])
                used[in_single] += table.size
                if in_single:
                    back.append(table.astype(np.float32).ravel())
                else:
                    precision.append(table.ravel())
            offsets[shape] = tuple(starts)
        return _flatten(boxes, (n_y - 2, n_x - 2), offsets, np.concatenate(precision), np.concatenate(back))


def _shape_tables(shape: Shape, lags: Array) -> tuple[Array, Array, Array, Array, Array]:
    """W (p, p), -B' W (m, p), B' W B (m, m), -B' (m, p), V (p, p)."""
    pivots, border = shape_nodes(shape)
    at = np.concatenate([pivots, border])
    R_y, R_x = lags.shape[0] // 2, lags.shape[1] // 2
    C = lags[R_y + np.subtract.outer(at[:, 0], at[:, 0]), R_x + np.subtract.outer(at[:, 1], at[:, 1])]
    C[np.diag_indices(len(at))] *= 1.0 + _JITTER
    p = len(pivots)
    B = linalg.solve(C[p:, p:], C[p:, :p], assume_a="pos").T if len(border) else np.zeros((p, 0))
    V = C[:p, :p] - B @ C[p:, :p]
    V = 0.5 * (V + V.T)
    W = linalg.inv(V)
    W = 0.5 * (W + W.T)
    outer = B.T @ W @ B
    return W, -B.T @ W, 0.5 * (outer + outer.T), -B.T, V


def _flatten(
    boxes: list[Box],
    size: tuple[int, int],
    offsets: dict[Shape, tuple[int, ...]],
    precision: Array,
    back: Any,
) -> Plan:
    out = np.full((len(boxes), COLUMNS), -1, dtype=np.int64)
    nodes, runs = [], []
    node_count = run_count = 0
    lengths = [0, 0, 0, 0, 0]
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
        out[k, OWN : VARIANCE + 1] = offsets[box.shape]
        out[k, BACK_AT], out[k, INVERSE_AT] = lengths[:2]
        lengths[0] += p * m
        lengths[1] += p * p
        kept = box.depth <= 2 or (box.depth <= deepest and box.depth % 2 == 0)
        if kept:
            out[k, KEPT_AT], out[k, KEPT_VECTOR_AT], out[k, SHARED_AT] = lengths[2:]
            lengths[2] += m * (m + 1) // 2
            lengths[3] += m
            lengths[4] += m * m
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
        size, out, np.concatenate(nodes).astype(np.int32), np.concatenate(runs), precision, back, jobs, job_of,
        tuple(lengths),
    )  # fmt: skip


def _sized_job(order: Indices, job: Job, boxes: Indices) -> Job:
    """The job with the sizes of its stacks."""
    waiting, most = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    own = set(order.tolist())
    down = dict.fromkeys(own, 0)
    for k in order:
        for child in boxes[k, FIRST : SECOND + 1]:
            if child in own:
                waiting -= _triangle_and_vector(int(boxes[child, BORDER]))
        if boxes[k, KEPT_AT] < 0:
            waiting += _triangle_and_vector(int(boxes[k, BORDER]))
            most = np.maximum(most, waiting)
    for k in order[::-1]:
        p, m = int(boxes[k, PIVOTS]), int(boxes[k, BORDER])
        above = down[int(boxes[k, PARENT])] if int(boxes[k, PARENT]) in own else 0
        down[int(k)] = above + m * m + m * p + p * p
    return Job(order, job.parent, job.depth, (int(most[0]), int(most[1])), max(down.values()))


def _triangle_and_vector(m: int) -> Indices:
    return np.array([m * (m + 1) // 2, m])


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
