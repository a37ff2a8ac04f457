"""/diagnostics: what the node does, and what is wrong with its inputs and its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from gpgmap_ros.nodes.guarded_node import GuardedNode
from gpgmap_ros.nodes.health import Warnings, resident_megabytes
from gpgmap_ros.nodes.pose_inputs import PoseInputs
from gpgmap_ros.nodes.result_publisher import PLAUSIBLE_LATENCY, ResultPublisher
from gpgmap_ros.sensing.sources import DESCRIPTIONS
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS
from gpgmap_ros.slam import MappingPipeline
from gpgmap_ros.slam.metrics import Metrics

STAGES = {
    "fuse": "fusing",
    "submaps": "finishing a submap",
    "close loops": "comparing a submap",
    "wait for submaps": "waiting for submaps",
}
"""Names of the stages of the SLAM loop in /diagnostics."""


class Diagnostics:
    """Publishes the node's state, and warns in the log of each problem in it."""

    def __init__(self, node: GuardedNode, metrics: Metrics, warnings: Warnings) -> None:
        self._node, self._metrics, self._warnings = node, metrics, warnings
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)

    def publish(
        self,
        problems: Mapping[str, str],
        values: Mapping[str, str],
        idle: str,
        more: Sequence[DiagnosticStatus] = (),
    ) -> None:
        """problems: kind -> text; values: of the present; idle: the message where there is no problem.

        more: statuses of other parts
        """
        for kind, text in problems.items():
            self._warnings.warn(kind, text)
        counted = self._metrics.values(STAGES) | self._metrics.rates(
            "clouds received", "clouds used", "maps published"
        )
        status = DiagnosticStatus(
            level=DiagnosticStatus.WARN if problems else DiagnosticStatus.OK,
            name=f"{self._node.get_fully_qualified_name().lstrip('/')}: mapping",
            message="; ".join(problems.values()) or idle,
            values=[KeyValue(key=key, value=value) for key, value in (counted | dict(values)).items()],
        )
        message = DiagnosticArray(status=[status, *more])
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)

    def process_values(self) -> dict[str, str]:
        """Numbers about the process."""
        values = {"resident memory (MB)": f"{resident_megabytes():.0f}"}
        if self._node.failed_callbacks:
            values["callbacks failed"] = str(self._node.failed_callbacks)
        return values

    def mapping_values(
        self, mapping: MappingPipeline, results: ResultPublisher, inputs: PoseInputs, waiting: int
    ) -> dict[str, str]:
        """Numbers about the map and the poses while the node is configured. waiting: clouds that wait."""
        values = {
            "poses from": DESCRIPTIONS[mapping.config.pose_source],
            "clouds waiting": str(waiting),
            "solver fallbacks": str(mapping.fallbacks),
            "cells that clouds contradict": str(mapping.disputed),
            "maps replaced before they were sent": str(results.replaced),
        }
        if results.coverage is not None:
            values["map coverage (%)"] = f"{100.0 * results.coverage:.1f}"
        values["poses quarantined"] = str(sum(held.count for held in inputs.source.held))
        values["transforms refused"] = str(inputs.loops.count)
        newest = inputs.source.newest()
        if newest is not None:
            age = (self._node.get_clock().now().nanoseconds - newest) / NANOSECONDS
            if abs(age) < PLAUSIBLE_LATENCY:
                values["age of the newest pose (s)"] = f"{age:.2f}"
        return values
