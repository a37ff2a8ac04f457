"""Independent blocks of array work on several threads: numpy and scipy release the interpreter lock.

BLAS stays on one thread meanwhile. Its own threads wait for work by spinning: beside ours, or on a machine that others
use as well, they take the cores from those that compute.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import TypeVar

from threadpoolctl import ThreadpoolController

Block = TypeVar("Block")
Result = TypeVar("Result")
Task = Callable[[], object]

_state = threading.local()
_lock = threading.Lock()
_limited = False


def available_threads() -> int:
    """Cores this process may use, and no more than OMP_NUM_THREADS if that is set."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(limit)) if limit.isdigit() and int(limit) > 0 else cores


def map_blocks(work: Callable[[Block], Result], blocks: Iterable[Block]) -> list[Result]:
    """work(block) for each block, the results in order, on up to as many threads as there are cores.

    A thread is started for two blocks or more, so that little work stays where it is. A block that calls this
    function again does its blocks itself.
    """
    todo = list(blocks)
    threads = min(available_threads(), len(todo) // 2)
    if threads <= 1 or getattr(_state, "working", False):
        return [work(block) for block in todo]
    results: dict[int, Result] = {}

    def keep(i: int) -> None:
        results[i] = work(todo[i])

    with WorkerPool(threads) as pool:
        pool.run(partial(keep, i) for i in range(len(todo)))
    return [results[i] for i in range(len(todo))]


class WorkerPool:
    """Threads that run batches of tasks, the calling one among them, with BLAS on one thread each."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._stack = ExitStack()

    def __enter__(self) -> WorkerPool:
        self._stack.enter_context(single_threaded_blas())
        self._executor = self._stack.enter_context(ThreadPoolExecutor(max(1, self.threads - 1)))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, tasks: Iterable[Task]) -> None:
        """All tasks, in any order; returns when they are done.

        The caller takes its share: to wait instead, and to be woken for every batch, costs as much as a small task.
        """
        waiting = deque(tasks)
        helpers = [
            self._executor.submit(_work_off, waiting) for _ in range(min(self.threads, len(waiting)) - 1)
        ]
        _work_off(waiting)
        for helper in helpers:
            helper.result()


def _work_off(waiting: deque[Task]) -> None:
    """Run tasks until none waits; blocks within them stay on this thread."""
    outer = getattr(_state, "working", False)
    _state.working = True
    try:
        while True:
            try:
                task = waiting.popleft()
            except IndexError:
                return
            task()
    finally:
        _state.working = outer


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """A context in which BLAS and LAPACK use the calling thread only.

    The limit is one for the whole process. Where several threads ask for it, the first one sets it and takes it back:
    whoever is still inside then computes on more threads, and no limit is left behind.
    """
    global _limited
    with _lock:
        first = not _limited
        _limited = True
    if not first:
        yield
        return
    limit = _controller().limit(limits=1, user_api="blas")
    try:
        yield
    finally:
        limit.restore_original_limits()
        with _lock:
            _limited = False


def blas_descriptions() -> list[str]:
    """Each BLAS of this process: name, version and, where it says so, the CPU whose loops it has chosen."""
    names = ("internal_api", "version", "architecture")
    return sorted(
        "-".join(str(library.get(name)) for name in names)
        for library in _controller().info()
        if library["user_api"] == "blas"
    )


@cache
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  (loads its BLAS, so that the controller finds it)

    return ThreadpoolController()
