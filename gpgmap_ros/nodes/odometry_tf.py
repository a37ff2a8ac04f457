"""Publishes the robot's pose by LiDAR odometry on /tf."""

from __future__ import annotations

from rclpy.node import Node
from rclpy.qos import QoSProfile
from tf2_msgs.msg import TFMessage

from gpgmap_ros.nodes.messages import time_message, transform_message
from gpgmap_ros.slam import Step


class OdometryTf:
    """One transform for each cloud: `map_frame` -> `base_frame`, or -> the sensor's frame where the mount is not known.

    A drive that begins after track was lost has a frame of its own: the transform then starts at the origin again.
    """

    def __init__(self, node: Node, map_frame: str, base_frame: str) -> None:
        self._node, self._map_frame, self._base_frame = node, map_frame, base_frame
        self._publisher = node.create_publisher(TFMessage, "/tf", QoSProfile(depth=100))

    def publish(self, step: Step) -> None:
        """Send the pose of a cloud, uncorrected: closures move `map_frame`, not the robot in it."""
        child = step.cloud.frame_id if step.pose.T_base_sensor is None else self._base_frame
        stamp = time_message(step.cloud.stamp)
        self._publisher.publish(transform_message(step.pose.T_map_robot, self._map_frame, child, stamp))

    def destroy(self) -> None:
        self._node.destroy_publisher(self._publisher)
