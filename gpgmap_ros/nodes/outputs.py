"""What the node publishes of a map. Only what has a subscriber is computed; whoever comes later gets the last map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from nav_msgs.msg import MapMetaData
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image

from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.nodes.messages import image_message, map_info_message

MAP_QOS = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)


@dataclass(frozen=True)
class Output:
    """One topic: its message class, and how a map becomes a message."""

    message_class: type
    build: Callable[[GPGMap], Any]


def image_output(layer: str) -> Output:
    return Output(Image, partial(image_message, layer=layer))


OUTPUTS: Mapping[str, Output] = {
    "elevation": image_output("elevation"),
    "variance": image_output("variance"),
    "gradient": image_output("gradient_magnitude"),
    "gradient_x": image_output("gradient_x"),
    "gradient_y": image_output("gradient_y"),
    "map_info": Output(MapMetaData, map_info_message),
}


class MapPublishers:
    """Publishers of all OUTPUTS below the node's own name.

    somebody_new: called when a topic gets a subscriber.
    """

    def __init__(self, node: Node, somebody_new: Callable[[], None]) -> None:
        self._node = node
        self._sent: dict[str, GPGMap] = {}
        events = PublisherEventCallbacks(
            matched=lambda status: somebody_new() if status.current_count_change > 0 else None
        )
        self._publishers: dict[str, Publisher] = {
            topic: node.create_publisher(output.message_class, f"~/{topic}", MAP_QOS, event_callbacks=events)
            for topic, output in OUTPUTS.items()
        }

    def publish(self, gpgmap: GPGMap) -> list[str]:
        """Send the map on the topics that have a subscriber and do not have this very map yet; returns those."""
        due = [
            topic
            for topic, publisher in self._publishers.items()
            if publisher.get_subscription_count() and self._sent.get(topic) is not gpgmap
        ]
        for topic in due:
            self._publishers[topic].publish(OUTPUTS[topic].build(gpgmap))
            self._sent[topic] = gpgmap
        return due

    def destroy(self) -> None:
        for publisher in self._publishers.values():
            self._node.destroy_publisher(publisher)
        self._publishers.clear()
        self._sent.clear()
