"""Receive what a mapping node publishes: a line of JSON on standard output per map, the last map as NPZ at the end.

    python -m gpgmap_ros.nodes.map_recorder /mapping_node --out last_map.npz

Ends on SIGINT or SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import MapMetaData
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from sensor_msgs.msg import Image

from gpgmap_ros.nodes.messages import layer_of, nanoseconds
from gpgmap_ros.nodes.outputs import MAP_QOS
from gpgmap_ros.storage.atomic import atomic_write

IMAGES = ("elevation", "variance", "gradient")


class MapRecorder(Node):
    """Keeps the newest message of each topic of one mapping node."""

    def __init__(self, node_name: str) -> None:
        super().__init__("map_recorder")
        self.images: dict[str, Image] = {}
        self.info: MapMetaData | None = None
        for topic in IMAGES:
            self.create_subscription(
                Image,
                f"{node_name}/{topic}",
                lambda message, topic=topic: self._keep_image(topic, message),
                MAP_QOS,
            )
        self.create_subscription(MapMetaData, f"{node_name}/map_info", self._keep_info, MAP_QOS)
        self.create_subscription(DiagnosticArray, "/diagnostics", self._report_diagnostics, 10)
        report(ready=True)

    def _keep_image(self, topic: str, message: Image) -> None:
        self.images[topic] = message
        report(image=topic, stamp=nanoseconds(message.header.stamp))

    def _keep_info(self, message: MapMetaData) -> None:
        self.info = message

    def _report_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            report(diagnostics={item.key: item.value for item in status.values}, name=status.name)

    def save(self, path: Path) -> bool:
        """Write the newest map, if a complete one arrived: beside, then renamed."""
        if self.info is None or set(self.images) != set(IMAGES):
            return False
        origin = self.info.origin.position
        any_image = next(iter(self.images.values()))
        arrays = {topic: layer_of(image) for topic, image in self.images.items()}
        with atomic_write(path) as file:
            np.savez_compressed(
                file,
                **arrays,
                corner=np.array([origin.x, origin.y]),
                resolution=self.info.resolution,
                frame_id=any_image.header.frame_id,
                stamp=nanoseconds(any_image.header.stamp),
            )
        return True


def report(**values: object) -> None:
    print(json.dumps({"wall": time.time(), **values}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Receive the maps of a mapping node and keep the last one.")
    parser.add_argument("node", help="its full name, as in /mapping_node")
    parser.add_argument("--out", type=Path, required=True, help="NPZ file for the last map")
    arguments = parser.parse_args()
    rclpy.init()
    recorder = MapRecorder(arguments.node)
    try:
        rclpy.spin(recorder)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        saved = recorder.save(arguments.out)
        recorder.destroy_node()
        rclpy.try_shutdown()
    if not saved:
        print("map_recorder: no complete map arrived", file=sys.stderr)
    return 0 if saved else 1


if __name__ == "__main__":
    sys.exit(main())
