"""A LiDAR under load: large clouds with /tf at a fixed rate, stamped now, from a process of its own.

    python -m benchmark._cloud_publisher --rate 10 --points 131072 --seconds 20
    python -m benchmark._cloud_publisher --points 60000 --hall      a sensor that goes to and fro in a hall

Prints a line of JSON at the end: clouds sent, and the rate that was really reached.
"""

from __future__ import annotations

import argparse
import array
import json
import time

import numpy as np
import rclpy
from geometry_msgs.msg import TransformStamped
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import PointCloud2, PointField
from tf2_msgs.msg import TFMessage

from benchmark.hall_clouds import hall_scan

VARIANTS = (
    8  # different clouds, sent in turn: making 131,072 points anew would cost the core that is measured
)
NANOSECONDS = 1_000_000_000


class CloudPublisher(Node):
    """Rolling ground within 12 m of a sensor that drives along x."""

    def __init__(self, points: int, speed: float, hall: bool) -> None:
        super().__init__("cloud_publisher")
        self._speed = speed
        self._clouds = self.create_publisher(PointCloud2, "points", qos_profile_sensor_data)
        self._transforms = self.create_publisher(TFMessage, "/tf", QoSProfile(depth=100))
        rng = np.random.default_rng(0)
        if hall:
            scans = [hall_scan(step, points, rng) for step in range(VARIANTS + 1)]
            # to and fro: each cloud is a step away from the one before
            self._messages = [self._message(scan) for scan in (*scans, *scans[-2:0:-1])]
        else:
            self._messages = [self._message(self._ground(rng, points)) for _ in range(VARIANTS)]

    def _ground(self, rng: np.random.Generator, points: int) -> NDArray[np.float64]:
        radius, angle = 12.0 * np.sqrt(rng.random(points)), rng.uniform(0.0, 2.0 * np.pi, points)
        x, y = radius * np.cos(angle), radius * np.sin(angle)
        z = 0.3 * np.sin(0.7 * x) * np.cos(0.5 * y) - 1.5 + rng.normal(0.0, 0.02, points)
        return np.column_stack([x, y, z])

    def _message(self, xyz: NDArray[np.floating]) -> PointCloud2:
        data, points = array.array("B"), len(xyz)
        data.frombytes(np.column_stack([xyz, np.zeros(points)]).astype("<f4").tobytes())
        message = PointCloud2(height=1, width=points, point_step=16, row_step=16 * points, is_dense=True)
        message.is_bigendian = False
        message.header.frame_id = "lidar"
        message.fields = [PointField(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyzi")]
        message.data = data
        return message

    def listeners(self) -> int:
        return int(self._clouds.get_subscription_count())

    def publish(self, index: int, elapsed: float) -> None:
        now = time.time_ns()
        transform = TransformStamped(child_frame_id="lidar")
        transform.header.frame_id = "odom"
        transform.header.stamp.sec, transform.header.stamp.nanosec = divmod(now, NANOSECONDS)
        transform.transform.translation.x = self._speed * elapsed
        transform.transform.rotation.w = 1.0
        self._transforms.publish(TFMessage(transforms=[transform]))
        cloud = self._messages[index % len(self._messages)]
        cloud.header.stamp = transform.header.stamp
        self._clouds.publish(cloud)


def main() -> None:
    parser = argparse.ArgumentParser(description="Publish large clouds at a fixed rate.")
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--points", type=int, default=131_072)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--speed", type=float, default=0.5, help="metres per second")
    parser.add_argument("--hall", action="store_true", help="a hall with pillars: for LiDAR odometry")
    arguments = parser.parse_args()
    rclpy.init()
    node = CloudPublisher(arguments.points, arguments.speed, arguments.hall)
    while not node.listeners():
        time.sleep(0.05)
    start, index = time.monotonic(), 0
    while (elapsed := time.monotonic() - start) < arguments.seconds:
        node.publish(index, elapsed)
        index += 1
        time.sleep(max(start + index / arguments.rate - time.monotonic(), 0.0))
    print(json.dumps({"sent": index, "rate": index / (time.monotonic() - start)}), flush=True)
    time.sleep(0.5)
    node.destroy_node()
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
