"""Which earlier submaps a new one is compared with."""

from __future__ import annotations

import numpy as np
from graph_nodes import STEP, node

from gpgmap_ros.closure import ClosureConfig, Drift
from gpgmap_ros.closure.graph.graph_paths import Edge
from gpgmap_ros.closure.graph.keyframes import SubmapNode
from gpgmap_ros.closure.retrieval.candidate_selection import CandidateSelection

CONFIG = ClosureConfig(min_path=25.0, drift_position=0.5, drift_rotation=0.001)
DRIFT = Drift.from_config(CONFIG)


def selection(
    nodes: list[SubmapNode], edges: list[Edge], config: ClosureConfig = CONFIG
) -> CandidateSelection:
    found = CandidateSelection(config, Drift.from_config(config), lambda: edges)
    last: dict[int, SubmapNode] = {}
    for item in nodes:
        before = last.get(item.drive)
        found.add(item, before, 0.0 if before is None else item.driven - before.driven)
        last[item.drive] = item
    return found


def poses(nodes: list[SubmapNode]) -> np.ndarray:
    return np.array([item.T_odom_submap for item in nodes])


def test_near_and_far_submaps_of_a_drive_are_left_out() -> None:
    nodes = [node(k) for k in range(12)]
    found = selection(nodes, []).select(nodes[-1], poses(nodes))
    # driven at least 25 m since; discs of 12 m may meet within four standard deviations of the drift
    stds = {k: 4.0 * np.sqrt(DRIFT.position_variance((11 - k) * STEP)) for k in range(9)}
    expected = {k for k in range(9) if (11 - k) * STEP - 24.0 <= stds[k]}
    assert set(found) == expected
    assert expected
    assert expected != set(range(9))
    prior = found[8]
    assert prior is not None
    np.testing.assert_allclose(prior.T_target_source[:3, 3], [3 * STEP, 0.0, 0.0])
    np.testing.assert_allclose(prior.covariance, DRIFT.covariance(3 * STEP))


def test_other_drives_are_compared_everywhere_until_a_closure_joins_them() -> None:
    nodes = [node(k) for k in range(30)] + [node(30, drive=2, place=0)]
    found = selection(nodes, []).select(nodes[-1], poses(nodes))
    assert set(found) == set(range(30))
    assert all(prior is None for prior in found.values())
    edges = [(k, k + 1, STEP) for k in range(29)] + [(0, 30, 0.5)]
    joined = selection(nodes, edges)
    joined.invalidate_paths()
    found = joined.select(nodes[-1], poses(nodes))
    assert 0 in found
    assert 29 not in found
    assert all(prior is not None for prior in found.values())


def test_by_default_a_submap_is_compared_once_it_has_been_left_behind() -> None:
    nodes = [node(k, place=k) for k in range(5)]
    found = selection(nodes, [], ClosureConfig(min_path=-1.0, drift_position=5.0)).select(
        nodes[-1], poses(nodes)
    )
    # two radii of 12 m to a corner are 17 m to an edge
    assert set(found) == {0, 1, 2}
