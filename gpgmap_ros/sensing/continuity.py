"""Whether successive poses can be of one drive: gaps of time and jumps of the pose end it.

    poses = Continuity(config.drive)
    for stamp, T in recorded:
        for usable in poses.take(stamp, T):     # none while it is open whether a pose begins a drive or is an outlier
            buffer.insert(*usable)
    poses.drive_at(stamp)                       # 0, 1, ...; poses of two drives are not in one frame

A pose that no motion connects with the one before is held until the next one comes. If that continues it, a drive
begins; if that continues the poses before, the held one is an outlier and left out.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpgmap_ros.config import DriveConfig
from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS, TransformUnavailable

DISORDER = 5.0
"""Seconds by which a pose may be older than the one before it: messages overtake one another."""
BETWEEN_DRIVES = "between_drives"
"""Reason of a `TransformUnavailable` for a time between two drives."""


@dataclass(frozen=True)
class Break:
    """The end of one drive and the beginning of another.

    before, after: stamps of the last and the first pose, nanoseconds; reason: how they differ; back: the clock was set
    back in between, so that stamps before and after can't be compared
    """

    before: int
    after: int
    reason: str
    back: bool


@dataclass(frozen=True)
class StampedPose:
    """T: (4, 4); extra: what belongs to it, handed back as it is."""

    stamp: int
    T: Array
    extra: Any = None


class Continuity:
    """Sorts the poses of one source into drives. `breaks`: between them; `outliers`: poses that were left out."""

    def __init__(self, limits: DriveConfig) -> None:
        self._limits = limits
        self._last: StampedPose | None = None
        self._held: StampedPose | None = None
        self._first_on_clock = 0  # breaks[this:] are of the clock that is running now
        self.breaks: list[Break] = []
        self.outliers = 0

    def take(self, stamp: int, T: Array, extra: Any = None) -> list[StampedPose]:
        """The next pose in; out those that can be used now, oldest first. A restarted clock shows in `breaks`."""
        pose = StampedPose(stamp, T, extra)
        if self._last is None or not self._differ(self._last, pose):
            self.outliers += self._held is not None
            self._held = None
            if self._last is None or stamp > self._last.stamp:
                self._last = pose
            return [pose]
        held, self._held = self._held, pose
        if held is None:
            return []
        if self._differ(held, pose):
            self.outliers += 1
            return []
        back = held.stamp < self._last.stamp
        self.breaks.append(Break(self._last.stamp, held.stamp, self._differ(self._last, held), back))
        if back:
            self._first_on_clock = len(self.breaks)
        self._last, self._held = max(held, pose, key=lambda item: item.stamp), None
        return [held, pose]

    def drive_at(self, stamp: int) -> int:
        """Number of the drive. TransformUnavailable between two, where no interpolation would be right."""
        held, last = self._held, self._last
        if held is not None and last is not None and held.stamp <= min(stamp, last.stamp):
            raise TransformUnavailable("too_late", "the next pose will tell whether the clock was set back")
        current = self.breaks[self._first_on_clock :]
        begun = bisect_right([item.after for item in current], stamp)
        if begun < len(current) and stamp > current[begun].before:
            raise TransformUnavailable(BETWEEN_DRIVES, f"it lies between two drives: {current[begun].reason}")
        return self._first_on_clock + begun

    def _differ(self, a: StampedPose, b: StampedPose) -> str:
        """How two poses differ where no motion leads from one to the other; else empty."""
        limits, seconds = self._limits, (b.stamp - a.stamp) / NANOSECONDS
        if seconds < -DISORDER:
            return f"the stamps of the poses go back by {duration(-seconds)}"
        if seconds > limits.max_gap:
            return f"there is no pose for {duration(seconds)} (drive.max_gap {limits.max_gap:g} s)"
        distance = float(np.linalg.norm(b.T[:3, 3] - a.T[:3, 3]))
        max_distance = limits.max_jump + limits.max_speed * abs(seconds)
        if distance > max_distance:
            return (
                f"the pose jumps by {distance:.1f} m in {duration(abs(seconds))}"
                f" (drive.max_jump {limits.max_jump:g} m, drive.max_speed {limits.max_speed:g} m/s)"
            )
        cosine = 0.5 * (float(np.sum(a.T[:3, :3] * b.T[:3, :3])) - 1.0)
        angle = float(np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))))
        if angle > limits.max_turn + limits.max_turn_rate * abs(seconds):
            return (
                f"the pose turns by {angle:.0f} deg in {duration(abs(seconds))}"
                f" (drive.max_turn {limits.max_turn:g} deg, drive.max_turn_rate {limits.max_turn_rate:g} deg/s)"
            )
        return ""


def duration(seconds: float) -> str:
    """A length of time in the unit in which people would say it."""
    for unit, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2.0 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.3g} s"


__all__ = ["BETWEEN_DRIVES", "Break", "Continuity", "StampedPose", "duration"]
