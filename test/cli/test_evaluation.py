"""The rules of gpgmap evaluate, on trajectories and closures whose errors are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gp_core.grid import Grid
from gpgmap_ros.apps.closure_evaluation import (
    TrueSubmap,
    closure_errors,
    find_pairs,
    mean_recall,
    precision_recall,
    true_overlap,
)
from gpgmap_ros.apps.evaluation import EvaluationError, Rules, trajectory_errors
from gpgmap_ros.geometry import inverse, transform_from
from gpgmap_ros.io.trajectory import Trajectory

SECOND = 1_000_000_000


def circle(count: int = 100, radius: float = 10.0) -> Trajectory:
    angle = np.linspace(0.0, 2.0 * np.pi, count)
    poses = [
        transform_from(
            [radius * np.cos(a), radius * np.sin(a), 0.1 * a],
            Rotation.from_euler("z", a + np.pi / 2).as_quat(),
        )
        for a in angle
    ]
    return Trajectory(np.arange(count, dtype=np.int64) * SECOND, np.array(poses))


def test_another_frame_is_no_error() -> None:
    truth = circle()
    T = transform_from([5.0, -3.0, 2.0], Rotation.from_euler("zyx", [1.0, 0.2, -0.1]).as_quat())
    result = trajectory_errors(Trajectory(truth.stamps, T @ truth.poses), truth, Rules())
    assert result["ate_m"]["max"] < 1e-9
    assert result["rpe"]["translation_percent"] < 1e-6
    assert result["rpe"]["rotation_deg_per_m"] < 1e-6


def test_a_tilt_is_an_error_where_only_yaw_may_be_fitted() -> None:
    truth = circle()
    T = transform_from([0.0, 0.0, 0.0], Rotation.from_euler("x", 0.1).as_quat())
    tilted = Trajectory(truth.stamps, T @ truth.poses)
    assert trajectory_errors(tilted, truth, Rules())["ate_m"]["max"] < 1e-9
    assert trajectory_errors(tilted, truth, Rules(yaw_only=True))["ate_m"]["max"] > 0.5


def test_a_mirror_image_is_not_fitted_by_a_reflection() -> None:
    truth = circle()
    mirrored = truth.poses.copy()
    mirrored[:, 0, 3] *= -1.0
    mirrored[:, 2, 3] = truth.poses[:, 2, 3] * 30.0
    assert trajectory_errors(Trajectory(truth.stamps, mirrored), truth, Rules())["ate_m"]["rmse"] > 1.0


def test_a_scale_error_shows_in_per_cent() -> None:
    truth = circle()
    longer = truth.poses.copy()
    longer[:, :3, 3] *= 1.02
    result = trajectory_errors(Trajectory(truth.stamps, longer), truth, Rules(distance=5.0))
    assert result["rpe"]["translation_percent"] == pytest.approx(2.0, rel=0.05)


def test_gaps_of_the_truth_are_not_bridged() -> None:
    truth = circle()
    holes = Trajectory(truth.stamps[::10], truth.poses[::10])
    assert trajectory_errors(truth, holes, Rules(gap=1.0))["poses"] == 10
    assert trajectory_errors(truth, holes, Rules(gap=20.0))["poses"] == 91
    with pytest.raises(EvaluationError, match="are both in the same clock"):
        trajectory_errors(Trajectory(truth.stamps + 10**6 * SECOND, truth.poses), truth, Rules())


def square(id: int, x: float, driven: float, yaw: float = 0.0, drive: int = 1) -> TrueSubmap:
    """A map of 20 m x 20 m around a place on the x axis."""
    T = transform_from([x, 0.0, 0.0], Rotation.from_euler("z", yaw).as_quat())
    return TrueSubmap(
        id, drive, driven, T, Grid((-10.0, -10.0), (40, 40), 0.5), np.ones((40, 40), dtype=bool)
    )


def test_overlap_is_the_shared_ground_of_the_smaller_map() -> None:
    assert true_overlap(square(0, 0.0, 0.0), square(1, 5.0, 0.0)) == pytest.approx(0.75, abs=0.02)
    assert true_overlap(square(0, 0.0, 0.0), square(1, 5.0, 0.0, np.pi)) == pytest.approx(0.75, abs=0.02)
    assert true_overlap(square(0, 0.0, 0.0), square(1, 25.0, 0.0)) == 0.0
    small = TrueSubmap(2, 1, 0.0, np.eye(4), Grid((-2.0, -2.0), (8, 8), 0.5), np.ones((8, 8), dtype=bool))
    for pair in ((square(0, 0.0, 0.0), small), (small, square(0, 0.0, 0.0))):
        assert true_overlap(*pair) == pytest.approx(1.0, abs=0.1)


def test_ground_that_the_robot_has_not_left_is_no_revisit() -> None:
    """Neighbours on the way share ground; so do submaps of different drives, and these count at any distance."""
    pairs = find_pairs([square(0, 0.0, 0.0), square(1, 10.0, 10.0), square(2, 2.0, 60.0)])
    assert set(pairs) == {(0, 2), (1, 2)}
    assert set(find_pairs([square(0, 0.0, 0.0), square(1, 10.0, 10.0, drive=2)])) == {(0, 1)}


def closure(a: TrueSubmap, b: TrueSubmap, shift: float, accepted: bool, probability: float) -> dict:
    T = inverse(a.T_true) @ b.T_true
    T[0, 3] += shift
    return {"a": a.id, "b": b.id, "T_a_b": T.tolist(), "accepted": accepted, "probability": probability}


def test_closures_by_the_rules() -> None:
    ways = [(0.0, 0.0), (40.0, 40.0), (4.0, 100.0), (36.0, 150.0), (14.0, 200.0), (500.0, 900.0)]
    submaps = {k: square(k, x, driven) for k, (x, driven) in enumerate(ways)}
    closures = [
        closure(submaps[0], submaps[2], 0.1, True, 0.99),  # right
        closure(submaps[1], submaps[3], 3.0, True, 0.97),  # three metres off
        closure(submaps[0], submaps[5], 0.0, True, 0.96),  # right by chance: they share no ground
        closure(submaps[0], submaps[4], 0.1, False, 0.40),  # right, but not accepted
        {**closure(submaps[0], submaps[2], 0.0, True, 0.9), "b": 77},  # nothing is known of submap 77
    ]
    result = closure_errors(closures, submaps, 1.0, 3.0)
    assert (result["compared"], result["without_truth"]) == (4, 1)
    assert (result["accepted"], result["right"]) == (3, 1)
    assert result["precision"] == pytest.approx(1 / 3)
    assert result["median_error_m"] == pytest.approx(0.1, abs=1e-6)
    levels = {level["overlap"]: level for level in result["by_overlap"]}
    # submap 4 shares half of its ground with submap 2, and was not compared with it
    assert {k: (level["revisits"], level["closed"]) for k, level in levels.items()} == {
        0.2: (3, 1), 0.35: (3, 1), 0.5: (3, 1), 0.7: (2, 1),
    }  # fmt: skip
    assert levels[0.7]["recall"] == 0.5
    assert (levels[0.2]["pairs"], levels[0.2]["compared"], levels[0.2]["right"]) == (4, 3, 1)
    curve = levels[0.7]["curve"]
    assert curve[0] == {"threshold": 0.99, "precision": 1.0, "recall": 0.5}
    assert curve[-1] == {"threshold": 0.40, "precision": 0.5, "recall": 0.5}
    # a third of the revisits up to an overlap of one half, then one of two up to the largest
    best = 0.8
    expected = ((0.5 - 0.2) / 3.0 + (best - 0.5) / 2.0) / (best - 0.2)
    assert result["mean_recall"] == pytest.approx(expected, abs=0.02)


def test_mean_recall_has_no_threshold() -> None:
    assert mean_recall({}, set()) is None
    assert mean_recall({1: 0.1}, {1}) is None
    assert mean_recall({1: 0.6, 2: 0.9}, {1, 2}) == pytest.approx(1.0)
    assert mean_recall({1: 0.6, 2: 1.0}, {2}) == pytest.approx((0.4 * 0.5 + 0.4 * 1.0) / 0.8)


def test_equal_probabilities_are_one_threshold() -> None:
    judged = [{"a": k, "b": 9, "probability": 0.9, "right": right} for k, right in enumerate((True, False))]
    expected = [{"threshold": 0.9, "precision": 0.5, "recall": 0.5}]
    assert precision_recall(judged, {(0, 9), (1, 9)}) == expected
