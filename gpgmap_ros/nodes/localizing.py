"""Localisation in the node: where the robot is in a saved run becomes messages.

Topics: `~/pose` (geometry_msgs/PoseWithCovarianceStamped), `~/localization` (std_msgs/String: searching, tracking or
lost), /tf (`closure.frame` -> `map_frame`), while the robot is tracked. `initialpose` is a prior, as from RViz.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from geometry_msgs.msg import PoseWithCovarianceStamped
from rclpy.node import Node
from std_msgs.msg import String

from gpgmap_ros.config import Config, ConfigError
from gpgmap_ros.geometry import Array
from gpgmap_ros.mapping.submaps import submap_mapping
from gpgmap_ros.nodes.health import Warnings
from gpgmap_ros.nodes.map_tf import MapTf
from gpgmap_ros.nodes.messages import pose_message, time_message
from gpgmap_ros.nodes.outputs import MAP_QOS, POSES_QOS
from gpgmap_ros.sensing.messages import pose_of
from gpgmap_ros.slam import MappingPipeline, Session, Step
from gpgmap_ros.slam.localization import Localization
from gpgmap_ros.slam.localizer import TRACKING, LocalizationState
from gpgmap_ros.slam.pose_belief import PoseBelief
from gpgmap_ros.slam.work_queue import ThreadExecutor

UNKNOWN_HEIGHT = 100.0  # metres: RViz says nothing about z
LEAST_STDS = (0.1, 0.1, UNKNOWN_HEIGHT, 0.05, 0.05, 0.05)  # of an initial pose: metres and radians


class Localizing:
    """From configure to cleanup. SessionError or ConfigError where the run can't be used."""

    def __init__(self, node: Node, config: Config, warnings: Warnings) -> None:
        self._node, self._config, self._warnings = node, config, warnings
        self._session = open_map(config)
        for text in self._session.warnings:
            warnings.warn(f"map {text}", text)
        executor = ThreadExecutor("localization", 1, self._on_failure)
        localizer = self._session.localizer(config.localization)
        self.localization = Localization(localizer, config.localization, executor, self._on_change)
        self._frame = config.closure.frame
        self._pose = node.create_publisher(PoseWithCovarianceStamped, "~/pose", POSES_QOS)
        self._status = node.create_publisher(String, "~/localization", MAP_QOS)
        self._initial = node.create_subscription(
            PoseWithCovarianceStamped, "initialpose", self._on_initial_pose, 10
        )
        self._tf = MapTf(node, self._frame, config.map_frame, lambda: self.localization.state.T_map_odom)
        self._told = ""
        self._on_change(self.localization.state)
        growing = ", which grows" if config.localization.update else ""
        node.get_logger().info(
            f"localising in {self._session.path}{growing}: {len(self._session.ids)} submaps in one frame"
        )

    def add(self, step: Step, mapping: MappingPipeline) -> None:
        """A cloud was mapped: compare the submap if that is due, and publish the pose. In the worker's thread."""
        self.localization.add(step.drive, step.pose.T_map_robot, mapping, step.cloud.stamp)
        self._publish_pose()

    def stop(self) -> None:
        """Finish what is being compared."""
        self.localization.close()

    def destroy(self) -> None:
        self.stop()
        self._tf.destroy()
        self._node.destroy_subscription(self._initial)
        for publisher in (self._pose, self._status):
            self._node.destroy_publisher(publisher)

    def diagnostics(self, name: str) -> DiagnosticStatus:
        """Where the robot is in the map, and why that is known or not. name: of the node"""
        state, belief = self.localization.state, self.localization.pose()
        values = {
            "status": state.status,
            "probability": f"{state.probability:.4f}",
            "fixes": str(self.localization.localizer.fixes),
            "comparisons under way": str(self.localization.unfinished),
            "way in this drive (m)": f"{self.localization.driven:.1f}",
            "submaps of the map": str(len(self._session.ids)),
        }
        if belief is not None:
            values["position std (m)"] = f"{belief.position_std:.3f}"
        return DiagnosticStatus(
            level=DiagnosticStatus.OK if state.status == TRACKING else DiagnosticStatus.WARN,
            name=f"{name}: localization",
            message=f"{state.status}: {state.reason}",
            values=[KeyValue(key=key, value=value) for key, value in values.items()],
        )

    def _on_change(self, state: LocalizationState) -> None:
        """A comparison is done: publish the pose, which may be a better one, and the status where that is another."""
        if state.status != self._told:
            self._status.publish(String(data=state.status))
            self._node.get_logger().info(f"localisation: {state.status}: {state.reason}")
        self._told = state.status
        self._publish_pose()

    def _publish_pose(self) -> None:
        stamp, belief = self.localization.stamped_pose()
        if belief is not None:
            self._pose.publish(pose_with_covariance(belief, self._frame, stamp))

    def _on_failure(self, error: Exception) -> None:
        self._warnings.warn("localization", f"localisation: a comparison failed: {error}")

    def _on_initial_pose(self, message: PoseWithCovarianceStamped) -> None:
        frame = message.header.frame_id.lstrip("/")
        if frame != self._frame:
            text = f"an initial pose in frame '{frame}' is ignored: the map stands in '{self._frame}'"
            self._warnings.warn("initial pose", text)
            return
        try:
            T, covariance = pose_of(message.pose.pose), initial_covariance(message.pose.covariance)
        except ValueError as error:
            self._warnings.warn("initial pose", f"an initial pose is ignored: {error}")
            return
        self.localization.set_prior(T, covariance)


def open_map(config: Config) -> Session:
    """The run to localise in. ConfigError where this node makes submaps that can't be compared with it."""
    wanted = config.localization
    session = Session.load(Path(wanted.map).expanduser(), busy=wanted.update)
    cell = submap_mapping(config).resolution
    if abs(np.log(cell / session.resolution)) > 1e-3:
        raise ConfigError(
            f"localization.map: the submaps of {session.path} have cells of {session.resolution:g} m, those of this"
            f" node {cell:g} m: set submap.resolution to {session.resolution:g}"
        )
    return session


def initial_covariance(values: object) -> Array:
    """(6, 6) of an initial pose, no smaller than a person can say. ValueError for what is no covariance."""
    covariance = np.array(values, dtype=np.float64).reshape(6, 6)
    if not np.isfinite(covariance).all() or not np.allclose(covariance, covariance.T):
        raise ValueError("its covariance is not finite and symmetric")
    if np.linalg.eigvalsh(covariance)[0] < -1e-9:
        raise ValueError("its covariance is not positive")
    return np.asarray(covariance + np.diag(np.square(LEAST_STDS)))


def pose_with_covariance(belief: PoseBelief, frame: str, stamp: int) -> PoseWithCovarianceStamped:
    message = PoseWithCovarianceStamped()
    message.header.frame_id, message.header.stamp = frame, time_message(stamp)
    message.pose.pose = pose_message(belief.T)
    message.pose.covariance = [float(value) for value in belief.covariance.ravel()]
    return message
