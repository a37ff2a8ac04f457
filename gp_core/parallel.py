"""Independent blocks of array work on several threads: numpy and scipy release the interpreter lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Block = TypeVar("Block")
Result = TypeVar("Result")


def available_threads() -> int:
    """Cores this process may use, and no more than OMP_NUM_THREADS if that is set."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(limit)) if limit.isdigit() and int(limit) > 0 else cores


def map_blocks(work: Callable[[Block], Result], blocks: Iterable[Block]) -> list[Result]:
    """work(block) for each block, the results in order, on up to as many threads as there are cores.

    A thread is started for two blocks or more, so that little work stays where it is.
    """
    tasks = list(blocks)
    threads = min(available_threads(), len(tasks) // 2)
    if threads <= 1:
        return [work(block) for block in tasks]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, tasks))
