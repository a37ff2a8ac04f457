"""Subscriptions to the topics of clouds, each of the type that its publisher sends: PointCloud2 or Livox's CustomMsg.

A topic has one type in a DDS participant, so a node cannot listen for both. It asks for PointCloud2 until a publisher
of CustomMsg, and none of PointCloud2, is there; where the messages of that driver are not installed it says so.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from rclpy.subscription import Subscription
from sensor_msgs.msg import PointCloud2

from gpgmap_ros.nodes.health import CLOUD_TYPE, Warnings, incompatible_qos_warning
from gpgmap_ros.nodes.input_qos import overridable
from gpgmap_ros.sensing.livox import LIVOX_TYPES

Receive = Callable[[Any, str], None]
"""Called with a message, the bytes of a CustomMsg, and the topic's name."""


class CloudInputs:
    """Subscriptions by name of the topic; `follow_types` is to be called now and then."""

    def __init__(self, node: Node, warnings: Warnings, topics: Iterable[str], receive: Receive) -> None:
        self._node, self._warnings, self._receive = node, warnings, receive
        self._subscriptions: dict[str, tuple[str, Subscription]] = {}
        for topic in topics:
            name = node.resolve_topic_name(topic)
            self._subscribe(name, CLOUD_TYPE, PointCloud2)
        self.follow_types()

    @property
    def topics(self) -> list[str]:
        """Resolved names."""
        return list(self._subscriptions)

    def follow_types(self) -> dict[str, str]:
        """Listen for what the publishers send now. Where that is not possible: kind of problem -> text."""
        problems: dict[str, str] = {}
        for topic, (present, subscription) in list(self._subscriptions.items()):
            types = {item.topic_type for item in self._node.get_publishers_info_by_topic(topic)}
            wanted = _choose(types, present)
            if wanted == present:
                continue
            message_class = PointCloud2 if wanted == CLOUD_TYPE else message_class_of(wanted)
            if message_class is None:
                problems[f"type of {topic}"] = f"'{topic}' carries {wanted}, and {how_to_read(wanted)}"
                continue
            self._node.destroy_subscription(subscription)
            self._subscribe(topic, wanted, message_class)
            self._node.get_logger().info(f"'{topic}' carries {wanted}")
        return problems

    def destroy(self) -> None:
        for _, subscription in self._subscriptions.values():
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()

    def _subscribe(self, name: str, type_name: str, message_class: type) -> None:
        subscription = self._node.create_subscription(
            message_class,
            name,
            lambda message: self._receive(message, name),
            **overridable(qos_profile_sensor_data),
            event_callbacks=incompatible_qos_warning(self._warnings, name, "match the publisher's QoS"),
            raw=type_name != CLOUD_TYPE,  # as objects, its points would take longer than the scan
        )
        self._subscriptions[name] = type_name, subscription


def message_class_of(type_name: str) -> type | None:
    """The class of a message as in `package/msg/Name`; None where its package is not installed."""
    package, _, name = type_name.partition("/msg/")
    try:
        found: type | None = getattr(importlib.import_module(f"{package}.msg"), name, None)
        return found
    except ImportError:
        return None


def how_to_read(type_name: str) -> str:
    """What to do about a type whose messages are not installed."""
    package = type_name.partition("/")[0]
    return (
        f"the package {package} is not installed: install the driver's messages, or let the driver publish PointCloud2"
        " (xfer_format: 0)"
    )


def _choose(types: set[str], present: str) -> str:
    """The type to listen for: the present one while somebody sends it, or nobody sends clouds."""
    if present in types:
        return present
    return next((name for name in (CLOUD_TYPE, *LIVOX_TYPES) if name in types), present)
