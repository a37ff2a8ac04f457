"""Loop closures in the node: the answers of the process that closes loops become messages.

Topics below the node's name: `loop_closure` (nav_msgs/Odometry), `closure_markers` (visualization_msgs/MarkerArray),
`path` (nav_msgs/Path), `global_map` (grid_map_msgs/GridMap, made while somebody listens), and /tf if asked for.
Service: `reject_closure` (std_srvs/Trigger), for the closure that the parameter closure.reject names.
"""

from __future__ import annotations

import datetime
import re
import threading
from collections.abc import Callable

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus
from grid_map_msgs.msg import GridMap
from nav_msgs.msg import Odometry
from nav_msgs.msg import Path as PathMessage
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.node import Node
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

from gpgmap_ros.closure.types import list_pairs
from gpgmap_ros.config import Config
from gpgmap_ros.mapping import SubmapStore
from gpgmap_ros.mapping.layers import global_map_layers
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.nodes.closure_status import ClosureStatus
from gpgmap_ros.nodes.health import Warnings
from gpgmap_ros.nodes.map_tf import MapTf
from gpgmap_ros.nodes.messages import (
    closure_markers,
    closure_message,
    grid_map_message,
    path_message,
)
from gpgmap_ros.nodes.outputs import MAP_QOS, POSES_QOS
from gpgmap_ros.slam.closure_messages import (
    Answer,
    GlobalMap,
    MakeGlobalMap,
    Problem,
    Reject,
    Rejected,
    Restored,
    Update,
)
from gpgmap_ros.slam.closure_process import ClosureProcess
from gpgmap_ros.slam.metrics import Metrics
from gpgmap_ros.slam.shared_submaps import Received

ANSWER_WITHIN = 0.3  # seconds that reject_closure waits for the process: clouds wait for no longer than that
MARKER_SHARE = 0.04  # size of a dot over that of a submap


class LoopClosing:
    """From configure to cleanup.

    config: of the node; process: the loop closures; reject: what the parameter closure.reject is now
    store: where submaps are kept, those of earlier runs as well
    """

    def __init__(
        self,
        node: Node,
        config: Config,
        process: ClosureProcess,
        reject: Callable[[], str],
        metrics: Metrics,
        warnings: Warnings,
        store: SubmapStore | None = None,
    ) -> None:
        self._node, self._config, self._reject_name = node, config, reject
        self._store, self._joined = store, set[int]()
        self._shared: dict[int, str] = {}  # topics of other robots, by the session of their submaps
        self._shared_ids: dict[int, int] = {}
        self._metrics, self._warnings, self._process = metrics, warnings, process
        self._T_map_odom = np.eye(4)
        self._stamps: dict[int, int] = {}
        self._update: Update | None = None
        self._status = ClosureStatus(process)
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
        self._tf: MapTf | None = None
        if config.closure.publish_tf:
            self._tf = MapTf(node, config.closure.frame, config.map_frame, lambda: self._T_map_odom)

    def start(self, count: int) -> None:
        """Begin to read what earlier runs left in the folder: so many submaps."""
        self._node.get_logger().info(f"{count} submaps of earlier runs are in the map folder: reading them")
        self._process.start()

    def expect(self, submap: Submap) -> None:
        """A submap is finished and will be compared: messages about it carry its stamp."""
        self._stamps[submap.id] = submap.last_stamp

    def on_shared(self, topic: str, received: Received) -> None:
        """A submap of another robot has come, and will be compared. topic: where it came from"""
        if received.session not in self._shared:
            self._node.get_logger().info(f"the first submap on '{topic}' is here: number {received.id}")
        self._shared[received.session], self._shared_ids[received.id] = topic, received.session
        self.expect(received.submap)
        if received.not_written:
            self._warnings.warn("submap not stored", received.not_written)

    def stop(self) -> None:
        """End the process; what it did not get to is done in the next run, from the folder."""
        with self._publishing:
            self._ended = True
        self._process.close()

    def destroy(self) -> None:
        self.stop()
        if self._tf is not None:
            self._tf.destroy()
        self._node.destroy_service(self._service)
        for publisher in self._publishers:
            self._node.destroy_publisher(publisher)

    # ------------------------------------------------ in the thread that hears the process

    def receive(self, answer: Answer) -> None:
        """Publish what an answer says."""
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
            self._metrics.count("problems of the loop closures")
            self._warnings.warn("closures", f"loop closures: {answer.text}")

    def _on_restored(self, found: Restored) -> None:
        self._status.restored = found
        text = f"found {found.submaps} submaps of {found.drives} earlier drives and {found.closures} closures"
        if found.waiting:
            text += f"; {found.waiting} submaps have not been compared yet: that is done now"
        self._node.get_logger().info(text)

    def _on_update(self, update: Update) -> None:
        self._update = self._status.update = update
        if update.earlier:  # this drive has an odometry of its own: nothing corrects that yet
            accepted = int(update.accepted.sum())
            self._node.get_logger().info(
                f"earlier drives are corrected: {len(update.ids)} submaps in one frame, {accepted} closures"
            )
        else:
            self._T_map_odom = update.T_map_odom
        for closure in update.compared:
            if not closure.accepted:
                self._metrics.count("closures refused")
                text = f"submap {closure.b} with {closure.a}: {closure.reason}"
                self._node.get_logger().debug(f"no closure: {text}")
        for closure in update.news:
            self._metrics.count("closures accepted")
            text = f"submap {closure.b} with {closure.a}: {closure.reason}"
            self._node.get_logger().info(f"loop closed: {text}")
            self._tell_session(closure.a, closure.b)
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

    def _tell_session(self, a: int, b: int) -> None:
        """Say which earlier session, or which other robot, this drive has joined, once for each."""
        known = self._shared_ids if self._store is None else {**self._store.sessions(), **self._shared_ids}
        for one, other in ((a, b), (b, a)):
            session = known.get(one, -1)
            if session in self._shared and known.get(other) not in self._shared:
                if session not in self._joined:
                    self._joined.add(session)
                    text = f"this drive is joined to that of the robot on '{self._shared[session]}'"
                    self._status.joined.append(text)
                    self._node.get_logger().info(text)
                return
        earlier, own = known.get(a), known.get(b)
        if earlier is None or own is None or earlier == own or earlier in self._joined:
            return
        self._joined.add(earlier)
        began = datetime.datetime.fromtimestamp(earlier / 1e9, datetime.UTC)
        count = sum(session == earlier for session in known.values())
        text = f"this drive has joined the session of {began:%Y-%m-%d %H:%M:%S} UTC ({count} submaps)"
        self._status.joined.append(text)
        self._node.get_logger().info(text)

    def _on_global_map(self, answer: GlobalMap) -> None:
        self._stitching = False
        self._metrics.add_duration("stitching the global map", answer.seconds)
        if answer.gpgmap is None:
            self._warnings.warn("global map", f"no global map: {answer.problem}")
        else:
            layers = global_map_layers(answer.gpgmap.layers)
            self._global_map.publish(grid_map_message(answer.gpgmap, layers))
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
            response.message = f"there is no closure between submaps {a} and {b}; {list_pairs(there)}"
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
        """What became of closures so far. name: of the node"""
        return self._status.diagnostics(name)
