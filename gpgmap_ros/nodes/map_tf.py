"""Publishes the frame of the map on /tf: what takes odometry to it, several times a second."""

from __future__ import annotations

from collections.abc import Callable

from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.time import Time
from tf2_msgs.msg import TFMessage

from gpgmap_ros.geometry import Array
from gpgmap_ros.nodes.messages import transform_message

TF_PERIOD = 0.1  # seconds between two transforms
TF_AHEAD = 0.2  # seconds that a transform is stamped ahead, so that it is there for clouds of this moment


class MapTf:
    """parent, child: the frames; transform: (4, 4) T_parent_child now, None where nothing is to be said."""

    def __init__(self, node: Node, parent: str, child: str, transform: Callable[[], Array | None]) -> None:
        self._node, self._parent, self._child, self._transform = node, parent, child, transform
        self._publisher = node.create_publisher(TFMessage, "/tf", QoSProfile(depth=100))
        self._sent: Time | None = None
        # by the wall: simulated time may stand still, and the transform must be there when it goes on
        clock = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = node.create_timer(TF_PERIOD, self._send, clock=clock)

    def destroy(self) -> None:
        self._node.destroy_timer(self._timer)
        self._node.destroy_publisher(self._publisher)

    def _send(self) -> None:
        now, T = self._node.get_clock().now(), self._transform()
        if T is None or now == self._sent:
            return  # time stands still: tf2 would complain about the same stamp again
        self._sent = now
        stamp = (now + Duration(nanoseconds=round(TF_AHEAD * 1e9))).to_msg()
        self._publisher.publish(transform_message(T, self._parent, self._child, stamp))
