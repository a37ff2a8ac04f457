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


class RollingGround:
    """z = 0.3 sin(0.7 x) cos(0.5 y) - 1.5 in the world, and noise: points within 12 m of a sensor that drives along x.

    The positions about the sensor stay; what they see does not. sin(a + b) makes that a sum of two arrays per cloud.
    """

    def __init__(self, rng: np.random.Generator, points: int) -> None:
        radius, angle = 12.0 * np.sqrt(rng.random(points)), rng.uniform(0.0, 2.0 * np.pi, points)
        self.x, self.y = radius * np.cos(angle), radius * np.sin(angle)
        across = 0.3 * np.cos(0.5 * self.y)
        self._sine, self._cosine = across * np.sin(0.7 * self.x), across * np.cos(0.7 * self.x)
        self._level = rng.normal(-1.5, 0.02, points)

    def heights(self, position: float) -> NDArray[np.float64]:
        """(N,) with the sensor at this x."""
        turn = 0.7 * position
        return self._sine * np.cos(turn) + self._cosine * np.sin(turn) + self._level


class CloudPublisher(Node):
    """Rolling ground around a sensor that drives along x, or a hall."""

    def __init__(self, points: int, speed: float, hall: bool) -> None:
        super().__init__("cloud_publisher")
        self._speed = speed
        self._grounds: list[RollingGround] = []
        self._clouds = self.create_publisher(PointCloud2, "points", qos_profile_sensor_data)
        self._transforms = self.create_publisher(TFMessage, "/tf", QoSProfile(depth=100))
        rng = np.random.default_rng(0)
        if hall:
            scans = [hall_scan(step, points, rng) for step in range(VARIANTS + 1)]
            # to and fro: each cloud is a step away from the one before
            self._messages = [self._message(scan) for scan in (*scans, *scans[-2:0:-1])]
        else:
            self._grounds = [RollingGround(rng, points) for _ in range(VARIANTS)]
            flat = np.zeros(points)
            self._messages = [
                self._message(np.column_stack([ground.x, ground.y, flat])) for ground in self._grounds
            ]

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
        if self._grounds:
            ground = self._grounds[index % len(self._grounds)]
            values = np.frombuffer(cloud.data, dtype="<f4").reshape(-1, 4)
            values[:, 2] = ground.heights(self._speed * elapsed)
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
