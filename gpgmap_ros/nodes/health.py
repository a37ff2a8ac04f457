"""Plain, throttled warnings for what goes wrong outside the node: silent sensors, missing publishers, a stuck clock."""

from __future__ import annotations

import os
import time

from rclpy.clock import ClockType
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import qos_policy_name_from_kind

from gpgmap_ros.sensing.livox import LIVOX_TYPES
from gpgmap_ros.sensing.pose_filter import PROBLEM_PERIOD
from gpgmap_ros.slam.metrics import DROPPED, Metrics

WARN_EVERY = 5.0  # seconds between two warnings of one kind
SILENT_AFTER = 5.0  # seconds without a cloud, by the node's clock: a paused bag is not a silent sensor
UNUSED_AFTER = 5.0  # seconds in which clouds were dropped and none was used
CLOUD_TYPE = "sensor_msgs/msg/PointCloud2"


class Warnings:
    """Says each kind of thing at once, and then at most every few seconds (rclpy throttles by line of code only)."""

    def __init__(self, node: Node) -> None:
        self._logger = node.get_logger()
        self._last: dict[str, float] = {}

    def warn(self, kind: str, text: str) -> None:
        now = time.monotonic()
        if now - self._last.get(kind, float("-inf")) >= WARN_EVERY:
            self._last[kind] = now
            self._logger.warning(text)


class RefusedLoops:
    """Transforms that would have closed a loop of frames; `problems` names the latest for a while."""

    def __init__(self) -> None:
        self.count, self._text, self._last = 0, "", float("-inf")

    def add(self, topic: str, text: str) -> None:
        """topic: where the transform came from; text: which frames"""
        self.count, self._text, self._last = self.count + 1, f"on '{topic}': {text}", time.monotonic()

    def problems(self) -> dict[str, str]:
        """Kind of problem -> what it is and what to do."""
        if time.monotonic() - self._last > PROBLEM_PERIOD:
            return {}
        text = (
            f"transforms refused: {self.count}, the latest {self._text}: let only one node publish each frame"
        )
        return {"transform loop": text}


class UseWatch:
    """Watches whether clouds that come in are used; `problems` says so if for a while none was."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics, self._before, self._since = metrics, metrics.counts(), time.monotonic()

    def problems(self) -> dict[str, str]:
        """Kind of problem -> what it is and what to do."""
        counts = self._metrics.counts()
        dropped = {
            name.removeprefix(DROPPED): count - self._before[name]
            for name, count in counts.items()
            if name.startswith(DROPPED) and count > self._before[name]
        }
        # a node that is paused does what it was asked to
        if counts["clouds used"] > self._before["clouds used"] or not dropped or "paused" in dropped:
            self._before, self._since = counts, time.monotonic()
        unused = time.monotonic() - self._since
        if unused <= UNUSED_AFTER:
            return {}
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
        text = f"no cloud was used for {unused:.0f} s (dropped: {reasons}): the log says why"
        return {"no cloud used": text}


class InputWatch:
    """Watches the cloud topics; `problems` says what is wrong with them now."""

    def __init__(self, node: Node, topics: list[str]) -> None:
        self._node, self._topics = node, topics
        self._started = time.monotonic()
        self._last_cloud = dict.fromkeys(topics, node.get_clock().now().nanoseconds)

    def heard(self, topic: str) -> None:
        self._last_cloud[topic] = self._node.get_clock().now().nanoseconds

    def problems(self) -> dict[str, str]:
        """Kind of problem -> what it is and what to do."""
        found: dict[str, str] = {}
        if self._clock_stands_still():
            found["clock"] = (
                "use_sim_time is set, but no time comes on '/clock': play the bag with --clock, or unset use_sim_time"
            )
            return found
        now = self._node.get_clock().now().nanoseconds
        for topic in self._topics:
            if self._last_cloud[topic] == 0:  # simulated time has only now begun, at whatever the bag says
                self._last_cloud[topic] = now
            silence = (now - self._last_cloud[topic]) / 1e9
            if silence > SILENT_AFTER:
                found[f"silent {topic}"] = self._why_silent(topic, silence)
        return found

    def _clock_stands_still(self) -> bool:
        clock = self._node.get_clock()
        simulated = clock.clock_type == ClockType.ROS_TIME and clock.ros_time_is_active
        return simulated and clock.now().nanoseconds == 0 and time.monotonic() - self._started > SILENT_AFTER

    def _why_silent(self, topic: str, silence: float) -> str:
        publishers = self._node.get_publishers_info_by_topic(topic)
        if publishers:
            names = ", ".join(
                sorted({f"{item.node_namespace.rstrip('/')}/{item.node_name}" for item in publishers})
            )
            types = {item.topic_type for item in publishers}
            if not types & {CLOUD_TYPE, *LIVOX_TYPES}:
                return f"'{topic}' carries {', '.join(sorted(types))} from {names}, not {CLOUD_TYPE}: remap `points`"
            return f"no cloud on '{topic}' for {silence:.0f} s, though {names} publishes it: is the sensor running?"
        others = sorted(name for name, types in self._node.get_topic_names_and_types() if CLOUD_TYPE in types)
        own = f"{self._node.get_fully_qualified_name()}/"
        others = [name for name in others if not name.startswith(own) and self._node.count_publishers(name)]
        hint = (
            f"clouds are on {', '.join(others)}: remap with points:={others[0]}"
            if others
            else "start the sensor's driver"
        )
        return f"nobody publishes on '{topic}' ({hint})"


def incompatible_qos_warning(warnings: Warnings, topic: str, remedy: str) -> SubscriptionEventCallbacks:
    """Event callbacks that say which policy keeps a publisher's messages away, and what to do."""

    def warn(event: object) -> None:
        policy = qos_policy_name_from_kind(event.last_policy_kind)  # type: ignore[attr-defined]
        warnings.warn(
            f"qos {topic}",
            f"a publisher of '{topic}' offers an incompatible {policy}: nothing is received from it; {remedy}",
        )

    return SubscriptionEventCallbacks(incompatible_qos=warn)


def resident_megabytes(pid: int | str = "self") -> float:
    """Memory of a process in use; 0 where it has just ended."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return 0.0
