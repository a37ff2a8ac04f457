"""The SLAM loop: cloud -> pose -> map -> submap -> closure -> corrected pose.

    slam = Slam(config, PoseQueue(source, patience, clock), Executors.threads())
    for outcome in slam.add_cloud(cloud):       # the clouds whose poses are known by now, in order
        print(outcome)                          # a Step, or a DroppedCloud with the reason
    slam.end("end of the recording")

The node and replay run this. They differ in their executors, and in who fills the pose source.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpgmap_ros.closure import LoopClosure
from gpgmap_ros.config import Config
from gpgmap_ros.geometry import Array
from gpgmap_ros.mapping.noise import check_pose_covariance
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.sensing.cloud import Cloud
from gpgmap_ros.sensing.continuity import Break
from gpgmap_ros.sensing.deskewing import deskew
from gpgmap_ros.sensing.pose_source import SensorPose
from gpgmap_ros.sensing.scan_motion import assumed_times, skew_covariance
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS
from gpgmap_ros.sensing.waiting import DroppedCloud, LocatedCloud, PoseQueue
from gpgmap_ros.slam.closure_messages import Answer, Update
from gpgmap_ros.slam.drives import Drive, DriveLog
from gpgmap_ros.slam.executors import Executors
from gpgmap_ros.slam.finalizer import SubmapFinalizer
from gpgmap_ros.slam.mapping_pipeline import CloudReport, MappingPipeline
from gpgmap_ros.slam.metrics import Metrics
from gpgmap_ros.slam.work_queue import ClosureExecutor


@dataclass(frozen=True, eq=False)
class Step:
    """One cloud that was mapped.

    T_map_robot: (4, 4) the robot's pose, corrected by the closures that are known now
    drive: number of the drive, from 1
    deskewed: whether the points were moved to the stamp of the cloud; None where they have no times
    submaps, closures: finished since the step before, and what they were compared with
    """

    cloud: Cloud
    pose: SensorPose
    report: CloudReport
    T_map_robot: Array
    drive: int = 1
    deskewed: bool | None = None
    submaps: list[Submap] = field(default_factory=list)
    closures: list[LoopClosure] = field(default_factory=list)


class SlamListener:
    """Told what happens beside the mapping, in the thread in which it happens."""

    def on_submap(self, submap: Submap | None, error: str) -> None:
        """A submap is finished; error: why it is not on the disk, empty where it is."""

    def on_answer(self, answer: Answer) -> None:
        """The loop closures have answered."""

    def on_failure(self, error: Exception) -> None:
        """Finishing or comparing a submap has failed: the submap is lost."""
        raise error


class Slam:
    """Maps clouds, finishes submaps and closes loops. For one thread at a time.

    poses: gives clouds their poses; keep_trajectory: record the robot's pose at each cloud in `drives`
    mapping: the map around the robot; closures: None where they are off
    T_map_odom: (4, 4) corrects the odometry of the present drive
    """

    def __init__(
        self,
        config: Config,
        poses: PoseQueue,
        executors: Executors,
        listener: SlamListener | None = None,
        metrics: Metrics | None = None,
        keep_trajectory: bool = True,
    ) -> None:
        self.poses, self.metrics = poses, metrics or Metrics()
        self.mapping = MappingPipeline(
            config, lambda ended: self._finalizer.submit(ended), executors.map_solved_beside
        )
        self.drives = DriveLog(keep_trajectory)
        self.T_map_odom = np.eye(4)
        self._listener = listener or SlamListener()
        self._finalizer = SubmapFinalizer(
            executors.finalizer(self._fail), self._fail, self.mapping.complete, self._on_submap, self.metrics
        )
        self.closures: ClosureExecutor | None = None
        if config.submap.enabled and config.closure.enabled:
            self.closures = executors.closures(config, self.mapping.submaps, self._on_answer, self._fail)
        self._finished: list[Submap] = []
        self._compared: list[LoopClosure] = []
        self._first_submap: int | None = None  # of the present drive
        self._before: dict[str, tuple[int, SensorPose]] = {}  # the cloud before, by frame of the sensor
        self._failure: Exception | None = None
        self._lock = threading.Lock()

    # ------------------------------------------------ the loop

    def add_cloud(self, cloud: Cloud) -> Iterator[Step | DroppedCloud]:
        """Process a cloud, after those before it that wait for their poses: what became of each."""
        self.poses.put(cloud)
        return self.advance()

    def advance(self) -> Iterator[Step | DroppedCloud]:
        """Process the clouds whose poses have become known."""
        for found in self.poses.ready():
            yield self.register(found) if isinstance(found, LocatedCloud) else found

    def register(self, located: LocatedCloud) -> Step | DroppedCloud:
        """Cloud and pose -> map -> submap -> closure -> corrected pose."""
        cloud, pose = located.cloud, located.pose
        drive = self._enter_drive(pose, located.breaks)
        deskewed = self._is_deskewed(located)
        try:
            points = cloud.points
            covariance = check_pose_covariance(pose.covariance)
            if located.motion is not None and cloud.times is not None:
                points = deskew(cloud.points, cloud.times, located.motion)
            elif cloud.times is not None or cloud.times_error:
                covariance = self._skewed_covariance(cloud, pose, covariance)
            with self.metrics.timed("fuse"):
                # a submap that this cloud ends goes to the finalizer, and from there to _on_submap
                report = self.mapping.add_cloud(
                    points, pose.T_map_sensor, cloud.stamp, covariance, pose.T_base_sensor, pose.tilt_std,
                    pose.step_covariance,
                )  # fmt: skip
        except ValueError as error:
            return DroppedCloud(cloud, error, pose)
        if report.cleared:
            self.metrics.count("cells cleared", report.cleared)
        self._before[cloud.frame_id] = cloud.stamp, pose
        T_odom_robot = pose.T_map_robot
        drive.add(self.mapping.drive_id, cloud.stamp, T_odom_robot)
        self._finalizer.wait_for_room()
        T_map_robot = self.T_map_odom @ T_odom_robot
        return Step(cloud, pose, report, T_map_robot, drive.number, deskewed, *self.take_results())

    def _is_deskewed(self, located: LocatedCloud) -> bool | None:
        """Whether the points of a cloud are moved to its stamp, counted; None where they have no times."""
        if located.cloud.times_error:
            self.metrics.count("clouds with unusable times")
        if located.cloud.times is None:
            return None
        deskewed = located.motion is not None
        self.metrics.count("clouds deskewed" if deskewed else "clouds not deskewed")
        return deskewed

    def _skewed_covariance(self, cloud: Cloud, pose: SensorPose, covariance: Array | None) -> Array:
        """The covariance of the pose of a cloud that can't be deskewed: with what its unknown motion adds."""
        stamp, before = self._before.get(cloud.frame_id, (cloud.stamp, None))
        same = before is not None and before.drive == pose.drive
        seconds = (cloud.stamp - stamp) / NANOSECONDS
        added = skew_covariance(
            cloud.times if cloud.times is not None else assumed_times(seconds),
            seconds,
            before.T_map_sensor if before is not None and same else None,
            pose.T_map_sensor,
        )
        return added if covariance is None else covariance + added

    def _on_submap(self, submap: Submap | None, error: str) -> None:
        """A submap is solved and stored: have it compared with the earlier ones."""
        if submap is not None:
            with self._lock:
                self._finished.append(submap)
                if self._first_submap is None and submap.session == self.mapping.drive_id:
                    self._first_submap = submap.id
        self._listener.on_submap(submap, error)
        if submap is not None and self.closures is not None:
            self.closures.add(submap, stored=not error)

    def add_shared(self, submap: Submap, session: int) -> tuple[Submap, str]:
        """Have a submap of another robot compared with ours: what it is here, and why it is not on the disk if so.

        session: what its drive is called here
        """
        adopted, error = self.mapping.adopt(submap, session)
        if self.closures is not None:
            self.closures.add(adopted, stored=not error, own=False)
        return adopted, error

    def _on_answer(self, answer: Answer) -> None:
        """The closures of a submap are known, and with them where the robot is."""
        if isinstance(answer, Update) and not answer.earlier:
            self.metrics.add_duration("close loops", answer.seconds)
            with self._lock:
                self._compared.extend(answer.compared)
                if self._first_submap is not None and answer.newest >= self._first_submap:
                    self.T_map_odom = answer.T_map_odom
        self._listener.on_answer(answer)

    # ------------------------------------------------ drives, and the end

    def _enter_drive(self, pose: SensorPose, breaks: Sequence[Break]) -> Drive:
        """The drive of a pose; the map and the submap of another one end with it. breaks: see `LocatedCloud`"""
        drive = self.drives.current
        if drive is not None and drive.key == pose.drive:
            return drive
        if drive is not None and drive.clouds:
            if not self.mapping.config.submap.enabled and self.drives.keep_poses:
                drive.local_map = self.mapping.gpgmap()
            self.mapping.begin_drive("end of the drive")
            self._forget_correction()
        return self.drives.begin(pose.drive, breaks)

    def reset(self, ended_by: str) -> None:
        """Forget the map and the poses: what comes next is another drive. Finished submaps stay."""
        self.mapping.end_submap(ended_by)
        self.mapping.reset()
        self.poses.source.forget()
        self._before.clear()
        self._forget_correction()

    def end(self, ended_by: str, wait_for_closures: bool = True) -> None:
        """End the submap that is being made, and wait until all that have ended are stored.

        wait_for_closures: wait for all comparisons as well; else they end now, and the next run makes up for them
        """
        if not wait_for_closures and self.closures is not None:
            self.closures.close()
        self._finalizer.close()
        self.mapping.end_submap(ended_by)
        if wait_for_closures and self.closures is not None:
            self.closures.close()

    def wait(self) -> None:
        """Wait until all submaps that have ended are finished and compared."""
        self._finalizer.wait()
        if self.closures is not None:
            self.closures.wait()

    def take_results(self) -> tuple[list[Submap], list[LoopClosure]]:
        """Submaps that were finished, and comparisons that were made, since they were last taken."""
        with self._lock:
            failure, self._failure = self._failure, None
            submaps, self._finished = self._finished, []
            closures, self._compared = self._compared, []
        if failure is not None:
            raise failure
        return submaps, closures

    def _forget_correction(self) -> None:
        with self._lock:
            self.T_map_odom, self._first_submap = np.eye(4), None

    def _fail(self, error: Exception) -> None:
        try:
            self._listener.on_failure(error)
        except Exception as failure:  # for the thread that maps
            with self._lock:
                self._failure = failure
