"""Nodes, closures and decisions, kept up to date."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from graph_nodes import STEP, closure, node

from gpgmap_ros.closure import ClosureConfig
from gpgmap_ros.closure.graph import closure_graph
from gpgmap_ros.closure.graph.closure_graph import ClosureGraph
from gpgmap_ros.closure.graph.graph_paths import shortest_paths

CONFIG = ClosureConfig(drift_position=0.1, drift_rotation=0.005)


@pytest.fixture
def graph() -> ClosureGraph:
    graph = ClosureGraph(CONFIG)
    for k in range(8):
        graph.add_node(node(k))
    return graph


def test_a_closure_moves_poses_and_its_rejection_moves_them_back(graph: ClosureGraph) -> None:
    before, revision = graph.poses.copy(), graph.revision
    assert graph.add_closures([closure(0, 7, off=1.0)])
    assert graph.revision > revision
    decision = graph.decision((0, 7))
    assert decision.accepted
    assert decision.reason == "it fits"
    assert 0.8 < graph.pose(7)[1, 3] < 1.0
    np.testing.assert_allclose(graph.correction(7) @ node(7).T_odom_submap, graph.pose(7))
    assert graph.reject((0, 7))
    assert graph.decision((0, 7)).reason == "rejected by request"
    np.testing.assert_allclose(graph.poses, before, atol=1e-9)


def test_a_new_node_stands_where_the_correction_puts_it(graph: ClosureGraph) -> None:
    graph.add_closures([closure(0, 7, off=1.0)])
    before = graph.add_node(node(8))
    assert before is not None
    assert before.id == 7
    np.testing.assert_allclose(graph.pose(8), graph.correction(7) @ node(8).T_odom_submap)
    assert graph.anchor(8) == 0


def test_all_at_once_is_what_came_step_by_step(graph: ClosureGraph) -> None:
    closures = [closure(0, 7, off=1.0), closure(1, 7, off=1.0), closure(2, 7, registered=False)]
    graph.add_closures(closures)
    other = ClosureGraph(CONFIG)
    for k in range(8):
        other.insert_node(node(k))
    other.insert_closures(closures)
    other.rebuild()
    np.testing.assert_allclose(other.poses, graph.poses, atol=1e-9)
    assert [other.is_accepted(pair) for pair in other.closures] == [True, True, False]
    for id, covariance in graph.covariances().items():
        np.testing.assert_allclose(other.covariances()[id], covariance, atol=1e-12)


def test_long_drives_go_on_from_the_solution_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same poses as from the odometry, also where a drive joins another in between."""
    monkeypatch.setattr(closure_graph, "WARM_START", 2)
    closures = [
        closure(0, 7, off=1.0),
        closure(1, 8, off=1.2),
        closure(4, 11, off=0.5),
        closure(2, 9, off=1.1),
    ]
    graph, other = ClosureGraph(CONFIG), ClosureGraph(CONFIG)
    for k in range(12):
        new = node(k) if k < 10 else node(k, drive=2)
        graph.add_node(new)
        other.insert_node(new)
        graph.add_closures([item for item in closures if item.b == k])
    other.insert_closures(closures)
    other.rebuild()
    np.testing.assert_allclose(graph.poses, other.poses, atol=2e-4)
    assert [graph.is_accepted(item.pair) for item in closures] == [
        other.is_accepted(item.pair) for item in closures
    ]
    assert graph.anchor(11) == 0


def test_drives_are_in_one_frame_once_a_closure_joins_them(graph: ClosureGraph) -> None:
    for k in range(8, 11):
        graph.add_node(node(k, drive=2, place=k - 8))
    assert graph.anchor(9) == 8
    graph.add_closures([closure(4, 9)])
    assert graph.anchor(9) == 0
    np.testing.assert_allclose(graph.pose(9)[0, 3], 9 * STEP, atol=0.1)
    np.testing.assert_array_equal(
        graph.poses_of([graph.nodes[9], graph.nodes[0]]), [graph.pose(9), graph.pose(0)]
    )


def test_paths_lead_along_odometry_and_through_closures(graph: ClosureGraph) -> None:
    assert shortest_paths(7, graph.path_edges())[0] == 7 * STEP
    graph.add_closures([closure(0, 7)])
    # as long as the path after which odometry is as uncertain as the closure
    assert shortest_paths(7, graph.path_edges())[0] == pytest.approx(0.05**2 / 0.1**2)


def test_without_a_solver_it_is_said_and_poses_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gtsam", None)
    graph = ClosureGraph(ClosureConfig(solver="gtsam"))
    for k in range(3):
        graph.add_node(node(k))
    graph.add_closures([closure(0, 2)])
    assert "gtsam" in graph.solver_error.lower()
    np.testing.assert_allclose(graph.pose(2), node(2).T_odom_submap)
