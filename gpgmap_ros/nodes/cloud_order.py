"""Which clouds belong to the present: one stray stamp must not erase the map, a recording played again must.

A cloud far behind or far ahead of the newest one is a stray. Strays are not mapped. Several in a row, on one timeline
of their own and with poses, are believed: then time itself has jumped. Where strays and others take turns, there are
two clocks.
"""

from __future__ import annotations

import threading
from collections import deque

from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

BEHIND = 2 * NANOSECONDS
"""Clouds of several sensors may overtake each other by this much."""
AHEAD = 10 * NANOSECONDS
"""A gap in the data may be this much longer than the time that has passed meanwhile."""
TO_BELIEVE = 5
"""Clouds in a row after which a jump of time is believed."""
TURNS, TURNS_WITHIN = 3, 10.0
"""Times that strays and others took turns within so many seconds: two clocks."""


class CloudOrder:
    """Stamps in nanoseconds; `arrived` is monotonic seconds. One thread uses it, any may ask for its problem."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: deque[float] = deque(maxlen=TURNS)
        self._last_stray = ""
        self.restart()

    def restart(self) -> None:
        """The next cloud, whatever its stamp, begins a new timeline."""
        self._newest, self._arrived = 0, 0.0
        self._streak: list[int] = []
        self._strays = 0

    @property
    def straying(self) -> int:
        """Distinct strays in a row that may be the beginning of a new timeline."""
        return len(self._streak)

    def offset(self, stamp: int, arrived: float) -> float:
        """Seconds that a cloud is behind (negative) or ahead of the present; 0 where it belongs to it."""
        if not self._newest:
            return 0.0
        passed = max(arrived - self._arrived, 0.0) * NANOSECONDS
        ahead = stamp - self._newest
        return ahead / NANOSECONDS if ahead < -BEHIND or ahead > AHEAD + passed else 0.0

    def follow(self, stamp: int, arrived: float) -> None:
        """A cloud of the present timeline that has a pose: it ends a row of strays."""
        with self._lock:
            if self._strays:
                self._turns.append(arrived)
        self._streak, self._strays = [], 0
        if stamp > self._newest:
            self._newest, self._arrived = stamp, arrived

    def stray(self, stamp: int, offset: float, source: str, usable: bool) -> bool:
        """A cloud that is off by `offset` seconds; whether enough of them have come to believe that time has jumped.

        source: where it came from, for people; usable: whether there is, or may be, a pose for it
        """
        side = "behind" if offset < 0.0 else "ahead of"
        with self._lock:
            self._last_stray = f"{source} is {abs(offset):.1f} s {side} the other clouds"
        self._strays += 1
        if not usable:
            return False
        if self._streak and not -BEHIND <= stamp - max(self._streak) <= AHEAD:
            self._streak = []
        if stamp not in self._streak:
            self._streak.append(stamp)
        return len(self._streak) >= TO_BELIEVE

    def forget_strays(self) -> None:
        """What was a row of strays is none: their poses do not come from the same clock."""
        self._streak = []

    def problem(self, now: float) -> str | None:
        """Two clocks, if there seem to be two; `now` in monotonic seconds."""
        with self._lock:
            if len(self._turns) < TURNS or now - self._turns[0] > TURNS_WITHIN:
                return None
            return (
                f"two clocks: {self._last_stray}, and they take turns. Synchronise the clocks of the sensors,"
                " or stop one of two publishers"
            )
