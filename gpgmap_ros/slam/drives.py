"""The drives of a run: each has odometry in a frame of its own; closures may bring several into one frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpgmap_ros.geometry import Array, inverse
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.sensing.continuity import Break
from gpgmap_ros.slam.trajectory import Trajectory


@dataclass(eq=False)
class Drive:
    """One stretch of poses in one odometry frame.

    number: from 1; key: what `SensorPose.drive` is in it; reason: why it is not part of the one before
    id: `Submap.session` of its submaps; clouds: how many were mapped
    stamps, poses: of the robot at each cloud, nanoseconds and (4, 4), where they are kept
    local_map: the map around the robot when it ended, where there are no submaps and it is not the last one
    """

    number: int
    key: int
    reason: str = ""
    keep_poses: bool = True
    id: int = 0
    clouds: int = 0
    stamps: list[int] = field(default_factory=list, repr=False)
    poses: list[Array] = field(default_factory=list, repr=False)
    local_map: GPGMap | None = field(default=None, repr=False)

    def add(self, id: int, stamp: int, T_map_robot: Array) -> None:
        """A cloud was mapped. id: see above; the first cloud decides it."""
        self.id = id
        self.clouds += 1
        if self.keep_poses:
            self.stamps.append(stamp)
            self.poses.append(T_map_robot)

    @property
    def odometry(self) -> Trajectory:
        """In order of time, whatever the order in which clouds came."""
        stamps = np.array(self.stamps, dtype=np.int64)
        return join_trajectories([Trajectory(stamps, np.array(self.poses).reshape(-1, 4, 4))])

    @property
    def seconds(self) -> float:
        return (max(self.stamps) - min(self.stamps)) / 1e9 if self.stamps else 0.0


class DriveLog:
    """The drives of a run, in order; without poses where a run may last for days."""

    def __init__(self, keep_poses: bool = True) -> None:
        self.keep_poses = keep_poses
        self.all: list[Drive] = []
        self._known: list[Break] = []  # breaks between drives that have begun

    @property
    def current(self) -> Drive | None:
        return self.all[-1] if self.all else None

    def begin(self, key: int, breaks: Iterable[Break]) -> Drive:
        """The drive whose poses have this `SensorPose.drive`. breaks: all of the pose source so far."""
        fresh = [item for item in breaks if item not in self._known]
        self._known.extend(fresh)
        if self.all and not self.all[-1].clouds:  # none of its clouds could be used
            self.all.pop()
        reason = fresh[0].reason if fresh and self.all else ""
        self.all.append(Drive(len(self.all) + 1, key, reason, self.keep_poses))
        return self.all[-1]


@dataclass(frozen=True)
class Part:
    """Drives in one frame. submaps: the numbers of theirs"""

    drives: tuple[Drive, ...]
    submaps: frozenset[int]

    @property
    def number(self) -> int:
        """Of its first drive: what it is called by."""
        return self.drives[0].number

    @property
    def clouds(self) -> int:
        return sum(drive.clouds for drive in self.drives)


def group_drives(
    drives: Iterable[Drive], submaps: Iterable[Any], one_frame: Callable[[int, int], bool] | None
) -> list[Part]:
    """The part with the most clouds first, the others in the order of their drives.

    submaps: with `id` and `session`; one_frame: whether two of them, by number, are in one frame; None: no drives are
    """
    numbers: dict[int, list[int]] = {}
    for submap in submaps:
        numbers.setdefault(submap.session, []).append(submap.id)
    groups: list[list[Drive]] = []
    for drive in (item for item in drives if item.clouds):
        own = numbers.get(drive.id, [])
        for group in groups:
            others = numbers.get(group[0].id, [])
            if one_frame is not None and own and others and one_frame(own[0], others[0]):
                group.append(drive)
                break
        else:
            groups.append([drive])
    parts = [
        Part(tuple(group), frozenset(id for drive in group for id in numbers.get(drive.id, [])))
        for group in groups
    ]
    return sorted(parts, key=lambda part: part is not max(parts, key=lambda item: item.clouds))


def join_trajectories(pieces: Iterable[Trajectory]) -> Trajectory:
    """One trajectory in order of time, whatever the order of the pieces and within them."""
    pieces = [Trajectory(np.empty(0, dtype=np.int64), np.empty((0, 4, 4))), *pieces]
    stamps = np.concatenate([piece.stamps for piece in pieces])
    order = np.argsort(stamps, kind="stable")
    return Trajectory(stamps[order], np.concatenate([piece.poses for piece in pieces])[order])


def align_start(odometry: Trajectory, corrected: Trajectory) -> Trajectory:
    """The odometry of a drive moved to where its corrected trajectory begins: what is left between is correction."""
    if not len(odometry):
        return odometry
    shift = corrected.poses[0] @ inverse(odometry.poses[0])
    return Trajectory(odometry.stamps, shift @ odometry.poses)
