"""Publish a recording on its topics, at its own pace, with /clock: for people without `ros2 bag` (`gpgmap play`).

ROS 1 messages are rewritten as ROS 2's. Stamps stay those of the recording: listeners set use_sim_time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

import rclpy
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile
from rosbags.typesys import Stores, get_typestore
from rosgraph_msgs.msg import Clock

from gpgmap_ros.io.bags import BagError
from gpgmap_ros.io.recordings import SAME_LAYOUT, Message
from gpgmap_ros.nodes.bag_player import message_class
from gpgmap_ros.nodes.messages import time_message
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

CLOCK_PERIOD = 0.01
"""Seconds between two messages on /clock, while nothing else is sent."""
LINGER = 0.5
"""Seconds for the last messages to leave before the participant does."""


class RecordingPlayer(Node):
    """Publishes messages when they are due.

    types: name of the type of each topic to be published; rate: times real time; clock: whether to publish /clock
    """

    def __init__(self, types: dict[str, str], rate: float, clock: bool) -> None:
        super().__init__("gpgmap_play")
        self._rate = rate
        self._topics = {
            name: self._publisher(name, SAME_LAYOUT.get(kind, kind)) for name, kind in types.items()
        }
        self._clock_publisher = self.create_publisher(Clock, "/clock", 10) if clock else None
        self._types = get_typestore(Stores.ROS2_JAZZY)
        self.sent: Counter[str] = Counter()

    def _publisher(self, topic: str, type_name: str) -> Publisher:
        static = topic.endswith("tf_static")
        durability = DurabilityPolicy.TRANSIENT_LOCAL if static else DurabilityPolicy.VOLATILE
        return self.create_publisher(
            message_class(type_name), topic, QoSProfile(depth=100, durability=durability)
        )

    def listeners(self) -> int:
        return sum(publisher.get_subscription_count() for publisher in self._topics.values())

    def wait_for_listener(self, timeout: float) -> bool:
        """Whether somebody subscribes to any of the topics within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not self.listeners():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def play(self, messages: Iterable[Message], progress: Callable[[int, float], None]) -> None:
        """progress: told the time of the recording and how many seconds it is behind"""
        start = first = None
        for message in messages:
            if start is None or first is None:
                start, first = time.monotonic(), message.time
            due = start + (message.time - first) / NANOSECONDS / self._rate
            while (left := due - time.monotonic()) > 0.0:
                self._tick(message.time - round(left * self._rate * NANOSECONDS))
                time.sleep(min(left, CLOCK_PERIOD))
            self._tick(message.time)
            self._topics[message.topic].publish(self._serialise(message))
            self.sent[message.topic] += 1
            progress(message.time, max(-left, 0.0))
        time.sleep(LINGER)

    def _tick(self, now: int) -> None:
        if self._clock_publisher is not None:
            self._clock_publisher.publish(Clock(clock=time_message(now)))

    def _serialise(self, message: Message) -> bytes:
        if message.encoding != "ros1":
            return bytes(message.data)
        kind = SAME_LAYOUT.get(message.type_name, message.type_name)
        return bytes(self._types.ros1_to_cdr(message.data, kind))


def installed(type_name: str) -> bool:
    """Can messages of this type be published here?"""
    try:
        message_class(SAME_LAYOUT.get(type_name, type_name))
    except BagError:
        return False
    return True


def play(
    types: dict[str, str],
    messages: Iterable[Message],
    rate: float,
    clock: bool,
    wait: float,
    progress: Callable[[int, float], None],
) -> Counter[str]:
    """Publish messages; how many on each topic. BagError where nobody listens within `wait` seconds (if > 0)."""
    rclpy.init()
    try:
        player = RecordingPlayer(types, rate, clock)
        if wait > 0.0 and not player.wait_for_listener(wait):
            raise BagError(
                f"nobody subscribes to {', '.join(types)} within {wait:.0f} s: start mapping_node first (with"
                " use_sim_time:=true), check ROS_DOMAIN_ID, or say --wait 0"
            )
        player.play(messages, progress)
        return player.sent
    finally:
        rclpy.try_shutdown()
