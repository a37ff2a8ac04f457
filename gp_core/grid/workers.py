"""Threads for compiled loops.

Plain Python threads around functions that release the GIL: unlike Numba's own thread pool this is safe when
several threads of a node use the engine at once. BLAS must stay single-threaded inside: two pools of threads
that compete for two cores cost more than they give.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gp_core.arrays import integer_at_least
from gp_core.parallel import single_threaded_blas

__all__ = ["Workers", "single_threaded_blas"]


class Workers:
    """A fixed number of threads.

    count: threads; None for one per available core, four at most
    """

    def __init__(self, count: int | None = None) -> None:
        if count is None:
            count = min(4, len(os.sched_getaffinity(0)))
        self.count = integer_at_least(count, 1, "threads")
        self._pool: ThreadPoolExecutor | None = None

    def run(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """function(*call) for every call, in any order; the results in the order of the calls."""
        if self.count == 1 or len(calls) == 1:
            return [function(*call) for call in calls]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="gp_grid")
        return list(self._pool.map(lambda call: function(*call), calls))

    def run_all(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
        """job() for every job, in any order; the results in the order of the jobs."""
        return self.run(lambda job: job(), [(job,) for job in jobs])

    def __getstate__(self) -> dict[str, Any]:
        return {"count": self.count}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self._pool = None
