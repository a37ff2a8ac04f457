"""Weak closures: believed with neighbours that agree, never alone, and never where neighbours are wrong together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graph_nodes import closure, node

from gpgmap_ros.closure import ClosureConfig, LoopClosure
from gpgmap_ros.closure.graph.closure_graph import ClosureGraph

CONFIG = ClosureConfig(drift_position=0.1, drift_rotation=0.005)


def weak(a: int, b: int, off: float = 0.0, probability: float = 0.5, chance: float = 8.0) -> LoopClosure:
    found = closure(a, b, off, registered=False)
    return replace(
        found, probability=probability, reason="too little evidence", accepted=False, weak=True, chance=chance
    )


@pytest.fixture
def graph() -> ClosureGraph:
    """Submaps of 17 m, ten metres apart."""
    graph = ClosureGraph(CONFIG)
    for k in range(20):
        graph.add_node(node(k))
    return graph


def accepted(graph: ClosureGraph) -> list[tuple[int, int]]:
    return [pair for pair in graph.closures if graph.is_accepted(pair)]


def test_a_weak_closure_waits_alone_and_is_believed_with_a_neighbour_that_agrees(graph: ClosureGraph) -> None:
    assert not graph.add_closures([weak(2, 17, off=0.5)])
    assert graph.decision((2, 17)).reason == "too little evidence"
    assert graph.add_closures([weak(3, 18, off=0.5)])
    assert accepted(graph) == [(2, 17), (3, 18)]
    decision = graph.decision((2, 17))
    assert decision.accepted
    assert "with 1 of its neighbours" in decision.reason
    assert graph.pose(17)[1, 3] > 0.2, "they move the poses"


def test_neighbours_that_contradict_each_other_are_not_believed(graph: ClosureGraph) -> None:
    graph.add_closures([weak(2, 17, off=8.0)])
    graph.add_closures([weak(3, 18, off=-8.0)])
    assert accepted(graph) == []


def test_what_is_far_along_the_way_is_no_neighbour(graph: ClosureGraph) -> None:
    graph.add_closures([weak(2, 13, off=0.5)])
    graph.add_closures([weak(7, 18, off=0.5)])
    assert accepted(graph) == []


def test_the_same_ground_is_not_counted_twice(graph: ClosureGraph) -> None:
    # two comparisons of submaps that stand on one spot say the same thing
    graph.add_node(node(20, place=19))
    graph.add_closures([weak(2, 19)])
    graph.add_closures([weak(2, 20)])
    assert accepted(graph) == []


def test_hopeless_ones_do_not_add_up(graph: ClosureGraph) -> None:
    for k in range(5):
        graph.add_closures([weak(2 + k, 12 + k, probability=1e-4)])
    assert accepted(graph) == []


def test_a_believed_closure_speaks_for_those_that_came_before_it(graph: ClosureGraph) -> None:
    graph.add_closures([weak(2, 17, off=0.5, probability=0.1)])
    graph.add_closures([closure(3, 18, off=0.5)])
    assert accepted(graph) == [(2, 17), (3, 18)]
    graph.reject((3, 18))
    assert accepted(graph) == [], "what it spoke for goes with it"


def test_a_believed_closure_does_not_speak_for_what_contradicts_it(graph: ClosureGraph) -> None:
    graph.add_closures([weak(2, 17, off=3.0, probability=0.9), closure(2, 18, off=-1.0)])
    assert accepted(graph) == [(2, 18)]


def test_odometry_rules_out_weak_closures_too(graph: ClosureGraph) -> None:
    graph.add_closures([weak(2, 4, off=30.0)])
    graph.add_closures([weak(3, 5, off=30.0)])
    assert accepted(graph) == []
    assert graph.decision((2, 4)).reason == "too little evidence"


def test_all_at_once_is_what_came_step_by_step(graph: ClosureGraph) -> None:
    for group in (
        [weak(2, 15, 0.5, 0.3)],
        [weak(3, 16, 0.5, 0.4)],
        [weak(4, 17, 0.5, 0.6)],
        [closure(5, 18, 0.5)],
    ):
        graph.add_closures(group)
    other = ClosureGraph(CONFIG)
    for k in range(20):
        other.insert_node(node(k))
    other.insert_closures(graph.closures.values())
    other.rebuild()
    for pair in graph.closures:
        assert other.decision(pair).reason == graph.decision(pair).reason
    assert accepted(graph)
    np.testing.assert_allclose(other.poses, graph.poses, atol=1e-9)
