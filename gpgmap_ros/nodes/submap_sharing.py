"""Submaps over DDS between robots: this node's are sent on `~/submap/archive`, those of others are received there.

Topic: std_msgs/UInt8MultiArray, the bytes of a submap's archive, reliable. Nothing is made or sent while nobody
listens; whoever comes gets all submaps of this run that are kept, each when the one before has arrived.
"""

from __future__ import annotations

import array
import time
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rclpy.duration import Duration
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from std_msgs.msg import UInt8MultiArray

from gpgmap_ros.mapping import Submap, SubmapStore
from gpgmap_ros.nodes.health import Warnings
from gpgmap_ros.nodes.task_thread import Task, TaskThread
from gpgmap_ros.slam.metrics import Metrics
from gpgmap_ros.slam.shared_submaps import (
    MAX_BYTES,
    Received,
    SharedSubmapError,
    SharedSubmaps,
    encode_submap,
)

SHARING_QOS = QoSProfile(
    depth=4, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.VOLATILE
)
ARRIVED_WITHIN, LOOK_EVERY = 10.0, Duration(seconds=0.2)
"""Seconds for a submap to reach all that listen before the next one is sent: a slow radio gets what it can take."""
KEPT = 8
"""Submaps that are kept in memory for who comes later, where there is no map folder."""
MAX_WAITING = 32
"""Received archives, of some megabytes each, that may wait to be read."""


def archive_topic(submap_topic: str) -> str:
    """Where the archives of a node travel whose submaps are on `submap_topic`."""
    return f"{submap_topic.rstrip('/')}/archive"


class SubmapSender:
    """Sends the finished submaps of this run, in a thread of its own.

    store: where they are kept; None: the last `KEPT` are kept in memory
    """

    def __init__(self, node: Node, store: SubmapStore | None, metrics: Metrics, warnings: Warnings) -> None:
        self._node, self._store, self._metrics, self._warnings = node, store, metrics, warnings
        self._own: list[Path | Submap] = []
        self._next = 0
        self._thread = TaskThread("submap sender", self._take)
        events = PublisherEventCallbacks(
            matched=lambda status: self._send_again() if status.current_count_change > 0 else None
        )
        self._publisher = node.create_publisher(
            UInt8MultiArray, "~/submap/archive", SHARING_QOS, event_callbacks=events
        )
        self._thread.start()

    def add(self, submap: Submap, stored: bool) -> None:
        """A submap of this robot is finished. stored: it is in the store"""
        with self._thread.changed:
            if stored and self._store is not None:
                self._own.append(self._store.path(submap.id))
            else:
                self._own.append(submap)
                kept = [k for k, item in enumerate(self._own) if isinstance(item, Submap)]
                if len(kept) > KEPT:
                    del self._own[kept[0]]
                    self._next -= kept[0] < self._next
            self._thread.changed.notify_all()

    def close(self) -> None:
        """Send no more, and wait for the one that is being sent."""
        self._thread.close()

    def destroy(self) -> None:
        self.close()
        self._node.destroy_publisher(self._publisher)

    def _send_again(self) -> None:
        """Somebody new listens: begin with the first submap; the others know those that they have."""
        with self._thread.changed:
            self._next = 0
            self._thread.changed.notify_all()

    def _take(self) -> Task | None:
        if self._next >= len(self._own) or not self._publisher.get_subscription_count():
            return None
        self._next += 1
        return partial(self._try_to_send, self._own[self._next - 1])

    def _try_to_send(self, item: Path | Submap) -> None:
        try:
            self._send(item)
        except Exception as error:  # a file that is gone, a disk that is full
            self._metrics.count("submaps not sent")
            self._warnings.warn("submap not sent", f"a submap is not sent to other robots: {error}")

    def _send(self, item: Path | Submap) -> None:
        data = encode_submap(item) if isinstance(item, Submap) else item.read_bytes()
        self._publisher.publish(UInt8MultiArray(data=array.array("B", data)))
        self._metrics.count("submaps sent")
        deadline = time.monotonic() + ARRIVED_WITHIN
        while not self._thread.closing and time.monotonic() < deadline:
            if self._publisher.wait_for_all_acked(LOOK_EVERY):
                return


class SubmapReceiver:
    """Receives the submaps of other robots, and reads them in a thread of its own.

    topics: `submap` of their nodes; received: told of each that was taken in, with the topic
    """

    def __init__(
        self,
        node: Node,
        topics: tuple[str, ...],
        shared: SharedSubmaps,
        received: Callable[[str, Received], None],
        metrics: Metrics,
        warnings: Warnings,
    ) -> None:
        self._node, self._shared, self._received = node, shared, received
        self._metrics, self._warnings = metrics, warnings
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._thread = TaskThread("submap receiver", self._take)
        self._thread.start()
        self._subscriptions = [
            node.create_subscription(
                UInt8MultiArray,
                archive_topic(topic),
                lambda message, topic=topic: self._put(topic, message),
                SHARING_QOS,
            )
            for topic in topics
        ]

    def close(self) -> None:
        """Read no more; what waits is sent again in the next run."""
        self._thread.close()

    def destroy(self) -> None:
        self.close()
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)

    def _put(self, topic: str, message: UInt8MultiArray) -> None:
        """In the executor's thread: nothing is read here."""
        if len(message.data) > MAX_BYTES:
            self._refuse(topic, f"it has {len(message.data):,} bytes, {MAX_BYTES:,} are allowed")
            return
        with self._thread.changed:
            if len(self._waiting) >= MAX_WAITING:
                self._refuse(topic, f"{MAX_WAITING} wait already")
                return
            self._waiting.append((topic, bytes(message.data)))
            self._thread.changed.notify_all()

    def _take(self) -> Task | None:
        return partial(self._read, *self._waiting.popleft()) if self._waiting else None

    def _read(self, topic: str, data: bytes) -> None:
        try:
            found = self._shared.receive(topic, data)
            if found is not None:
                self._metrics.count("submaps received")
                self._received(topic, found)
        except SharedSubmapError as error:
            self._refuse(topic, str(error))
        except Exception as error:
            where = "".join(traceback.format_exception(error))
            self._refuse(topic, f"please report this\n{where}")

    def _refuse(self, topic: str, why: str) -> None:
        self._metrics.count("submaps refused")
        self._warnings.warn(f"refused {topic}", f"a submap on '{topic}' is refused: {why}")
