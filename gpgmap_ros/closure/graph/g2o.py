"""The pose graph in g2o's text format, for other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from gp_core.arrays import Array
from gpgmap_ros.closure.graph.pose_graph import local_covariance
from gpgmap_ros.closure.types import PoseEdge
from gpgmap_ros.geometry import quaternion_of


def format_g2o(poses: Mapping[int, Array], edges: Iterable[PoseEdge], fixed: Iterable[int]) -> str:
    """A pose graph in g2o's text format, which GTSAM, g2o, Ceres and their viewers read.

    Information matrices are over (translation, rotation) along the second pose's own axes.
    """
    lines = [
        " ".join(["VERTEX_SE3:QUAT", str(id), *format_numbers([*T[:3, 3], *quaternion_of(T)])])
        for id, T in poses.items()
    ]
    lines += [f"FIX {id}" for id in fixed]
    for edge in edges:
        local = local_covariance(edge)
        order = [3, 4, 5, 0, 1, 2]  # ours has rotation first
        information = np.linalg.inv(local[np.ix_(order, order)])[np.triu_indices(6)]
        T = edge.T_target_source
        values = format_numbers([*T[:3, 3], *quaternion_of(T), *information])
        lines.append(" ".join(["EDGE_SE3:QUAT", str(edge.target), str(edge.source), *values]))
    return "\n".join(lines) + "\n"


def format_numbers(values: Iterable[float]) -> list[str]:
    return [repr(float(value)) for value in values]
