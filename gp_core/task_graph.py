"""Tasks on shared data, run on several threads in any order that leads to what running them one by one would.

An algorithm on the blocks of a matrix is written down as it would run on one thread, and each task says which blocks it
reads and which it changes. A task starts as soon as the earlier ones that touch the same blocks are done, so that no
thread waits for the slowest of a batch while another part of the matrix is ready. Each block is changed by the same
tasks in the same order whatever the threads do: the result is the same to the last bit.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable
from functools import partial
from heapq import heappop, heappush

from gp_core.parallel import Task, WorkerPool


class TaskGraph:
    """Tasks in the order of the program that they make up."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []
        self._followers: list[list[int]] = []
        self._n_awaited: list[int] = []
        self._last_change: dict[Hashable, int] = {}
        self._readers: dict[Hashable, list[int]] = {}

    def add(self, task: Task, reads: Iterable[Hashable], changes: Hashable) -> None:
        """Append a task.

        reads: the blocks that it reads
        changes: the block that it reads and writes
        """
        number = len(self._tasks)
        awaited = set()
        for block in reads:
            if block in self._last_change:
                awaited.add(self._last_change[block])
            self._readers.setdefault(block, []).append(number)
        if changes in self._last_change:
            awaited.add(self._last_change[changes])
        awaited.update(self._readers.pop(changes, ()))
        awaited.discard(number)
        self._last_change[changes] = number
        self._tasks.append(task)
        self._followers.append([])
        self._n_awaited.append(len(awaited))
        for other in awaited:
            self._followers[other].append(number)

    def run(self, threads: int) -> None:
        """All tasks, on `threads` threads, the calling one among them; the first error ends the rest.

        Of those that can start, the one goes first that the longest chain of others waits for.
        """
        run = _Run(self._tasks, self._followers, list(self._n_awaited), self._chain_lengths())
        with WorkerPool(threads) as pool:
            pool.run(partial(run.work) for _ in range(threads))
        if run.error is not None:
            raise run.error

    def _chain_lengths(self) -> list[int]:
        """(tasks,) the length of the longest chain that begins with each task."""
        lengths = [1] * len(self._tasks)
        for number in reversed(range(len(self._tasks))):  # followers have higher numbers
            for follower in self._followers[number]:
                lengths[number] = max(lengths[number], lengths[follower] + 1)
        return lengths


class _Run:
    """What the threads share while they run a graph once."""

    def __init__(
        self, tasks: list[Task], followers: list[list[int]], n_awaited: list[int], lengths: list[int]
    ) -> None:
        self.error: BaseException | None = None
        self._tasks, self._followers, self._n_awaited, self._lengths = tasks, followers, n_awaited, lengths
        self._n_left = len(tasks)
        self._changed = threading.Condition()
        self._ready: list[tuple[int, int]] = []
        for number, n in enumerate(n_awaited):
            if n == 0:
                heappush(self._ready, (-lengths[number], number))

    def work(self) -> None:
        """Run tasks until none is left."""
        done = -1
        while (number := self._next(done)) >= 0:
            try:
                self._tasks[number]()
            except BaseException as error:
                with self._changed:
                    self.error = self.error or error
                    self._n_left = 0
                    self._changed.notify_all()
                return
            done = number

    def _next(self, done: int) -> int:
        """The number of the task to run next, -1 if there is none left; `done` is the one before, -1 at the start."""
        with self._changed:
            if done >= 0:
                self._release(done)
            while not self._ready and self._n_left > 0:
                self._changed.wait()
            return heappop(self._ready)[1] if self._n_left > 0 else -1

    def _release(self, done: int) -> None:
        self._n_left -= 1
        for follower in self._followers[done]:
            self._n_awaited[follower] -= 1
            if self._n_awaited[follower] == 0:
                heappush(self._ready, (-self._lengths[follower], follower))
        if len(self._ready) > 1:
            self._changed.notify(len(self._ready) - 1)
        if self._n_left <= 0:
            self._changed.notify_all()
