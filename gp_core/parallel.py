"""Independent blocks of array work on several threads: numpy and scipy release the interpreter lock.

BLAS stays on one thread meanwhile. Its own threads wait for work by spinning: beside ours, or on a machine that others
use as well, they take the cores from those that compute.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

Block = TypeVar("Block")
Result = TypeVar("Result")

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
    tasks = list(blocks)
    threads = min(available_threads(), len(tasks) // 2)
    if threads <= 1 or getattr(_state, "working", False):
        return [work(block) for block in tasks]
    with single_threaded_blas(), ThreadPoolExecutor(threads, initializer=_begin_working) as pool:
        return list(pool.map(work, tasks))


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


@cache
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  (loads its BLAS, so that the controller finds it)

    return ThreadpoolController()


def _begin_working() -> None:
    _state.working = True
