"""The threads that do the work: clouds wait in a short queue and are fused one by one; beside it the map is solved.

Callbacks of the executor only put clouds in; neither they nor the clouds wait for the solver.
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


PATIENCE = 3.0  # while more than one cloud waits, publishing takes a third of the time at most


@dataclass(frozen=True)
class WaitingCloud:
    """A cloud as it came, and when (monotonic seconds)."""

    message: Any
    topic: str
    arrived: float


class Worker(Generic[Ready]):
    """Runs `prepare` and `fuse` for each cloud, and in a second thread `publish` as PublicationSchedule says.

    prepare: makes a WaitingCloud ready, waiting for its pose if need be; None if it can't be used. Nobody is kept
        waiting meanwhile: the executor must be free to receive that pose.
    fuse: takes what `prepare` made; True if it changed the map.
    publish: solves the map while there is news, and sends it out if it is given True; else only the gate needs it.
        Whatever of it must not happen while a cloud is fused is done with `between_steps`.
    renew: improves the last map by what takes longer, after `publish` and if no cloud is expected meanwhile; True if
        the map is worth sending again
    hurry: whether the map is to be solved although none is due to go out
    shed: told of a cloud that was dropped because the queue was full: the oldest goes first.
    failed: told of an exception in one of them; the work goes on with the next cloud.
    """

    def __init__(
        self,
        prepare: Callable[[WaitingCloud], Ready | None],
        fuse: Callable[[Ready], bool],
        publish: Callable[[bool], None],
        renew: Callable[[], bool],
        hurry: Callable[[], bool],
        shed: Callable[[WaitingCloud], None],
        failed: Callable[[Exception], None],
        queue_size: int,
        period: float,
    ) -> None:
        self._prepare, self._fuse, self._publish, self._hurry = prepare, fuse, publish, hurry
        self._renew = renew
        self._shed, self._failed = shed, failed
        self.queue_size, self._schedule = queue_size, PublicationSchedule(period)
        self._queue: deque[WaitingCloud] = deque()
        self._wake = threading.Condition()
        self._busy = threading.RLock()
        self._changed = self._asked = self._closing = False
        self._fresh = False  # a cloud has been fused since the map was last solved
        self._renewable = False  # the map was solved, and not renewed since
        self._cost = self._renewal_cost = 0.0  # seconds that the last publication and the last renewal took
        self._threads: list[threading.Thread] = []

    @property
    def period(self) -> float:
        """Seconds from one publication to the next, on average at least."""
        return self._schedule.period

    @period.setter
    def period(self, seconds: float) -> None:
        self._schedule.period = seconds

    def start(self) -> None:
        self._closing = False
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("mapping", self._fuse_clouds), ("solving", self._publish_maps))
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, interrupt: Callable[[], None] = lambda: None) -> None:
        """End the threads after the steps that they are in; what waits is forgotten.

        interrupt: ends the waiting in `prepare`; called until the threads have ended
        """
        with self._wake:
            self._closing = True
            self._queue.clear()
            self._wake.notify_all()
        for thread in self._threads:
            while thread.is_alive():
                interrupt()
                thread.join(0.05)
        self._threads = []

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

    # ------------------------------------------------ in the thread of the clouds

    def _fuse_clouds(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closing or self._queue)
                if self._closing:
                    return
                cloud = self._queue.popleft()
            try:
                ready = self._prepare(cloud)
                if ready is None:
                    continue
                with self._busy:
                    changed = self._fuse(ready)
            except Exception as error:  # a robot is better off with the next cloud than without a map
                self._failed(error)
                continue
            if changed:
                with self._wake:
                    self._changed = self._fresh = True
                    self._schedule.note_cloud(time.monotonic())
                    self._wake.notify_all()

    # ------------------------------------------------ in the thread of the maps

    def _publish_maps(self) -> None:
        while True:
            with self._wake:
                while not self._closing and not self._due() and not self._hurries() and not self._renews():
                    self._wake.wait(self._time_to_next())
                if self._closing:
                    return
                due, renews, start = self._due(), not self._due() and not self._hurries(), time.monotonic()
                if not renews:
                    self._fresh = False
                if due:
                    self._changed = self._asked = False
                    self._schedule.note_map(start)
            try:
                if renews:
                    self._renew_map(start)
                else:
                    self._publish(due)
                    self._renewable, self._cost = True, time.monotonic() - start
            except Exception as error:
                self._failed(error)

    def _renew_map(self, start: float) -> None:
        self._renewable = False
        renewed = self._renew()
        self._renewal_cost = time.monotonic() - start
        if renewed:
            with self._wake:
                self._changed = True

    def _due(self) -> bool:
        return self._changed and time.monotonic() >= self._next_publication()

    def _hurries(self) -> bool:
        return self._fresh and self._hurry()

    def _renews(self) -> bool:
        """Whether the last map can be renewed before anything else is to be done."""
        idle = self._renewable and not self._fresh and not self._queue
        return idle and self._schedule.has_time(time.monotonic(), self._renewal_cost)

    def _next_publication(self) -> float:
        """Later while clouds wait, so that they are fused rather than lost."""
        at_least = PATIENCE * self._cost if len(self._queue) > 1 else 0.0
        return self._schedule.next_map(at_least, wait_for_cloud=not self._asked)

    def _time_to_next(self) -> float | None:
        """Seconds until there may be something to do without another cloud."""
        times = [self._next_publication()] if self._changed else []
        if self._renewable and not self._fresh and not self._queue:
            times.append(self._schedule.cloud_overdue)
        return max(min(times) - time.monotonic(), 0.0) if times else None
