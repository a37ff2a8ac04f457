"""Simulated time: jumps back, pauses, and a clock that never comes."""

from __future__ import annotations

from typing import Any

import pytest
from child_text import wait_for_text
from client import RosClient
from diagnostic_msgs.msg import DiagnosticArray
from rosgraph_msgs.msg import Clock
from scene import CloudSource
from sensor_msgs.msg import Image

from gpgmap_ros.nodes.health import SILENT_AFTER
from gpgmap_ros.processes import Child

SMALL = ("-p", "mapping.size_x:=2.0", "-p", "mapping.size_y:=2.0", "-p", "mapping.resolution:=0.2")
SIMULATED = (*SMALL, "-p", "use_sim_time:=true")


class SimulatedClock:
    """Publishes /clock."""

    def __init__(self, client: RosClient) -> None:
        self._client, self._publisher = client, client.node.create_publisher(Clock, "/clock", 10)
        client.spin_until(self._publisher.get_subscription_count, "the node to listen to /clock")

    def publish(self, seconds: float) -> None:
        message = Clock()
        message.clock.sec, message.clock.nanosec = int(seconds), int(seconds % 1.0 * 1e9)
        self._publisher.publish(message)
        self._client.spin_for(0.05)

    def publish_until(self, seconds: float, node: Child, text: str) -> None:
        """Show this time until the node has said something: /clock is not reliable."""
        self._client.spin_until(lambda: self.publish(seconds) or text in node.tail(100), text)


def test_stamps_that_go_back_start_a_new_map(client: RosClient, start_node: Any) -> None:
    """A bag played again, without simulated time."""
    node = start_node(*SMALL)
    images = client.listen(Image, "/mapping_node/elevation")
    first = CloudSource(client, start=2_000)
    client.spin_until(lambda: first.publish() or images, "a map")
    client.spin_until_quiet(images)
    again = CloudSource(client, start=1_000)
    client.spin_until(
        lambda: again.publish() or images[-1].header.stamp.sec < 1_100, "a map of the second run"
    )
    assert "map reset: '/points' went back by" in node.tail(50)


def test_a_clock_that_jumps_back_resets_the_map(client: RosClient, start_node: Any) -> None:
    node = start_node(*SIMULATED)
    clock = SimulatedClock(client)
    images = client.listen(Image, "/mapping_node/elevation")
    source = CloudSource(client, start=2_000)

    def step() -> list[Any]:
        clock.publish(source.stamp / 1e9)
        source.publish()
        return images

    client.spin_until(step, "a map in simulated time")
    clock.publish_until(1_000.0, node, "map reset: time jumped back by")


def test_a_clock_that_never_comes_is_named(client: RosClient, start_node: Any) -> None:
    node = start_node(*SIMULATED)
    wait_for_text(node, "use_sim_time is set, but no time comes on '/clock'")


def test_time_that_begins_late_is_no_silence(client: RosClient, start_node: Any) -> None:
    node = start_node(*SIMULATED)
    statuses = client.listen(DiagnosticArray, "/diagnostics", 10)
    clock = SimulatedClock(client)
    for tenth in range(30):
        clock.publish(1_700_000_000.0 + 0.1 * tenth)
    seen = len(statuses)
    client.spin_until(lambda: clock.publish(1_700_000_003.0) or len(statuses) > seen + 1, "diagnostics")
    assert "nobody publishes" not in node.tail(100)
    clock.publish_until(1_700_000_020.0, node, "nobody publishes on '/points'")


@pytest.mark.slow
def test_a_paused_bag_is_not_a_silent_sensor(client: RosClient, start_node: Any) -> None:
    node = start_node(*SIMULATED)
    clock = SimulatedClock(client)
    statuses = client.listen(DiagnosticArray, "/diagnostics", 10)
    source = CloudSource(client, start=2_000)
    images = client.listen(Image, "/mapping_node/elevation")
    client.spin_until(lambda: clock.publish(source.stamp / 1e9) or source.publish() or images, "a map")
    # longer than the watch is patient, by the wall: it looks once a second; simulated time stands still
    seen = len(statuses)
    client.spin_until(lambda: len(statuses) > seen + SILENT_AFTER + 1.0, "diagnostics")
    assert "no cloud on" not in node.tail(100)
    clock.publish_until(source.stamp / 1e9 + 10.0, node, "no cloud on '/points' for 1")
