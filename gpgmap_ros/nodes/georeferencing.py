"""GPS in the node: where the map lies on the earth, fitted anew every few seconds to the corrected trajectory.

Topics: `gps/fix` (sensor_msgs/NavSatFix) in; `geo_pose` below the node's name (the same type) out, the robot at each
cloud; and `gps.frame` -> `closure.frame` on /tf_static if asked for.
"""

from __future__ import annotations

import threading
import time

import numpy as np
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import NavSatFix, NavSatStatus
from tf2_msgs.msg import TFMessage

from gpgmap_ros.config import Config
from gpgmap_ros.geometry import Array
from gpgmap_ros.nodes.health import Warnings, incompatible_qos_warning
from gpgmap_ros.nodes.input_qos import overridable
from gpgmap_ros.nodes.messages import time_message, transform_message
from gpgmap_ros.nodes.pose_inputs import STATIC_TF_QOS
from gpgmap_ros.sensing import PoseSource
from gpgmap_ros.sensing.gps import GpsTrack
from gpgmap_ros.sensing.messages import gps_fix
from gpgmap_ros.slam import Step, Trajectory
from gpgmap_ros.slam.closure_messages import Update
from gpgmap_ros.slam.georeference import Georeference, GeoreferenceError, fit_georeference

FIT_PERIOD = 5.0
"""Seconds between two fits."""
MAX_LOG = 4000
"""Poses that are kept: beyond, every second of the older half is forgotten."""
FIX_QOS = QoSProfile(depth=20, reliability=ReliabilityPolicy.BEST_EFFORT)


class Georeferencing:
    """From configure to cleanup. source: knows where the antenna is on the robot"""

    def __init__(self, node: Node, config: Config, source: PoseSource, warnings: Warnings) -> None:
        self._node, self._config, self._source, self._warnings = node, config, source, warnings
        self._track, self._lock = GpsTrack(), threading.Lock()
        self._log: list[tuple[int, Array]] = []  # stamps and T_odom_robot of the present drive
        self._drive = 0
        self._corrected: Update | None = None
        self._fitted_at = time.monotonic()
        self._found: Georeference | None = None
        self._why_not = ""
        self._sensor_frame = ""
        self._topic = node.resolve_topic_name("gps/fix")
        events = incompatible_qos_warning(warnings, self._topic, "match the publisher's QoS")
        self._subscription = node.create_subscription(
            NavSatFix, "gps/fix", self._on_fix, **overridable(FIX_QOS), event_callbacks=events
        )
        self._pose = node.create_publisher(NavSatFix, "~/geo_pose", 10)
        self._tf = (
            node.create_publisher(TFMessage, "/tf_static", STATIC_TF_QOS) if config.gps.publish_tf else None
        )

    def destroy(self) -> None:
        self._node.destroy_subscription(self._subscription)
        for publisher in (self._pose, self._tf):
            if publisher is not None:
                self._node.destroy_publisher(publisher)

    def _on_fix(self, message: NavSatFix) -> None:
        with self._lock:
            self._track.insert(gps_fix(message, self._topic))

    def on_update(self, update: Update) -> None:
        """Keep the corrected trajectory; in the thread that hears the loop closures."""
        if not update.earlier:
            with self._lock:
                self._corrected = update
                self._fitted_at = -FIT_PERIOD

    def _fit(self, stamp: int) -> None:
        """Fit the fixes so far. stamp: of the cloud that is being mapped"""
        with self._lock:
            fixes, trajectory = list(self._track.fixes), self._trajectory()
        self._fitted_at = time.monotonic()
        lever = self._source.position_on_robot(fixes[0].frame_id, self._sensor_frame, stamp)
        try:
            found = fit_georeference(fixes, trajectory, lever)
        except GeoreferenceError as error:
            self._why_not = str(error)
            return
        if self._found is None:
            self._node.get_logger().info(f"the map is georeferenced in {found.name} (EPSG:{found.epsg})")
        self._found, self._why_not = found, ""
        if self._tf is not None:
            frames = self._config.gps.frame, self._config.closure.frame
            self._tf.publish(transform_message(found.T_earth_map(), *frames, time_message(stamp)))

    def _trajectory(self) -> Trajectory:
        """The drive as the pose graph has corrected it, and the clouds since under the correction of now."""
        stamps, poses = (
            np.array([item[0] for item in self._log], dtype=np.int64),
            [item[1] for item in self._log],
        )
        update = self._corrected
        if update is None or not len(update.stamps):
            return Trajectory(stamps, np.array(poses).reshape(-1, 4, 4))
        later = stamps > update.stamps[-1]
        recent = update.T_map_odom @ np.array(poses).reshape(-1, 4, 4)[later]
        return Trajectory(np.append(update.stamps, stamps[later]), np.concatenate([update.track, recent]))

    def _remember(self, step: Step) -> None:
        """Log the pose of a cloud by odometry; of the present drive, and thinned where there are many."""
        with self._lock:
            if step.pose.drive != self._drive:
                self._drive, self._corrected, self._found = step.pose.drive, None, None
                self._log.clear()
            if self._log and step.cloud.stamp <= self._log[-1][0]:
                return
            self._log.append((step.cloud.stamp, step.pose.T_map_robot))
            if len(self._log) > MAX_LOG:
                del self._log[: MAX_LOG // 2 : 2]

    def publish_pose(self, step: Step) -> None:
        """The robot at a cloud, once the map is georeferenced; in the thread that maps."""
        self._sensor_frame = step.cloud.frame_id
        self._remember(step)
        if self._track.fixes and time.monotonic() - self._fitted_at >= FIT_PERIOD:
            self._fit(step.cloud.stamp)
        found = self._found
        if found is None:
            return
        message = NavSatFix()
        message.header.frame_id = (
            self._config.base_frame if step.pose.T_base_sensor is not None else step.cloud.frame_id
        )
        message.header.stamp = time_message(step.cloud.stamp)
        message.latitude, message.longitude, message.altitude = found.position(step.T_map_robot)
        message.status.status, message.status.service = NavSatStatus.STATUS_FIX, NavSatStatus.SERVICE_GPS
        message.position_covariance = position_covariance(found, step.T_map_robot).ravel().tolist()
        message.position_covariance_type = NavSatFix.COVARIANCE_TYPE_KNOWN
        self._pose.publish(message)

    def values(self) -> dict[str, str]:
        """For /diagnostics."""
        if not self._track.received:
            return {}
        values = {"GPS fixes usable": f"{len(self._track.fixes)} of {self._track.received}"}
        values |= {
            f"GPS fixes refused: {reason}": str(count) for reason, count in self._track.refused.items()
        }
        found = self._found
        if found is not None:
            std = np.sqrt(np.diag(found.covariance))
            values["georeference"] = (
                f"EPSG:{found.epsg}, known to {std[:2].max():.2f} m and {np.degrees(std[3]):.2f} deg,"
                f" {found.outliers} of {found.used + found.outliers} fixes are outliers"
            )
        else:
            values["georeference"] = f"none: {self._why_not or 'nothing has been fitted yet'}"
        return values


def position_covariance(found: Georeference, T_map_robot: Array) -> Array:
    """(3, 3) of east, north and up at a pose in the map's frame, from that of the georeference."""
    x, y = (found.T_aligned_map @ T_map_robot)[:2, 3]
    J = np.hstack([np.eye(3), [[-y], [x], [0.0]]])
    covariance = np.where(np.isfinite(found.covariance), found.covariance, 1e6)
    return np.asarray(J @ covariance @ J.T)
