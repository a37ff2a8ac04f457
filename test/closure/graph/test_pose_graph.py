"""Consistency of closures, and the pose graph that they correct."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gpgmap_ros.closure import Drift, PoseConstraint, PoseGraph, find_consistent
from gpgmap_ros.closure.graph.pose_graph import local_covariance
from gpgmap_ros.geometry import inverse

COUNT = 24
ODOMETRY = np.diag([0.1**2] * 2 + [0.05**2] + [0.002**2] * 2 + [0.02**2])
SIGMA = np.diag([0.05**2] * 3 + [0.002**2] * 3)


def pose(x: float, y: float, yaw: float, z: float = 0.0) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("z", yaw).as_matrix()
    T[:3, 3] = x, y, z
    return T


@pytest.fixture(scope="module")
def loop():
    """True poses on a circle driven once, and what odometry with drift makes of them."""
    angles = 2.0 * np.pi * np.arange(COUNT + 1) / COUNT
    truth = [pose(20.0 * np.cos(a), 20.0 * np.sin(a), a + np.pi / 2) for a in angles]
    rng = np.random.default_rng(0)
    steps = []
    for one, two in itertools.pairwise(truth):
        noise = pose(*rng.normal(scale=0.1, size=2), 0.01 + rng.normal(scale=0.01), rng.normal(scale=0.05))
        steps.append(inverse(one) @ two @ noise)
    driven = [truth[0]]
    for step in steps:
        driven.append(driven[-1] @ step)
    return truth, steps, driven


def closure_between(truth, source: int, target: int, shift=(0.0, 0.0)) -> PoseConstraint:
    T = inverse(truth[target]) @ truth[source]
    T[:2, 3] += shift
    return PoseConstraint(source, target, T, SIGMA)


def graph_of(loop) -> PoseGraph:
    truth, steps, _ = loop
    graph = PoseGraph()
    graph.add_first(0, truth[0])
    for k, step in enumerate(steps):
        graph.add_odometry(k, k + 1, step, ODOMETRY)
    return graph


def test_consistent_closures_outvote_a_wrong_one(loop):
    truth, _, driven = loop
    poses = dict(enumerate(driven))
    distances = {k: 5.2 * k for k in range(len(driven))}
    closures = [
        closure_between(truth, COUNT, 0),
        closure_between(truth, COUNT - 1, 0),
        closure_between(truth, COUNT - 1, 1, shift=(9.0, -14.0)),
        closure_between(truth, COUNT, 1),
    ]
    assert find_consistent(closures, poses, distances, Drift(0.1, 0.01)) == [0, 1, 3]
    assert find_consistent(closures[:1], poses, distances) == [0]
    assert find_consistent([], poses, distances) == []


def test_the_loop_closes(loop):
    truth, _, driven = loop
    graph = graph_of(loop)
    graph.add_closure(closure_between(truth, COUNT, 0))
    solution = graph.solve()
    before = np.linalg.norm((driven[COUNT] - truth[COUNT])[:3, 3])
    after = np.linalg.norm((solution.poses[COUNT] - truth[COUNT])[:3, 3])
    assert before > 1.0
    assert after < 0.1
    middle = np.linalg.norm((solution.poses[12] - truth[12])[:3, 3])
    assert middle < np.linalg.norm((driven[12] - truth[12])[:3, 3])
    assert solution.outliers == ()
    for T in solution.poses.values():
        np.testing.assert_allclose(np.linalg.det(T[:3, :3]), 1.0)


def test_a_wrong_closure_is_let_go_and_can_be_rejected(loop):
    truth, _, _ = loop
    graph = graph_of(loop)
    for source, target in ((COUNT, 0), (COUNT - 1, 0), (COUNT, 1)):
        graph.add_closure(closure_between(truth, source, target))
    alone = graph.solve()
    wrong = graph.add_closure(closure_between(truth, 12, 4, shift=(15.0, 8.0)))
    solution = graph.solve()
    assert solution.outliers == (wrong,)
    for k in (6, 12, 18):
        assert np.linalg.norm((solution.poses[k] - alone.poses[k])[:3, 3]) < 0.3
    graph.reject(wrong)
    mended = graph.solve()
    for id, T in mended.poses.items():
        np.testing.assert_allclose(T, alone.poses[id], atol=1e-6)
    with pytest.raises(KeyError, match="no closure"):
        graph.reject(wrong)


def test_without_closures_the_odometry_stays(loop):
    solution = graph_of(loop).solve()
    for k, T in enumerate(loop[2]):
        np.testing.assert_allclose(solution.poses[k], T, atol=1e-6)


def test_covariances_reach_the_solver_on_the_right_side():
    """An error of the position along the target's x is one along the source's own axes after turning."""
    sigma = np.diag([4.0, 1e-4, 1e-4, 1e-6, 1e-6, 1e-2])
    local = local_covariance(PoseConstraint(1, 2, pose(3.0, 1.0, np.pi / 2), sigma))
    # order of the solvers: rotation, translation; the source's y axis points along the target's -x
    np.testing.assert_allclose(np.diag(local), [1e-6, 1e-6, 1e-2, 1e-4, 4.0, 1e-4], rtol=1e-6)


def test_bad_input_is_refused(loop):
    graph = graph_of(loop)
    with pytest.raises(KeyError, match="no submap"):
        graph.add_closure(PoseConstraint(99, 0, np.eye(4), SIGMA))
    mirror = np.diag([1.0, -1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match=r"\+1"):
        graph.add_closure(PoseConstraint(1, 0, mirror, SIGMA))
    with pytest.raises(ValueError, match="finite"):
        graph.add_closure(PoseConstraint(1, 0, np.eye(4), np.diag(np.full(6, np.inf))))
    with pytest.raises(ValueError, match="positive definite"):
        graph.add_closure(PoseConstraint(1, 0, np.eye(4), np.zeros((6, 6))))
    with pytest.raises(ValueError, match="already"):
        graph.add_odometry(0, 1, np.eye(4), SIGMA)
    with pytest.raises(ValueError, match="begins"):
        graph.add_first(99, np.eye(4))
    with pytest.raises(ValueError, match="empty"):
        PoseGraph().solve()


def test_covariances_grow_along_the_way_and_a_closure_takes_them_back(loop):
    truth, steps, driven = loop
    graph = graph_of(loop)
    poses = dict(enumerate(driven))
    found = graph.covariances(poses)
    assert found[0].max() < 1e-10
    # one step: the odometry's own, turned from the axes of the first submap to those of the map
    M = np.kron(np.eye(2), truth[0][:3, :3])
    np.testing.assert_allclose(found[1], M @ ODOMETRY @ M.T, atol=1e-9)
    # many: against drives whose every step errs at random
    rng = np.random.default_rng(4)
    ends = []
    for _ in range(1500):
        T = truth[0]
        for step in steps[:8]:
            e = rng.multivariate_normal(np.zeros(6), ODOMETRY)
            noisy = step.copy()
            noisy[:3, :3] = Rotation.from_rotvec(e[3:]).as_matrix() @ step[:3, :3]
            noisy[:3, 3] += e[:3]
            T = T @ noisy
        turn = Rotation.from_matrix(T[:3, :3] @ driven[8][:3, :3].T).as_rotvec()
        ends.append([*(T - driven[8])[:3, 3], *turn])
    np.testing.assert_allclose(np.std(ends, axis=0), np.sqrt(np.diag(found[8])), rtol=0.1)
    graph.add_closure(closure_between(truth, COUNT, 0))
    closed = graph.covariances(graph.solve().poses)
    assert np.sqrt(closed[COUNT][0, 0]) < 0.06 < np.sqrt(found[COUNT][0, 0])
    for k in (6, 12, 18):
        assert np.trace(closed[k][:2, :2]) < 0.7 * np.trace(found[k][:2, :2])
