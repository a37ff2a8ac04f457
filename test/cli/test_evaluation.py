"""The rules of gpgmap evaluate, on trajectories and closures whose errors are known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gpgmap_ros.apps.evaluation import (
    EvaluationError,
    Rules,
    closure_errors,
    precision_recall,
    trajectory_errors,
)
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


def test_closures_by_the_rules() -> None:
    truth = circle(count=40)
    submaps = [SimpleNamespace(id=k, first_stamp=int(truth.stamps[k])) for k in (0, 1, 20, 38)]

    def closure(a: int, b: int, shift: float, accepted: bool, probability: float) -> dict:
        level = {
            k: transform_from(truth.poses[k][:3, 3], Rotation.from_euler("z", yaw(k)).as_quat())
            for k in (a, b)
        }
        T = inverse(level[a]) @ level[b]
        T[0, 3] += shift
        return {"a": a, "b": b, "T_a_b": T.tolist(), "accepted": accepted, "probability": probability}

    def yaw(k: int) -> float:
        return float(np.arctan2(truth.poses[k][1, 0], truth.poses[k][0, 0]))

    closures = [
        closure(0, 38, 0.1, True, 0.99),  # right
        closure(1, 38, 3.0, True, 0.97),  # possible, but three metres off
        closure(
            0, 20, 0.0, True, 0.96
        ),  # its pose is right, but the places are 20 m apart: it can't be known
        closure(0, 1, 0.1, False, 0.40),  # possible and right, but not accepted
        {**closure(0, 38, 0.0, True, 0.9), "b": 77},  # nothing is known of submap 77
    ]
    result = closure_errors(closures, submaps, truth, Rules(reach=8.0))
    assert (result["compared"], result["without_truth"], result["possible"]) == (4, 1, 3)
    assert (result["accepted"], result["right"]) == (3, 1)
    assert result["precision"] == pytest.approx(1 / 3)
    assert result["recall"] == pytest.approx(1 / 3)
    assert result["median_error_m"] == pytest.approx(0.1, abs=1e-6)
    assert result["curve"][0] == {"threshold": 0.99, "precision": 1.0, "recall": pytest.approx(1 / 3)}
    assert result["curve"][-1] == {"threshold": 0.40, "precision": 0.5, "recall": pytest.approx(2 / 3)}


def test_equal_probabilities_are_one_threshold() -> None:
    judged = [{"probability": 0.9, "right": right, "possible": True} for right in (True, False)]
    assert precision_recall(judged) == [{"threshold": 0.9, "precision": 0.5, "recall": 0.5}]
