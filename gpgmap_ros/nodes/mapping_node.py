"""mapping_node: point clouds and poses in, GPGMaps out.

A lifecycle node that starts by itself. Subscribes to the cloud topics (sensor_msgs/PointCloud2) and, as `pose_source`
says, to /tf or `odometry` (nav_msgs/Odometry); publishes the topics of `outputs.OUTPUTS` below its name, and
/diagnostics. The executor's thread only receives; a worker waits for poses, fuses clouds and solves.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from numpy.typing import NDArray
from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockType, JumpThreshold, TimeJump
from rclpy.duration import Duration
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from rclpy.subscription import Subscription
from sensor_msgs.msg import PointCloud2
from std_srvs.srv import SetBool, Trigger
from threadpoolctl import threadpool_limits

from gpgmap_ros.compilation import compilation_told
from gpgmap_ros.config import Config, ConfigError
from gpgmap_ros.io.pointcloud2 import CloudError, read_xyz
from gpgmap_ros.mapping import GPGMap, Submap
from gpgmap_ros.memory import keep_flat
from gpgmap_ros.nodes import parameters
from gpgmap_ros.nodes.abandoned_memory import remove_abandoned_segments
from gpgmap_ros.nodes.finisher import Finisher
from gpgmap_ros.nodes.health import InputWatch, Warnings, incompatible_qos_warning, resident_megabytes
from gpgmap_ros.nodes.lifecycle import refuse_invalid_transitions, release_state_machine, succeeds
from gpgmap_ros.nodes.loop_closing import LoopClosing
from gpgmap_ros.nodes.map_services import MapServices
from gpgmap_ros.nodes.messages import nanoseconds
from gpgmap_ros.nodes.outputs import MapPublishers
from gpgmap_ros.nodes.pose_sources import PoseSource, SensorPose, pose_source_of
from gpgmap_ros.nodes.tally import Tally
from gpgmap_ros.nodes.worker import WaitingCloud, Worker
from gpgmap_ros.pipeline import CloudReport, EndedSubmap, MappingPipeline
from gpgmap_ros.transform_buffer import NANOSECONDS, TransformUnavailable

# Clouds of several sensors may overtake each other by this much; a larger step back is a new recording.
TIME_JUMP = 2 * NANOSECONDS
LISTEN_FOR_SIGNALS = 0.1  # seconds: Python hears of a signal only between two steps of the executor
PLAUSIBLE_LATENCY = 3600.0  # seconds: beyond it the stamps are of another time than the clock


@dataclass(frozen=True)
class ReadyCloud:
    """A cloud that can be fused: points (N, 3) in the sensor's frame, where that was, stamp in nanoseconds."""

    points: NDArray[np.float64]
    pose: SensorPose
    stamp: int


