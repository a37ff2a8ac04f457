"""Looks at a running ROS 2 system for a while: who publishes clouds and poses, with which QoS, in which frames."""

from __future__ import annotations

import time
from collections.abc import Iterator

import rclpy
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from sensor_msgs.msg import PointCloud2
from tf2_msgs.msg import TFMessage

from gpgmap_ros.config import Config
from gpgmap_ros.diagnostics import GOOD, NOTE, WRONG, Finding
from gpgmap_ros.nodes.cloud_inputs import how_to_read, message_class_of
from gpgmap_ros.nodes.health import CLOUD_TYPE
from gpgmap_ros.sensing import CloudError
from gpgmap_ros.sensing.livox import LIVOX_TYPES, parse_livox
from gpgmap_ros.sensing.messages import nanoseconds
from gpgmap_ros.sensing.transform_buffer import frame_name

CLOUD_TYPES = (CLOUD_TYPE, *LIVOX_TYPES)
ODOMETRY = "nav_msgs/msg/Odometry"
TRANSFORMS = "tf2_msgs/msg/TFMessage"
OUTPUT = "/elevation"  # by this topic of its own a mapping node is recognised


class Probe(Node):
    """Listens to clouds and transforms."""

    def __init__(self) -> None:
        super().__init__("gpgmap_doctor")
        self.clouds: dict[str, list[tuple[float, int, str, int]]] = {}
        self.not_installed: dict[str, str] = {}
        self.unreadable: dict[str, str] = {}
        self.parents: dict[str, str] = {}
        self.moving: set[str] = set()
        self._trees: set[str] = set()

    def listen_to_transforms(self, topic: str) -> None:
        """Several robots have several such topics: /rover/tf and /rover/tf_static."""
        if topic in self._trees:
            return
        self._trees.add(topic)
        static = topic.endswith("tf_static")
        durability = DurabilityPolicy.TRANSIENT_LOCAL if static else DurabilityPolicy.VOLATILE
        self.create_subscription(
            TFMessage,
            topic,
            lambda message: self._frames(message, static),
            QoSProfile(depth=100, durability=durability),
        )

    def _frames(self, message: TFMessage, static: bool) -> None:
        for item in message.transforms:
            self.parents[frame_name(item.child_frame_id)] = frame_name(item.header.frame_id)
            if not static:
                self.moving.add(frame_name(item.child_frame_id))

    def published_clouds(self) -> Iterator[tuple[str, str]]:
        """Topics and types of clouds by who publishes them: who listens may ask for another type."""
        for topic, types in self.get_topic_names_and_types():
            if topic.endswith("/surface") or not set(types) & set(CLOUD_TYPES):
                continue
            sent = {item.topic_type for item in self.get_publishers_info_by_topic(topic)}
            yield from ((topic, name) for name in CLOUD_TYPES if name in sent)

    def listen(self, topic: str, type_name: str) -> None:
        """To a topic of clouds; to one whose messages are not installed nothing can."""
        if topic in self.clouds or topic in self.not_installed:
            return
        message_class = PointCloud2 if type_name == CLOUD_TYPE else message_class_of(type_name)
        if message_class is None:
            self.not_installed[topic] = type_name
            return
        self.clouds[topic] = []
        self.create_subscription(
            message_class,
            topic,
            lambda message: self._cloud(topic, message),
            qos_profile_sensor_data,
            raw=type_name != CLOUD_TYPE,
        )

    def _cloud(self, topic: str, message: PointCloud2 | bytes) -> None:
        arrived = time.time()
        if isinstance(message, bytes):
            try:
                livox = parse_livox(message)
            except CloudError as error:
                self.unreadable[topic] = str(error)
                return
            header, size = livox.header, len(livox.points)
        else:
            header, size = message.header, message.width * message.height
        self.clouds[topic].append((arrived, nanoseconds(header.stamp), frame_name(header.frame_id), size))

    def of_type(self, type_name: str) -> list[str]:
        return sorted(name for name, types in self.get_topic_names_and_types() if type_name in types)

    def chain(self, frame: str) -> list[str]:
        chain = [frame]
        while (above := self.parents.get(chain[-1])) is not None and above not in chain:
            chain.append(above)
        return chain


