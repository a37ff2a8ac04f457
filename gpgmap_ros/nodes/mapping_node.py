"""mapping_node: point clouds and poses in, GPGMaps out.

A lifecycle node that starts by itself. Subscribes to the cloud topics (cloud_inputs.py) and, as `pose_source` says, to
/tf or `odometry` (nav_msgs/Odometry); publishes the topics of `outputs.OUTPUTS` below its name, and /diagnostics. The
SLAM loop is in gpgmap_ros.slam; mapping_run.py connects it to the topics.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import rclpy
from diagnostic_msgs.msg import DiagnosticStatus
from rcl_interfaces.msg import SetParametersResult
from rclpy.clock import Clock, ClockType, JumpThreshold, TimeJump
from rclpy.duration import Duration
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import PointCloud2
from std_srvs.srv import SetBool, Trigger
from threadpoolctl import threadpool_limits

from gpgmap_ros.config import Config, ConfigError
from gpgmap_ros.memory import limit_malloc_arenas
from gpgmap_ros.nodes import parameters
from gpgmap_ros.nodes.abandoned_memory import remove_abandoned_segments
from gpgmap_ros.nodes.cloud_inputs import CloudInputs
from gpgmap_ros.nodes.cloud_order import BEHIND
from gpgmap_ros.nodes.diagnostics import Diagnostics
from gpgmap_ros.nodes.guarded_node import GuardedNode
from gpgmap_ros.nodes.health import InputWatch, UseWatch, Warnings
from gpgmap_ros.nodes.lifecycle import refuse_invalid_transitions, release_state_machine, succeeds
from gpgmap_ros.nodes.map_folder import lock_map_folder
from gpgmap_ros.nodes.map_services import MapServices
from gpgmap_ros.nodes.mapping_run import MappingRun, compile_loops, map_folder_of
from gpgmap_ros.nodes.security import SecurityError, security_errors
from gpgmap_ros.nodes.signals import SignalGuard
from gpgmap_ros.nodes.worker import WaitingCloud
from gpgmap_ros.sensing.sources import DESCRIPTIONS
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS
from gpgmap_ros.slam import MappingPipeline
from gpgmap_ros.slam.metrics import Metrics
from gpgmap_ros.storage.folder_lock import FolderLock

SIGNAL_PERIOD = 0.1  # seconds: Python hears of a signal only between two steps of the executor
AFTER_FAILURE = 0.01  # seconds: an executor that fails at each step must not take the whole processor


class MappingNode(GuardedNode):
    """Configured: the map and its publishers exist. Active: clouds come in.

    signals: may interrupt the compilation at a first start
    """

    def __init__(self, signals: SignalGuard) -> None:
        super().__init__("mapping_node", automatically_declare_parameters_from_overrides=True)
        self.config: Config = parameters.declare(self)
        self.add_on_set_parameters_callback(self._on_parameters)
        refuse_invalid_transitions(self)
        self._metrics, self._warnings = Metrics(), Warnings(self)
        self._run: MappingRun | None = None  # from configure to cleanup
        self._folder: FolderLock | None = None
        self._signals, self._paused = signals, False
        self._clouds: CloudInputs | None = None  # while active
        self._watch: InputWatch | None = None
        self.create_service(Trigger, "~/reset", self._on_reset)
        self.create_service(SetBool, "~/pause", self._on_pause)
        self._map_services = MapServices(
            self, self._locked_mapping, lambda: self.config.map_name, self._on_map_loaded
        )
        self._diagnostics = Diagnostics(self, self._metrics, self._warnings)
        # a steady clock: simulated time may stand still, which is then a problem to report
        self.create_timer(1.0, self._on_second, clock=Clock(clock_type=ClockType.STEADY_TIME))
        backward = JumpThreshold(
            min_forward=None, min_backward=Duration(nanoseconds=-BEHIND), on_clock_change=False
        )
        on_jump = self.guard(self._on_clock_jump, "clock jump")
        self._jump = self.get_clock().create_jump_callback(backward, post_callback=on_jump)

    # ------------------------------------------------ lifecycle

    def start(self) -> bool:
        """Configure and activate; False, with the reason in the log, where that fails."""
        done = TransitionCallbackReturn.SUCCESS
        return bool(self.trigger_configure() == done and self.trigger_activate() == done)

    @succeeds
    def on_configure(self, state: LifecycleState) -> None:
        self._folder = lock_map_folder(self, map_folder_of(self.config))
        try:
            with self._signals.interruptible():
                compile_loops(self, self.config)
            self._run = MappingRun(
                self, self.config, lambda: self.config.closure.reject, self._metrics, self._warnings
            )
        except BaseException:
            self._release_folder()
            raise

    @succeeds
    def on_activate(self, state: LifecycleState) -> None:
        assert self._run is not None
        self._run.worker.start()
        self._clouds = CloudInputs(self, self._warnings, self.config.points_topics, self._receive)
        names = self._clouds.topics
        self._watch, self._use = InputWatch(self, names), UseWatch(self._metrics)
        self.get_logger().info(
            f"mapping {', '.join(repr(name) for name in names)} into '{self.config.map_frame}',"
            f" poses from {DESCRIPTIONS[self.config.pose_source]}"
        )

    @succeeds
    def on_deactivate(self, state: LifecycleState) -> None:
        self._stop_input()

    @succeeds
    def on_cleanup(self, state: LifecycleState) -> None:
        if self._run is not None:
            self._run.end("cleanup")
            self._run.destroy()
        self._run = None
        self._release_folder()

    @succeeds
    def on_shutdown(self, state: LifecycleState) -> None:
        self.close()

    def close(self) -> None:
        """End the worker, whatever state the node is in, and keep the submap that is being made."""
        self._stop_input()
        if self._run is not None:
            self._run.end("shutdown")
        self._run = None  # without the folder's lock nothing may be written into it any more
        self._release_folder()

    def destroy_node(self) -> None:
        super().destroy_node()
        release_state_machine(self)

    def _stop_input(self) -> None:
        if self._clouds is not None:
            self._clouds.destroy()
        self._clouds = self._watch = None
        if self._run is not None:
            self._run.stop_worker()

    def _release_folder(self) -> None:
        if self._folder is not None:
            self._folder.release()
        self._folder = None

    # ------------------------------------------------ topics, parameters, services: in the executor's thread

    def _receive(self, message: PointCloud2 | bytes, topic: str) -> None:
        self._metrics.count("clouds received")
        if self._watch is not None:
            self._watch.heard(topic)
        if self._paused:
            self._metrics.drop_cloud("paused")
        elif self._run is not None:
            self._run.put(WaitingCloud(message, topic, time.monotonic()))

    def _on_parameters(self, changes: list[Parameter]) -> SetParametersResult:
        try:
            config = parameters.apply_changes(self.config, changes)
        except ConfigError as error:
            return SetParametersResult(successful=False, reason=str(error))
        if self._run is not None:
            self._run.reconfigure(config)
        self.config = config
        return SetParametersResult(successful=True)

    def _on_reset(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success = self._run is not None
        if self._run is not None:
            self._run.reset("asked to by service")
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
    def _locked_mapping(self) -> Iterator[MappingPipeline | None]:
        """The map between two steps of the worker; None while the node is not configured."""
        if self._run is None:
            yield None
            return
        with self._run.worker.between_steps():
            yield self._run.slam.mapping

    def _on_map_loaded(self) -> None:
        assert self._run is not None
        self._run.results.invalidate_map()
        self._run.publish_again()

    def _on_clock_jump(self, jump: TimeJump) -> None:
        if self._run is not None:
            self._run.forget_waiting()
            self._run.reset(f"time jumped back by {-jump.delta.nanoseconds / NANOSECONDS:.1f} s")

    def _on_second(self) -> None:
        problems: dict[str, str] = {}
        values, run = self._diagnostics.process_values(), self._run
        more: list[DiagnosticStatus] = []
        if self._clouds is not None:
            problems |= self._clouds.follow_types()
        if run is not None:
            if self._watch is not None:
                problems |= self._watch.problems() | self._use.problems() | run.inputs.problems()
            problems |= run.problems()
            values |= self._diagnostics.mapping_values(
                run.slam.mapping, run.results, run.inputs, run.worker.waiting
            )
            if run.results.georeferencing is not None:
                values |= run.results.georeferencing.values()
            name = self.get_fully_qualified_name().lstrip("/")
            more = [
                part.diagnostics(name) for part in (run.results.closing, run.localizing) if part is not None
            ]
        self._diagnostics.publish(problems, values, "paused" if self._paused else "mapping", more)


def main() -> int:
    limit_malloc_arenas()
    # Solvers in several threads each limit BLAS, for the whole process: the first that ends would lift it for the rest.
    with threadpool_limits(limits=1, user_api="blas"):
        try:
            return _run()
        except SecurityError as error:
            print(f"mapping_node: {error}", file=sys.stderr)
            return 2


def _run() -> int:
    freed = remove_abandoned_segments()
    with security_errors():
        rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    signals, node = SignalGuard(), None
    try:
        with security_errors():
            node = MappingNode(signals)
        if freed:
            node.get_logger().info(
                f"{freed / 1e6:.0f} MB of shared memory freed that killed processes had left"
            )
        if node.config.autostart and not node.start():
            return 0 if signals.asked else 1
        _spin(node, signals)
    except ConfigError as error:
        print(f"mapping_node: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        if node is not None:
            node.close()
            node.destroy_node()
        rclpy.try_shutdown()
    if signals.asked:
        # all is written and closed; taking the interpreter apart would cost another half second
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


def _spin(node: MappingNode, signals: SignalGuard) -> None:
    """Serve callbacks until a signal comes."""
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    while not signals.asked and rclpy.ok():
        try:
            executor.spin_once(timeout_sec=SIGNAL_PERIOD)
        except ExternalShutdownException:
            return
        except Exception as error:  # a message that cannot be decoded, most likely
            node.survive(error)
            time.sleep(AFTER_FAILURE)


if __name__ == "__main__":
    sys.exit(main())
