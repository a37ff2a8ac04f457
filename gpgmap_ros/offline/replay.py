"""A recording through the same pipeline as the node's, as fast as it goes: clouds in, submaps, closures, map out.

replay = Replay(recording, choice, config)
for step in replay.steps():         # one for each cloud; stop whenever you like
    print(step.stamp, step.report)
replay.end()                        # the last submap, and its closures
gpgmap = replay.stitched()          # one map, under corrected poses

A gap of time or a jump of the poses begins another drive, with an odometry frame of its own. Drives that closures join
are one part of the result; what nothing joins is a part by itself (`parts`), with a map of its own.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gp_core.grid.workers import single_threaded_blas
from gpgmap_ros.closure.session import LoopCloser, LoopClosure, known_covariances
from gpgmap_ros.config import Config, DriveConfig
from gpgmap_ros.findings import GOOD, Finding
from gpgmap_ros.geometry import Array
from gpgmap_ros.io.bags import BagError
from gpgmap_ros.io.pointcloud2 import CloudError, read_xyz
from gpgmap_ros.io.recordings import Decoder, Message, Recording
from gpgmap_ros.io.trajectory import Trajectory
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.stitching import MOST_CELLS, Stitcher, stitch
from gpgmap_ros.mapping.submap_store import SubmapInfo
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.offline.choosing import Choice
from gpgmap_ros.offline.cloud_checks import CloudChecks, drive_findings
from gpgmap_ros.offline.continuity import HOPELESS, Break
from gpgmap_ros.offline.drives import Drive, Part, parts_of, trajectory_of
from gpgmap_ros.offline.poses import OdometryPoses, Poses, SensorPose, StillPoses, TfPoses, frame, nanoseconds
from gpgmap_ros.pipeline import CloudReport, EndedSubmap, MappingPipeline
from gpgmap_ros.transform_buffer import NANOSECONDS, TransformUnavailable

PATIENCE = 5.0
"""Seconds of the recording for which a cloud waits for its pose: longer than live, because it costs nothing here."""
MOST_WAITING = 200
"""Clouds that may wait at once: beyond it the oldest is dropped, so that memory stays bounded."""

MOST_UNDER_WAY = 4
"""Submaps that may be solved and compared beside the mapping: beyond it the mapping waits, to bound the memory."""


@dataclass(frozen=True)
class Step:
    """One cloud that was mapped.

    stamp: of the cloud; time: of the recording; nanoseconds
    pose: of the sensor; points: (N, 3) in the sensor's frame
    submaps, closures: finished, and what they were compared with, since the step before: done beside the mapping
    drive: number of the drive, from 1
    """

    stamp: int
    time: int
    pose: SensorPose
    points: Array = field(repr=False)
    report: CloudReport
    submaps: list[Submap]
    closures: list[LoopClosure]
    drive: int = 1


@dataclass
class Tally:
    """What happened so far. seconds: spent in each stage; points: as in CloudReport, added up."""

    clouds: int = 0
    used: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)

    def warn(self, text: str) -> None:
        """Keep a warning, once."""
        if text not in self.warnings:
            self.warnings.append(text)


@dataclass(frozen=True)
class Waiting:
    """A cloud whose pose is not known yet."""

    message: Any
    stamp: int
    time: int


class Replay:
    """Maps one recording. `config` decides everything but where clouds and poses come from: that is `choice`.

    tally: what happened so far; closer: closures between submaps, None where those are off
    drives: those begun so far
    Finished submaps are in the folder `submaps` of `config.map_folder`, or in memory where that is not set.
    """

    def __init__(self, recording: Recording, choice: Choice, config: Config) -> None:
        self._recording, self._choice, self._config = recording, choice, config
        self._pipeline = MappingPipeline(config, self._ended)
        self._poses = poses_for(choice, config.drive)
        self._decoder = Decoder()
        self._waiting: deque[Waiting] = deque()
        self.drives: list[Drive] = []
        self._told: list[Break] = []  # breaks between drives that have begun
        self._checks = CloudChecks(config)
        self.tally = Tally()
        self._stopped = False
        # One thread each: submaps are solved and compared in their order, so that the result is the same every time.
        self._solving = ThreadPoolExecutor(1, "submaps")
        self._closing = ThreadPoolExecutor(1, "closures")
        self._under_way: deque[Future[tuple[Submap | None, list[LoopClosure]]]] = deque()
        self._in_memory: dict[int, Submap] = {}
        self.closer = LoopCloser(config.closure) if config.closure.enabled and config.submap.enabled else None

    @property
    def config(self) -> Config:
        return self._config

    def steps(self, start: int | None = None, stop: int | None = None) -> Iterator[Step]:
        """Map the clouds between two times of the recording, nanoseconds; one step for each cloud that was used."""
        # Solvers limit BLAS to one thread while they run, for the whole process: whichever ends first would lift that
        # for those beside it, and their last digits would change from run to run.
        with single_threaded_blas():
            try:
                yield from self._steps(start, stop)
            finally:
                self._timed("wait for submaps", wait, list(self._under_way))

    def _steps(self, start: int | None, stop: int | None) -> Iterator[Step]:
        self._insert_static(start)
        messages = self._recording.messages(self._choice.topics, start, stop)
        while not self._stopped and (message := self._timed("read", next, messages, None)) is not None:
            yield from self._take(message)
        if self._stopped:
            return
        yield from self._drain(None)
        for waiting in self._waiting:  # whose poses the recording does not have
            self._drop(self._why_not(waiting), waiting)
        self._waiting.clear()

    @property
    def submaps(self) -> list[Submap] | list[SubmapInfo]:
        """Those finished, oldest first."""
        store = self._pipeline.submaps
        return list(self._in_memory.values()) if store is None else store.infos()

    def map_of(self, id: int) -> GPGMap:
        """The map of a finished submap."""
        store = self._pipeline.submaps
        return self._in_memory[id].gpgmap if store is None else store.load(id).gpgmap

    @property
    def findings(self) -> list[Finding]:
        """What `gpgmap doctor` would say of the clouds and poses so far, good ones left out."""
        found = [
            *self._checks.findings(self._choice),
            *drive_findings(self._poses.breaks, self._poses.outliers),
        ]
        return [item for item in found if item.status != GOOD]

    def stop(self) -> None:
        """Let `steps` end with the cloud that is being mapped. May be called from a signal handler."""
        self._stopped = True

    @property
    def stopped(self) -> bool:
        return self._stopped

    def end(self) -> tuple[list[Submap], list[LoopClosure]]:
        """End the last submap and wait for all comparisons; what was finished since the last step."""
        self._timed("wait for submaps", wait, list(self._under_way))
        submaps, closures = self._done()
        submap = self._timed("submaps", self._pipeline.finish_submap, "end of the recording")
        if submap is not None:
            submaps.append(submap)
            closures.extend(self._close(submap))
        self._solving.shutdown()
        self._closing.shutdown()
        return submaps, closures

    @property
    def parts(self) -> list[Part]:
        """The drives, sorted by who is in one frame: the part with the most clouds first. It is what the map shows."""
        joined = None if self.closer is None else self.closer.one_frame
        return parts_of(self.drives, self.submaps, joined)

    def stitched(self, part: Part | None = None) -> GPGMap | None:
        """The map of the submaps of a part under their corrected poses, after `end`; None where nothing was mapped.

        part: one of `parts`; the first unless given
        """
        part = part or next(iter(self.parts), None)
        if part is None:
            return None
        if not part.submaps:  # there is the map around the robot, at the end of each drive
            last = part.drives[-1]
            return self._timed("stitch", self._pipeline.gpgmap) if last is self.drives[-1] else last.local_map
        poses = {item.id: item.T_map_submap for item in self.submaps if item.id in part.submaps}
        if self.closer is not None:
            poses |= {id: T for id, T in self.closer.poses.items() if id in poses}
            if self.closer.solver_error:
                self.tally.warn(f"poses were not corrected: {self.closer.solver_error}")
        covariances = None if self.closer is None else known_covariances(self.closer)
        return self._timed("stitch", self._stitch, poses, covariances)

    def _stitch(self, poses: dict[int, Array], covariances: dict[int, Array] | None) -> GPGMap:
        """One map of the submaps that have a pose, in coarser cells where it would not fit into the memory."""
        source = self._pipeline.submaps or list(self._in_memory.values())
        rows, columns = Stitcher(source, poses, self._config).grid.shape
        resolution = self._config.mapping.resolution
        if rows * columns > MOST_CELLS:
            resolution *= float(np.ceil(np.sqrt(rows * columns / MOST_CELLS)))
            self.tally.warn(
                f"the whole map is written in cells of {resolution:g} m: finer ones would need too much memory"
            )
        frame = self._config.map_frame
        return stitch(source, poses, self._config, frame, resolution, covariances=covariances)

    @property
    def odometry(self) -> Trajectory:
        """Where the robot was at each cloud of the map, as recorded; each drive in its own frame."""
        parts = self.parts
        return trajectory_of([drive.odometry for drive in parts[0].drives] if parts else [])

    @property
    def corrected(self) -> Trajectory:
        """The same in the frame of the map, with the closures."""
        parts = self.parts
        return trajectory_of([self.corrected_drive(drive) for drive in parts[0].drives] if parts else [])

    def corrected_drive(self, drive: Drive) -> Trajectory:
        """Where the robot was at each cloud of a drive, with the closures, in the frame of its part."""
        if self.closer is None:
            return drive.odometry
        poses = self.closer.correct(drive.stamps, drive.poses, drive.session)
        return trajectory_of(
            [Trajectory(np.array(drive.stamps, dtype=np.int64), np.array(poses).reshape(-1, 4, 4))]
        )

    # -- one message -------------------------------------------------------------------------------------

    def _insert_static(self, start: int | None) -> None:
        """Static frames are said once, at the beginning: they count even if the replay begins later."""
        topics = [topic for topic in self._choice.transform_topics if topic.endswith("tf_static")]
        if topics and start is not None:
            for message in self._recording.messages(topics, None, start):
                self._insert_pose(message)

    def _take(self, message: Message) -> Iterator[Step]:
        if message.topic != self._choice.topic:
            self._timed("read", self._insert_pose, message)
        else:
            self.tally.clouds += 1
            try:
                cloud = self._timed("read", self._decoder, message)
                self._waiting.append(Waiting(cloud, nanoseconds(cloud.header.stamp), message.time))
            except BagError as error:
                self.tally.dropped["damaged"] += 1
                self.tally.warn(str(error))
        yield from self._drain(message.time)

    def _insert_pose(self, message: Message) -> None:
        try:
            self._poses.insert(self._decoder(message), message.topic)
        except (BagError, ValueError) as error:
            self.tally.warn(f"{message.topic}: a pose was ignored: {error}")

    def _drain(self, now: int | None) -> Iterator[Step]:
        """Map the clouds whose poses are known, in order; drop those that have waited long enough.

        now: time of the recording; None at its end, when no more poses come
        """
        while self._waiting:
            waiting = self._waiting[0]
            try:
                pose = self._timed("read", self._pose, waiting)
            except TransformUnavailable as error:
                patient = now is not None and now - waiting.time < PATIENCE * NANOSECONDS
                if patient and error.reason not in HOPELESS and len(self._waiting) < MOST_WAITING:
                    return
                if now is None:
                    return
                self._waiting.popleft()
                self._drop(error, waiting)
                continue
            self._waiting.popleft()
            step = self._map(waiting, pose)
            if step is not None:
                yield step

    def _pose(self, waiting: Waiting) -> SensorPose:
        return self._poses.at(frame(waiting.message.header.frame_id), waiting.stamp)

    def _why_not(self, waiting: Waiting) -> TransformUnavailable:
        try:
            self._pose(waiting)
        except TransformUnavailable as error:
            return error
        return TransformUnavailable("too_late", "no pose came after it")

    def _drop(self, error: TransformUnavailable, waiting: Waiting) -> None:
        self.tally.dropped[f"no pose ({error.reason.replace('_', ' ')})"] += 1
        self._checks.add_missing(error)

    def _map(self, waiting: Waiting, pose: SensorPose) -> Step | None:
        if not self.drives or pose.drive != self.drives[-1].key:
            self._begin_drive(pose.drive)
        drive = self.drives[-1]
        try:
            points = self._timed("read", read_xyz, waiting.message)
            self._checks.add_cloud(waiting.message, points, waiting.stamp, waiting.time)
            self._checks.add_pose(waiting.stamp, pose)
            report = self._timed(
                "fuse", self._pipeline.add_cloud, points, pose.T_map_sensor, waiting.stamp, pose.covariance,
                pose.T_base_sensor,
            )  # fmt: skip
        except (CloudError, ValueError) as error:
            self.tally.dropped["bad cloud" if isinstance(error, CloudError) else "bad pose"] += 1
            self.tally.warn(f"a cloud was ignored: {error}")
            return None
        self.tally.used += 1
        for name in (
            "points",
            "used",
            "outside",
            "held",
            "not_finite",
            "range",
            "robot",
            "height",
            "thinned",
            "overhang",
        ):
            self.tally.points[name] += getattr(report, name)
        self._hold_back()
        drive.session = self._pipeline.session
        drive.stamps.append(waiting.stamp)
        drive.poses.append(pose.T_map_robot)
        return Step(waiting.stamp, waiting.time, pose, points, report, *self._done(), drive.number)

    def _begin_drive(self, key: int) -> None:
        """Poses are in another frame from now on."""
        fresh = [item for item in self._poses.breaks if item not in self._told]
        self._told.extend(fresh)
        if self.drives and not self.drives[-1].stamps:  # none of its clouds could be used
            self.drives.pop()
        elif self.drives:
            if not self._config.submap.enabled:
                self.drives[-1].local_map = self._timed("stitch", self._pipeline.gpgmap)
            self._pipeline.begin_drive("end of the drive")
        reason = fresh[0].reason if fresh and self.drives else ""
        self.drives.append(Drive(len(self.drives) + 1, key, reason))

    def _ended(self, ended: EndedSubmap) -> None:
        """A submap takes no more points: the rest is done while the mapping goes on."""
        solved = self._solving.submit(self._complete, ended)
        self._under_way.append(self._closing.submit(self._close_next, solved))

    def _hold_back(self) -> None:
        """Let the mapping wait where too many submaps do."""
        unfinished = [item for item in self._under_way if not item.done()]
        if len(unfinished) > MOST_UNDER_WAY:
            self._timed("wait for submaps", wait, unfinished[:-MOST_UNDER_WAY])

    def _complete(self, ended: EndedSubmap) -> Submap | None:
        submap, error = self._timed("submaps", self._pipeline.complete, ended)
        if error:
            self.tally.warn(error)
        return submap

    def _close_next(self, solved: Future[Submap | None]) -> tuple[Submap | None, list[LoopClosure]]:
        submap = solved.result()
        return submap, [] if submap is None else self._close(submap)

    def _close(self, submap: Submap) -> list[LoopClosure]:
        """Look for loops that a finished submap closes."""
        if self._pipeline.submaps is None:
            self._in_memory[submap.id] = submap
        return [] if self.closer is None else self._timed("close loops", self.closer.add, submap)

    def _done(self) -> tuple[list[Submap], list[LoopClosure]]:
        """Submaps that are finished, and their closures."""
        submaps: list[Submap] = []
        closures: list[LoopClosure] = []
        while self._under_way and self._under_way[0].done():
            submap, found = self._under_way.popleft().result()
            submaps.extend([submap] if submap is not None else [])
            closures.extend(found)
        return submaps, closures

    def _timed(self, stage: str, function: Any, *arguments: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            self.tally.seconds[stage] += time.perf_counter() - begin


def poses_for(choice: Choice, limits: DriveConfig | None = None) -> Poses:
    """limits: of the motion within a drive, the default unless given"""
    if choice.pose_source == "tf":
        return TfPoses(choice.map_frame, choice.base_frame, choice.sensor_frame, limits)
    if choice.pose_source == "odometry":
        return OdometryPoses(choice.base_frame, choice.mounted, limits)
    return StillPoses(choice.map_frame)
