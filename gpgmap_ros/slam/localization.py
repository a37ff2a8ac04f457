"""Localises while the robot drives: hands the submap that is being made to a Localizer, every few metres of way.

    localization = Localization(session.localizer(), config.localization, executor)
    for step in steps:
        localization.add(step.drive, step.pose.T_map_robot, mapping)
        localization.state.status, localization.pose()

The comparisons run in an executor, so that no cloud waits for them; poses follow by odometry meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from gpgmap_ros.config import LocalizationConfig
from gpgmap_ros.geometry import Array
from gpgmap_ros.mapping.submaps import SubmapBuilder
from gpgmap_ros.slam.localizer import LOST, SEARCHING, LocalizationState, Localizer
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline
from gpgmap_ros.slam.pose_belief import PoseBelief
from gpgmap_ros.slam.work_queue import Executor


class Localization:
    """Follows the robot of one SLAM loop in a saved map. For one thread at a time.

    changed: told, in the executor's thread, when a comparison has changed the state
    """

    def __init__(
        self,
        localizer: Localizer,
        config: LocalizationConfig,
        executor: Executor,
        changed: Callable[[LocalizationState], None] | None = None,
    ) -> None:
        self.localizer = localizer
        self._config, self._executor, self._changed = config, executor, changed
        self._lock = threading.Lock()
        self._state = localizer.state
        self._drive: int | None = None
        self._driven = 0.0
        self._robot: tuple[int, Array, float] = (0, np.eye(4), 0.0)
        self._due = 0.0  # metres driven at which the next comparison is made
        self._clouds = 0
        self._lost = False
        self._early: tuple[Array, Array] | None = None  # an initial pose that came before the first cloud

    @property
    def state(self) -> LocalizationState:
        """What the last comparison has found."""
        with self._lock:
            return self._state

    @property
    def driven(self) -> float:
        """Metres of odometry in this drive."""
        return self._driven

    @property
    def unfinished(self) -> int:
        """Comparisons that wait or are being made."""
        return self._executor.unfinished

    def pose(self) -> PoseBelief | None:
        """The robot's pose in the map at the last cloud; None unless tracking."""
        return self.stamped_pose()[1]

    def stamped_pose(self) -> tuple[int, PoseBelief | None]:
        """The stamp of the last cloud, and `pose`. May be called from any thread."""
        stamp, T_odom_robot, driven = self._robot
        return stamp, self.state.locate(T_odom_robot, driven)

    def add(self, drive: int, T_odom_robot: Array, mapping: MappingPipeline, stamp: int = 0) -> None:
        """A cloud of this stamp was mapped with the robot at this pose.

        drive: another number is another odometry frame
        """
        if drive != self._drive:
            self._begin_drive(drive)
        elif self._clouds:
            self._driven += float(np.linalg.norm((T_odom_robot - self._robot[1])[:3, 3]))
        self._robot = stamp, T_odom_robot, self._driven  # at once: other threads read it
        self._clouds += 1
        with self._lock:
            early, self._early = self._early, None
        if early is not None:
            self.set_prior(*early)
        if self._lost:  # a submap that began elsewhere has two places in it
            self._lost = False
            mapping.end_submap("lost")
        if self._driven >= self._due and self._executor.has_room:
            self._compare(mapping)

    def finish(self, mapping: MappingPipeline) -> None:
        """Compare what has been seen since the last time, however little way that was."""
        if self._driven > self._due - self._config.step:
            self._compare(mapping)

    def set_prior(self, T_map_robot: Array, covariance: Array) -> None:
        """The robot is thought to be at this pose in the map, now, or at the first cloud if none has come."""
        with self._lock:
            if self._drive is None:
                self._early = T_map_robot, covariance
                self._state = LocalizationState(
                    SEARCHING, "an initial pose was given: it waits for the first cloud"
                )
                return
        (_, T_odom_robot, driven), drive = self._robot, self._drive

        def work() -> None:
            if drive == self._drive:
                self.localizer.set_prior(T_map_robot, covariance, T_odom_robot, driven)
                self._publish(drive)

        self._executor.submit(work)
        self._due = self._driven

    def wait(self) -> None:
        """Wait for the comparisons that are under way."""
        self._executor.wait()

    def close(self) -> None:
        """Finish the comparisons that wait, then end."""
        self._executor.close()

    def _begin_drive(self, drive: int) -> None:
        reason = "no submap has been compared yet"
        if self._drive is not None:
            reason = "the odometry began anew: the robot may be anywhere"
        self._drive, self._driven, self._due, self._clouds = drive, 0.0, 0.0, 0
        with self._lock:
            self._state = LocalizationState(SEARCHING, reason)
        self._executor.submit(lambda: self.localizer.begin_drive(reason))

    def _compare(self, mapping: MappingPipeline) -> None:
        """Have the submap that is being made compared with the map as it is now."""
        builder = mapping.copy_submap()
        if builder is not None and self._drive is not None:
            self._due = self._driven + self._config.step
            self._submit(builder, self._driven, self._drive)

    def _submit(self, builder: SubmapBuilder, driven: float, drive: int) -> None:
        def work() -> None:
            if drive != self._drive:
                return
            submap = builder.finish(0, "compared")
            if submap is not None:
                self.localizer.observe(submap, driven)
                self._publish(drive)

        self._executor.submit(work)

    def _publish(self, drive: int | None) -> None:
        with self._lock:
            if drive != self._drive:
                return
            self._lost |= self.localizer.status == LOST and self._state.status != LOST
            self._state = self.localizer.state
        if self._changed is not None:
            self._changed(self._state)
