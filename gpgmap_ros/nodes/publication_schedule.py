"""When a map goes out: as soon as its data are in, and no oftener than asked for.

A map is most worth right after a cloud was fused. One that may not go out yet, because the last one is too recent,
waits for the next cloud if that is expected soon: a timer would send a map that is nearly one cloud old.
"""

from __future__ import annotations

from math import isinf
from typing import Final

JITTER: Final = 0.25
"""Share of the period by which a map may come earlier than a period after the last one: clouds come irregularly. On
average there is never more than one per period."""
SOON: Final = 0.1
"""Share of the time between clouds that a map may be older than its data rather than be left out."""
OVERDUE: Final = 1.5
"""Times between clouds after which none is expected any more."""


class PublicationSchedule:
    """Decides on times (monotonic seconds) that are passed in.

    period: seconds from one map to the next, on average at least
    """

    def __init__(self, period: float) -> None:
        self.period = period
        self._due = self._fused = float("-inf")
        self._interval = self._before = 0.0
        # between clouds: the shorter of the last two times, and the last
        self._apart = self._latest = float("inf")

    def note_cloud(self, now: float) -> None:
        """A cloud has changed the map."""
        self._apart, self._latest = min(now - self._fused, self._latest), now - self._fused
        latest = min(now - self._fused, self.period)
        # the longer of two: after one that came late the next comes early
        self._interval, self._before, self._fused = max(latest, self._before), latest, now

    def note_map(self, now: float) -> None:
        """A map goes out."""
        self._due = max(self._due + self.period, now + (1.0 - JITTER) * self.period)

    def next_map(self, at_least: float = 0.0, wait_for_cloud: bool = True) -> float:
        """When a map goes out if no other cloud comes first.

        at_least: seconds between two maps, where that is more than the period
        wait_for_cloud: rather send the map with the next cloud, if one is expected soon
        """
        due = self._due + max(at_least - self.period, 0.0)
        if not wait_for_cloud or due <= self._fused + SOON * self._interval:
            return due
        return max(due, self._fused + OVERDUE * self._interval)

    def has_time(self, now: float, seconds: float) -> bool:
        """Whether so many seconds are left until another cloud is expected, or none is expected any more."""
        return now + seconds <= self._fused + self._apart or now >= self.cloud_overdue

    @property
    def cloud_overdue(self) -> float:
        """When no other cloud is expected any more; in the past while there were fewer than two."""
        return self._fused if isinf(self._apart) else self._fused + OVERDUE * self._apart
