"""Sends maps in a thread of its own, the newest only: a subscriber or network that is slow never delays the mapping."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class MapSender(Generic[Item]):
    """Hands the newest item to `send`; one that comes while another is being sent replaces the one that waits.

    send: takes an item; may take its time
    failed: told of an exception in it; the next item is sent nevertheless
    replaced: how many items were never sent, because a newer one came first
    """

    def __init__(self, send: Callable[[Item], None], failed: Callable[[Exception], None]) -> None:
        self._send, self._failed = send, failed
        self._wake = threading.Condition()
        self._waiting: Item | None = None
        self._closing = self._sending = False
        self.replaced = 0
        self._thread = threading.Thread(target=self._run, name="send maps", daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Send this as soon as what is being sent now is out; returns at once."""
        with self._wake:
            self.replaced += self._waiting is not None and self._waiting is not item
            self._waiting = item
            self._wake.notify_all()

    def forget(self) -> None:
        """Leave out what waits, and wait until nothing is being sent."""
        with self._wake:
            self._waiting = None
            self._wake.wait_for(lambda: not self._sending)

    def close(self) -> None:
        """End the thread after what it is sending; what waits is left out."""
        with self._wake:
            self._closing = True
            self._waiting = None
            self._wake.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._sending = False
                self._wake.notify_all()
                self._wake.wait_for(lambda: self._closing or self._waiting is not None)
                if self._closing:
                    return
                item, self._waiting = self._waiting, None
                self._sending = True
            try:
                self._send(item)  # type: ignore[arg-type]
            except Exception as error:
                self._failed(error)
