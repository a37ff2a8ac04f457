"""Receive what a mapping node publishes: maps, loop closures and the corrected path.

    python -m gpgmap_ros.nodes.map_recorder /mapping_node --out last_map.npz

Prints a line of JSON on standard output per message. On SIGINT or SIGTERM it writes the last map and the last path to
one NPZ file and ends.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import MapMetaData, Odometry
from nav_msgs.msg import Path as PathMessage
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from sensor_msgs.msg import Image

from gpgmap_ros.mapping.layers import figure_topics
from gpgmap_ros.nodes.messages import layer_of, submap_id
from gpgmap_ros.nodes.outputs import MAP_QOS, POSES_QOS
from gpgmap_ros.sensing.messages import nanoseconds, pose_of
from gpgmap_ros.storage.atomic import atomic_write

IMAGES = figure_topics()


class MapRecorder(Node):
    """Keeps the newest message of each topic of one mapping node.

    history: folder in which every elevation image is kept as well; None for none
    """

    def __init__(self, node_name: str, history: Path | None = None) -> None:
        super().__init__("map_recorder")
        self._history = history
        self.images: dict[str, Image] = {}
        self.info: MapMetaData | None = None
        self.path: PathMessage | None = None
        for topic in IMAGES:
            self.create_subscription(
                Image,
                f"{node_name}/{topic}",
                lambda message, topic=topic: self._keep_image(topic, message),
                MAP_QOS,
            )
        self.create_subscription(MapMetaData, f"{node_name}/map_info", self._keep_info, MAP_QOS)
        self.create_subscription(Odometry, f"{node_name}/loop_closure", self._report_closure, POSES_QOS)
        self.create_subscription(Odometry, f"{node_name}/submap_pose", self._report_submap, POSES_QOS)
        self.create_subscription(PathMessage, f"{node_name}/path", self._keep_path, MAP_QOS)
        self.create_subscription(DiagnosticArray, "/diagnostics", self._report_diagnostics, 10)
        report(ready=True)

    def _keep_image(self, topic: str, message: Image) -> None:
        self.images[topic] = message
        report(image=topic, stamp=nanoseconds(message.header.stamp))
        self._keep_history()

    def _keep_info(self, message: MapMetaData) -> None:
        self.info = message
        self._keep_history()

    def _keep_history(self) -> None:
        """Write the elevation once its image and its place have both arrived."""
        image, info = self.images.get("elevation"), self.info
        if self._history is None or image is None or info is None:
            return
        stamp = nanoseconds(image.header.stamp)
        path = self._history / f"{stamp}.npz"
        if stamp == nanoseconds(info.map_load_time) and not path.exists():
            corner = np.array([info.origin.position.x, info.origin.position.y])
            with atomic_write(path) as file:
                np.savez(
                    file, elevation=layer_of(image), corner=corner, resolution=info.resolution, stamp=stamp
                )

    def _report_closure(self, message: Odometry) -> None:
        a, b = submap_id(message.header.frame_id), submap_id(message.child_frame_id)
        report(closure=[a, b], stamp=nanoseconds(message.header.stamp))

    def _report_submap(self, message: Odometry) -> None:
        report(submap=submap_id(message.child_frame_id), stamp=nanoseconds(message.header.stamp))

    def _keep_path(self, message: PathMessage) -> None:
        self.path = message
        report(path=len(message.poses), stamp=nanoseconds(message.header.stamp))

    def _report_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            report(diagnostics={item.key: item.value for item in status.values}, name=status.name)

    def save(self, path: Path) -> bool:
        """Write the newest map and path atomically, if a complete map arrived."""
        if self.info is None or set(self.images) != set(IMAGES):
            return False
        origin = self.info.origin.position
        any_image = next(iter(self.images.values()))
        arrays: dict[str, Any] = {topic: layer_of(image) for topic, image in self.images.items()}
        poses = [] if self.path is None else self.path.poses
        with atomic_write(path) as file:
            np.savez_compressed(
                file,
                **arrays,
                corner=np.array([origin.x, origin.y]),
                resolution=self.info.resolution,
                frame_id=any_image.header.frame_id,
                stamp=nanoseconds(any_image.header.stamp),
                path_stamps=np.array([nanoseconds(pose.header.stamp) for pose in poses], dtype=np.int64),
                path_poses=np.array([pose_of(pose.pose) for pose in poses]).reshape(-1, 4, 4),
            )
        return True


def report(**values: object) -> None:
    print(json.dumps({"wall": time.time(), **values}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Receive the maps of a mapping node and keep the last one.")
    parser.add_argument("node", help="its full name, as in /mapping_node")
    parser.add_argument("--out", type=Path, required=True, help="NPZ file for the last map")
    parser.add_argument("--history", type=Path, help="folder for every elevation image that arrives")
    arguments = parser.parse_args()
    if arguments.history is not None:
        arguments.history.mkdir(parents=True, exist_ok=True)
    rclpy.init()
    recorder = MapRecorder(arguments.node, arguments.history)
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
