"""Where the tasks of a survey run: in this process, or on the workers of a Dask cluster.

A task is a function with its arguments that leaves its result in a file and returns a few numbers, so that it can be
repeated anywhere at any time. Both runners give the same outcomes; their order may differ.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from gp_core import __version__
from gpgmap_ros.io.points import PointFileError
from gpgmap_ros.memory import limit_malloc_arenas

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk that is full, a quota that is used up, a file that may not grow."""
ATTEMPTS = 4
"""Times that a task is tried where it may be the fault of a worker."""
IN_FLIGHT = 2
"""Tasks per thread of the cluster that the scheduler knows of at a time: the next waits there, the rest here."""
LARGE, KEPT = 8 << 20, 64 << 20
"""Bytes, see `memory.limit_malloc_arenas`: a run takes minutes, keeps to --memory, and uses freed arrays again."""


LOOK_SECONDS, LONELY_SECONDS = 2, 60
"""How often workers are counted while nothing ends, and how long there may be none."""


class IncompleteError(RuntimeError):
    """Parts of the survey could not be computed: which, and what to do."""


@dataclass(frozen=True)
class Task:
    """name: unique, for people and for Dask; function: of a module, so that it can be sent"""

    name: str
    function: Callable[..., Any] = field(repr=False)
    arguments: tuple[Any, ...] = field(repr=False)


@dataclass(frozen=True)
class Outcome:
    """What a task returned, or why it did not."""

    task: Task
    value: Any = None
    error: Exception | None = None


class Runner(Protocol):
    """workers: processes that take tasks; description: of what runs them, for the terminal"""

    description: str

    @property
    def workers(self) -> int: ...

    def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        """The outcomes, in the order in which they are there. Close the iterator to end early."""
        ...

    def check(self, scratch: Path) -> None:
        """RuntimeError where the workers can't do the work: another version, or they do not see the folder."""
        ...


class LocalRunner:
    """One task after the other, in this process. Needs no Dask."""

    description = "one core of this machine"
    workers = 1

    def check(self, scratch: Path) -> None:
        """It can."""

    def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        for task in tasks:
            try:
                outcome = Outcome(task, task.function(*task.arguments))
            except Exception as error:
                outcome = Outcome(task, error=error)
            yield outcome


class DaskRunner:
    """On the workers of a cluster, to which few tasks at a time are given.

    Dask runs the tasks of a worker that was lost again on another one. A task that failed for want of disk space is
    tried on the other workers; one whose file can't be read is not tried again.

    client: of `dask.distributed`
    """

    def __init__(self, client: Any, description: str) -> None:
        self._client, self.description = client, description
        self._full: set[str] = set()

    @property
    def workers(self) -> int:
        return len(self._client.nthreads())

    def run(self, tasks: Iterable[Task]) -> Iterator[Outcome]:
        run = secrets.token_hex(8)  # two runs on one cluster must not take each other's results
        waiting, ended = iter(tasks), queue.SimpleQueue[Any]()
        running: dict[str, tuple[Any, Task, int]] = {}
        again: deque[tuple[Task, int]] = deque()

        def submit() -> None:
            limit = IN_FLIGHT * max(sum(self._client.nthreads().values()), 1)
            while len(running) < limit:
                task, attempt = again.popleft() if again else (next(waiting, None), 0)
                if task is None:
                    return
                future = self._submit(task, attempt, run)
                running[future.key] = (future, task, attempt)
                future.add_done_callback(ended.put)

        try:
            submit()
            while running:
                future, task, attempt = running.pop(self._next_of(ended).key)
                outcome, repeat = self._judge(task, future, attempt)
                if repeat:
                    again.append((task, attempt + 1))
                submit()
                if not repeat:
                    yield outcome
        finally:
            with contextlib.suppress(Exception):
                self._client.cancel([future for future, _, _ in running.values()], force=True)

    def _next_of(self, ended: queue.SimpleQueue[Any]) -> Any:
        """The next future that has ended. RuntimeError where there has been no worker for some time."""
        last = time.monotonic()
        while True:
            with contextlib.suppress(queue.Empty):
                return ended.get(timeout=LOOK_SECONDS)
            if self._client.nthreads():
                last = time.monotonic()
            elif time.monotonic() - last > LONELY_SECONDS:
                raise IncompleteError(
                    f"the cluster has had no workers for {LONELY_SECONDS} s: start some, and see their logs"
                )

    def check(self, scratch: Path) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        token = secrets.token_hex(8)
        (scratch / TOKEN_FILE).write_text(token)
        for worker, (version, seen) in self._client.run(describe_worker, str(scratch)).items():
            if version != __version__:
                raise RuntimeError(
                    f"worker {worker} has gpgmap_ros {version}, this is {__version__}: install the same on both"
                )
            if seen != token:
                raise RuntimeError(
                    f"worker {worker} does not see {scratch}: files and results must be on a file system that all"
                    " workers share, under the same path"
                )

    def _submit(self, task: Task, attempt: int, run: str) -> Any:
        good = set(self._client.nthreads()) - self._full if self._full else set()
        return self._client.submit(
            call, task.function, task.arguments, key=f"{task.name}-{attempt}-{run}", pure=False,
            workers=sorted(good) or None, allow_other_workers=False,
        )  # fmt: skip

    def _judge(self, task: Task, future: Any, attempt: int) -> tuple[Outcome, bool]:
        """The outcome of a future that has ended, and whether the task is to be tried again."""
        last = attempt + 1 >= ATTEMPTS
        if future.status != "finished":  # its workers died, one after the other, or it was lost with them
            error = future.exception() if future.status == "error" else None
            said = f"{task.name}: its worker ended {ATTEMPTS} times" + (f" ({error})" if error else "")
            return Outcome(task, error=RuntimeError(said)), not last
        value, failure, worker = future.result()
        if failure is None:
            return Outcome(task, value), False
        if isinstance(failure, OSError) and failure.errno in DISK_FULL:
            self._full.add(worker)
            others = set(self._client.nthreads()) - self._full
            return Outcome(task, error=failure), bool(others) and not last
        transient = isinstance(failure, OSError | MemoryError)
        return Outcome(task, error=failure), transient and not last


def call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, Exception | None, str]:
    """The function's value, or its error, and the worker that this is: runs on a worker."""
    from distributed import get_worker

    prepare_process()
    try:
        return function(*arguments), None, get_worker().address
    except Exception as error:
        return None, sendable(error), get_worker().address


def sendable(error: Exception) -> Exception:
    """The error as one that every client can receive: ours and those of Python stay what they are."""
    if isinstance(error, OSError) and not isinstance(error, PointFileError):
        return OSError(error.errno, error.strerror or str(error), error.filename)
    if isinstance(error, PointFileError) or type(error).__module__ == "builtins":
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")


@lru_cache(maxsize=1)
def prepare_process() -> None:
    """Once in each worker: freed arrays are used again, and not kept by every thread for itself."""
    limit_malloc_arenas(LARGE, KEPT)


TOKEN_FILE = "cluster"
"""In the scratch folder, by which a worker shows that it sees it."""


def describe_worker(folder: str) -> tuple[str, str]:
    """Version, and the token in the folder, as a worker sees them."""
    try:
        with open(os.path.join(folder, TOKEN_FILE)) as file:
            return __version__, file.read()
    except OSError:
        return __version__, ""
