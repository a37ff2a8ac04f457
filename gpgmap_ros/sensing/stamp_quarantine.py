"""Holds back poses whose stamps do not fit: one message with a wrong clock must not end a series of good ones.

A pose is plausible if its stamp is at most `TOLERANCE` farther ahead of the newest one of its series than time has
passed since that one arrived, and at most the buffer's horizon behind it; the first of a series, if it is not ahead of
the clock. What is not plausible waits. It is admitted together when several different stamps in a row agree with each
other, as after a gap in a recording or when a clock was set; it is dropped when a plausible pose comes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from gpgmap_ros.sensing.transform_buffer import HORIZON, NANOSECONDS

TOLERANCE = 5.0
"""Seconds that a stamp may be ahead: localisation dates its poses ahead by a second or two, half a horizon is kept."""
CONFIRMATIONS = 5
"""Poses in a row, with different stamps, that make another time credible."""


@dataclass(frozen=True)
class StampedPose:
    """A pose, in any form; its stamp and the clock at its arrival in nanoseconds, None where that has not begun."""

    stamp: int
    pose: Any
    arrival: int | None


@dataclass(frozen=True)
class Admission:
    """What may be used now.

    poses: in the order of arrival; restarted: they are of another, earlier time than all before
    why: of a pose that is held back, where its stamp lies; empty where nothing is
    """

    poses: list[StampedPose]
    restarted: bool = False
    why: str = ""


@dataclass
class _Series:
    newest: StampedPose | None = None
    held: list[StampedPose] = field(default_factory=list)


class StampQuarantine:
    """Checks the stamps of several series of poses, by name; safe to use from any thread.

    horizon: seconds of history that the buffer behind it keeps
    """

    def __init__(self, horizon: float = HORIZON) -> None:
        self._horizon, self._tolerance = round(horizon * NANOSECONDS), round(TOLERANCE * NANOSECONDS)
        self._series: dict[str, _Series] = {}
        self._lock = threading.Lock()

    def admit(self, name: str, stamp: int, pose: Any, now: int | None) -> Admission:
        """Take in a pose of the series `name`; which poses of it may be used.

        now: the clock, nanoseconds; None where it has not begun
        """
        new = StampedPose(stamp, pose, now)
        with self._lock:
            series = self._series.setdefault(name, _Series())
            why = self._objection(series.newest, new)
            if not why:
                series.held.clear()
                if series.newest is None or stamp >= series.newest.stamp:
                    series.newest = new
                return Admission([new])
            return self._hold(series, new, why)

    def clear(self) -> None:
        """Forget all series, as after a jump back in time."""
        with self._lock:
            self._series.clear()

    def _hold(self, series: _Series, new: StampedPose, why: str) -> Admission:
        held = series.held
        if held and self._objection(held[-1], new):
            held.clear()
        if held and held[-1].stamp == new.stamp:
            held.pop()
        held.append(new)
        if len({item.stamp for item in held}) < CONFIRMATIONS:
            return Admission([], why=why)
        restarted = series.newest is not None and new.stamp < series.newest.stamp
        series.newest, series.held = max(held, key=lambda item: item.stamp), []
        return Admission(held, restarted, why)

    def _objection(self, newest: StampedPose | None, new: StampedPose) -> str:
        """Where a stamp lies that does not fit; empty where it fits."""
        if newest is None:
            ahead = 0 if new.arrival is None else new.stamp - new.arrival
            return f"{ahead / NANOSECONDS:.1f} s ahead of the clock" if ahead > self._tolerance else ""
        step = new.stamp - newest.stamp
        if -step > self._horizon:
            return f"{-step / NANOSECONDS:.1f} s behind its neighbours"
        passed = 0
        if newest.arrival is not None and new.arrival is not None:
            passed = max(new.arrival - newest.arrival, 0)
        if step - passed > self._tolerance:
            return f"{step / NANOSECONDS:.1f} s ahead of its neighbours"
        return ""
