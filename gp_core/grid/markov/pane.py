"""The posterior of a rectangle of coefficients by nested dissection, kept and brought up to date where data changed.

Upwards, only boxes with changed data and those around them are eliminated again. Downwards, a box is left as it is if
neither its data nor the variances of its border have changed by more than a small part. Means are solved everywhere,
for what the change of the data leaves of the normal equations, and are corrected by all that they leave of them when
rounding may have added up (mean_solution.py).

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
from gp_core.grid.markov.front_arrays import Factors
from gp_core.grid.markov.fronts import BORDER, NODES, PIVOTS, Fronts
from gp_core.grid.markov.kept_factors import improve
from gp_core.grid.markov.mean_solution import add_stencil_product, residual, solve
from gp_core.grid.markov.normal_equations import NEIGHBOURS, add_blocks
from gp_core.grid.markov.splines import DEGREE, ORDER
from gp_core.grid.markov.substitution_downwards import substitute
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.workers import Workers

_SETTLED_VARIANCE: Final = 2e-3
"""Relative change of a border's variances below which the boxes inside are not solved again."""
_DRIFT: Final = 0.01
"""Root of e' P e that rounding may leave of the mean: at no cell is it off by more posterior standard deviations."""
_MOST_CORRECTIONS: Final = 20
_LEAST_GAIN: Final = 0.5
"""Of a correction, relative to the one before, from which on they do not converge."""
_SAFETY: Final = 1e-6
"""Share of the boxes' own precision that is added where a job could not be eliminated in float64."""
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

    def __init__(
        self,
        fronts: Fronts,
        size: tuple[int, int],
        first: tuple[int, int],
        right_hand_sides: int,
        lag: float = 0.0,
    ) -> None:
        self._fronts = fronts
        self.plan = plan = fronts.plan(*size)
        self.first = first
        self._lag = lag
        self.fallbacks = 0
        n_y, n_x = plan.size
        N, K = n_y * n_x, right_hand_sides
        self.means = np.zeros((K, n_y, n_x))
        self.covariances = np.zeros((n_y, n_x, NEIGHBOURS), dtype=np.float32)
        self._stencil = np.zeros((n_y, n_x, NEIGHBOURS))
        self._right = np.zeros((K, n_y, n_x))
        self._factors = Factors(
            filled=np.zeros(len(plan.boxes), dtype=np.bool_),
            back=np.empty(plan.lengths[0], dtype=np.float32),
            inverse=np.empty(plan.lengths[1], dtype=np.float32),
        )
        self._triangles = np.empty(plan.lengths[2], dtype=plan.precision)
        """L of the boxes that are kept."""
        self._borders: list[Any] = [None] * len(plan.jobs)
        self._factored: Any = None
        """(N, 13) the stencil that was eliminated, in float32; None before that, or where variances may not lag."""
        self._residual = np.zeros((K, N))
        """Of the normal equations at the means, as far as it is known without the prior."""
        self._drift = 0.0
        """Bound on the root of e' P e of the means, for what rounding has left since they were last corrected."""
        self._roundoff = np.inf
        """Share of a change of the means that they may be off by."""
        self._waiting: Mask = np.zeros(len(plan.jobs), dtype=np.bool_)
        """Jobs whose factors are of older data."""
        self._sizes = np.maximum(np.bincount(plan.job_of, minlength=len(plan.jobs)), _SMALL_JOB)
        self._delay = np.zeros(len(plan.jobs), dtype=np.int64)
        """Updates for which a job has waited to be renewed."""
        self._not_spread: Mask = np.zeros(len(plan.jobs), dtype=np.bool_)
        """Jobs whose factors are newer than their covariances."""
        self._spread_delay = 0
        """Updates that have left all covariances behind, one after the other."""

    @property
    def nbytes(self) -> int:
        arrays = [self.means, self.covariances, self._stencil, self._right, *self._factors, self._triangles]
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
        j, i = self._blocks_here(changed)
        rows, columns = (_equations_of(at, size) for at, size in zip((j, i), self.plan.size, strict=True))
        stencil, right = self._stencil[rows].copy(), self._right[:, rows].copy()
        self._take_data(rows, columns, s, heights, gain, workers)
        dirty = np.zeros(len(self.plan.jobs), dtype=np.bool_)
        dirty[self.plan.job_of[self._coefficients_of(j, i)]] = True
        if self._in_single and self._stencil[..., 0].max() > self._fronts.information_in_single:
            self._turn_to_double()
            rest = self._right.reshape(len(self._right), -1)
        else:
            rest = self._change_of_residual(rows, stencil, right)
        everywhere = np.ones(self.plan.size, dtype=np.bool_)
        if self._factored is not None:
            followed = self._follow(rest, workers, prompt)
            if followed is not None:
                self._waiting |= dirty
                return everywhere, followed
        dirty |= self._waiting
        self._waiting[:] = False
        solved = self._eliminate_with_parents(dirty, workers) and self._solve_means(rest, workers)
        if not solved and self._in_single:
            self._turn_to_double()
            dirty[:] = True
            solved = self._eliminate_with_parents(dirty, workers) and self._solve_means(
                self._right.reshape(rest.shape), workers
            )
        if not solved:
            self.fallbacks += 1
        if self._lag > 0.0:
            waits = prompt and self._spread_delay < _MOST_DELAY and not self._has_lost()
            self._factored = self._stencil.reshape(-1, NEIGHBOURS).astype(np.float32)
            self._delay[:] = 0
            dirty |= self._not_spread
            self._not_spread = dirty.copy() if waits else np.zeros_like(dirty)
            self._spread_delay = self._spread_delay + 1 if waits else 0
            if waits:
                return everywhere, np.zeros(self.plan.size, dtype=np.bool_)
        return everywhere, self._substitute_from(dirty, _SETTLED_VARIANCE, workers)

    def _has_lost(self) -> bool:
        """Whether data are gone since they were eliminated, or none were: the variances there are, are too small."""
        if self._factored is None:
            return True
        change = self._change_by_job(self._factored)
        return bool((change.lost > self._lag * change.seen).any())

    def _change_of_residual(self, rows: slice, stencil: Array, right: Array) -> Array:
        """(K, N) what is left of the normal equations at the means, which solved them while they were these.

        rows: those that have changed; stencil, right: of these rows
        """
        n_x = self.plan.size[1]
        first = rows.start * n_x
        means = self.means.reshape(len(self.means), -1)
        less = (stencil - self._stencil[rows]).reshape(-1, NEIGHBOURS)
        more = (self._right[:, rows] - right).reshape(len(means), -1)
        out = self._residual.copy()
        for mean, change, rest in zip(means, more, out, strict=True):
            rest[first : first + change.size] += change
            add_stencil_product(less, mean[first:], n_x, rest[first:])
        return out

    def renew(self, workers: Workers) -> Mask:
        """Bring the covariances up to date that `update` has left behind by a good part of the lag.

        The means are those of the newest data before and after. Returns of which coefficients (n_y, n_x) the
        covariances were solved again.
        """
        if self._factored is None:
            return np.zeros(self.plan.size, dtype=np.bool_)
        self._renew_factors(self._outdated(self._change_by_job(self._factored)), self._factored, workers)
        return self._renew_covariances(workers)

    def _follow(self, rest: Array, workers: Workers, prompt: bool) -> Mask | None:
        """The means of the new data by the factors, of which those are renewed whose data have changed much.

        Returns of which coefficients (n_y, n_x) the covariances were solved again; None where all is to be solved
        anew.

        rest: (K, N) of the normal equations at the means
        """
        plan, factored = self.plan, self._factored
        assert factored is not None
        now = self._stencil.reshape(-1, NEIGHBOURS)
        change = self._change_by_job(factored)
        renewed = self._jobs_to_renew(change, prompt)
        if renewed.mean() > _MOST_RENEWED:
            return None
        if not self._renew_factors(renewed, factored, workers):
            return None
        means = self.means.reshape(len(self.means), -1)
        exactly = not self._drift <= _DRIFT
        left = self._exact_residual(workers) if exactly else rest.copy()
        growth = now - factored
        farthest = 0.0
        for mean, of_mean in zip(means, left, strict=True):
            moved = improve(mean, of_mean, growth, plan, self._factors, workers)
            if moved is None:
                return None
            farthest = max(farthest, moved)
        self._residual = left
        self._drift = (0.0 if exactly else self._drift) + self._rounding(farthest)
        if prompt and not (change.lost > self._lag * change.seen).any():
            return np.zeros(plan.size, dtype=np.bool_)
        return self._renew_covariances(workers)

    def _renew_factors(self, jobs: Mask, factored: Any, workers: Workers) -> bool:
        """Eliminate the present data of these jobs and of all that they are parts of; False if that is not possible."""
        if not jobs.any():
            return True
        if not self._eliminate_with_parents(jobs, workers):
            self._waiting |= jobs
            return False
        renewed = jobs[self.plan.owners]
        np.copyto(factored, self._stencil.reshape(-1, NEIGHBOURS), where=renewed, casting="same_kind")
        self._not_spread |= jobs
        self._delay[jobs] = 0
        return True

    def _renew_covariances(self, workers: Workers) -> Mask:
        """Those of the jobs whose factors are newer; which coefficients (n_y, n_x) were solved."""
        jobs = self._not_spread
        self._spread_delay = 0
        if not jobs.any():
            return np.zeros(self.plan.size, dtype=np.bool_)
        solved = self._substitute_from(jobs, _SETTLED_SHARE * self._lag, workers)
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

    def _change_by_job(self, factored: Any) -> _Change:
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

    def _eliminate_with_parents(self, jobs: Mask, workers: Workers) -> bool:
        """Upwards through these jobs and all that they are parts of, which are marked too; False if float32 does not
        hold one of them."""
        for k in range(len(jobs) - 1, 0, -1):
            jobs[self.plan.jobs[k].parent] |= jobs[k]
        return all(
            all(workers.run(self._eliminate, [(int(k),) for k in stage if jobs[k]]))
            for stage in reversed(self._stages())
        )

    def _solve_means(self, rest: Array, workers: Workers) -> bool:
        """Add P^-1 r to the means, by factors of the present data, and correct them if rounding may be seen; False, and
        means as before, where that does not converge.

        rest: (K, N) r
        """
        means = self.means.reshape(len(self.means), -1)
        before = means.copy()
        change, moved = self._solution(rest, workers)
        means += change
        self._residual[:] = 0.0
        self._drift += self._rounding(moved)
        for _ in range(_MOST_CORRECTIONS):
            if self._drift <= _DRIFT:
                return True
            change, correction = self._solution(self._exact_residual(workers), workers)
            if not correction < _LEAST_GAIN * moved:
                break
            means += change
            self._roundoff = correction / moved
            self._drift = self._roundoff * correction
            moved = correction
        means[:] = before
        self._residual[:] = rest
        self._drift, self._roundoff = 0.0, np.inf
        return False

    def _solution(self, rest: Array, workers: Workers) -> tuple[Array, float]:
        """P^-1 r, and the root of r' P^-1 r, the largest of all right-hand sides."""
        change = solve(rest, self.plan, self._factors, workers)
        square = float(np.einsum("kn,kn->k", rest, change).max())
        return change, np.sqrt(square) if square > 0.0 else 0.0

    def _rounding(self, moved: float) -> float:
        """What rounding may leave of a change of the means, in the same measure."""
        return self._roundoff * moved if moved > 0.0 else 0.0

    def _exact_residual(self, workers: Workers) -> Array:
        means = self.means.reshape(len(self.means), -1)
        return residual(
            means, self._right.reshape(means.shape), self._stencil.reshape(-1, NEIGHBOURS), self.plan, workers
        )

    def _substitute_from(self, jobs: Mask, settled: float, workers: Workers) -> Mask:
        """Downwards through these jobs and those whose border has other variances; which coefficients (n_y, n_x) were
        solved."""
        shared = np.empty(self.plan.lengths[3], dtype=np.float32)
        visited = np.zeros_like(jobs)
        for stage in self._stages():
            chosen = [int(k) for k in stage if jobs[k] or self._moved(int(k), visited, settled)]
            visited[chosen] = True
            workers.run(self._substitute, [(k, shared) for k in chosen])
        return np.asarray(visited[self.plan.job_of].reshape(self.plan.size))

    def _blocks_here(self, changed: Mask) -> tuple[Indices, Indices]:
        """Rows and columns, from the first coefficient of the pane, of the blocks that changed and meet it."""
        (top, left), (n_y, n_x) = self.first, self.plan.size
        low, begin = max(top - DEGREE, 0), max(left - DEGREE, 0)
        j, i = np.nonzero(changed[low : top + n_y, begin : left + n_x])
        return j + (low - top), i + (begin - left)

    def _coefficients_of(self, j: Indices, i: Indices) -> Indices:
        """Those that meet in these blocks."""
        n_y, n_x = self.plan.size
        touched = np.zeros((n_y + 2 * DEGREE, n_x + 2 * DEGREE), dtype=np.bool_)
        for dy in range(DEGREE, DEGREE + ORDER):
            for dx in range(DEGREE, DEGREE + ORDER):
                touched[j + dy, i + dx] = True
        return np.flatnonzero(touched[DEGREE:-DEGREE, DEGREE:-DEGREE])

    def _take_data(
        self, rows: slice, columns: slice, s: Statistics, heights: Array, gain: float, workers: Workers
    ) -> None:
        """Renew the normal equations of these rows and columns of coefficients."""
        self._stencil[rows, columns] = 0.0
        self._right[:, rows, columns] = 0.0
        weights, heights = _limited(s.weights, heights, self._fronts.most_information / gain)
        first, last = 0, weights.shape[1]
        cuts = np.linspace(rows.start, rows.stop, workers.count + 1).astype(int)
        workers.run(
            add_blocks,
            [
                (weights, heights, gain, first, last, *self.first, low, high, columns.start, columns.stop,
                 self._stencil, self._right)
                for low, high in itertools.pairwise(cuts)
            ],
        )  # fmt: skip

    def _stages(self) -> list[Indices]:
        depth = np.array([job.depth for job in self.plan.jobs])
        return [np.flatnonzero(depth == d) for d in np.unique(depth)]

    @property
    def _in_single(self) -> bool:
        return bool(self.plan.precision == np.float32)

    def _turn_to_double(self) -> None:
        """Forget all that was solved: from now on the data are eliminated in float64."""
        self.fallbacks += 1
        self.plan = self._fronts.plan(*self.plan.size, single=False)
        self._triangles = np.empty(self.plan.lengths[2], dtype=self.plan.precision)
        self._factored = None
        self._waiting[:] = True
        self._drift, self._roundoff = 0.0, np.inf
        self.means[:] = 0.0
        self._residual[:] = 0.0

    def _eliminate(self, k: int) -> bool:
        """Upwards through a job; False if float32 does not hold it."""
        plan, job = self.plan, self.plan.jobs[k]
        stencil = self._stencil.reshape(-1, NEIGHBOURS)
        find_filled(job.boxes, plan.boxes, plan.nodes, stencil, self._factors.filled)
        in_single = True if self._in_single else None
        for safety in (0.0, _SAFETY):
            if eliminate(
                job.boxes,
                plan.tables,
                stencil,
                1.0 + safety,
                self._factors,
                self._triangles,
                in_single,
                job.stack_up,
            ):
                return True
            if self._in_single:
                return False
            self.fallbacks += 1
        self._factors.filled[job.boxes] = False
        return True

    def _substitute(self, k: int, shared: Any) -> None:
        job = self.plan.jobs[k]
        covariances = self.covariances.reshape(-1, NEIGHBOURS)
        substitute(job.boxes, self.plan.tables, self._factors, shared, covariances, job.stack_down)
        self._borders[k] = self._border_variances(k)

    def _moved(self, k: int, visited: Mask, settled: float) -> bool:
        """Whether the border of a job's root is known otherwise than when the job was solved."""
        before = self._borders[k]
        if before is None:
            return True
        parent = self.plan.jobs[k].parent
        if parent >= 0 and not visited[parent]:
            return False
        variances = self._border_variances(k)
        return bool((np.abs(variances - before) > settled * variances).any())

    def _border_variances(self, k: int) -> Array:
        """(m,) of the border of a job's root."""
        root = self.plan.boxes[self.plan.jobs[k].boxes[-1]]
        first = root[NODES] + root[PIVOTS]
        border = self.plan.nodes[first : first + root[BORDER]]
        return np.asarray(self.covariances.reshape(-1, NEIGHBOURS)[border, 0])


def _equations_of(blocks: Indices, size: int) -> slice:
    """Along an axis, the coefficients from the first to the last that meet in these blocks."""
    if not blocks.size:
        return slice(0, 0)
    return slice(max(int(blocks.min()), 0), min(int(blocks.max()) + ORDER, size))


def _limited(weights: Array, heights: Array, most: float) -> tuple[Array, Array]:
    """The moments of blocks (J, I, 5, 5) and (K, J, I, 3, 3), none with more information than `most`."""
    total = weights[..., 0, 0]
    if not total.max(initial=0.0) > most:
        return weights, heights
    share = (most / np.maximum(total, most))[..., None, None]
    return weights * share, heights * share
