"""SIGINT and SIGTERM of the node's process."""

from __future__ import annotations

import signal


class SignalGuard:
    """Records a request to end. rclpy's own handlers would take the context away while the worker still publishes.

    asked: a signal has come; patient: what runs may end first; else a signal interrupts it with KeyboardInterrupt
    """

    def __init__(self) -> None:
        self.asked, self.patient = False, True
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True
        if not self.patient:
            raise KeyboardInterrupt
