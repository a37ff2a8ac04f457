"""The gates: each refuses what it must, names the reason, and lets the rest pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fractal_world import World

from gpgmap_ros.closure import ClosureConfig
from gpgmap_ros.closure import acceptance as gates
from gpgmap_ros.closure.types import Evidence

CONFIG = ClosureConfig()
GOOD = Evidence(
    overlap=0.6, cells=900, coherence=0.9, detail_coherence=0.8, independent=80.0, detail_independent=150.0,
    likelihood=60.0, surplus=45.0, height_scale=10.0, slope_scale=9.0, ratio=0.9, white=200.0, noise_share=0.05,
    height_rms=0.1, slope_rms=0.05, tilt=0.5, converged=True,
)  # fmt: skip


def test_a_good_pose_passes() -> None:
    assert gates.pose_objection(GOOD, CONFIG) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"overlap": 0.05}, "too little overlap: 5.0% of the smaller map, 6.0% is needed"),
        ({"overlap": 0.1, "surplus": 30.0}, "too little overlap: 10.0% of the smaller map, 12.0% is needed"),
        ({"converged": False}, "did not converge"),
        ({"ratio": 0.2, "surplus": 30.0}, "heights disagree 5.0 times more"),
        ({"surplus": 0.5}, "no better than chance"),
        ({"tilt": 9.0}, "tilted by 9.0 deg"),
        ({"mahalanobis_sq": 36.0}, "6.0 standard deviations away from where the prior expects it"),
    ],
)
def test_each_fault_of_a_pose_is_named(change: dict[str, float], reason: str) -> None:
    assert reason in gates.pose_objection(replace(GOOD, **change), CONFIG)


def test_heights_may_change_where_slopes_agree() -> None:
    """Snow: 45 nats of agreement are not undone by heights."""
    assert gates.pose_objection(replace(GOOD, ratio=0.1), CONFIG) == ""


def test_little_overlap_is_enough_where_it_is_clear() -> None:
    assert gates.pose_objection(replace(GOOD, overlap=0.1), CONFIG) == ""


def test_only_what_lacks_nothing_but_evidence_waits() -> None:
    known = np.eye(6)
    assert gates.may_wait("", False, 0.01, known)
    assert not gates.may_wait("heights disagree", False, 0.01, known)
    assert not gates.may_wait("", True, 0.01, known), "ground that repeats itself agrees at wrong poses"
    assert not gates.may_wait("", False, 0.4, known), "a rival fits as well"
    assert not gates.may_wait("", False, 0.01, np.full((6, 6), np.inf))


def test_gates_of_a_pose_are_asked_in_order() -> None:
    hopeless = replace(GOOD, overlap=0.05, converged=False, ratio=0.1, surplus=-5.0, tilt=20.0)
    assert gates.pose_objection(hopeless, CONFIG).startswith("too little overlap")


def test_scales_are_compared_only_where_both_have_units() -> None:
    odd = replace(GOOD, ratio=0.1, surplus=30.0)
    assert gates.pose_objection(odd, CONFIG)
    assert not gates.pose_objection(odd, replace(CONFIG, use_variance=False))
    assert not gates.pose_objection(odd, replace(CONFIG, use_gradient=False))


def test_the_probability_says_what_it_lacks() -> None:
    assert gates.probability_objection(0.99, 0.99, True, CONFIG) == ""
    assert "not unique" in gates.probability_objection(0.5, 0.99, False, CONFIG)
    little = gates.probability_objection(0.5, 0.5, False, CONFIG)
    assert "probability 0.5, 0.95 is needed" in little
    assert "alike" not in little
    assert "alike" in gates.probability_objection(0.5, 0.5, True, CONFIG)


def test_maps_must_have_layers_cells_and_relief(world: World) -> None:
    map_, _ = world.map_at((100.0, 100.0), 1)
    layers, shape = {"elevation": map_["elevation"]}, map_.grid.shape
    assert gates.layer_objection(layers, ("elevation",), shape) == ""
    assert "no layer snow, ice" in gates.layer_objection(layers, ("elevation", "snow", "ice"), shape)
    assert "shape of the grid" in gates.layer_objection(layers, ("elevation",), (3, 3))
    assert gates.coverage_objection(np.zeros((5, 5), bool)) == "the map is empty: no cell is known"
    assert gates.coverage_objection(np.eye(5, dtype=bool)) == ""
    wide, narrow = np.ones((30, 30), bool), np.ones((200, 3), bool)
    assert gates.size_objection(wide, CONFIG) == ""
    assert "too narrow" in gates.size_objection(narrow, CONFIG)
    assert "9 well observed cells, 100 are needed" in gates.size_objection(np.ones((3, 3), bool), CONFIG)
    assert "flat" in gates.relief_objection(0.0008, 0.001)
    assert gates.relief_objection(0.005, 0.001) == ""


def test_cells_must_be_of_one_size() -> None:
    assert gates.resolution_objection(0.2, 0.2000001) == ""
    assert "0.2 m and 0.25 m" in gates.resolution_objection(0.2, 0.25)


def test_nothing_found_says_whether_a_prior_limited_the_search() -> None:
    assert gates.search_objection(1, True) == ""
    assert "within the prior" in gates.search_objection(0, True)
    assert "within the prior" not in gates.search_objection(0, False)


def test_gates_of_the_graph() -> None:
    assert gates.odometry_objection(gates.ODOMETRY_LIMIT) == ""
    assert "contradicts the odometry: 10.0 standard deviations" in gates.odometry_objection(100.0)
    assert gates.consistency_objection([], 5) == ""
    assert "contradicts 2 of 5 other closures, 1 - 7" in gates.consistency_objection([(1, 7), (2, 8)], 5)
    assert gates.graph_objection(gates.OUTLIER_LIMIT) == ""
    assert "pull it apart by 9.0" in gates.graph_objection(81.0)
