"""Submaps that have ended are solved, stored and sent beside the mapping: a cloud need not wait for that."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from gpgmap_ros.pipeline import EndedSubmap

MOST_WAITING = 2  # each holds some tens of megabytes; beyond it the next cloud waits after all


class Finisher:
    """A thread that completes submaps in the order in which they ended.

    complete: does it; failed: told of an exception in that
    """

    def __init__(self, complete: Callable[[EndedSubmap], None], failed: Callable[[Exception], None]) -> None:
        self._complete, self._failed = complete, failed
        self._waiting: queue.Queue[EndedSubmap | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="submaps", daemon=True)
        self._thread.start()

    def put(self, ended: EndedSubmap) -> None:
        """Waits where too many wait already: submaps stay in order, and memory bounded."""
        self._waiting.put(ended)

    def close(self) -> None:
        """Complete what waits, then end."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (ended := self._waiting.get()) is not None:
            try:
                self._complete(ended)
            except Exception as error:  # the next one may do better
                self._failed(error)
