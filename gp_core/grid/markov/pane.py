"""The posterior of a rectangle of coefficients by nested dissection, kept and brought up to date where data changed.

Upwards, only boxes with changed data and those around them are eliminated again. Downwards, a box is left as it is if
neither its data nor what is known of its border have changed by more than a small part of a standard deviation.

A pane whose variances may lag keeps its factors while the information in a job grows by no more than that on average:
the means of all coefficients are then those of the newest data (kept_factors.py), the variances those of the data that
were eliminated, which are less and so state a larger one. A *prompt* update leaves even more to `renew`, which the
caller runs when nobody waits: then only what the means need and what would state too small a variance is done at once.
"""

from __future__ import annotations

import itertools
from typing import Any, Final, NamedTuple

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.markov.dissection import Indices
from gp_core.grid.markov.elimination_upwards import eliminate, find_filled
from gp_core.grid.markov.front_arrays import Equations, Factors, KeptBorders, Moments
from gp_core.grid.markov.fronts import BORDER, NODES, PIVOTS, Plan
from gp_core.grid.markov.kept_factors import add_stencil_product, improve
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
_MOST_RENEWED: Final = 0.5
"""Share of the jobs to be eliminated again from which on all are that have changed."""
_MOST_DELAY: Final = 3
"""Updates for which a job may wait whose data have changed by more than the lag."""
_MOST_LAGS: Final = 3.0
"""Times the lag by which the data of a job may have changed while it waits for its quarter of the lattice."""
_MUCH: Final = 0.3
"""Change of the data of a job, on average over all of its coefficients, from which on nothing waits."""
_MUCH_AT_ONCE: Final = 0.1
"""Share of the coefficients of a job whose data have changed by half from which on a prompt update does not leave the
job's factors as they are: conjugate gradients would take long."""
_SMALL_JOB: Final = 400
"""Coefficients of a job, at least, over which that average is taken."""
_RENEWED_WITH: Final = 0.5
"""Share of the lag from which on a job is eliminated again together with others."""
_LARGE: Final = 0.5
"""Change of the data of a coefficient with which its job is, too."""
_SETTLED_SHARE: Final = 0.25
"""Of the lag: relative change of a border's variance below which the boxes inside keep theirs."""


class _Change(NamedTuple):
    """By job, added up over its coefficients: shares by which their data have changed, whatever the sign; those that
    are gone; numbers of coefficients whose data have changed by more than a half, and with data.

    Where points replace others, as in a map whose information is limited, ups and downs cancel. Coefficients that have
    come by data, or have lost all, count in full.
    """

    size: Array
    lost: Array
    large: Array
    seen: Array


