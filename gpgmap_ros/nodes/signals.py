"""SIGINT and SIGTERM of the node's process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class SignalGuard:
    """Records a request to end. rclpy's own handlers would take the context away while the worker still publishes.

    asked: a signal has come. What runs may end first, but for what is `interruptible`.
    """

    def __init__(self) -> None:
        self.asked, self._patient = False, True
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True
        if not self._patient:
            raise KeyboardInterrupt

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Inside, a signal raises KeyboardInterrupt, one that came before as well.

        Not for what makes parts of a node: half of one cannot be destroyed, and its shared memory would stay.
        """
        try:
            self._patient = False
            if self.asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._patient = True
