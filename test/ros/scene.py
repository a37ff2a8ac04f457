"""A flat piece of ground under a standing sensor, published from the test's own process."""

from __future__ import annotations

import numpy as np
from client import RosClient
from geometry_msgs.msg import TransformStamped
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import PointCloud2, PointField
from tf2_msgs.msg import TFMessage

from gpgmap_ros.sensing.transform_buffer import NANOSECONDS


class CloudSource:
    """Publishes a cloud and its transform at each call, with stamps a tenth of a second apart."""

    def __init__(self, client: RosClient, topic: str = "/points", start: int = 1_000) -> None:
        self._clouds = client.node.create_publisher(PointCloud2, topic, qos_profile_sensor_data)
        self._transforms = client.node.create_publisher(TFMessage, "/tf", QoSProfile(depth=100))
        self.stamp = start * NANOSECONDS
        rng = np.random.default_rng(0)
        xy = rng.uniform(-1.0, 1.0, (500, 2))
        self._points = np.column_stack([xy, np.full(500, -1.0)]).astype(np.float32)
        self._client = client

    def publish(self) -> None:
        self.stamp += NANOSECONDS // 10
        self.publish_transform()
        self.publish_cloud()
        self._client.spin_for(0.1)

    def publish_cloud(self) -> None:
        self._clouds.publish(self.cloud())

    def publish_transform(self) -> None:
        transform = TransformStamped(child_frame_id="lidar")
        transform.header.frame_id = "odom"
        transform.header.stamp.sec, transform.header.stamp.nanosec = divmod(self.stamp, NANOSECONDS)
        transform.transform.translation.z = 1.0
        transform.transform.rotation.w = 1.0
        self._transforms.publish(TFMessage(transforms=[transform]))

    def cloud(self) -> PointCloud2:
        message = PointCloud2(
            height=1, width=500, point_step=12, row_step=6000, is_dense=True, is_bigendian=False
        )
        message.header.frame_id = "lidar"
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(self.stamp, NANOSECONDS)
        message.fields = [PointField(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
        message.data = self._points.tobytes()
        return message