class Pane:
    """Coefficients first_y ... and first_x ... of a window, as many as the plan has.

    means: (K, n_y, n_x); covariances: (n_y, n_x, 13) of each coefficient with its neighbours
    lag: growth of the information in a job, on average over its coefficients, up to which its variances may stay
    """

    def __init__(self, plan: Plan, first: tuple[int, int], right_hand_sides: int, lag: float = 0.0) -> None:
        self.plan = plan
        self.first = first
        self._lag = lag
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
        self._factored: Array | None = None
        """(N, 13) the stencil that was eliminated; None before that, or where variances may not lag."""
        self._residual = np.zeros((K, N))
        """Of the normal equations at the means."""
        self._waiting: Mask = np.zeros(len(plan.jobs), dtype=np.bool_)
        """Jobs whose factors are of older data."""
        self._sizes = np.maximum(np.bincount(plan.job_of, minlength=len(plan.jobs)), _SMALL_JOB)
        self._delay = np.zeros(len(plan.jobs), dtype=np.int64)
        """Updates for which a job has waited to be renewed."""
        self._not_spread: Mask = np.zeros(len(plan.jobs), dtype=np.bool_)
        """Jobs whose factors are newer than their covariances."""

    @property
    def nbytes(self) -> int:
        arrays = [self.means, self.covariances, self._stencil, self._right, *self._factors, *self._kept]
        arrays += [self._residual] if self._factored is None else [self._residual, self._factored]
        return sum(array.nbytes for array in arrays)

    def update(
        self,
        changed: Mask,
        s: Statistics,
        heights: Array,
        gain: float,
        workers: Workers,
        prompt: bool = False,
    ) -> tuple[Mask, Mask]:
        """Solve for the data of the blocks (J, I) that changed.

        Returns of which coefficients (n_y, n_x) the means, and of which the covariances were solved again.

        heights: (K, J, I, 3, 3)
        prompt: leave covariances that are too large to `renew`
        """
        before = None if self._factored is None else (self._stencil.copy(), self._right.copy())
        touched = self._take_data(changed, s, heights, gain, workers)
        dirty = np.zeros(len(self.plan.jobs), dtype=np.bool_)
        dirty[self.plan.job_of[touched]] = True
        if before is not None:
            followed = self._follow(*before, workers, prompt)
            if followed is not None:
                self._waiting |= dirty
                return np.ones(self.plan.size, dtype=np.bool_), followed
        dirty |= self._waiting
        self._waiting[:] = False
        self._eliminate_with_parents(dirty, workers)
        if self._lag > 0.0:
            self._factored = self._stencil.reshape(-1, NEIGHBOURS).copy()
            self._residual[:] = 0.0
            dirty |= self._not_spread
            self._not_spread[:] = False
            self._delay[:] = 0
        solved = self._substitute_from(dirty, self.means, _SETTLED_VARIANCE, _SETTLED_MEAN, workers)
        return solved, solved

    def renew(self, workers: Workers) -> Mask:
        """Bring the covariances up to date that `update` has left behind by a good part of the lag.

        The means are those of the newest data before and after. Returns of which coefficients (n_y, n_x) the
        covariances were solved again.
        """
        if self._factored is None:
            return np.zeros(self.plan.size, dtype=np.bool_)
        self._renew_factors(self._outdated(self._change_by_job(self._factored)), self._factored, workers)
        return self._renew_covariances(workers)

    def _follow(self, stencil: Array, right: Array, workers: Workers, prompt: bool) -> Mask | None:
        """The means of the new data by the factors, of which those are renewed whose data have changed much.

        Returns of which coefficients (n_y, n_x) the covariances were solved again; None where all is to be solved
        anew.

        stencil, right: the normal equations at which the means are a solution
        """
        plan, factored = self.plan, self._factored
        assert factored is not None
        now = self._stencil.reshape(-1, NEIGHBOURS)
        change = self._change_by_job(factored)
        renewed = self._jobs_to_renew(change, prompt)
        if renewed.mean() > _MOST_RENEWED:
            return None
        means = self.means.reshape(len(self.means), -1)
        residual = self._residual + (self._right - right).reshape(len(means), -1)
        less = stencil.reshape(-1, NEIGHBOURS) - now
        for mean, rest in zip(means, residual, strict=True):
            add_stencil_product(less, mean, plan.size[1], rest)
        self._renew_factors(renewed, factored, workers)
        growth = now - factored
        for mean, rest in zip(means, residual, strict=True):
            if not improve(mean, rest, growth, plan, self._factors, workers):
                return None
        self._residual = residual
        if prompt and not (change.lost > self._lag * change.seen).any():
            return np.zeros(plan.size, dtype=np.bool_)
        return self._renew_covariances(workers)

    def _renew_factors(self, jobs: Mask, factored: Array, workers: Workers) -> None:
        """Eliminate the present data of these jobs and of all that they are parts of."""
        if jobs.any():
            self._eliminate_with_parents(jobs, workers)
            np.copyto(factored, self._stencil.reshape(-1, NEIGHBOURS), where=jobs[self.plan.owners])
            self._not_spread |= jobs
            self._delay[jobs] = 0

    def _renew_covariances(self, workers: Workers) -> Mask:
        """Those of the jobs whose factors are newer; which coefficients (n_y, n_x) were solved."""
        jobs = self._not_spread
        if not jobs.any():
            return np.zeros(self.plan.size, dtype=np.bool_)
        # The means that come with the covariances are those of factors of mixed age: they are not wanted.
        solved = self._substitute_from(
            jobs, np.empty_like(self.means), _SETTLED_SHARE * self._lag, np.inf, workers
        )
        self._not_spread = np.zeros_like(jobs)
        return solved

    def _jobs_to_renew(self, change: _Change, prompt: bool) -> Mask:
        """(jobs,) those whose data have changed by more than the lag, if one has waited for some updates, or at once if
        one has changed much, as ground at the rim of what is seen does, or has lost points: variances are too small.

        A prompt update need not hurry where information has grown on ground that was known: of that it renews a
        quarter of the lattice at a time, the one that has waited for most.
        """
        late = change.size > self._lag * change.seen
        self._delay = np.where(late, self._delay + 1, 0)
        if prompt:
            much = change.large > _MUCH_AT_ONCE * self._sizes
        else:
            much = change.size > max(_MUCH, self._lag) * self._sizes
        lost = change.lost > self._lag * change.seen
        overdue = self._delay > _MOST_DELAY
        if not (much | lost | overdue).any():
            return np.zeros_like(late)
        outdated = self._outdated(change)
        if prompt:
            at_once = (
                much | lost | (change.large > 0.0) | (change.size > _MOST_LAGS * self._lag * change.seen)
            )
            quarter = self.plan.quarter_of_job
            waiting = np.bincount(quarter, overdue * change.size, minlength=len(quarter))
            outdated &= at_once | ((quarter == waiting.argmax()) & (waiting.max() > 0.0))
        return outdated

    def _outdated(self, change: _Change) -> Mask:
        """(jobs,) those that are eliminated again together with others, which is little more work.

        Those of which a part has changed a lot must be: what they lack, jobs above them have of the same points, so
        that D would not be positive there, and e' P e no bound on the error of the mean.
        """
        return np.asarray((change.size > _RENEWED_WITH * self._lag * change.seen) | (change.large > 0.0))

    def _change_by_job(self, factored: Array) -> _Change:
        """How the data of each job have changed since they were eliminated."""
        now, then = self._stencil[..., 0].ravel(), factored[:, 0]
        larger = np.maximum(now, then)
        seen = np.flatnonzero(larger > 0.0)
        job, jobs = self.plan.job_of[seen], len(self.plan.jobs)
        change = (now[seen] - then[seen]) / larger[seen]

        def total(values: Any) -> Array:
            return np.bincount(job, values, minlength=jobs).astype(np.float64)

        grown = total(np.where(np.abs(change) == 1.0, 0.0, change))
        new, gone = total(change == 1.0), total(change == -1.0)
        lost = np.maximum(-grown, 0.0) + gone
        large = total(np.abs(change) > _LARGE)
        return _Change(np.abs(grown) + new + gone, lost, large, total(np.ones(job.size)))

    def _eliminate_with_parents(self, jobs: Mask, workers: Workers) -> None:
        """Upwards through these jobs and all that they are parts of, which are marked too."""
        for k in range(len(jobs) - 1, 0, -1):
            jobs[self.plan.jobs[k].parent] |= jobs[k]
        for stage in reversed(self._stages()):
            workers.run(self._eliminate, [(int(k),) for k in stage if jobs[k]])

    def _substitute_from(
        self, jobs: Mask, means: Array, settled_variance: float, settled_mean: float, workers: Workers
    ) -> Mask:
        """Downwards through these jobs and those whose border has moved; which coefficients (n_y, n_x) were solved.

        means: (K, n_y, n_x) that are written
        """
        shared = np.empty(self.plan.lengths[4], dtype=np.float32)
        visited = np.zeros_like(jobs)
        for stage in self._stages():
            chosen = [
                int(k)
                for k in stage
                if jobs[k] or self._moved(int(k), visited, settled_variance, settled_mean)
            ]
            visited[chosen] = True
            workers.run(self._substitute, [(k, means, shared) for k in chosen])
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

    def _substitute(self, k: int, means: Array, shared: Any) -> None:
        job = self.plan.jobs[k]
        moments = Moments(means.reshape(len(means), -1), self.covariances.reshape(-1, NEIGHBOURS))
        substitute(job.boxes, self.plan.tables, self._factors, shared, moments, job.stack_down)
        self._borders[k] = self._border(k)

    def _moved(self, k: int, visited: Mask, settled_variance: float, settled_mean: float) -> bool:
        """Whether the border of a job's root is known otherwise than when the job was solved."""
        before = self._borders[k]
        if before is None:
            return True
        parent = self.plan.jobs[k].parent
        if parent >= 0 and not visited[parent]:
            return False
        means, variances = self._border(k)
        if (np.abs(variances - before[1]) > settled_variance * variances).any():
            return True
        return bool((np.abs(means - before[0]) > settled_mean * np.sqrt(variances)).any())

    def _border(self, k: int) -> tuple[Array, Array]:
        """(K, m) means and (m,) variances of the border of a job's root."""
        root = self.plan.boxes[self.plan.jobs[k].boxes[-1]]
        first = root[NODES] + root[PIVOTS]
        border = self.plan.nodes[first : first + root[BORDER]]
        return self.means.reshape(len(self.means), -1)[:, border], self.covariances.reshape(-1, NEIGHBOURS)[
            border, 0
        ]
