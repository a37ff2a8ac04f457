"""Corrections of a trajectory between submaps, against an optimisation over all poses of the robot."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.closure import Drift, PoseConstraint, PoseGraph
from gpgmap_ros.closure.graph.keyframes import SubmapNode
from gpgmap_ros.closure.graph.lie import inverses
from gpgmap_ros.closure.graph.odometry_chain import OdometryChain
from gpgmap_ros.closure.graph.trajectory_correction import correct_trajectory
from gpgmap_ros.geometry import inverse

DRIFT = Drift(position_std=0.02, rotation_std=0.004)
STEP, PER_SUBMAP, SUBMAPS = 0.25, 40, 3


def pose(x: float, y: float, yaw: float) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("z", yaw).as_matrix()
    T[:2, 3] = x, y
    return T


def curved_way() -> np.ndarray:
    """(N, 4, 4) poses along a bend."""
    yaw = np.linspace(0.0, 2.0, PER_SUBMAP * SUBMAPS)
    xy = np.cumsum(STEP * np.column_stack([np.cos(yaw), np.sin(yaw)]), axis=0)
    return np.array([pose(x, y, a) for (x, y), a in zip(xy, yaw, strict=True)])


def submaps_along(way: np.ndarray) -> list[SubmapNode]:
    nodes = []
    for k in range(SUBMAPS):
        part = way[k * PER_SUBMAP : (k + 1) * PER_SUBMAP]
        stamps = np.arange(k * PER_SUBMAP, (k + 1) * PER_SUBMAP) * 1000
        track = inverse(part[0]) @ part
        length = STEP * PER_SUBMAP
        nodes.append(SubmapNode(k, 1, part[0], int(stamps[0]), k * length, length, 20.0, stamps, track))
    return nodes


def test_corrections_are_those_of_an_optimisation_over_all_poses() -> None:
    """Poses between submaps, and the covariance of odometry between them, follow from one model of the drift."""
    way = curved_way()
    nodes = submaps_along(way)
    chain = OdometryChain.of(nodes)
    middles = chain.middles
    # the last submap is found a little beside where odometry puts it, and turned
    sigma = np.diag([0.01**2] * 3 + [0.001**2] * 3)
    error = pose(0.3, -0.2, 0.05)
    first, last = (nodes[k].T_odom_submap for k in (0, -1))
    closure = PoseConstraint(2, 0, inverse(first) @ error @ last, sigma)

    submaps = PoseGraph()
    submaps.add_first(0, first)
    for before, node in itertools.pairwise(nodes):
        T = inverse(before.T_odom_submap) @ node.T_odom_submap
        pair = OdometryChain.of([before, node])
        submaps.add_odometry(
            before.id, node.id, T, pair.covariance(before.T_odom_submap, node.T_odom_submap, DRIFT)
        )
    submaps.add_closure(closure)
    poses = submaps.solve().poses
    corrections = np.array([poses[k] for k in range(SUBMAPS)]) @ inverses(
        np.array([node.T_odom_submap for node in nodes])
    )
    stamps = np.arange(len(way)) * 1000
    found = correct_trajectory(nodes, corrections, DRIFT, stamps, way)

    dense = PoseGraph()
    dense.add_first(int(middles[0]), way[middles[0]])
    turn, step = DRIFT.rates(float(STEP * PER_SUBMAP))
    per_step = STEP * np.diag([step] * 3 + list(turn))
    for k in range(middles[0] + 1, middles[-1] + 1):
        dense.add_odometry(k - 1, k, inverse(way[k - 1]) @ way[k], per_step)
    # the same closure, between the poses in the middle of the submaps; its covariance goes along
    T = closure.T_target_source
    arm_a, arm_b = (inverse(node.T_odom_submap) @ way[middles[node.id]] for node in (nodes[0], nodes[-1]))
    moved = inverse(arm_a) @ T @ arm_b
    tight = np.diag([0.01**2] * 3 + [0.001**2] * 3)
    dense.add_closure(PoseConstraint(int(middles[-1]), int(middles[0]), moved, tight))
    expected = dense.solve().poses
    between = range(middles[0], middles[-1] + 1)
    off = np.array([found[k][:3, 3] - expected[k][:3, 3] for k in between])
    by_odometry = np.array([way[k][:3, 3] - expected[k][:3, 3] for k in between])
    assert np.abs(by_odometry).max() > 0.3
    assert np.abs(off).max() < 0.02
    turns = [Rotation.from_matrix(found[k][:3, :3].T @ expected[k][:3, :3]).magnitude() for k in between]
    assert max(turns) < 0.003


def test_motion_over_short_ways_stays_that_of_odometry() -> None:
    """A correction of half a metre and three degrees, without a kink: over a metre of way it is next to nothing."""
    way = curved_way()
    nodes = submaps_along(way)
    corrections = np.array([np.eye(4), pose(0.2, 0.3, 0.02), pose(0.5, 0.1, 0.05)])
    stamps = np.arange(len(way)) * 1000
    found = correct_trajectory(nodes, corrections, DRIFT, stamps, way)
    motions = [inverses(poses[:-4]) @ poses[4:] for poses in (way, found)]
    change = np.linalg.norm((inverses(motions[0]) @ motions[1])[:, :3, 3], axis=1)
    assert 0.0 < change.max() < 0.06


def test_corrections_hold_at_the_middles_and_stay_outside() -> None:
    way = curved_way()
    nodes = submaps_along(way)
    corrections = np.array([pose(0.1 * k, 0.2 * k, 0.03 * k) for k in range(SUBMAPS)])
    chain = OdometryChain.of(nodes)
    stamps = np.concatenate([[-5, 0], chain.stamps[chain.middles], [chain.stamps[-1], 10**9]])
    found = chain.interpolate(corrections, stamps, DRIFT)
    np.testing.assert_allclose(found, corrections[[0, 0, 0, 1, 2, 2, 2]], atol=1e-9)


def test_a_robot_that_stands_has_a_finite_correction() -> None:
    stamps = np.array([0, 1000])
    still = [
        SubmapNode(k, 1, np.eye(4), 2000 * k, 0.0, 0.0, 5.0, stamps + 2000 * k, np.array([np.eye(4)] * 2))
        for k in range(2)
    ]
    found = OdometryChain.of(still).interpolate(
        np.array([np.eye(4), pose(1.0, 0.0, 0.0)]), np.array([1500]), DRIFT
    )
    assert 0.0 < found[0, 0, 3] < 1.0
    covariance = OdometryChain.of(still).covariance(np.eye(4), np.eye(4), DRIFT)
    assert np.linalg.eigvalsh(covariance)[0] > 0.0
