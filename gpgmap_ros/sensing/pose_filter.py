"""Which poses are used, and to which drive they belong.

Live, a wrong clock is the danger: `StampFilter` holds back poses whose stamps do not fit. In a recording, several
drives may follow one another: `DriveFilter` splits them where no motion of the robot leads from one pose to the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpgmap_ros.config import DriveConfig
from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing.continuity import Break, Continuity
from gpgmap_ros.sensing.messages import FrameTransform
from gpgmap_ros.sensing.stamp_quarantine import StampQuarantine
from gpgmap_ros.sensing.transform_buffer import TransformTree

PROBLEM_PERIOD = 30.0
"""Seconds for which a pose that was held back, or a transform that was refused, counts as a present problem."""


@dataclass(frozen=True, eq=False)
class AdmittedPose:
    """T: (4, 4) at a stamp in nanoseconds; extra: what was given with it."""

    stamp: int
    T: Array
    extra: Any = None


@dataclass(frozen=True)
class Admission:
    """Poses that may be used now, oldest first.

    restarted: they are earlier than all before, which are to be forgotten; everything: those of other frames as well
    """

    poses: list[AdmittedPose]
    restarted: bool = False
    everything: bool = False


class HeldPoses:
    """Counts poses of one input that were held back because of their stamps; `problems` names the latest."""

    def __init__(self) -> None:
        self.count, self._topic, self._text, self._last = 0, "", "", float("-inf")

    def add(self, topic: str, series: str, why: str, admitted: bool) -> None:
        """topic, series, why: where the pose came from, whose it is, how it is stamped; admitted: used after all."""
        self.count += 1
        self._topic, self._last = topic, time.monotonic()
        then = "; as several in a row agree, they are used now" if admitted else ""
        self._text = f"on '{topic}', {series} stamped {why}{then}"

    def problems(self) -> dict[str, str]:
        """Kind of problem -> what it is and what to do."""
        if time.monotonic() - self._last > PROBLEM_PERIOD:
            return {}
        text = f"poses quarantined: {self.count}, the latest {self._text}: check the clock of its publisher"
        return {f"quarantined {self._topic}": text}


class PoseFilter:
    """Admits every pose. Subclasses are more careful.

    held: poses that were held back; breaks: between drives, in order; outliers: how many poses were left out
    """

    def __init__(self) -> None:
        self.held = HeldPoses()

    def admit(self, transform: FrameTransform, extra: Any = None) -> Admission:
        """Take in T_parent_child; which poses of that series may be used now. extra: handed back with its pose."""
        return Admission([AdmittedPose(transform.stamp, transform.T, extra)])

    def drive_at(self, stamp: int) -> int:
        """Number of the drive at a stamp; TransformUnavailable between two drives."""
        return 0

    @property
    def breaks(self) -> list[Break]:
        return []

    @property
    def outliers(self) -> int:
        return 0

    def clear(self) -> None:
        """Forget what was seen, as after a jump back in time."""


class StampFilter(PoseFilter):
    """Holds back poses whose stamps fit neither their neighbours nor the clock (stamp_quarantine.py).

    clock: nanoseconds now; 0 where simulated time has not begun
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__()
        self._clock, self._quarantine = clock, StampQuarantine()

    def admit(self, transform: FrameTransform, extra: Any = None) -> Admission:
        if transform.static:
            return super().admit(transform, extra)
        series = f"'{transform.parent}' <- '{transform.child}'"
        admission = self._quarantine.admit(
            series, transform.stamp, (transform.T, extra), self._clock() or None
        )
        if admission.why:
            self.held.add(transform.topic, series, admission.why, bool(admission.poses))
        poses = [AdmittedPose(item.stamp, *item.pose) for item in admission.poses]
        return Admission(poses, admission.restarted)

    def clear(self) -> None:
        self._quarantine.clear()


class DriveFilter(PoseFilter):
    """Sorts poses into drives, by each of the moving frames between the map and the robot (continuity.py).

    tree: where the poses are kept; sensor_frame: stands for the robot where the tree has no `base_frame`
    """

    def __init__(
        self, tree: TransformTree, map_frame: str, base_frame: str, sensor_frame: str, limits: DriveConfig
    ) -> None:
        super().__init__()
        self._tree, self._limits = tree, limits
        self._map_frame, self._base_frame, self._sensor_frame = map_frame, base_frame, sensor_frame
        self._parents: dict[str, str] = {}
        self._chain: dict[str, Continuity] = {}  # of the moving frames between the map and the robot

    def admit(self, transform: FrameTransform, extra: Any = None) -> Admission:
        parent, child, stamp, static = transform.parent, transform.child, transform.stamp, transform.static
        if forgotten := self._tree.prevent_loop(parent, child, stamp, static):
            self._parents.pop(forgotten, None)
        self._connect(parent, child)
        continuity = self._chain.get(child)
        if static or continuity is None:
            return super().admit(transform, extra)
        breaks = len(continuity.breaks)
        usable = continuity.take(stamp, transform.T, extra)
        back = len(continuity.breaks) > breaks and continuity.breaks[-1].back
        return Admission([AdmittedPose(item.stamp, item.T, item.extra) for item in usable], back, back)

    def drive_at(self, stamp: int) -> int:
        # each moving frame counts its own drives: the sum changes whenever one of them begins another
        return sum(item.drive_at(stamp) for item in self._chain.values())

    @property
    def breaks(self) -> list[Break]:
        return [item for continuity in self._chain.values() for item in continuity.breaks]

    @property
    def outliers(self) -> int:
        return sum(continuity.outliers for continuity in self._chain.values())

    def _connect(self, parent: str, child: str) -> None:
        """Find the frames between the map and the robot again where a new one has come."""
        if self._parents.get(child) == parent:
            return
        self._parents[child] = parent
        chain = self._chain_to_map(self._base_frame) or self._chain_to_map(self._sensor_frame)
        self._chain = {name: self._chain.get(name) or Continuity(self._limits) for name in chain}

    def _chain_to_map(self, name: str) -> list[str]:
        """The frame and its ancestors, up to but without the map; empty where the map is not one of them."""
        chain: list[str] = []
        while name != self._map_frame:
            if name in chain or name not in self._parents:
                return []
            chain.append(name)
            name = self._parents[name]
        return chain


def insert_admitted(tree: TransformTree, transform: FrameTransform, admission: Admission) -> None:
    """Put the poses of an admission into the tree, in the place of those that are to be forgotten."""
    if admission.everything:
        tree.clear()
    elif admission.restarted:
        tree.forget_frame(transform.child)
    for pose in admission.poses:
        tree.insert(transform.parent, transform.child, pose.stamp, pose.T, transform.static)
