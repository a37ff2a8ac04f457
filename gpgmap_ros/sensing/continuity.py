"""Whether successive poses can be of one drive: gaps of time and jumps of the pose end it.

    poses = Continuity(config.drive)
    for stamp, T in recorded:
        for usable in poses.take(stamp, T):     # none while it is open whether a pose begins a drive or is an outlier
            buffer.insert(*usable)
    poses.drive_at(stamp)                       # 0, 1, ...; poses of two drives are not in one frame

Where poses are missing within a drive while the robot moved, nothing is interpolated.

A pose that no motion connects with the one before is held until the next one comes. If that continues it, a drive
begins; if that continues the poses before, the held one is an outlier and left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from gpgmap_ros.config import DriveConfig
from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS, TransformUnavailable

DISORDER = 5.0
"""Seconds by which a pose may be older than the one before it: messages overtake one another."""
BETWEEN_DRIVES = "between_drives"
"""Reason of a `TransformUnavailable` for a time between two drives."""
POSE_GAP = "pose_gap"
"""Reason of a `TransformUnavailable` for a time at which poses are missing, while the robot moved."""
MIN_GAP, GAP_PERIODS = 2.0, 5.0
"""Poses are missing where two are farther apart than both: seconds, and usual distances of this source."""
GAP_MOTION, GAP_TURN = 0.1, 1.0
"""Metres and degrees between the poses around a gap up to which they are interpolated: half of it is the error then."""
RECENT_PERIODS = 25
"""Distances in time from pose to pose that make the usual one."""


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
class PoseGap:
    """Missing poses within a drive. before, after: stamps of the poses around, nanoseconds; reason: how they differ"""

    before: int
    after: int
    reason: str


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
        self._periods: deque[float] = deque(maxlen=RECENT_PERIODS)
        self._gaps: list[PoseGap] = []  # of the clock that is running now
        self.breaks: list[Break] = []
        self.outliers = 0

    def take(self, stamp: int, T: Array, extra: Any = None) -> list[StampedPose]:
        """The next pose in; out those that can be used now, oldest first. A restarted clock shows in `breaks`."""
        pose = StampedPose(stamp, T, extra)
        if self._last is None or not self._differ(self._last, pose):
            self.outliers += self._held is not None
            self._held = None
            if self._last is None or stamp > self._last.stamp:
                self._note_gap(self._last, pose)
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
            self._gaps = []
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
        after = bisect_right([item.after for item in self._gaps], stamp)
        if after < len(self._gaps) and stamp > self._gaps[after].before:
            raise TransformUnavailable(POSE_GAP, self._gaps[after].reason)
        return self._first_on_clock + begun

    def _note_gap(self, a: StampedPose | None, b: StampedPose) -> None:
        """Remember the time between two successive poses of a drive, and whether poses are missing there."""
        if a is None:
            return
        seconds = (b.stamp - a.stamp) / NANOSECONDS
        known = len(self._periods) >= GAP_PERIODS
        if known and seconds > max(MIN_GAP, GAP_PERIODS * median(self._periods)):
            distance, angle = moved(a.T, b.T)
            if distance > GAP_MOTION or angle > GAP_TURN:
                text = f"there is no pose for {duration(seconds)}, while the robot moved by {distance:.1f} m"
                self._gaps.append(PoseGap(a.stamp, b.stamp, f"{text} and turned by {angle:.0f} deg"))
            return
        self._periods.append(seconds)

    def _differ(self, a: StampedPose, b: StampedPose) -> str:
        """How two poses differ where no motion leads from one to the other; else empty."""
        limits, seconds = self._limits, (b.stamp - a.stamp) / NANOSECONDS
        if seconds < -DISORDER:
            return f"the stamps of the poses go back by {duration(-seconds)}"
        if seconds > limits.max_gap:
            return f"there is no pose for {duration(seconds)} (drive.max_gap {limits.max_gap:g} s)"
        distance, angle = moved(a.T, b.T)
        max_distance = limits.max_jump + limits.max_speed * abs(seconds)
        if distance > max_distance:
            return (
                f"the pose jumps by {distance:.1f} m in {duration(abs(seconds))}"
                f" (drive.max_jump {limits.max_jump:g} m, drive.max_speed {limits.max_speed:g} m/s)"
            )
        if angle > limits.max_turn + limits.max_turn_rate * abs(seconds):
            return (
                f"the pose turns by {angle:.0f} deg in {duration(abs(seconds))}"
                f" (drive.max_turn {limits.max_turn:g} deg, drive.max_turn_rate {limits.max_turn_rate:g} deg/s)"
            )
        return ""


def moved(A: Array, B: Array) -> tuple[float, float]:
    """Metres and degrees from one pose (4, 4) to another."""
    cosine = 0.5 * (float(np.sum(A[:3, :3] * B[:3, :3])) - 1.0)
    return float(np.linalg.norm(B[:3, 3] - A[:3, 3])), float(
        np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))
    )


def duration(seconds: float) -> str:
    """A length of time in the unit in which people would say it."""
    for unit, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2.0 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.3g} s"


__all__ = ["BETWEEN_DRIVES", "POSE_GAP", "Break", "Continuity", "PoseGap", "StampedPose", "duration"]
