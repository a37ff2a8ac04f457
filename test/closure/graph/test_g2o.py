"""The pose graph as g2o's text."""

from __future__ import annotations

import numpy as np
from graph_nodes import SIGMA, shifted

from gpgmap_ros.closure import PoseConstraint
from gpgmap_ros.closure.graph.g2o import format_g2o


def test_every_pose_and_edge_has_its_line() -> None:
    T = shifted(2.0, 1.0)
    T[:3, :3] = [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    text = format_g2o({0: np.eye(4), 12: T}, [PoseConstraint(12, 0, T, SIGMA)], [0])
    first, second, fixed, edge = (line.split() for line in text.splitlines())
    assert first == ["VERTEX_SE3:QUAT", "0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.0", "1.0"]
    assert second[:2] == ["VERTEX_SE3:QUAT", "12"]
    np.testing.assert_allclose([float(v) for v in second[2:5]], [2.0, 1.0, 0.0])
    np.testing.assert_allclose(
        np.abs([float(v) for v in second[5:]]), [0.0, 0.0, 0.5**0.5, 0.5**0.5], atol=1e-12
    )
    assert fixed == ["FIX", "0"]
    assert edge[:3] == ["EDGE_SE3:QUAT", "0", "12"]
    information = np.zeros((6, 6))
    information[np.triu_indices(6)] = [float(v) for v in edge[10:]]
    # translation first; the same in every direction, so that turning changes nothing
    np.testing.assert_allclose(np.diag(information), [0.05**-2] * 3 + [0.005**-2] * 3)
