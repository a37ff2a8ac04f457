"""mapping_node: point clouds and poses in, GPGMap images out.

Subscribes to `points` (sensor_msgs/PointCloud2) and, as `pose_source` says, /tf or `odometry` (nav_msgs/Odometry).
Publishes `~/elevation`, `~/variance`, `~/gradient` (sensor_msgs/Image, 32FC1), `~/map_info` (nav_msgs/MapMetaData) and
/diagnostics. The executor's thread only receives; one worker thread waits for poses, fuses clouds and solves.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from nav_msgs.msg import MapMetaData
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from sensor_msgs.msg import Image, PointCloud2

from gpgmap_ros.config import ConfigError
from gpgmap_ros.io.pointcloud2 import CloudError, read_xyz
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.nodes import parameters
from gpgmap_ros.nodes.messages import image_message, map_info_message, nanoseconds
from gpgmap_ros.nodes.pose_sources import pose_source_of
from gpgmap_ros.nodes.tally import Tally
from gpgmap_ros.pipeline import MappingPipeline
from gpgmap_ros.transform_buffer import TransformUnavailable

# topic -> layer of the map that it shows
IMAGES = {"elevation": "elevation", "variance": "variance", "gradient": "gradient_magnitude"}
MAP_QOS = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)
WARN_EVERY = 5.0  # seconds between two warnings of one kind


class MappingNode(Node):
    """The node; `close` ends its worker."""

    def __init__(self) -> None:
        super().__init__("mapping_node", automatically_declare_parameters_from_overrides=True)
        self._config = parameters.declare(self)
        self._pipeline = MappingPipeline(self._config)
        self._tally = Tally()
        self._warned: dict[str, float] = {}
        self._poses = pose_source_of(self, self._config.pose_source, self._config.map_frame)

        self._images = {topic: self.create_publisher(Image, f"~/{topic}", MAP_QOS) for topic in IMAGES}
        self._map_info = self.create_publisher(MapMetaData, "~/map_info", MAP_QOS)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self.create_timer(1.0, self._publish_diagnostics)

        self._waiting: deque[PointCloud2] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._worker = threading.Thread(target=self._work, name="mapping", daemon=True)
        self._worker.start()
        points = self.create_subscription(PointCloud2, "points", self._receive, qos_profile_sensor_data)
        self.get_logger().info(
            f"mapping '{points.topic_name}' into '{self._config.map_frame}', poses from {self._config.pose_source}"
        )

    def close(self) -> None:
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._worker.join()

    # ------------------------------------------------ in the executor's thread

    def _receive(self, message: PointCloud2) -> None:
        with self._wake:
            self._waiting.append(message)
            self._tally.count("clouds received")
            if len(self._waiting) > self._config.queue_size:
                self._waiting.popleft()
                self._drop("queue_full", "the queue is full: clouds come faster than they are mapped")
            self._wake.notify_all()

    def _publish_diagnostics(self) -> None:
        values = [KeyValue(key=key, value=value) for key, value in self._tally.values().items()]
        status = DiagnosticStatus(
            level=DiagnosticStatus.OK, name=f"{self.get_name()}: mapping", values=values
        )
        message = DiagnosticArray(status=[status])
        message.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(message)

    # ------------------------------------------------ in the worker's thread

    def _work(self) -> None:
        """Fuse what waits; publish when the map changed and the last one is old enough."""
        period, changed, published = 1.0 / self._config.publish_rate, False, 0.0
        while True:
            with self._wake:
                due = published + period if changed else None
                while not self._closing and not self._waiting and (due is None or time.monotonic() < due):
                    self._wake.wait(None if due is None else max(due - time.monotonic(), 0.0))
                if self._closing:
                    return
                message = self._waiting.popleft() if self._waiting else None
            if message is not None:
                changed |= self._fuse(message)
            if changed and time.monotonic() >= published + period:
                published = time.monotonic()
                self._publish_map()
                changed = False

    def _fuse(self, message: PointCloud2) -> bool:
        """Put one cloud into the map; False, counted and with a warning, where that is not possible."""
        stamp, frame = nanoseconds(message.header.stamp), message.header.frame_id.lstrip("/")
        try:
            points = read_xyz(message)
        except CloudError as error:
            return self._drop("bad_cloud", f"malformed: {error}")
        if not len(points):
            return self._drop("empty", "it has no valid point")
        try:
            T_map_sensor = self._poses.sensor_pose(frame, stamp, self._config.transform_timeout)
        except TransformUnavailable as error:
            return self._drop(error.reason, str(error))
        start = time.perf_counter()
        report = self._pipeline.add_cloud(points, T_map_sensor, stamp)
        self._tally.took("fusing", time.perf_counter() - start)
        self._tally.count("points used", report.used)
        self._tally.count("points filtered", report.filtered)
        self._tally.count("points outside the map", report.outside)
        if not report.used:
            return self._drop(
                "no_point_in_map", f"all {report.points} points are filtered out or outside the map"
            )
        self._tally.count("clouds used")
        return True

    def _publish_map(self) -> None:
        start = time.perf_counter()
        gpgmap = self._pipeline.gpgmap()
        self._tally.took("solving", time.perf_counter() - start)
        if gpgmap is None:
            return
        for topic, layer in IMAGES.items():
            self._images[topic].publish(image_message(gpgmap, layer))
        self._map_info.publish(map_info_message(gpgmap))
        self._tally.count("maps published")
        self._log_first(gpgmap)

    def _log_first(self, gpgmap: GPGMap) -> None:
        self.get_logger().info(
            f"first map: {gpgmap.grid.shape[1]} x {gpgmap.grid.shape[0]} cells of {gpgmap.grid.resolution} m",
            once=True,
        )

    def _drop(self, reason: str, text: str) -> bool:
        """Count a lost cloud, and say so once in a while for each reason (rclpy throttles by line of code only)."""
        self._tally.count(f"clouds dropped: {reason}")
        now = time.monotonic()
        if now - self._warned.get(reason, -WARN_EVERY) >= WARN_EVERY:
            self._warned[reason] = now
            self.get_logger().warning(f"cloud dropped ({reason}): {text}")
        return False


def main() -> int:
    rclpy.init()
    node = None
    try:
        node = MappingNode()
        rclpy.spin(node)
    except ConfigError as error:
        print(f"mapping_node: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        if node is not None:
            node.close()
            node.destroy_node()
        rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