def system_findings(config: Config, seconds: float) -> list[Finding]:
    """What a running system looks like from here, in `seconds`."""
    rclpy.init()
    try:
        probe = Probe()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            rclpy.spin_once(probe, timeout_sec=0.1)
            for topic in probe.of_type(TRANSFORMS):
                probe.listen_to_transforms(topic)
            for topic, type_name in probe.published_clouds():
                probe.listen(topic, type_name)
        return list(findings(probe, config, seconds))
    finally:
        rclpy.try_shutdown()


def findings(probe: Probe, config: Config, seconds: float) -> Iterator[Finding]:
    nodes = [name for name in probe.get_node_names() if name != probe.get_name()]
    if not nodes:
        yield Finding(
            "system", WRONG, f"no other node was seen in {seconds:.0f} s",
            "is it running, with this ROS_DOMAIN_ID and RMW_IMPLEMENTATION, on a network that lets multicast through?",
        )  # fmt: skip
        return
    yield Finding("system", GOOD, f"{len(nodes)} nodes: {', '.join(sorted(set(nodes)))}")
    yield from mapping_nodes(probe)
    topics = [topic for topic in probe.clouds if probe.count_publishers(topic)]
    for topic, type_name in probe.not_installed.items():
        yield Finding("clouds", WRONG, f"{topic} carries {type_name}", how_to_read(type_name))
    if not topics and not probe.not_installed:
        yield Finding("clouds", WRONG, "nobody publishes point clouds", "start the sensor's driver")
    for topic in topics:
        yield from cloud_topic(probe, topic, config, seconds)
    odometry = [topic for topic in probe.of_type(ODOMETRY) if probe.count_publishers(topic)]
    if odometry:
        yield Finding("odometry", GOOD, ", ".join(odometry))
    if not probe.moving and not odometry:
        yield Finding(
            "poses", WRONG, "no moving transform on /tf and no odometry", "start the robot's odometry"
        )


def mapping_nodes(probe: Probe) -> Iterator[Finding]:
    maps = [name for name, _ in probe.get_topic_names_and_types() if name.endswith(OUTPUT)]
    maps = [name for name in maps if probe.count_publishers(name)]
    if not maps:
        yield Finding(
            "mapping_node",
            NOTE,
            "none is running",
            "ros2 launch gpgmap_ros gpgmap.launch.py points:=/your/points",
        )
    for name in maps:
        yield Finding("mapping_node", GOOD, f"{name.removesuffix(OUTPUT)} publishes maps")


def cloud_topic(probe: Probe, topic: str, config: Config, seconds: float) -> Iterator[Finding]:
    for item in probe.get_publishers_info_by_topic(topic):
        reliable = item.qos_profile.reliability == ReliabilityPolicy.RELIABLE
        who = f"{item.node_namespace.rstrip('/')}/{item.node_name}"
        yield Finding("clouds", GOOD, f"{topic} from {who}, {'reliable' if reliable else 'best effort'}")
    seen = probe.clouds[topic]
    if topic in probe.unreadable:
        yield Finding(
            "clouds", WRONG, f"{topic}: {probe.unreadable[topic]}", "its driver has other messages than ours"
        )
    elif not seen:
        yield Finding(
            "clouds", WRONG, f"{topic} is announced, but nothing came in {seconds:.0f} s",
            "is the sensor running? Large clouds sent best effort are lost by Fast DDS's defaults: see docs/ros.md",
        )  # fmt: skip
    if not seen:
        return
    arrival, stamp, frame, size = seen[-1]
    yield Finding("clouds", GOOD, f"{topic}: {len(seen) / seconds:.1f} Hz, {size:,} points, frame '{frame}'")
    age = arrival - stamp / 1e9
    if abs(age) > 1.0:
        yield Finding(
            "clock", NOTE, f"{topic}: stamps are {age:.1f} s from this computer's clock",
            "synchronise the clocks, or set use_sim_time where the time is simulated",
        )  # fmt: skip
    chain = probe.chain(frame)
    if config.map_frame in chain:
        yield Finding("frames", GOOD, " <- ".join(reversed(chain)))
    else:
        known = ", ".join(reversed(chain)) if len(chain) > 1 else "none"
        yield Finding(
            "frames", WRONG, f"'{config.map_frame}' is not above '{frame}'; frames above it: {known}",
            "set map_frame to one of these, or publish the missing transform",
        )  # fmt: skip
