"""A thread that waits for something to do."""

from __future__ import annotations

import threading
from collections.abc import Callable

Task = Callable[[], None]


class TaskThread:
    """Does one task after another until it is closed.

    changed: to be held by whoever changes what `take` looks at, and notified
    take: the next task, None where there is none; called with `changed` held. A task must not raise
    """

    def __init__(self, name: str, take: Callable[[], Task | None]) -> None:
        self.changed = threading.Condition()
        self.closing = False
        self._take = take
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Take no more, and wait for the task that is being done."""
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self.changed:
                task: Task | None = None
                while not self.closing and (task := self._take()) is None:
                    self.changed.wait()
            if task is None:
                return
            task()
