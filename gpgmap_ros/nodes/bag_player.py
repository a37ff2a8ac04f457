"""Publish a bag's messages on their topics, as recorded, over DDS; one line of JSON on standard output per message.

    python -m gpgmap_ros.nodes.bag_player BAG --rate 2

Waits until somebody subscribes to every topic of the bag, so that nothing is sent into the void.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile

from gpgmap_ros.io.bags import BagError, RawMessage, read_raw
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

# Transforms that never change are for late joiners too.
LATCHED = ("/tf_static",)
LINGER = 0.5  # seconds for the last messages to leave before the participant does


class BagPlayer(Node):
    """Publishes messages at the pace at which they were recorded, times `rate`."""

    def __init__(self, messages: list[RawMessage], rate: float) -> None:
        super().__init__("bag_player")
        self._messages, self._rate = messages, rate
        types = {message.topic: message.type_name for message in messages}
        self._publishers_by_topic = {topic: self._publisher(topic, kind) for topic, kind in types.items()}

    def _publisher(self, topic: str, type_name: str) -> Publisher:
        durability = DurabilityPolicy.TRANSIENT_LOCAL if topic in LATCHED else DurabilityPolicy.VOLATILE
        return self.create_publisher(
            message_class(type_name), topic, QoSProfile(depth=100, durability=durability)
        )

    def unheard_topics(self) -> list[str]:
        return [
            t for t, publisher in self._publishers_by_topic.items() if not publisher.get_subscription_count()
        ]

    def wait_for_listeners(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while topics := self.unheard_topics():
            if time.monotonic() > deadline:
                raise BagError(f"nobody subscribes to {', '.join(topics)} after {timeout:.0f} s")
            time.sleep(0.05)

    def play(self) -> None:
        first, start = self._messages[0].time, time.monotonic()
        for message in self._messages:
            due = start + (message.time - first) / NANOSECONDS / self._rate
            time.sleep(max(due - time.monotonic(), 0.0))
            self._publishers_by_topic[message.topic].publish(message.data)
            print(
                json.dumps({"topic": message.topic, "stamp": message.time, "wall": time.time()}), flush=True
            )


def message_class(type_name: str) -> Any:
    """The Python class of `package/msg/Name`."""
    package, kind, name = type_name.split("/")
    try:
        return getattr(importlib.import_module(f"{package}.{kind}"), name)
    except (ImportError, AttributeError) as error:
        raise BagError(f"the message type {type_name} is not installed") from error


def main() -> int:
    parser = argparse.ArgumentParser(description="Publish the messages of a bag on their topics.")
    parser.add_argument("bag", type=Path)
    parser.add_argument("--rate", type=float, default=1.0, help="times real time (default: 1)")
    parser.add_argument(
        "--wait", type=float, default=30.0, help="seconds to wait for subscribers (default: 30)"
    )
    arguments = parser.parse_args()
    rclpy.init()
    try:
        player = BagPlayer(list(read_raw(arguments.bag)), arguments.rate)
        player.wait_for_listeners(arguments.wait)
        player.play()
        time.sleep(LINGER)
        player.destroy_node()
    except BagError as error:
        print(f"bag_player: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, ExternalShutdownException):
        return 130
    finally:
        rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
