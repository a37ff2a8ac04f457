"""Work beside the mapping, done in order: at once, or in a thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.slam.closure_messages import Answer, Request

Work = Callable[[], None]
Failed = Callable[[Exception], None]
Receive = Callable[[Answer], None]


class Executor(Protocol):
    """Does pieces of work in the order in which they are submitted."""

    def submit(self, work: Work) -> None:
        """Have it done. Never waits for earlier pieces."""

    @property
    def has_room(self) -> bool:
        """Whether few enough pieces wait."""

    @property
    def unfinished(self) -> int:
        """Pieces that wait or are being done."""

    def wait_for_room(self) -> None:
        """Wait until few enough pieces wait: memory stays bounded where this follows `submit`."""

    def wait(self) -> None:
        """Wait until all pieces are done."""

    def close(self) -> None:
        """Do what waits, then end."""


class InlineExecutor:
    """Does each piece at once, in the thread that submits it. failed: called with an exception of a piece of work."""

    has_room, unfinished = True, 0

    def __init__(self, failed: Failed) -> None:
        self._failed = failed

    def submit(self, work: Work) -> None:
        try:
            work()
        except Exception as error:
            self._failed(error)

    def wait_for_room(self) -> None:
        """Nothing waits."""

    def wait(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing waits."""


class ThreadExecutor:
    """Does the work in one thread: its order is kept, and its result does not depend on timing.

    name: of the thread; max_waiting: pieces that may wait beside the one that is being done
    failed: called with an exception of a piece of work; the next piece is done all the same
    """

    def __init__(self, name: str, max_waiting: int, failed: Failed) -> None:
        self._max_waiting, self._failed = max_waiting, failed
        self._waiting: deque[Work] = deque()
        self._changed = threading.Condition()
        self._closing = self._busy = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> None:
        with self._changed:
            if not self._closing:
                self._waiting.append(work)
                self._changed.notify_all()

    @property
    def has_room(self) -> bool:
        return len(self._waiting) <= self._max_waiting

    @property
    def unfinished(self) -> int:
        with self._changed:
            return len(self._waiting) + self._busy

    def wait_for_room(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.has_room)

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self.unfinished)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting) or self._closing)
                if not self._waiting:
                    return
                work = self._waiting.popleft()
                self._busy = True
                self._changed.notify_all()
            try:
                work()
            except Exception as error:
                self._failed(error)
            with self._changed:
                self._busy = False
                self._changed.notify_all()


class ClosureExecutor(Protocol):
    """Runs the loop closures somewhere, and hands their answers to `receive`."""

    def start(self) -> None:
        """Begin with what earlier runs left, before there is a request."""

    def add(self, submap: Submap, stored: bool, own: bool = True) -> None:
        """Have a finished submap compared with the earlier ones. stored: it is in the store; own: of this robot"""

    def ask(self, request: Request) -> None:
        """Have a request answered."""

    def wait(self) -> None:
        """Wait until all requests are answered."""

    def close(self) -> None:
        """End: in a process now, else once all requests are answered."""
