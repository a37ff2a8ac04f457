"""The thread that does the work: clouds wait in a short queue, are fused one by one, and the map goes out when due.

Callbacks of the executor only put clouds in; they never wait for the solver.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gpgmap_ros.nodes.publication_schedule import PublicationSchedule

Ready = TypeVar("Ready")


PATIENCE = 3.0  # while clouds wait, publishing takes a third of the time at most


@dataclass(frozen=True)
class WaitingCloud:
    """A cloud as it came, and when (monotonic seconds)."""

    message: Any
    topic: str
    arrived: float


class Worker(Generic[Ready]):
    """Runs `prepare` and `fuse` for each cloud, and `publish` as PublicationSchedule says while there is news.

    prepare: makes a WaitingCloud ready, waiting for its pose if need be; None if it can't be used. Nobody is kept
        waiting meanwhile: the executor must be free to receive that pose.
    fuse: takes what `prepare` made; True if it changed the map.
    publish: sends the map out.
    shed: told of a cloud that was dropped because the queue was full: the oldest goes first.
    failed: told of an exception in one of them; the work goes on with the next cloud.
    """

    def __init__(
        self,
        prepare: Callable[[WaitingCloud], Ready | None],
        fuse: Callable[[Ready], bool],
        publish: Callable[[], None],
        shed: Callable[[WaitingCloud], None],
        failed: Callable[[Exception], None],
        queue_size: int,
        period: float,
    ) -> None:
        self._prepare, self._fuse, self._publish = prepare, fuse, publish
        self._shed, self._failed = shed, failed
        self.queue_size, self._schedule = queue_size, PublicationSchedule(period)
        self._queue: deque[WaitingCloud] = deque()
        self._wake = threading.Condition()
        self._busy = threading.RLock()
        self._changed = self._asked = self._closing = False
        self._cost = 0.0  # seconds that the last publication took
        self._thread: threading.Thread | None = None

    @property
    def period(self) -> float:
        """Seconds from one publication to the next, on average at least."""
        return self._schedule.period

    @period.setter
    def period(self, seconds: float) -> None:
        self._schedule.period = seconds

    def start(self) -> None:
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="mapping", daemon=True)
        self._thread.start()

    def stop(self, interrupt: Callable[[], None] = lambda: None) -> None:
        """End the thread after the step that it is in; what waits is forgotten.

        interrupt: ends the waiting in `prepare`; called until the thread has ended
        """
        with self._wake:
            self._closing = True
            self._queue.clear()
            self._wake.notify_all()
        if self._thread is not None:
            while self._thread.is_alive():
                interrupt()
                self._thread.join(0.05)
            self._thread = None

    def put(self, cloud: WaitingCloud) -> None:
        with self._wake:
            self._queue.append(cloud)
            dropped = [self._queue.popleft() for _ in range(len(self._queue) - self.queue_size)]
            self._wake.notify_all()
        for old in dropped:
            self._shed(old)

    def forget_waiting(self) -> int:
        """Forget the clouds that wait, because they are of another time; returns how many."""
        with self._wake:
            count = len(self._queue)
            self._queue.clear()
        return count

    def ask_for_publication(self) -> None:
        """Publish even though the map did not change: somebody new listens."""
        with self._wake:
            self._changed = self._asked = True
            self._wake.notify_all()

    def between_steps(self) -> threading.RLock:
        """A lock that is free between two steps: whoever holds it may change what the steps work on."""
        return self._busy

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._closing and not self._queue and not self._due():
                    self._wake.wait(self._time_to_publication())
                if self._closing:
                    return
                cloud = self._queue.popleft() if self._queue else None
            try:
                ready = self._prepare(cloud) if cloud is not None else None
                with self._busy:
                    self._step(ready)
            except Exception as error:  # a robot is better off with the next cloud than without a map
                self._failed(error)

    def _step(self, ready: Ready | None) -> None:
        if ready is not None and self._fuse(ready):
            self._changed = True
            self._schedule.note_cloud(time.monotonic())
        if self._due() and not self._closing:
            self._changed = self._asked = False
            start = time.monotonic()
            self._schedule.note_map(start)
            self._publish()
            self._cost = time.monotonic() - start

    def _due(self) -> bool:
        return self._changed and time.monotonic() >= self._next_publication()

    def _next_publication(self) -> float:
        """Later while clouds wait, so that they are fused rather than lost."""
        at_least = PATIENCE * self._cost if self._queue else 0.0
        return self._schedule.next_map(at_least, wait_for_cloud=not self._asked)

    def _time_to_publication(self) -> float | None:
        return max(self._next_publication() - time.monotonic(), 0.0) if self._changed else None
