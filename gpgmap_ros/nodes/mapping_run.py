"""Everything that the node has from configure to cleanup: pose inputs, the SLAM loop, its worker and its publishers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpgmap_ros.compilation import compilation_told
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.memory import give_back, release_libraries
from gpgmap_ros.nodes.cloud_intake import CloudIntake
from gpgmap_ros.nodes.georeferencing import Georeferencing
from gpgmap_ros.nodes.guarded_node import GuardedNode
from gpgmap_ros.nodes.health import Warnings
from gpgmap_ros.nodes.loop_closing import LoopClosing
from gpgmap_ros.nodes.odometry_tf import OdometryTf
from gpgmap_ros.nodes.outputs import MapPublishers
from gpgmap_ros.nodes.pose_inputs import PoseInputs
from gpgmap_ros.nodes.result_publisher import ResultPublisher
from gpgmap_ros.nodes.submap_sharing import SubmapReceiver, SubmapSender
from gpgmap_ros.nodes.worker import WaitingCloud, Worker
from gpgmap_ros.sensing.waiting import DroppedCloud, LocatedCloud, PoseQueue
from gpgmap_ros.slam import CloudReport, Executors, Slam, Step
from gpgmap_ros.slam.closure_process import ClosureProcess
from gpgmap_ros.slam.first_start import compile_mapping
from gpgmap_ros.slam.metrics import Metrics
from gpgmap_ros.slam.shared_submaps import SharedSubmaps

if TYPE_CHECKING:
    from gpgmap_ros.nodes.localizing import Localizing


def compile_loops(node: GuardedNode, config: Config) -> None:
    """Compile what a run with these settings needs, which at a first start takes a while: its log says so."""
    with compilation_told(node.get_logger().info):
        compile_mapping(config)
    # what the trial left would stay with the process
    give_back()
    release_libraries()


class MappingRun:
    """One run of the SLAM loop on the topics of a robot.

    The executor's thread only receives; of the worker's threads one waits for poses and fuses clouds, the other solves
    the map.
    reject: what the parameter closure.reject is now
    """

    def __init__(
        self,
        node: GuardedNode,
        config: Config,
        reject: Callable[[], str],
        metrics: Metrics,
        warnings: Warnings,
    ) -> None:
        self._node, self._metrics, self._warnings = node, metrics, warnings
        self._said: set[str] = set()
        self.inputs = PoseInputs(node, warnings, config)
        self.localizing: Localizing | None = None
        self._receiver: SubmapReceiver | None = None
        outputs = MapPublishers(node, self.publish_again)
        try:
            self._start_loop(config, outputs, reject)
        except BaseException:  # the node may be configured again
            if self.localizing is not None:
                self.localizing.destroy()
            outputs.destroy()
            self.inputs.destroy()
            raise

    def _start_loop(self, config: Config, outputs: MapPublishers, reject: Callable[[], str]) -> None:
        if config.localization.map:
            from gpgmap_ros.nodes.localizing import Localizing  # and with it the comparison of maps

            self.localizing = Localizing(self._node, config, self._warnings)
            config = loop_config(config)
        self.results = ResultPublisher(self._node, outputs, config.map_frame, self._metrics, self._warnings)
        poses = PoseQueue(
            self.inputs.source, config.transform_timeout, time.monotonic_ns, deskew=config.deskew
        )
        self.slam = Slam(
            config, poses, Executors.process(), self.results, self._metrics, keep_trajectory=False
        )
        self._odometry_tf = (
            OdometryTf(self._node, config.map_frame, config.base_frame) if config.lidar.publish_tf else None
        )
        self._intake = CloudIntake(poses, self.drop, self.reset)
        self.worker: Worker[LocatedCloud] = Worker(
            self._intake.prepare,
            self._fuse,
            self._publish_map,
            self._renew_map,
            lambda: self.slam.mapping.wants_surface,
            lambda cloud: self.drop(
                "queue_full", "clouds come faster than they are mapped; the oldest goes first"
            ),
            self.results.on_failure,
            config.queue_size,
            1.0 / config.publish_rate,
        )
        store = self.slam.mapping.submaps
        if isinstance(self.slam.closures, ClosureProcess):
            closing = LoopClosing(
                self._node, config, self.slam.closures, reject, self._metrics, self._warnings, store
            )
            self.results.closing = closing
            if store is not None and len(store):
                closing.start(len(store))
        if config.gps.enabled:
            self.results.georeferencing = Georeferencing(
                self._node, config, self.inputs.source, self._warnings
            )

        self._share_submaps(config)

    def _share_submaps(self, config: Config) -> None:
        """Send submaps to other robots, and receive those of the robots that are named."""
        store, closing = self.slam.mapping.submaps, self.results.closing
        if config.submap.enabled:
            self.results.sharing = SubmapSender(self._node, store, self._metrics, self._warnings)
        topics = tuple(name for name in config.submaps if name)
        if topics and closing is not None:
            shared = SharedSubmaps(config, self.slam.add_shared, store)
            self._receiver = SubmapReceiver(
                self._node, topics, shared, closing.on_shared, self._metrics, self._warnings
            )

    # ------------------------------------------------ in the executor's thread

    def put(self, cloud: WaitingCloud) -> None:
        """A message has come."""
        self.worker.put(cloud)

    def reconfigure(self, config: Config) -> None:
        """Go on with other settings; ConfigError, and nothing changes, where that is not possible."""
        if self.localizing is not None:
            config = loop_config(config)
        with self.worker.between_steps():
            self.slam.mapping.reconfigure(config)
            self.slam.poses.patience = config.transform_timeout
            self.slam.poses.deskew = config.deskew
            self.worker.queue_size, self.worker.period = config.queue_size, 1.0 / config.publish_rate

    def publish_again(self) -> None:
        """Publish the map even though it did not change."""
        self.worker.ask_for_publication()

    def reset(self, why: str) -> None:
        """Forget the map and the poses between two steps of the worker."""
        with self.worker.between_steps():
            self.slam.reset("reset")
            self.results.forget_map()
            self._intake.order.restart()
            self._metrics.count("resets")
            self._node.get_logger().warning(f"map reset: {why}")

    def forget_waiting(self) -> None:
        """Drop the clouds that wait, because time has jumped."""
        self._metrics.count("clouds dropped: time_jump", self.worker.forget_waiting())

    def problems(self) -> dict[str, str]:
        """What is wrong with stamps and submaps: kind -> text."""
        found: dict[str, str] = {}
        if text := self._intake.order.problem(time.monotonic()):
            found["two clocks"] = text
        if self.results.not_written:
            found["submap not stored"] = self.results.not_written
        return found

    def stop_worker(self) -> None:
        self.worker.stop(self.slam.poses.interrupt)

    def end(self, ended_by: str) -> None:
        """End the submap that is being made, and wait until all that have ended are stored and sent."""
        self.results.stop_sending()
        if self._receiver is not None:
            self._receiver.close()
        if self.results.closing is not None:
            self.results.closing.stop()  # what it has not compared it will find in the folder
        if self.localizing is not None:
            self.localizing.stop()
        self.slam.end(ended_by, wait_for_closures=False)
        if self.results.sharing is not None:
            self.results.sharing.close()

    def destroy(self) -> None:
        if self._odometry_tf is not None:
            self._odometry_tf.destroy()
        if self.localizing is not None:
            self.localizing.destroy()
        if self._receiver is not None:
            self._receiver.destroy()
        self.results.destroy()
        self.inputs.destroy()

    # ------------------------------------------------ in the worker's threads

    def _publish_map(self, due: bool) -> None:
        self.results.publish_map(self.slam.mapping, self.worker.between_steps(), due)

    def _renew_map(self) -> bool:
        return self.results.renew_map(self.slam.mapping, self.worker.between_steps())

    def _fuse(self, located: LocatedCloud) -> bool:
        """Put a cloud into the map; whether that changed it."""
        outcome = self.slam.register(located)
        if isinstance(outcome, DroppedCloud):
            self.drop("bad_pose", str(outcome.error))
            return False
        self._warn_of_skew(outcome)
        if self._odometry_tf is not None:
            self._odometry_tf.publish(outcome)
        if self.results.georeferencing is not None:
            self.results.georeferencing.publish_pose(outcome)
        self._say_notes()
        if self.localizing is not None:
            self.localizing.add(outcome, self.slam.mapping)
        report = outcome.report
        self._metrics.count("points used", report.used)
        self._metrics.count("points filtered", report.filtered - report.held)
        self._metrics.count("points held back", report.held)
        self._metrics.count("points outside the map", report.outside)
        self._intake.order.follow(located.cloud.stamp, located.cloud.received / 1e9)
        if not report.used:
            self.drop(*why_unused(report))
            return False
        self.results.invalidate_map()
        self._metrics.count("clouds used")
        return True

    def _say_notes(self) -> None:
        """What the pose source has found out, such as where its vertical comes from, once each."""
        for text in self.inputs.source.notes():
            if text not in self._said:
                self._said.add(text)
                self._node.get_logger().info(text)

    def _warn_of_skew(self, step: Step) -> None:
        topic = step.cloud.topic
        if step.cloud.times_error:
            text = f"the times of the points can't be used: {step.cloud.times_error}"
            self._warnings.warn("unusable times", f"'{topic}' is not deskewed: {text}")
        elif step.deskewed is False:
            text = (
                "the motion while a cloud was taken is not known; it is mapped with the noise that this adds"
            )
            self._warnings.warn("not deskewed", f"'{topic}' is not deskewed: {text}")

    def drop(self, reason: str, text: str) -> None:
        """Count a cloud that is not used, and warn of it."""
        self._metrics.drop_cloud(reason)
        self._warnings.warn(f"dropped {reason}", f"cloud dropped ({reason}): {text}")


def map_folder_of(config: Config) -> str:
    """The folder that a run of the node writes to: a saved map that grows, or the map folder."""
    return config.localization.map if config.localization.update else config.map_folder


def loop_config(config: Config) -> Config:
    """The settings of the loop of a robot that is localised: it closes loops only where the saved map grows."""
    grows = config.localization.update
    changes = {"closure.enabled": grows, "map_folder": map_folder_of(config)}
    return with_settings(config, {**changes, "localization.map": "", "localization.update": False})


def why_unused(report: CloudReport) -> tuple[str, str]:
    """Reason and text for a cloud none of whose points went into the map."""
    if report.held:
        text = f"{report.held} of {report.points} points contradict the map and wait to be confirmed (gate.*)"
        return "held_back", text
    return "no_point_in_map", f"all {report.points} points are filtered out (filter.*) or outside the map"
