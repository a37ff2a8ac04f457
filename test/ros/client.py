"""A participant inside the test's own process, on the domain of the test's children."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import rclpy
from limits import PATIENCE
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile

LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


class RosClient:
    """Calls services, listens to topics and publishes."""

    def __init__(self, domain_id: int) -> None:
        self.domain_id, self._context = domain_id, Context()
        rclpy.init(context=self._context, domain_id=domain_id)
        self.node = rclpy.create_node("test_client", context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)

    def close(self) -> None:
        self.node.destroy_node()
        rclpy.shutdown(context=self._context)

    def spin_until(self, condition: Callable[[], Any], what: str, timeout: float = PATIENCE) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"waited {timeout:.0f} s for {what}"
            self._executor.spin_once(timeout_sec=0.05)

    def spin_once(self) -> None:
        """Take what is there, without waiting."""
        self._executor.spin_once(timeout_sec=0.0)

    def spin_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._executor.spin_once(timeout_sec=0.05)

    def spin_until_quiet(self, received: list[Any], seconds: float = 1.5) -> int:
        """Wait until nothing came for a while; returns how many messages there are then."""
        count = -1
        while count != len(received):
            count = len(received)
            self.spin_for(seconds)
        return count

    def call(self, service_type: Any, name: str, request: Any, repeat: float = PATIENCE) -> Any:
        """The answer of a service.

        repeat: seconds after which the request is sent again, where only a node that has ended may have got it
        """
        client = self.node.create_client(service_type, name)
        try:
            self.spin_until(client.service_is_ready, f"the service {name}")
            futures: list[Any] = []
            asked = -repeat

            def answered() -> Any:
                nonlocal asked
                if time.monotonic() - asked >= repeat:
                    asked = time.monotonic()
                    futures.append(client.call_async(request))
                return next((future for future in futures if future.done()), None)

            self.spin_until(answered, f"an answer of {name}")
            return answered().result()
        finally:
            self.node.destroy_client(client)

    def listen(self, message_type: Any, topic: str, qos: Any = LATCHED) -> list[Any]:
        """Messages as they come."""
        received: list[Any] = []
        self.node.create_subscription(message_type, topic, received.append, qos)
        return received
