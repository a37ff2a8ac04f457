"""Publishes what the SLAM loop finds: the map when it is due, each submap, and loop closures."""

from __future__ import annotations

import traceback
from contextlib import AbstractContextManager

from rclpy.node import Node

from gpgmap_ros.mapping import GPGMap, Submap
from gpgmap_ros.nodes.georeferencing import Georeferencing
from gpgmap_ros.nodes.health import Warnings
from gpgmap_ros.nodes.loop_closing import LoopClosing
from gpgmap_ros.nodes.map_sender import MapSender
from gpgmap_ros.nodes.outputs import MapPublishers
from gpgmap_ros.nodes.submap_sharing import SubmapSender
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS
from gpgmap_ros.slam import MappingPipeline, SlamListener
from gpgmap_ros.slam.closure_messages import Answer, Update
from gpgmap_ros.slam.map_solving import MapToSolve, SolvedMap
from gpgmap_ros.slam.metrics import Metrics

PLAUSIBLE_LATENCY = 3600.0  # seconds: beyond it the stamps are of another time than the clock
UNFINISHED = ("cleanup", "load_map", "reset", "shutdown")  # what ends a submap before its limits do


class ResultPublisher(SlamListener):
    """From configure to cleanup.

    outputs: publishers of maps and submaps; closing: publishers of loop closures, None where those are off
    georeferencing: by GPS, None where that is off; sharing: sends submaps to other robots, None where there are none
    coverage: share of the last map that is known; not_written: why the last submap is not on the disk, or empty
    """

    def __init__(
        self, node: Node, outputs: MapPublishers, map_frame: str, metrics: Metrics, warnings: Warnings
    ) -> None:
        self._node, self._outputs, self._map_frame = node, outputs, map_frame
        self._metrics, self._warnings = metrics, warnings
        self.closing: LoopClosing | None = None
        self.georeferencing: Georeferencing | None = None
        self.sharing: SubmapSender | None = None
        self.coverage: float | None = None
        self.not_written = ""
        self._map: GPGMap | None = None
        """As it was last solved; None where it has changed since."""
        self._state = object()
        """Of the map of the moment: another one after each change."""
        self._last: MapToSolve | None = None
        """What was last solved; None where nothing of it is left to renew."""
        self._sender: MapSender[GPGMap] = MapSender(self._send, self._on_unsent)

    def invalidate_map(self) -> None:
        """The map has changed since it was solved."""
        self._map, self._state = None, object()

    def forget_map(self) -> None:
        """The map is no more: none of it goes out from now on."""
        self.invalidate_map()
        self._sender.forget()

    def publish_map(
        self, mapping: MappingPipeline, between_steps: AbstractContextManager[object], due: bool
    ) -> None:
        """Solve the map, if it is due and somebody listens or if clouds want to be compared with it, and have it sent.

        between_steps: held only to take what is to be solved and to give back what came of it: clouds go on meanwhile
        """
        due = due and self._outputs.has_subscribers()
        with between_steps:
            if self._map is not None:
                if due:
                    self._sender.put(self._map)
                return
            task = mapping.map_to_solve() if due or mapping.wants_surface else None
            state = self._state
        if task is None:
            return
        with self._metrics.timed("solving"):
            solved = task.solve()
        self._last = task
        with between_steps:
            if self._take(solved, mapping, state) and due:
                self._sender.put(solved.gpgmap)

    def renew_map(self, mapping: MappingPipeline, between_steps: AbstractContextManager[object]) -> bool:
        """Solve what the last map has left for later; whether the map to be sent is another one now."""
        with between_steps:
            task, self._last, state = self._last, None, self._state
        if task is None:
            return False
        with self._metrics.timed("renewing"):
            renewed = task.renew()
        with between_steps:
            return renewed is not None and self._take(renewed, mapping, state)

    def _take(self, solved: SolvedMap, mapping: MappingPipeline, state: object) -> bool:
        """Compare clouds with a map that was solved, and keep it to be sent; False if the map is another one now."""
        if not mapping.look_at(solved):
            return False
        if state is self._state:
            self._map = solved.gpgmap
        return True

    def _send(self, gpgmap: GPGMap) -> None:
        """Build the messages of a map and publish them; in the sender's thread."""
        self.coverage = float(gpgmap.known.mean())
        with self._metrics.timed("sending"):
            topics = self._outputs.publish(gpgmap)
        if topics:
            self._metrics.count("maps published")
            latency = (self._node.get_clock().now().nanoseconds - gpgmap.stamp) / NANOSECONDS
            if abs(latency) < PLAUSIBLE_LATENCY:
                self._metrics.add_duration("latency, stamp to map", latency)

    def _on_unsent(self, error: Exception) -> None:
        self._metrics.count("maps not sent")
        where = "".join(traceback.format_exception(error))
        self._warnings.warn("map not sent", f"a map is not published: please report this\n{where}")

    @property
    def replaced(self) -> int:
        """Maps that were not sent, because a newer one came while the one before was still being sent."""
        return self._sender.replaced

    def on_submap(self, submap: Submap | None, error: str) -> None:
        if submap is not None:
            self._metrics.count("submaps finished")
            self._outputs.publish_submap(submap, self._map_frame)
            if self.closing is not None:
                self.closing.expect(submap)
            if self.sharing is not None:
                self.sharing.add(submap, stored=not error)
            if submap.ended_by in UNFINISHED and not error:
                self._node.get_logger().info(
                    f"the unfinished submap is kept as number {submap.id} ({submap.ended_by})"
                )
            self.not_written = error
        if error:
            self._metrics.count("submaps not stored")
            self._warnings.warn("submap not stored", error)

    def on_answer(self, answer: Answer) -> None:
        if self.closing is not None:
            self.closing.receive(answer)
        if self.georeferencing is not None and isinstance(answer, Update):
            self.georeferencing.on_update(answer)

    def on_failure(self, error: Exception) -> None:
        """An error of the program itself: the cloud or submap is lost, and the log has the traceback."""
        self._metrics.drop_cloud("internal_error")
        where = "".join(traceback.format_exception(error))
        self._warnings.warn("internal error", f"cloud dropped (internal_error): please report this\n{where}")

    def stop_sending(self) -> None:
        """Send no more maps; submaps and closures still go out."""
        self._sender.close()

    def destroy(self) -> None:
        self.stop_sending()
        if self.sharing is not None:
            self.sharing.destroy()
        if self.closing is not None:
            self.closing.destroy()
        if self.georeferencing is not None:
            self.georeferencing.destroy()
        self._outputs.destroy()
