"""Loop closures in the node: finished submaps go to the process that closes loops, its answers become messages.

Topics below the node's name: `loop_closure` (nav_msgs/Odometry), `closure_markers` (visualization_msgs/MarkerArray),
`path` (nav_msgs/Path), `global_map` (grid_map_msgs/GridMap, made while somebody listens), and /tf if asked for.
Service: `reject_closure` (std_srvs/Trigger), for the closure that the parameter closure.reject names.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from grid_map_msgs.msg import GridMap
from nav_msgs.msg import Odometry
from nav_msgs.msg import Path as PathMessage
from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.time import Time
from std_srvs.srv import Trigger
from tf2_msgs.msg import TFMessage
from visualization_msgs.msg import MarkerArray

from gpgmap_ros.closure.backlog import Backlog
from gpgmap_ros.closure.process import ClosureProcess
from gpgmap_ros.closure.requests import (
    Add,
    Answer,
    GlobalMap,
    MakeGlobalMap,
    Problem,
    Reject,
    Rejected,
    Restored,
    Update,
)
from gpgmap_ros.closure.session import listed
from gpgmap_ros.config import Config
from gpgmap_ros.mapping import SubmapStore
from gpgmap_ros.mapping.layers import POSE_VARIANCE
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.nodes.health import Warnings, resident_megabytes
from gpgmap_ros.nodes.messages import (
    closure_markers,
    closure_message,
    grid_map_message,
    path_message,
    transform_message,
)
from gpgmap_ros.nodes.outputs import MAP_QOS, POSES_QOS
from gpgmap_ros.nodes.tally import Tally

GLOBAL_MAP_LAYERS = (
    "elevation",
    "variance",
    "gradient_x",
    "gradient_y",
    "gradient_magnitude",
    "traversability",
)
TF_PERIOD = 0.1  # seconds between two transforms
TF_AHEAD = 0.2  # seconds that a transform is stamped ahead, so that it is there for clouds of this moment
ANSWER_WITHIN = 0.3  # seconds that reject_closure waits for the process: clouds wait for no longer than that
MARKER_SHARE = 0.04  # size of a dot over that of a submap


class LoopClosing:
    """From configure to cleanup.

    config: of the node; store: where submaps are kept, None if nowhere; reject: what closure.reject says now
    """

    def __init__(
        self,
        node: Node,
        config: Config,
        store: SubmapStore | None,
        reject: Callable[[], str],
        tally: Tally,
        warnings: Warnings,
    ) -> None:
        self._node, self._config, self._reject_name = node, config, reject
        self._tally, self._warnings = tally, warnings
        self._store = store
        folder, next_id = (store.folder.parent, store.next_id) if store is not None else (None, 0)
        self._process = ClosureProcess(config, folder, self._receive, next_id)
        self._T_map_odom = np.eye(4)
        self._stamps: dict[int, int] = {}
        self._update: Update | None = None
        self._restored: Restored | None = None
        self._backlog = Backlog()
        self._answers: dict[int, Rejected] = {}
        self._answered = threading.Condition()
        self._tokens = 0
        self._stitching = self._outdated = self._ended = False
        self._publishing = threading.Lock()
        events = PublisherEventCallbacks(
            matched=lambda status: self._want_global_map() if status.current_count_change > 0 else None
        )
        self._closure = node.create_publisher(Odometry, "~/loop_closure", POSES_QOS)
        self._markers = node.create_publisher(MarkerArray, "~/closure_markers", MAP_QOS)
        self._path = node.create_publisher(PathMessage, "~/path", MAP_QOS)
        self._global_map = node.create_publisher(GridMap, "~/global_map", MAP_QOS, event_callbacks=events)
        self._publishers = [self._closure, self._markers, self._path, self._global_map]
        self._service = node.create_service(Trigger, "~/reject_closure", self._on_reject)
        self._timer = None
        if config.closure.publish_tf:
            self._tf = node.create_publisher(TFMessage, "/tf", QoSProfile(depth=100))
            self._publishers.append(self._tf)
            self._transform_sent: Time | None = None
            # by the wall: simulated time may stand still, and the transform must be there when it goes on
            clock = Clock(clock_type=ClockType.STEADY_TIME)
            self._timer = node.create_timer(TF_PERIOD, self._send_transform, clock=clock)

    def start(self) -> None:
        """Begin to read what earlier runs left in the folder, and say so."""
        count = 0 if self._store is None else len(self._store)
        self._node.get_logger().info(f"{count} submaps of earlier runs are in the map folder: reading them")
        self._process.start()

    def add(self, submap: Submap, stored: bool) -> None:
        """A submap was finished; whether it is in the folder. Never waits."""
        self._stamps[submap.id] = submap.last_stamp
        self._process.ask(Add(submap.id, None if stored and self._store is not None else submap))

    def stop(self) -> None:
        """End the process; what it did not get to is done in the next run, from the folder."""
        with self._publishing:
            self._ended = True
        self._process.close()

    def destroy(self) -> None:
        self.stop()
        if self._timer is not None:
            self._node.destroy_timer(self._timer)
        self._node.destroy_service(self._service)
        for publisher in self._publishers:
            self._node.destroy_publisher(publisher)

    # ------------------------------------------------ in the thread that hears the process

    def _receive(self, answer: Answer) -> None:
        with self._publishing:  # nothing is published once the publishers may be gone
            if not self._ended:
                self._handle(answer)

    def _handle(self, answer: Answer) -> None:
        if isinstance(answer, Update):
            self._on_update(answer)
        elif isinstance(answer, Restored):
            self._on_restored(answer)
        elif isinstance(answer, GlobalMap):
            self._on_global_map(answer)
        elif isinstance(answer, Rejected):
            with self._answered:
                self._answers[answer.token] = answer
                self._answered.notify_all()
        elif isinstance(answer, Problem):
            self._stitching = False
            self._tally.count("problems of the loop closures")
            self._warnings.warn("closures", f"loop closures: {answer.text}")

    def _on_restored(self, found: Restored) -> None:
        self._restored = found
        text = f"found {found.submaps} submaps of {found.drives} earlier drives and {found.closures} closures"
        if found.waiting:
            text += f"; {found.waiting} submaps have not been compared yet: that is done now"
        self._node.get_logger().info(text)

    def _on_update(self, update: Update) -> None:
        self._update = update
        if update.earlier:  # this drive has an odometry of its own: nothing corrects that yet
            accepted = int(update.accepted.sum())
            self._node.get_logger().info(
                f"earlier drives are corrected: {len(update.ids)} submaps in one frame, {accepted} closures"
            )
        else:
            self._T_map_odom = update.T_map_odom
            self._tally.took("comparing a submap", update.seconds)
        for closure in update.compared:
            if not closure.accepted:
                self._tally.count("closures refused")
                text = f"submap {closure.b} with {closure.a}: {closure.reason}"
                self._node.get_logger().debug(f"no closure: {text}")
        for closure in update.news:
            self._tally.count("closures accepted")
            text = f"submap {closure.b} with {closure.a}: {closure.reason}"
            self._node.get_logger().info(f"loop closed: {text}")
            self._closure.publish(closure_message(closure, self._stamps.get(closure.b, 0)))
        stamp = self._stamps.get(update.newest, int(update.stamps[-1]) if len(update.stamps) else 0)
        frame = self._config.closure.frame
        self._path.publish(path_message(update.stamps, update.track, frame, stamp))
        size = MARKER_SHARE * self._config.submap.size
        self._markers.publish(
            closure_markers(update.ids, update.poses, update.pairs, update.accepted, frame, stamp, size)
        )
        if update.problem:
            self._warnings.warn(
                "pose graph", f"loop closures are found, but poses stay as they are: {update.problem}"
            )
        self._want_global_map()

    def _on_global_map(self, answer: GlobalMap) -> None:
        self._stitching = False
        self._tally.took("stitching the global map", answer.seconds)
        if answer.gpgmap is None:
            self._warnings.warn("global map", f"no global map: {answer.problem}")
        else:
            extra = [POSE_VARIANCE] if POSE_VARIANCE in answer.gpgmap.layers else []
            self._global_map.publish(grid_map_message(answer.gpgmap, (*GLOBAL_MAP_LAYERS, *extra)))
        if self._outdated:
            self._want_global_map()

    def _want_global_map(self) -> None:
        """Have the global map made if somebody listens, one at a time."""
        if not self._global_map.get_subscription_count():
            return
        self._outdated = self._stitching
        if not self._stitching:
            self._stitching = True
            self._process.ask(MakeGlobalMap())

    # ------------------------------------------------ in the executor's thread

    def _send_transform(self) -> None:
        now = self._node.get_clock().now()
        if now == self._transform_sent:
            return  # time stands still: tf2 would complain about the same stamp again
        self._transform_sent = now
        stamp = (now + Duration(nanoseconds=round(TF_AHEAD * 1e9))).to_msg()
        self._tf.publish(
            transform_message(self._T_map_odom, self._config.closure.frame, self._config.map_frame, stamp)
        )

    def _on_reject(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        name = self._reject_name()
        match = re.fullmatch(r"\s*(\d{1,15})\s*-\s*(\d{1,15})\s*", name)
        if match is None:
            response.success = False
            response.message = (
                f"closure.reject is '{name[:40]}': set it to the numbers of two submaps, as in '3-17'"
            )
            return response
        a, b = sorted((int(match[1]), int(match[2])))
        there = self._closures_there()
        if (a, b) not in there:
            response.success = False
            response.message = f"there is no closure between submaps {a} and {b}; {listed(there)}"
            return response
        self._tokens += 1
        token = self._tokens
        self._process.ask(Reject(a, b, token))
        with self._answered:
            self._answered.wait_for(lambda: token in self._answers, ANSWER_WITHIN)
            answer = self._answers.pop(token, None)
        if answer is None:
            response.success, response.message = (
                True,
                "asked for: it is done after the submap that is being compared",
            )
        else:
            response.success, response.message = answer.done, answer.message
        return response

    def _closures_there(self) -> list[tuple[int, int]]:
        """The closures that the process has told of, whether they are in the graph or overruled."""
        pairs = [] if self._update is None else self._update.pairs.tolist()
        return [(min(pair), max(pair)) for pair in pairs]

    def diagnostics(self, name: str) -> DiagnosticStatus:
        """What became of closures so far."""
        update = self._update
        backlog = self._process.backlog
        values = {
            "requests waiting": str(self._process.waiting),
            "submaps waiting to be compared": str(backlog),
        }
        if self._process.pid is not None:
            values["resident memory of the process (MB)"] = f"{resident_megabytes(self._process.pid):.0f}"
        message = "no submap has been compared yet"
        level = DiagnosticStatus.OK
        if update is not None:
            T = update.T_map_odom
            yaw = float(np.degrees(np.arctan2(T[1, 0], T[0, 0])))
            accepted = int(update.accepted.sum())
            values |= {
                "submaps in the graph": str(len(update.ids)),
                "submaps that show no place": str(update.skipped),
                "comparisons": str(update.count),
                "closures in the graph": str(accepted),
                "closures overruled or rejected": str(len(update.accepted) - accepted),
                "correction map <- odom (m)": f"{np.linalg.norm(T[:3, 3]):.3f}",
                "correction map <- odom (deg)": f"{yaw:.2f}",
            }
            message = f"{accepted} closures over {len(update.ids)} submaps"
            if update.earlier:
                message += " of earlier drives"
            elif not update.located:
                message += "; not found in the earlier map yet"
        elif self._restored is not None and backlog:
            message = (
                f"{backlog} of {self._restored.submaps} submaps of earlier drives are still to be compared"
            )
        problems = [
            update.problem if update is not None else "",
            self._backlog.problem(backlog, time.monotonic()),
        ]
        if any(problems):
            message, level = "; ".join(filter(None, problems)), DiagnosticStatus.WARN
        return DiagnosticStatus(
            level=level,
            name=f"{name}: loop closure",
            message=message,
            values=[KeyValue(key=key, value=value) for key, value in values.items()],
        )
