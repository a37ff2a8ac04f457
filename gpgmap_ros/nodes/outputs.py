"""What the node publishes of a map. Only what has a subscriber is computed; whoever comes later gets the last map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from grid_map_msgs.msg import GridMap
from nav_msgs.msg import MapMetaData, OccupancyGrid, Odometry
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image, PointCloud2

from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.layers import grid_map_layers, image_topics
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.nodes.messages import (
    grid_map_message,
    image_message,
    map_info_message,
    obstacles_message,
    risk_message,
    submap_messages,
    surface_message,
)

MAP_QOS = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)

# Small, and all of them matter: a late joiner gets the anchors of the last submaps.
POSES_QOS = QoSProfile(
    depth=100, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)


@dataclass(frozen=True)
class Output:
    """One topic: its message class, and how a map becomes a message."""

    message_class: type
    build: Callable[[GPGMap], Any]


def whole_grid_map(gpgmap: GPGMap) -> GridMap:
    """All layers for a GridMap that the map has."""
    return grid_map_message(gpgmap, grid_map_layers(gpgmap.layers))


def map_outputs() -> dict[str, Output]:
    """What is published of a map, by topic: an Image for each layer whose row has a topic, and whole maps."""
    images = {
        topic: Output(Image, partial(image_message, layer=layer)) for topic, layer in image_topics().items()
    }
    return images | {
        "map_info": Output(MapMetaData, map_info_message),
        "grid_map": Output(GridMap, whole_grid_map),
        "traversability": Output(OccupancyGrid, risk_message),
        "obstacles": Output(OccupancyGrid, obstacles_message),
        "surface": Output(PointCloud2, surface_message),
    }


OUTPUTS: Mapping[str, Output] = map_outputs()


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
        self._submap = node.create_publisher(GridMap, "~/submap", MAP_QOS)
        self._submap_pose = node.create_publisher(Odometry, "~/submap_pose", POSES_QOS)

    def has_subscribers(self) -> bool:
        """Does anybody listen to a map?"""
        return any(publisher.get_subscription_count() for publisher in self._publishers.values())

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

    def publish_submap(self, submap: Submap, map_frame: str) -> None:
        """Send a finished submap and the pose of its frame; both are kept for who comes later."""
        grid_map, pose = submap_messages(submap, map_frame, grid_map_layers())
        self._submap.publish(grid_map)
        self._submap_pose.publish(pose)

    def destroy(self) -> None:
        for publisher in (*self._publishers.values(), self._submap, self._submap_pose):
            self._node.destroy_publisher(publisher)
        self._publishers.clear()
        self._sent.clear()
