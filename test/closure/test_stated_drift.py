"""Odometry that states how much it erred: what the closures make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graph_nodes import STEP, closure, node

from gpgmap_ros.closure import ClosureConfig, ClosureDatabase, Drift
from gpgmap_ros.closure.graph.closure_graph import ClosureGraph
from gpgmap_ros.closure.graph.keyframes import SubmapNode
from gpgmap_ros.closure.session.session_file import read_session, write_session
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping import ArchiveError, Submap, SubmapStore
from gpgmap_ros.mapping.submaps import crop_to_disc
from gpgmap_ros.slam.footprints import Footprints
from gpgmap_ros.slam.localizer import Localizer
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline
from gpgmap_ros.storage.archive import read_archive, write_archive

CONFIG = ClosureConfig(drift_position=0.1, drift_rotation=0.005)
BAD = (9.0 * 0.1**2 * STEP, 0.0)
"""Position variance of a submap in which odometry erred by three times its drift."""


def graph_of(*nodes: SubmapNode) -> ClosureGraph:
    graph = ClosureGraph(CONFIG)
    for item in nodes:
        graph.add_node(item)
    return graph


def covariance_at(graph: ClosureGraph, id: int) -> np.ndarray:
    return graph.covariances()[id]


@pytest.mark.parametrize("variances", [(0.01**2 * STEP, 0.0001**2 * STEP), (0.0, 0.0)])
def test_odometry_is_never_better_than_the_settings_say(variances: tuple[float, float]) -> None:
    plain = graph_of(*(node(k) for k in range(3)))
    stated = graph_of(*(replace(node(k), drift_variance=variances) for k in range(3)))
    np.testing.assert_array_equal(covariance_at(stated, 2), covariance_at(plain, 2))
    assert stated.paths == {0: 0.0, 1: STEP, 2: 2.0 * STEP}


def test_a_bad_stretch_makes_the_edges_at_it_wider() -> None:
    plain = graph_of(*(node(k) for k in range(4)))
    nodes = [node(k) for k in range(4)]
    nodes[1] = replace(nodes[1], drift_variance=BAD)
    bad = graph_of(*nodes)
    # half of the way to its middle and half of the way from it are in it
    for id, factor in ((1, 5.0), (2, 5.0), (3, 1.0)):
        before = covariance_at(bad, id)[0, 0] - covariance_at(bad, id - 1)[0, 0]
        expected = covariance_at(plain, id)[0, 0] - covariance_at(plain, id - 1)[0, 0]
        assert before == pytest.approx(factor * expected, rel=0.3)
    assert bad.paths[2] - bad.paths[1] == pytest.approx(9.0 * STEP)
    assert [edge[2] for edge in bad.path_edges()] == pytest.approx([STEP, 9.0 * STEP, STEP])


def test_a_closure_that_stated_errors_explain_is_not_refused() -> None:
    """Off by 3 m sideways over 20 m: nothing that the drift allows, but what was stated does."""
    plain = graph_of(*(node(k) for k in range(3)))
    plain.add_closures([closure(0, 2, off=3.0)])
    assert not plain.is_accepted((0, 2))
    assert "contradicts the odometry" in plain.decision((0, 2)).reason
    wide = graph_of(*(replace(node(k), drift_variance=(10.0 * BAD[0], 0.0)) for k in range(3)))
    wide.add_closures([closure(0, 2, off=3.0)])
    assert wide.is_accepted((0, 2))
    assert wide.pose(2)[1, 3] == pytest.approx(3.0, abs=0.2)


def test_rotation_counts_as_position_does() -> None:
    drift = Drift.from_config(CONFIG)
    assert drift.equivalent_path(STEP, (0.0, 4.0 * 0.005**2 * STEP)) == pytest.approx(4.0 * STEP)
    assert drift.equivalent_path(STEP, (7.0 * 0.1**2 * STEP, 4.0 * 0.005**2 * STEP)) == pytest.approx(70.0)


def test_a_heading_that_is_not_known_at_all_leaves_a_graph_that_can_be_solved() -> None:
    graph = graph_of(*(replace(node(k), drift_variance=(0.1, 1e6)) for k in range(4)))
    graph.add_closures([closure(0, 2), closure(0, 3)])
    assert not graph.solver_error
    assert np.isfinite(graph.poses).all()
    assert np.isfinite(list(graph.covariances().values())).all()
    np.testing.assert_allclose(graph.pose(3)[:3, 3], [3.0 * STEP, 0.0, 0.0], atol=0.05)


def test_what_was_stated_outlives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "closures.npz"
    write_session(path, [replace(node(0), drift_variance=(0.5, 0.01)), node(1)], {}, [], False)
    assert [item.drift_variance for item in read_session(path).nodes] == [(0.5, 0.01), (0.0, 0.0)]
    write_session(path, [replace(node(0), drift_variance=(-0.5, 0.01))], {}, [], False)
    with pytest.raises(ArchiveError, match=r"drift_variance is -0\.5"):
        read_session(path)


def drive(clouds: int, step: float) -> MappingPipeline:
    """Clouds of flat ground, one every `step` metres, each with the same stated error."""
    config = with_settings(
        Config(),
        {"mapping.kernel": "rbf", "mapping.learn_noise": False, "submap.size": 8.0, "mapping.size_x": 4.0,
         "mapping.size_y": 4.0, "mapping.resolution": 0.5, "submap.resolution": 0.5, "gate.enabled": False},
    )  # fmt: skip
    pipeline = MappingPipeline(config)
    xy = np.random.default_rng(0).uniform(-2.0, 2.0, (400, 2))
    points = np.column_stack([xy, np.full(400, -1.0)])
    covariance = np.diag([0.01, 0.04, 0.01, 1e-6, 1e-6, 9e-6])
    for k in range(clouds):
        T = np.eye(4)
        T[:3, 3] = step * k, 0.0, 1.0
        pipeline.add_cloud(points, T, 1 + k, step_covariance=covariance)
    return pipeline


def test_a_submap_adds_up_what_was_stated_on_its_way_and_not_while_it_stood(tmp_path: Path) -> None:
    moving, standing = drive(5, 0.25).finish_submap("end"), drive(5, 0.0).finish_submap("end")
    assert moving is not None
    assert standing is not None
    assert moving.drift_variance == pytest.approx((5 * 0.04, 5 * 9e-6))
    assert standing.drift_variance == pytest.approx((0.04, 9e-6))
    store = SubmapStore(tmp_path / "submaps", Config())
    store.add(moving)
    assert store.load(moving.id).drift_variance == moving.drift_variance
    path = store.path(moving.id)
    values, arrays = read_archive(path, "submap")
    del values["drift_variance"]
    write_archive(path, "submap", values, arrays)
    assert SubmapStore(tmp_path / "submaps", Config()).load(moving.id).drift_variance == (0.0, 0.0)
    write_archive(path, "submap", values | {"drift_variance": [1.0]}, arrays)
    with pytest.raises(ArchiveError, match="drift_variance"):
        SubmapStore(tmp_path / "submaps", Config()).load(moving.id)


def dead_reckoning(way: np.ndarray, walk: float, turn: float, before: float) -> list[np.ndarray]:
    """Covariances of poses that add up steps, `walk` m^2 and `turn` rad^2 per metre; after `before` metres of way."""
    C = np.diag([before * walk] * 3 + [0.0, 0.0, before * turn])
    out = [C]
    for x, y, z in np.diff(way, axis=0):
        F = np.eye(6)
        F[:3, 3:] = [[0.0, z, -y], [-z, 0.0, x], [y, -x, 0.0]]
        step = float(np.linalg.norm([x, y, z]))
        C = F @ C @ F.T + step * np.diag([walk] * 3 + [0.0, 0.0, turn])
        out.append(C)
    return out


def submap_of(way: np.ndarray, covariances: list[np.ndarray | None]) -> Submap:
    config = with_settings(
        Config(),
        {"mapping.kernel": "rbf", "mapping.learn_noise": False, "submap.size": 20.0, "mapping.size_x": 4.0,
         "mapping.size_y": 4.0, "mapping.resolution": 0.5, "submap.resolution": 0.5, "gate.enabled": False},
    )  # fmt: skip
    pipeline = MappingPipeline(config)
    xy = np.random.default_rng(0).uniform(-2.0, 2.0, (100, 2))
    points = np.column_stack([xy, np.full(100, -1.0)])
    for k, (place, covariance) in enumerate(zip(way, covariances, strict=True)):
        T = np.eye(4)
        T[:3, 3] = place
        pipeline.add_cloud(points, T, 1 + k, covariance)
    made = pipeline.finish_submap("end")
    assert made is not None
    return made


BOW = np.column_stack(
    [8.0 * np.sin(np.linspace(0.0, 1.5, 40)), 8.0 * np.cos(np.linspace(0.0, 1.5, 40)), np.ones(40)]
)
"""12 m, a pose every 0.3 m."""


@pytest.mark.parametrize("before", [0.0, 500.0])
def test_a_pose_covariance_that_adds_up_says_how_the_odometry_drifts(tmp_path: Path, before: float) -> None:
    """However far the robot came: what counts is what was added in the submap."""
    made = submap_of(BOW, list(dead_reckoning(BOW, 1e-3, 2e-5, before)))
    assert made.drift_variance == pytest.approx((12.0 * 1e-3, 12.0 * 2e-5), rel=0.01)
    assert made.gpgmap.drift_rates == pytest.approx((1e-3, 2e-5), rel=0.01)
    assert crop_to_disc(made.gpgmap, 0.0, 0.0, 5.0).drift_rates == made.gpgmap.drift_rates
    store = SubmapStore(tmp_path / "submaps", Config())
    store.add(made)
    assert store.load(made.id).gpgmap.drift_rates == pytest.approx(made.gpgmap.drift_rates)


def test_a_covariance_that_does_not_add_up_says_nothing_of_drift() -> None:
    """One number always; a filter that has found where it is, about which it trembles; and none at all."""
    constant = np.diag([0.01] * 3 + [1e-3, 1e-3, 1e-3])
    trembling = [(1.0 + 0.01 * (k % 2)) * constant for k in range(len(BOW))]
    for covariances in ([constant] * len(BOW), trembling, [None] * len(BOW)):
        made = submap_of(BOW, covariances)
        assert made.gpgmap.drift_rates == (0.0, 0.0)
        assert min(made.drift_variance) == 0.0


def test_a_robot_that_is_followed_in_a_map_is_less_certain_after_a_bad_stretch() -> None:
    made = drive(5, 0.25).finish_submap("end")
    assert made is not None
    spread = []
    for variances in ((0.0, 0.0), (10.0 * BAD[0], 0.0)):
        localizer = Localizer(
            ClosureDatabase(CONFIG), {}, Footprints.of([], [], []), CONFIG, Config().localization
        )
        localizer.set_prior(np.eye(4), 1e-6 * np.eye(6), np.eye(4), 0.0)
        for number in range(2):
            submap = replace(made, first_stamp=1 + number, distance=STEP, drift_variance=variances)
            localizer.observe(submap, STEP * (number + 1))
        (followed,) = localizer._hypotheses
        spread.append(followed.belief.position_std)
    assert spread[1] > 3.0 * spread[0]
