"""Whether the backlog of submaps that wait to be compared is a problem."""

from __future__ import annotations

from collections import deque

MIN_BACKLOG = 5
"""Submaps that may wait without a word."""
WINDOW = 20.0
"""Seconds in which the backlog must shrink."""


class Backlog:
    """Judges how the number of waiting submaps develops."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def problem(self, waiting: int, now: float) -> str:
        """What to say about it, empty where nothing. now: seconds of a clock that never goes back."""
        while len(self._seen) > 1 and now - self._seen[1][0] >= WINDOW:
            self._seen.popleft()
        self._seen.append((now, waiting))
        then, before = self._seen[0]
        if waiting < MIN_BACKLOG or now - then < WINDOW or waiting < before:
            return ""
        return (
            f"{waiting} submaps wait to be compared, {before} did {now - then:.0f} s ago: the loop closures get too "
            "little of the processor. Make submaps longer (submap.max_distance), or lower closure.matches"
        )
