"""Sets of closures that agree in pairs, kept up to date."""

from __future__ import annotations

import numpy as np
from graph_nodes import shifted

from gpgmap_ros.closure import Drift, PoseConstraint
from gpgmap_ros.closure.graph.pairwise_consistency import (
    OdometryPoses,
    PairwiseConsistency,
    rotate_covariance,
    shift_covariance,
)


def test_the_largest_set_wins_and_ties_go_to_the_stronger() -> None:
    poses = {0: np.eye(4), 1: shifted(10.0)}
    odometry = OdometryPoses(poses, {0: 0.0, 1: 0.1})
    sigma = np.diag([0.01**2] * 3 + [0.001**2] * 3)
    consistency = PairwiseConsistency(odometry, Drift(0.01, 0.001))
    consistency.add(PoseConstraint(1, 0, shifted(10.0), sigma), 1.0)
    consistency.add(PoseConstraint(1, 0, shifted(14.0), sigma), 5.0)
    assert consistency.largest_set() == [1]
    consistency.add(PoseConstraint(1, 0, shifted(10.0), sigma), 1.0)
    assert consistency.largest_set() == [0, 2]
    assert consistency.conflicts(1, [0, 2]) == [0, 2]
    consistency.remove(0)
    assert consistency.largest_set() == [0]  # two against each other again: the stronger
    for _ in range(150):
        consistency.add(PoseConstraint(1, 0, shifted(10.0), sigma), 1.0)
    assert len(consistency.largest_set()) == 151


def test_covariances_are_moved_and_rotated_as_samples_are() -> None:
    rng = np.random.default_rng(3)
    A = rng.normal(size=(6, 6))
    covariance, lever = A @ A.T, np.array([3.0, -1.0, 2.0])
    errors = rng.multivariate_normal(np.zeros(6), covariance, 200_000)
    there = np.column_stack([errors[:, :3] + np.cross(errors[:, 3:], lever), errors[:, 3:]])
    moved = shift_covariance(covariance, lever)
    scale = np.sqrt(np.outer(np.diag(moved), np.diag(moved)))
    np.testing.assert_allclose(np.cov(there.T) / scale, moved / scale, atol=0.02)
    T = shifted(1.0)
    T[:3, :3] = [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    rotated = rotate_covariance(covariance, T)
    np.testing.assert_allclose(rotated[1, 1], covariance[0, 0])
    np.testing.assert_allclose(rotated[0, 4], -covariance[1, 3])
