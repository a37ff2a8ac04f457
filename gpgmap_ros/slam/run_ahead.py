"""Work done in a thread before its results are asked for, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_ahead(
    work: Callable[[Item], Result], items: Iterable[Item], room: int, name: str
) -> Generator[Result, None, None]:
    """work(item) of every item, in order, in a thread that is up to `room` items ahead of the caller.

    Items are taken in the caller's thread: a reader of sqlite3 belongs to the thread that opened it. An exception of
    `work` is raised in place of its result; what waits then is not done. name: of the thread
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix=name) as thread:
        try:
            for item in items:
                waiting.append(thread.submit(work, item))
                if len(waiting) > room:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