class MappingNode(LifecycleNode):
    """Configured: the map and its publishers exist. Active: clouds come in."""

    def __init__(self) -> None:
        super().__init__("mapping_node", automatically_declare_parameters_from_overrides=True)
        self.config: Config = parameters.declare(self)
        self.add_on_set_parameters_callback(self._on_parameters)
        refuse_invalid_transitions(self)
        self._tally = Tally()
        self._warnings = Warnings(self)
        # from configure to cleanup, as are the worker, the poses and the outputs
        self._pipeline: MappingPipeline | None = None
        self._worker: Worker | None = None
        self._closing: LoopClosing | None = None
        self._finisher: Finisher | None = None
        self._map: GPGMap | None = None
        self._coverage: float | None = None
        self._paused = False
        self._clouds: list[Subscription] = []
        self._watch: InputWatch | None = None
        self._newest_stamp = 0
        self.create_service(Trigger, "~/reset", self._on_reset)
        self.create_service(SetBool, "~/pause", self._on_pause)
        self._services_on_map = MapServices(
            self, self._locked_pipeline, lambda: self.config.map_name, self._on_map_loaded
        )
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        # by the wall: simulated time may stand still, and then somebody must say so
        self.create_timer(1.0, self._on_second, clock=Clock(clock_type=ClockType.STEADY_TIME))
        backward = JumpThreshold(
            min_forward=None, min_backward=Duration(nanoseconds=-TIME_JUMP), on_clock_change=False
        )
        self._jump = self.get_clock().create_jump_callback(backward, post_callback=self._on_clock_jump)

    # ------------------------------------------------ lifecycle

    def start(self) -> bool:
        """Configure and activate; False, with the reason in the log, where that fails."""
        done = TransitionCallbackReturn.SUCCESS
        return bool(self.trigger_configure() == done and self.trigger_activate() == done)

    @succeeds
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._pipeline = MappingPipeline(self.config, self._complete_later)
        with compilation_told(self.get_logger().info):
            self._pipeline.warm_up()
        self._poses: PoseSource = pose_source_of(self, self._warnings, self.config)
        self._worker = Worker(
            self._prepare,
            self._fuse,
            self._publish_map,
            self._shed,
            self._failed,
            self.config.queue_size,
            1.0 / self.config.publish_rate,
        )
        self._outputs = MapPublishers(self, self._worker.ask_for_publication)
        if self.config.submap.enabled and self.config.closure.enabled:
            store = self._pipeline.submaps
            self._closing = LoopClosing(
                self, self.config, store, lambda: self.config.closure.reject, self._tally, self._warnings
            )
            if store is not None and len(store):
                self._closing.start()
        self._finisher = Finisher(self._complete, self._failed)

    @succeeds
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._worker.start()
        for topic in self.config.points_topics:
            name = self.resolve_topic_name(topic)
            self._clouds.append(
                self.create_subscription(
                    PointCloud2,
                    topic,
                    lambda message, name=name: self._receive(message, name),
                    qos_profile_sensor_data,
                    event_callbacks=incompatible_qos_warning(
                        self._warnings, name, "match the publisher's QoS"
                    ),
                )
            )
        names = [subscription.topic_name for subscription in self._clouds]
        self._watch = InputWatch(self, names)
        self.get_logger().info(
            f"mapping {', '.join(repr(name) for name in names)} into '{self.config.map_frame}',"
            f" poses from {self.config.pose_source}"
        )

    @succeeds
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._stop_input()

    @succeeds
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._close_finisher()
        if self._closing is not None:
            self._closing.destroy()
        self._outputs.destroy()
        self._poses.destroy()
        self._closing = self._pipeline = self._map = None

    @succeeds
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.close()

    def _stop_input(self) -> None:
        for subscription in self._clouds:
            self.destroy_subscription(subscription)
        self._clouds.clear()
        self._watch = None
        if self._worker is not None:
            self._worker.stop(self._poses.interrupt)

    def _close_finisher(self) -> None:
        if self._finisher is not None:
            self._finisher.close()
        self._finisher = None

    def close(self) -> None:
        """End the worker, whatever state the node is in, and keep the submap that is being made."""
        self._stop_input()
        self._close_finisher()
        if self._closing is not None:
            self._closing.stop()
        if self._pipeline is None:
            return
        try:
            submap = self._pipeline.finish_submap("shutdown")
        except OSError as error:
            self.get_logger().error(f"the unfinished submap could not be written: {error}")
            return
        if submap is not None and self._pipeline.submaps is not None:
            self.get_logger().info(f"the unfinished submap is kept as number {submap.id}")

    def destroy_node(self) -> None:
        super().destroy_node()
        release_state_machine(self)

    # ------------------------------------------------ in the executor's thread

    def _receive(self, message: PointCloud2, topic: str) -> None:
        self._tally.count("clouds received")
        if self._watch is not None:
            self._watch.heard(topic)
        if self._paused:
            self._tally.count("clouds dropped: paused")
            return
        self._worker.put(WaitingCloud(message, topic, time.monotonic()))

    def _shed(self, cloud: WaitingCloud) -> None:
        self._drop("queue_full", "clouds come faster than they are mapped; the oldest goes first")

    def _on_parameters(self, changes: list[Parameter]) -> SetParametersResult:
        try:
            config = parameters.changed(self.config, changes)
        except ConfigError as error:
            return SetParametersResult(successful=False, reason=str(error))
        self.config = config
        with self._locked_pipeline() as pipeline:
            if pipeline is not None and self._worker is not None:
                pipeline.reconfigure(config)
                self._worker.queue_size, self._worker.period = config.queue_size, 1.0 / config.publish_rate
        return SetParametersResult(successful=True)

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success = self._reset("asked to by service")
        response.message = (
            "the map is empty" if response.success else "there is no map: configure the node first"
        )
        return response

    def _on_pause(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        self._paused = bool(request.data)
        response.success = True
        response.message = "paused: clouds are dropped and counted" if self._paused else "mapping"
        return response

    @contextmanager
    def _locked_pipeline(self) -> Iterator[MappingPipeline | None]:
        """The pipeline between two steps of the worker; None while the node is not configured."""
        if self._pipeline is None or self._worker is None:
            yield None
            return
        with self._worker.between_steps():
            yield self._pipeline

    def _on_map_loaded(self) -> None:
        assert self._worker is not None
        self._map = None
        self._worker.ask_for_publication()

    def _on_clock_jump(self, jump: TimeJump) -> None:
        self._reset(f"time jumped back by {-jump.delta.nanoseconds / NANOSECONDS:.1f} s")

    def _reset(self, why: str) -> bool:
        with self._locked_pipeline() as pipeline:
            if pipeline is not None:
                self._start_over(why)
            return pipeline is not None

    def _on_second(self) -> None:
        problems = self._watch.problems() if self._watch is not None else {}
        for kind, text in problems.items():
            self._warnings.warn(kind, text)
        values = self._tally.values() | self._tally.rates("clouds received", "clouds used", "maps published")
        values |= self._present_values()
        status = DiagnosticStatus(
            level=DiagnosticStatus.WARN if problems else DiagnosticStatus.OK,
            name=f"{self.get_fully_qualified_name().lstrip('/')}: mapping",
            message="; ".join(problems.values()) or ("paused" if self._paused else "mapping"),
            values=[KeyValue(key=key, value=value) for key, value in values.items()],
        )
        message = DiagnosticArray(status=[status])
        if self._closing is not None:
            message.status.append(self._closing.diagnostics(self.get_fully_qualified_name().lstrip("/")))
        message.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(message)

    def _present_values(self) -> dict[str, str]:
        """What is so now, rather than what has happened."""
        values = {"resident memory (MB)": f"{resident_megabytes():.0f}"}
        pipeline = self._pipeline
        if pipeline is None:
            return values
        values["clouds waiting"] = str(self._worker.waiting)
        values["solver fallbacks"] = str(pipeline.fallbacks)
        values["cells that clouds contradict"] = str(pipeline.disputed)
        if self._coverage is not None:
            values["map coverage (%)"] = f"{100.0 * self._coverage:.1f}"
        newest = self._poses.newest()
        if newest is not None:
            age = (self.get_clock().now().nanoseconds - newest) / NANOSECONDS
            if abs(age) < PLAUSIBLE_LATENCY:
                values["age of the newest pose (s)"] = f"{age:.2f}"
        return values

    # ------------------------------------------------ in the finisher's thread

    def _complete(self, ended: EndedSubmap) -> None:
        assert self._pipeline is not None
        start = time.perf_counter()
        submap, error = self._pipeline.complete(ended)
        self._tally.took("finishing a submap", time.perf_counter() - start)
        self._on_submap(submap, error)

    # ------------------------------------------------ in the worker's thread

    def _prepare(self, cloud: WaitingCloud) -> ReadyCloud | None:
        """Points and pose of a cloud; None, counted and with a warning, where it has none."""
        message = cloud.message
        stamp, frame = nanoseconds(message.header.stamp), message.header.frame_id.lstrip("/")
        try:
            points = read_xyz(message)
        except CloudError as error:
            return self._drop("bad_cloud", f"'{cloud.topic}' is malformed: {error}")
        if not len(points):
            return self._drop("empty", f"'{cloud.topic}' has no valid point")
        if stamp < self._newest_stamp - TIME_JUMP:
            self._reset(f"'{cloud.topic}' went back by {(self._newest_stamp - stamp) / NANOSECONDS:.1f} s")
        try:
            pose = self._poses.sensor_pose(frame, stamp, self.config.transform_timeout)
        except TransformUnavailable as error:
            return self._drop(error.reason, str(error))
        return ReadyCloud(points, pose, stamp)

    def _fuse(self, cloud: ReadyCloud) -> bool:
        """Put a cloud into the map; whether that changed it."""
        start = time.perf_counter()
        assert self._pipeline is not None
        try:
            pose = cloud.pose
            report = self._pipeline.add_cloud(
                cloud.points, pose.T_map_sensor, cloud.stamp, pose.covariance, pose.T_base_sensor
            )
        except ValueError as error:
            self._drop("bad_pose", str(error))
            return False
        self._tally.took("fusing", time.perf_counter() - start)
        self._tally.count("points used", report.used)
        self._tally.count("points filtered", report.filtered - report.held)
        self._tally.count("points held back", report.held)
        self._tally.count("points outside the map", report.outside)
        self._newest_stamp = max(self._newest_stamp, cloud.stamp)
        self._on_submap(report.submap, report.submap_error)
        if not report.used:
            self._drop(*why_unused(report))
            return False
        self._map = None
        self._tally.count("clouds used")
        return True

    def _complete_later(self, ended: EndedSubmap) -> None:
        assert self._finisher is not None
        self._finisher.put(ended)

    def _on_submap(self, submap: Submap | None, error: str) -> None:
        """Send a finished submap, and have it compared with the earlier ones. In the finisher's thread, mostly."""
        if submap is not None:
            self._tally.count("submaps finished")
            self._outputs.publish_submap(submap, self.config.map_frame)
            if self._closing is not None:
                self._closing.add(submap, stored=not error)
        if error:
            self._warnings.warn("submap not stored", error)

    def _publish_map(self) -> None:
        assert self._pipeline is not None
        if not self._outputs.wanted():
            return
        if self._map is None:
            start = time.perf_counter()
            self._map = self._pipeline.gpgmap()
            self._tally.took("solving", time.perf_counter() - start)
            if self._map is not None:
                self._coverage = float(self._map.known.mean())
        if self._map is None:
            return
        if self._outputs.publish(self._map):
            self._tally.count("maps published")
            latency = (self.get_clock().now().nanoseconds - self._map.stamp) / NANOSECONDS
            if abs(latency) < PLAUSIBLE_LATENCY:
                self._tally.took("latency, stamp to map", latency)

    def _start_over(self, why: str) -> None:
        assert self._pipeline is not None
        self._pipeline.reset()
        self._poses.forget()
        self._map, self._newest_stamp = None, 0
        self._tally.count("resets")
        self.get_logger().warning(f"map reset: {why}")

    def _failed(self, error: Exception) -> None:
        """An error of ours: the cloud or submap is lost, and where it happened is said."""
        self._tally.count("clouds dropped: internal_error")
        where = "".join(traceback.format_exception(error))
        self._warnings.warn("internal error", f"cloud dropped (internal_error): please report this\n{where}")

    def _drop(self, reason: str, text: str) -> None:
        self._tally.count(f"clouds dropped: {reason}")
        self._warnings.warn(f"dropped {reason}", f"cloud dropped ({reason}): {text}")


def why_unused(report: CloudReport) -> tuple[str, str]:
    """Reason and text for a cloud none of whose points went into the map."""
    if report.held:
        text = f"{report.held} of {report.points} points contradict the map and wait to be confirmed (gate.*)"
        return "held_back", text
    return "no_point_in_map", f"all {report.points} points are filtered out (filter.*) or outside the map"


class Ending:
    """SIGINT and SIGTERM. rclpy's own handlers would take the context away while the worker still publishes.

    patient: what runs may end first; else the signal interrupts whatever it meets.
    """

    def __init__(self) -> None:
        self.asked, self.patient = False, True
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True
        if not self.patient:
            raise KeyboardInterrupt


def main() -> int:
    keep_flat()
    # Solvers in several threads each limit BLAS, for the whole process: the first that ends would lift it for the rest.
    with threadpool_limits(limits=1, user_api="blas"):
        return _run()


def _run() -> int:
    freed = remove_abandoned_segments()
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    ending, node = Ending(), None
    try:
        # not interrupted: half a node cannot be destroyed, and its shared memory would stay
        node = MappingNode()
        if freed:
            node.get_logger().info(
                f"{freed / 1e6:.0f} MB of shared memory freed that killed processes had left"
            )
        ending.patient = False
        if node.config.autostart and not ending.asked and not node.start():
            return 1
        ending.patient = True
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        while not ending.asked and rclpy.ok():
            executor.spin_once(timeout_sec=LISTEN_FOR_SIGNALS)
    except ConfigError as error:
        print(f"mapping_node: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        ending.patient = True
        if node is not None:
            node.close()
            node.destroy_node()
        rclpy.try_shutdown()
    if ending.asked:
        # all is written and closed; taking the interpreter apart would cost another half second
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
