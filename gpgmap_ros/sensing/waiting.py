"""Clouds that wait until their poses are known, by a clock that is passed in.

Live the clock runs by itself and a thread waits; in replay it is the time of the recording, and nobody has to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpgmap_ros.sensing.cloud import Cloud
from gpgmap_ros.sensing.continuity import BETWEEN_DRIVES, POSE_GAP, Break
from gpgmap_ros.sensing.deskewing import Motion
from gpgmap_ros.sensing.lidar_source import LOST_TRACK, NO_MOTION
from gpgmap_ros.sensing.pose_source import IMU_STARTING, TILTED, WAITING_FOR_IMU, PoseSource, SensorPose
from gpgmap_ros.sensing.scan_motion import scan_motion
from gpgmap_ros.sensing.scan_periods import ScanPeriods
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS, TransformUnavailable

HOPELESS = ("too_early", BETWEEN_DRIVES, POSE_GAP, LOST_TRACK, NO_MOTION, TILTED, IMU_STARTING)
"""Reasons of TransformUnavailable after which waiting does not help: no pose will come."""


@dataclass(frozen=True, eq=False)
class LocatedCloud:
    """A cloud whose pose is known.

    motion: of the sensor while the cloud was taken; None where it is not known, or its points have no times
    breaks: all between the drives of its source when it was located
    """

    cloud: Cloud
    pose: SensorPose
    motion: Motion | None
    breaks: Sequence[Break]


@dataclass(frozen=True, eq=False)
class DroppedCloud:
    """A cloud that is not used: its pose is not known (TransformUnavailable) or not a pose (ValueError)."""

    cloud: Cloud
    error: TransformUnavailable | ValueError
    pose: SensorPose | None = None


class PoseQueue:
    """Gives out clouds in the order in which they came, each once its pose is known or has been waited for too long.

    patience: seconds that a cloud waits; clock: nanoseconds now; max_waiting: clouds that may wait at once
    deskew: whether the motion within a scan is needed: if not, the times of the points are not looked at
    """

    def __init__(
        self,
        source: PoseSource,
        patience: float,
        clock: Callable[[], int],
        max_waiting: int = 1000,
        deskew: bool = True,
    ) -> None:
        self.source, self._clock, self._max_waiting = source, clock, max_waiting
        self.patience, self.deskew = patience, deskew
        self._waiting: deque[tuple[Cloud, int]] = deque()
        self._oldest: tuple[Cloud, SensorPose] | None = None  # located, while its motion is waited for
        self._interruptions = 0
        self._periods = ScanPeriods()

    def put(self, cloud: Cloud) -> Cloud:
        """Queue a cloud; it is returned as it will be used, without times of its points that can't be right."""
        if self.deskew:
            cloud = self._periods.check(cloud)
        elif cloud.times is not None or cloud.times_error:
            cloud = replace(cloud, times=None, times_error="")
        self._waiting.append((cloud, self._clock()))
        return cloud

    @property
    def waiting(self) -> int:
        """Clouds that wait."""
        return len(self._waiting)

    def poll(self) -> LocatedCloud | DroppedCloud | None:
        """The oldest cloud; None while its pose is waited for, or where there is none."""
        if not self._waiting:
            return None
        cloud, since = self._waiting[0]
        found: LocatedCloud | DroppedCloud
        try:
            self._oldest = self._oldest or self._locate(cloud)
            found = self._located(*self._oldest, scan_motion(self._oldest[0], self.source))
        except TransformUnavailable as error:
            patient = self._clock() - since < self.patience * NANOSECONDS
            if patient and error.reason not in HOPELESS and len(self._waiting) < self._max_waiting:
                return None
            if error.reason == WAITING_FOR_IMU:
                self.source.stop_waiting(cloud, ended=False)
                return self.poll()
            oldest = self._oldest
            found = DroppedCloud(cloud, error) if oldest is None else self._located(*oldest, None)
        self._waiting.popleft()
        self._oldest = None
        return found

    def _locate(self, cloud: Cloud) -> tuple[Cloud, SensorPose]:
        cloud, pose = self.source.locate_cloud(cloud)
        self.source.check_level(cloud, pose)
        return cloud, pose

    def _located(self, cloud: Cloud, pose: SensorPose, motion: Motion | None) -> LocatedCloud:
        return LocatedCloud(cloud, pose, motion, tuple(self.source.breaks))

    def ready(self) -> Iterator[LocatedCloud | DroppedCloud]:
        """All clouds that do not have to wait now."""
        while (found := self.poll()) is not None:
            yield found

    def end(self) -> Iterator[LocatedCloud | DroppedCloud]:
        """The clouds that are left when no more poses come, in order: behind one without a pose none is located."""
        lost = False
        while self._waiting:
            cloud, _ = self._waiting.popleft()
            located, self._oldest = self._oldest, None
            self.source.stop_waiting(cloud, ended=True)
            try:
                cloud, pose = located or self._locate(cloud)
                if not lost:
                    yield self._located(cloud, pose, self._known_motion(cloud))
                    continue
                error = TransformUnavailable("too_late", "no pose came after it")
            except TransformUnavailable as reason:
                error, lost = reason, True
            yield DroppedCloud(cloud, error)

    def _known_motion(self, cloud: Cloud) -> Motion | None:
        try:
            return scan_motion(cloud, self.source)
        except TransformUnavailable:
            return None

    def wait(self, cloud: Cloud) -> LocatedCloud:
        """One cloud as soon as its pose is known; TransformUnavailable once it has been waited for too long."""
        interruptions = self._interruptions
        self.put(cloud)
        while True:
            seen = self.source.changes.count
            found = self.poll()
            if isinstance(found, LocatedCloud):
                return found
            if found is not None:
                raise found.error
            if self._interruptions != interruptions:
                self._waiting.clear()
                self._oldest = None
                raise TransformUnavailable("interrupted", "waiting for the pose was ended")
            waited = (self._clock() - self._waiting[0][1]) / NANOSECONDS
            self.source.changes.wait(seen, max(self.patience - waited, 0.0))

    def interrupt(self) -> None:
        """End the waiting of other threads now."""
        self._interruptions += 1
        self.source.changes.notify()
