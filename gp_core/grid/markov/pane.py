"""The posterior of a rectangle of coefficients by nested dissection, kept and brought up to date where data changed.

Upwards, only boxes with changed data and those around them are eliminated again. Downwards, a box is left as it is if
neither its data nor what is known of its border have changed by more than a small part of a standard deviation.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.markov.dissection import Indices
from gp_core.grid.markov.elimination_upwards import eliminate, find_filled
from gp_core.grid.markov.front_arrays import Equations, Factors, KeptBorders, Moments
from gp_core.grid.markov.fronts import BORDER, NODES, PIVOTS, Plan
from gp_core.grid.markov.normal_equations import NEIGHBOURS, add_blocks
from gp_core.grid.markov.substitution_downwards import substitute
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.workers import Workers

_SETTLED_MEAN: Final = 2e-3
"""Change of a border's mean, in standard deviations, below which the boxes inside are not solved again."""
_SETTLED_VARIANCE: Final = 2e-3
"""Likewise the relative change of its variance."""
_SAFETY: Final = 1e-6
"""Share of the boxes' own precision that is added where a job could not be eliminated."""


class Pane:
    """Coefficients first_y ... and first_x ... of a window, as many as the plan has.

    means: (K, n_y, n_x); covariances: (n_y, n_x, 13) of each coefficient with its neighbours
    """

    def __init__(self, plan: Plan, first: tuple[int, int], right_hand_sides: int) -> None:
        self.plan = plan
        self.first = first
        self.fallbacks = 0
        n_y, n_x = plan.size
        N, K = n_y * n_x, right_hand_sides
        self.means = np.zeros((K, n_y, n_x))
        self.covariances = np.zeros((n_y, n_x, NEIGHBOURS))
        self._stencil = np.zeros((n_y, n_x, NEIGHBOURS))
        self._right = np.zeros((K, n_y, n_x))
        self._factors = Factors(
            filled=np.zeros(len(plan.boxes), dtype=np.bool_),
            back=np.empty(plan.lengths[0], dtype=np.float32),
            inverse=np.empty(plan.lengths[1], dtype=np.float32),
            solved=np.zeros((N, K)),
        )
        self._kept = KeptBorders(np.empty(plan.lengths[2]), np.empty((plan.lengths[3], K)))
        self._borders: list[Any] = [None] * len(plan.jobs)

    @property
    def nbytes(self) -> int:
        arrays = (self.means, self.covariances, self._stencil, self._right, *self._factors, *self._kept)
        return sum(array.nbytes for array in arrays)

    def update(self, changed: Mask, s: Statistics, heights: Array, gain: float, workers: Workers) -> Mask:
        """Solve for the data of the blocks (J, I) that changed; (n_y, n_x) which coefficients were solved again.

        heights: (K, J, I, 6, 6)
        """
        touched = self._take_data(changed, s, heights, gain, workers)
        dirty = np.zeros(len(self.plan.jobs), dtype=np.bool_)
        dirty[np.unique(self.plan.job_of[touched])] = True
        for k in range(len(dirty) - 1, 0, -1):
            dirty[self.plan.jobs[k].parent] |= dirty[k]
        for stage in reversed(self._stages()):
            workers.run(self._eliminate, [(int(k),) for k in stage if dirty[k]])
        shared = np.empty(self.plan.lengths[4], dtype=np.float32)
        visited = np.zeros_like(dirty)
        for stage in self._stages():
            chosen = [int(k) for k in stage if dirty[k] or self._moved(int(k), visited)]
            visited[chosen] = True
            workers.run(self._substitute, [(k, shared) for k in chosen])
        return np.asarray(visited[self.plan.job_of].reshape(self.plan.size))

    def _take_data(
        self, changed: Mask, s: Statistics, heights: Array, gain: float, workers: Workers
    ) -> Indices:
        """Renew the normal equations; returns the coefficients whose equations changed."""
        n_y, n_x = self.plan.size
        top, left = self.first
        j, i = np.nonzero(changed[max(top - 2, 0) : top + n_y, max(left - 2, 0) : left + n_x])
        if not j.size:
            return np.zeros(0, dtype=np.int64)
        j, i = j + max(top - 2, 0) - top, i + max(left - 2, 0) - left
        low, high = max(int(j.min()), 0), min(int(j.max()) + 3, n_y)
        begin, end = max(int(i.min()), 0), min(int(i.max()) + 3, n_x)
        self._stencil[low:high, begin:end] = 0.0
        self._right[:, low:high, begin:end] = 0.0
        cuts = np.linspace(low, high, workers.count + 1).astype(int)
        workers.run(
            add_blocks,
            [
                (
                    s.weights,
                    heights,
                    gain,
                    0,
                    changed.shape[1],
                    top,
                    left,
                    a,
                    b,
                    begin,
                    end,
                    self._stencil,
                    self._right,
                )
                for a, b in itertools.pairwise(cuts)
            ],
        )
        touched = np.zeros((n_y + 4, n_x + 4), dtype=np.bool_)
        for dy in range(3):
            for dx in range(3):
                touched[j + dy + 2, i + dx + 2] = True
        return np.flatnonzero(touched[2:-2, 2:-2])

    def _stages(self) -> list[Indices]:
        depth = np.array([job.depth for job in self.plan.jobs])
        return [np.flatnonzero(depth == d) for d in np.unique(depth)]

    def _eliminate(self, k: int) -> None:
        plan, job = self.plan, self.plan.jobs[k]
        equations = Equations(
            self._stencil.reshape(-1, NEIGHBOURS), self._right.reshape(len(self._right), -1)
        )
        find_filled(job.boxes, plan.boxes, plan.nodes, equations.stencil, self._factors.filled)
        room = job.stack_up(len(self._right))
        for safety in (0.0, _SAFETY):
            if eliminate(job.boxes, plan.tables, equations, 1.0 + safety, self._factors, self._kept, room):
                return
            self.fallbacks += 1
        self._factors.filled[job.boxes] = False

    def _substitute(self, k: int, shared: Any) -> None:
        job = self.plan.jobs[k]
        moments = Moments(self.means.reshape(len(self.means), -1), self.covariances.reshape(-1, NEIGHBOURS))
        substitute(job.boxes, self.plan.tables, self._factors, shared, moments, job.stack_down)
        self._borders[k] = self._border(k)

    def _moved(self, k: int, visited: Mask) -> bool:
        """Whether the border of a job's root is known otherwise than when the job was solved."""
        before = self._borders[k]
        if before is None:
            return True
        parent = self.plan.jobs[k].parent
        if parent >= 0 and not visited[parent]:
            return False
        means, variances = self._border(k)
        change = np.abs(means - before[0]) > _SETTLED_MEAN * np.sqrt(variances)
        return bool(change.any() or (np.abs(variances - before[1]) > _SETTLED_VARIANCE * variances).any())

    def _border(self, k: int) -> tuple[Array, Array]:
        """(K, m) means and (m,) variances of the border of a job's root."""
        root = self.plan.boxes[self.plan.jobs[k].boxes[-1]]
        first = root[NODES] + root[PIVOTS]
        border = self.plan.nodes[first : first + root[BORDER]]
        return self.means.reshape(len(self.means), -1)[:, border], self.covariances.reshape(-1, NEIGHBOURS)[
            border, 0
        ]
