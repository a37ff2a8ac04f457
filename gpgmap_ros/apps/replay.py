"""A recording through the SLAM loop of the node, as fast as it goes: clouds in; submaps, closures and a map out.

replay = Replay(recording, selection, config)
for step in replay.steps():         # one for each cloud; stop whenever you like
    print(step.cloud.stamp, step.report)
replay.end()                        # the last submap, and its closures
gpgmap = replay.stitch()            # one map, under corrected poses

A gap of time or a jump of the poses begins another drive, with an odometry frame of its own. Drives that closures join
are one part of the result; a drive that nothing joins is a part by itself (`parts`), with a map of its own.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from gp_core.parallel import available_threads, single_threaded_blas
from gpgmap_ros.apps.cloud_checks import CloudChecks, drive_findings
from gpgmap_ros.apps.sensor_checks import ClockChecks, gps_findings, imu_findings
from gpgmap_ros.apps.topic_selection import TopicSelection, recorded_source
from gpgmap_ros.closure import LoopCloser, LoopClosure
from gpgmap_ros.closure.loop_closer import known_covariances
from gpgmap_ros.config import Config
from gpgmap_ros.diagnostics import GOOD, NOTE, Finding
from gpgmap_ros.geometry import Array
from gpgmap_ros.io.bags import BagError
from gpgmap_ros.io.recordings import Decoder, Message, Recording
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.submap_store import SubmapInfo
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.sensing import CloudError, TransformUnavailable, decode_cloud
from gpgmap_ros.sensing.gps import GpsTrack
from gpgmap_ros.sensing.lidar_odometry import LidarOdometry, ScanRegistration
from gpgmap_ros.sensing.messages import gps_fix, newest_stamp
from gpgmap_ros.sensing.odometry_process import OdometryProcess
from gpgmap_ros.sensing.sources import insert_message
from gpgmap_ros.sensing.waiting import DroppedCloud, LocatedCloud, PoseQueue
from gpgmap_ros.slam import Executors, MappingPipeline, Slam, SlamListener, Step, Trajectory
from gpgmap_ros.slam.closure_local import LocalClosures
from gpgmap_ros.slam.drives import Drive, Part, group_drives, join_trajectories
from gpgmap_ros.slam.georeference import Georeference, GeoreferenceError, fit_georeference
from gpgmap_ros.slam.global_map import stitch_global_map
from gpgmap_ros.slam.run_ahead import run_ahead

PATIENCE = 5.0
"""Seconds of the recording for which a cloud waits for its pose: longer than live, because it costs nothing here."""
MAX_WAITING = 200
"""Clouds that may wait at once: beyond it the oldest is dropped, so that memory stays bounded."""
MAX_AHEAD = 4
"""Clouds that are read and located before those before them are mapped."""
MAX_GROUP = 1000
"""Messages without a cloud that are read at once."""
MAP_CELLS = 4_000_000
"""Of the whole map: with all layers it takes some 300 MB, however long the drive is; a larger one has coarser cells."""
FATES = (
    "points", "used", "outside", "held", "not_finite", "range", "robot", "height", "thinned", "overhang",
)  # fmt: skip
"""What may become of points: attributes of `CloudReport` that are added up."""


class _Results(SlamListener):
    """Keeps the submaps that no store keeps, and warns of those that could not be stored."""

    def __init__(self) -> None:
        self.submaps: dict[int, Submap] = {}
        self.slam: Slam | None = None

    def on_submap(self, submap: Submap | None, error: str) -> None:
        assert self.slam is not None
        if submap is not None and self.slam.mapping.submaps is None:
            self.submaps[submap.id] = submap
        if error:
            self.slam.metrics.warn(error)


class Replay:
    """Maps one recording. `config` decides everything but where clouds and poses come from: that is `selection`.

    metrics: what happened so far; closer: closures between submaps, None where those are off
    Finished submaps are in the folder `submaps` of `config.map_folder`, or in memory where that is not set.
    """

    def __init__(self, recording: Recording, selection: TopicSelection, config: Config) -> None:
        self._recording, self._selection, self._config = recording, selection, config
        self._now = 0
        self._odometry: OdometryProcess | None = None
        self._source = recorded_source(
            selection, config.drive, np.deg2rad(config.imu.max_tilt), self._make_odometry
        )
        self._gps = GpsTrack()
        self._georeferences: dict[int, Georeference | GeoreferenceError | None] = {}  # by number of the part
        self._poses = PoseQueue(self._source, PATIENCE, lambda: self._now, MAX_WAITING, config.deskew)
        self._results = _Results()
        self._slam = self._results.slam = Slam(config, self._poses, Executors.threads(), self._results)
        self.metrics = self._slam.metrics
        closures = self._slam.closures
        self.closer: LoopCloser | None = closures.closer if isinstance(closures, LocalClosures) else None
        self._decoder, self._checks, self._clocks = Decoder(), CloudChecks(config), ClockChecks()
        self._stopped = False

    @property
    def config(self) -> Config:
        return self._config

    @property
    def mapping(self) -> MappingPipeline:
        """The map around the robot."""
        return self._slam.mapping

    # -- mapping -----------------------------------------------------------------------------------------

    def steps(self, start: int | None = None, stop: int | None = None) -> Iterator[Step]:
        """Map the clouds between two times of the recording, nanoseconds; one step for each cloud that was used."""
        # Solvers limit BLAS to one thread while they run, for the whole process: whichever ends first would lift that
        # for those beside it, and their last digits would change from run to run.
        with single_threaded_blas():
            try:
                yield from self._steps(start, stop)
            finally:
                if self._odometry is not None:
                    self._odometry.close()
                with self.metrics.timed("wait for submaps"):
                    self._slam.wait()

    def _steps(self, start: int | None, stop: int | None) -> Iterator[Step]:
        self._insert_static(start)
        located = run_ahead(self._locate, self._read(start, stop), MAX_AHEAD, "poses")
        with contextlib.closing(located):
            for clouds in located:
                yield from self._map(clouds)
                if self._stopped:
                    return

    def _read(self, start: int | None, stop: int | None) -> Iterator[list[Message] | None]:
        """The messages up to each cloud, in order; None at the end."""
        messages = self._recording.messages(self._selection.topics, start, stop)
        group: list[Message] = []
        while True:
            with self.metrics.timed("read"):
                message = next(messages, None)
            if message is not None:
                group.append(message)
            if message is None or message.topic == self._selection.topic or len(group) == MAX_GROUP:
                yield group
                group = []
            if message is None:
                break
        yield None

    def _locate(self, messages: list[Message] | None) -> list[LocatedCloud | DroppedCloud]:
        """The clouds whose poses are known with these messages; None: those that are left when no more come."""
        if messages is None:
            with self.metrics.timed("locate"):
                return list(self._poses.end())
        return [found for message in messages for found in self._take(message)]

    def _make_odometry(self) -> ScanRegistration:
        """In a process of its own where there is a second core for it."""
        if available_threads() == 1:
            return LidarOdometry()
        self._odometry = OdometryProcess()
        return self._odometry

    def _insert_static(self, start: int | None) -> None:
        """Insert static transforms sent before `start`: they are sent once, at the beginning."""
        topics = [topic for topic in self._selection.transform_topics if topic.endswith("tf_static")]
        if topics and start is not None:
            for message in self._recording.messages(topics, None, start):
                self._insert_pose(message)

    def _take(self, message: Message) -> list[LocatedCloud | DroppedCloud]:
        """Decode one message; the clouds whose poses are known by now."""
        self._now = message.time
        with self.metrics.timed("read"):
            if message.topic == self._selection.topic:
                self._put_cloud(message)
            else:
                self._insert_pose(message)
        with self.metrics.timed("locate"):
            return list(self._poses.ready())

    def _put_cloud(self, message: Message) -> None:
        try:
            cloud = decode_cloud(self._decoder(message), message.topic, message.time)
            self._clocks.add(message.topic, cloud.stamp, message.time)
        except (BagError, CloudError) as error:
            damaged = isinstance(error, BagError)
            self.metrics.count("clouds read")
            self.metrics.drop_cloud("damaged" if damaged else "bad cloud")
            self.metrics.warn(str(error) if damaged else f"a cloud was ignored: {error}")
            return
        self._poses.put(cloud)

    def _insert_pose(self, message: Message) -> None:
        try:
            decoded = self._decoder(message)
            self._clocks.add(message.topic, newest_stamp(decoded), message.time)
            if message.topic == self._selection.gps_topic:
                self._gps.insert(gps_fix(decoded, message.topic))
                return
            insert_message(self._source, decoded, message.topic)
        except (BagError, ValueError) as error:
            self.metrics.warn(f"{message.topic}: a message was ignored: {error}")

    def _map(self, located: list[LocatedCloud | DroppedCloud]) -> Iterator[Step]:
        """Map the clouds that have a pose: a step for each. All of them are counted and checked."""
        for found in located:
            self.metrics.count("clouds read")
            self._checks.add_cloud(found.cloud)
            outcome = self._slam.register(found) if isinstance(found, LocatedCloud) else found
            if isinstance(outcome, DroppedCloud) and isinstance(outcome.error, TransformUnavailable):
                self.metrics.drop_cloud(f"no pose ({outcome.error.reason.replace('_', ' ')})")
                self._checks.add_missing(outcome.error)
                continue
            if outcome.pose is not None:
                self._checks.add_pose(outcome.cloud.stamp, outcome.pose)
            if isinstance(outcome, DroppedCloud):
                self.metrics.drop_cloud("bad pose")
                self.metrics.warn(f"a cloud was ignored: {outcome.error}")
                continue
            if outcome.deskewed is False:
                self._checks.add_skewed()
            self.metrics.count("clouds used")
            for name in FATES:
                self.metrics.count(f"points: {name}", getattr(outcome.report, name))
            yield outcome

    def stop(self) -> None:
        """Let `steps` end with the cloud that is being mapped. May be called from a signal handler."""
        self._stopped = True

    @property
    def stopped(self) -> bool:
        return self._stopped

    def end(self) -> tuple[list[Submap], list[LoopClosure]]:
        """End the last submap and wait for all comparisons; what was finished since the last step."""
        self._slam.end("end of the recording")
        return self._slam.take_results()

    # -- results -----------------------------------------------------------------------------------------

    @property
    def drives(self) -> list[Drive]:
        """The drives that have begun."""
        return self._slam.drives.all

    @property
    def points(self) -> Counter[str]:
        """What became of the points, as in `CloudReport`, added up."""
        return self.metrics.counts("points: ")

    @property
    def submaps(self) -> list[Submap] | list[SubmapInfo]:
        """Finished submaps, oldest first."""
        store = self._slam.mapping.submaps
        return list(self._results.submaps.values()) if store is None else store.infos()

    def map_of(self, id: int) -> GPGMap:
        """The map of a finished submap."""
        store = self._slam.mapping.submaps
        return self._results.submaps[id].gpgmap if store is None else store.load(id).gpgmap

    @property
    def findings(self) -> list[Finding]:
        """What `gpgmap doctor` would report about the clouds and poses so far, without what is good."""
        found = [
            *self._checks.findings(self._selection),
            *drive_findings(self._source.breaks, self._source.outliers),
            *self._clocks.findings(self._selection.topic),
            *imu_findings(self._selection, self._source, self._checks.newest),
            *gps_findings(self._gps, self._selection.gps_topic),
            *self._georeference_findings(),
        ]
        return [item for item in found if item.status != GOOD]

    @property
    def parts(self) -> list[Part]:
        """The drives, grouped by frame: the part with the most clouds first. It is what the map shows."""
        joined = None if self.closer is None else self.closer.one_frame
        return group_drives(self.drives, self.submaps, joined)

    def georeference(self, part: Part) -> Georeference | None:
        """Where the frame of a part lies on the earth, by the GPS fixes on its trajectory; None where they do not say.

        After `end`: it is computed once.
        """
        if part.number not in self._georeferences:
            self._georeferences[part.number] = self._fit_georeference(part)
        found = self._georeferences[part.number]
        return found if isinstance(found, Georeference) else None

    def _fit_georeference(self, part: Part) -> Georeference | GeoreferenceError | None:
        if not self._gps.received or not self._config.gps.enabled:
            return None
        trajectory = join_trajectories([self.correct_drive(drive) for drive in part.drives])
        try:
            frame = self._gps.fixes[0].frame_id if self._gps.fixes else ""
            stamp = int(trajectory.stamps[-1]) if len(trajectory) else 0
            lever = self._source.position_on_robot(frame, self._selection.sensor_frame, stamp)
            return fit_georeference(self._gps.fixes, trajectory, lever)
        except GeoreferenceError as error:
            return error

    def _georeference_findings(self) -> Iterator[Finding]:
        for found in self._georeferences.values():
            if isinstance(found, GeoreferenceError):
                remedy = "the map stays in its own frame; drive farther under open sky, or record the fixes as well"
                yield Finding("GPS", NOTE, f"the map is not georeferenced: {found}", remedy)

    def place_poses(self, part: Part) -> Callable[[Array], Array]:
        """Takes poses (..., 4, 4) of a part to the frame of its map: UTM where it is georeferenced."""
        found = self.georeference(part) if part.submaps else None
        return found.move if found is not None else lambda poses: poses

    def stitch(self, part: Part | None = None) -> GPGMap | None:
        """The map of the submaps of a part under their corrected poses, after `end`; None where nothing was mapped.

        Where GPS says where it is, it is in UTM, its cells along the axes of the grid.

        part: one of `parts`; the first unless given
        """
        part = part or next(iter(self.parts), None)
        if part is None:
            return None
        with self.metrics.timed("stitch"):
            if not part.submaps:  # there is the map around the robot, at the end of each drive
                last = part.drives[-1]
                return self._slam.mapping.gpgmap() if last is self.drives[-1] else last.local_map
            return self._stitch_submaps(part)

    def _stitch_submaps(self, part: Part) -> GPGMap:
        poses = {item.id: item.T_map_submap for item in self.submaps if item.id in part.submaps}
        covariances = None
        if self.closer is not None:
            poses |= {id: T for id, T in self.closer.poses.items() if id in poses}
            covariances = known_covariances(self.closer)
            if self.closer.solver_error:
                self.metrics.warn(f"poses were not corrected: {self.closer.solver_error}")
        found = self.georeference(part)
        if found is not None:
            poses = {id: found.T_aligned_map @ T for id, T in poses.items()}
            turn = np.kron(np.eye(2), found.T_aligned_map[:3, :3])
            covariances = covariances and {id: turn @ C @ turn.T for id, C in covariances.items()}
        source = self._slam.mapping.submaps or list(self._results.submaps.values())
        gpgmap = stitch_global_map(
            source, poses, self._config, self._config.map_frame, MAP_CELLS, covariances
        )
        resolution = gpgmap.grid.resolution
        if resolution > self._config.mapping.resolution:
            self.metrics.warn(
                f"the whole map is written in cells of {resolution:g} m: finer ones would need too much memory"
            )
        return gpgmap if found is None else found.place(gpgmap)

    @property
    def odometry(self) -> Trajectory:
        """Where the robot was at each cloud of the map, as recorded; each drive in its own frame."""
        parts = self.parts
        return join_trajectories([drive.odometry for drive in parts[0].drives] if parts else [])

    @property
    def corrected(self) -> Trajectory:
        """The same in the frame of the map, with the closures."""
        parts = self.parts
        return join_trajectories([self.correct_drive(drive) for drive in parts[0].drives] if parts else [])

    def correct_drive(self, drive: Drive) -> Trajectory:
        """Where the robot was at each cloud of a drive, with the closures, in the frame of its part."""
        if self.closer is None:
            return drive.odometry
        poses = self.closer.correct(drive.stamps, drive.poses, drive.id)
        return join_trajectories(
            [Trajectory(np.array(drive.stamps, dtype=np.int64), np.array(poses).reshape(-1, 4, 4))]
        )
