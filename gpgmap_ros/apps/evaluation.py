"""How good a run is, against the true trajectory: errors of the poses, and which closures were right.

**ATE.** Each pose of the run is paired with the truth at its time (interpolated; pairs farther apart than `gap` are
left out). The estimated trajectory is moved onto the truth by the rigid motion that fits best (Umeyama's without
scale; yaw and translation only with `yaw_only`), and the errors are the distances left: RMSE, median, largest.

**RPE.** For every pair of poses that are `distance` metres of true way apart, the error of the motion between them:
translation in per cent of the distance, rotation in degrees per metre, both as RMSE.

**Closures.** See closure_evaluation.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gpgmap_ros.apps.closure_evaluation import closure_errors, read_true_submaps
from gpgmap_ros.arrays import Array
from gpgmap_ros.geometry import inverse
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.trajectory import Trajectory


class EvaluationError(ValueError):
    """The run can't be compared with the truth: why."""


@dataclass(frozen=True)
class Rules:
    """gap: seconds; distance: metres, for RPE; right_m, right_deg: of a right closure; see above"""

    gap: float = 1.0
    distance: float = 10.0
    right_m: float = 1.0
    right_deg: float = 3.0
    yaw_only: bool = False


@dataclass(frozen=True, eq=False)
class Paired:
    """Poses of a run and the truth at the same times: (N,), (N, 4, 4), (N, 4, 4)."""

    stamps: NDArray[np.int64]
    estimated: Array
    true: Array


def pair_poses(estimated: Trajectory, truth: Trajectory, gap: float) -> Paired:
    kept = [
        (k, T) for k, stamp in enumerate(estimated.stamps) if (T := truth.at(int(stamp), gap)) is not None
    ]
    if len(kept) < 3:
        first, last = (truth.stamps[k] / 1e9 for k in (0, -1))
        begin, end = (estimated.stamps[k] / 1e9 for k in (0, -1))
        raise EvaluationError(
            f"only {len(kept)} poses have a true one: the run is from {begin:.3f} to {end:.3f} s, the truth from"
            f" {first:.3f} to {last:.3f} s; are both in the same clock? --gap allows larger gaps"
        )
    index = [k for k, _ in kept]
    return Paired(estimated.stamps[index], estimated.poses[index], np.array([T for _, T in kept]))


def alignment(pairs: Paired, yaw_only: bool) -> Array:
    """T_true_estimated (4, 4) that brings positions closest, least squares."""
    a, b = pairs.estimated[:, :3, 3], pairs.true[:, :3, 3]
    ca, cb = a.mean(axis=0), b.mean(axis=0)
    T = np.eye(4)
    if yaw_only:
        x, y = (a - ca)[:, :2], (b - cb)[:, :2]
        yaw = np.arctan2((x[:, 0] * y[:, 1] - x[:, 1] * y[:, 0]).sum(), (x * y).sum())
        T[:3, :3] = Rotation.from_euler("z", yaw).as_matrix()
    else:
        U, _, Vt = np.linalg.svd((b - cb).T @ (a - ca))
        T[:3, :3] = U @ np.diag([1.0, 1.0, np.sign(np.linalg.det(U @ Vt))]) @ Vt
    T[:3, 3] = cb - T[:3, :3] @ ca
    return T


def trajectory_errors(estimated: Trajectory, truth: Trajectory, rules: Rules) -> dict[str, Any]:
    pairs = pair_poses(estimated, truth, rules.gap)
    T = alignment(pairs, rules.yaw_only)
    moved = pairs.estimated[:, :3, 3] @ T[:3, :3].T + T[:3, 3]
    error = np.linalg.norm(moved - pairs.true[:, :3, 3], axis=1)
    return {
        "poses": len(error),
        "ate_m": {"rmse": rms(error), "median": float(np.median(error)), "max": float(error.max())},
        "rpe": relative_errors(pairs, rules.distance),
    }


def relative_errors(pairs: Paired, distance: float) -> dict[str, Any] | None:
    steps = np.linalg.norm(np.diff(pairs.true[:, :3, 3], axis=0), axis=1)
    way = np.concatenate([[0.0], np.cumsum(steps)])
    ends = np.searchsorted(way, way + distance)
    translation, rotation = [], []
    for start, end in enumerate(ends):
        if end >= len(way):
            break
        true = inverse(pairs.true[start]) @ pairs.true[end]
        error = inverse(true) @ inverse(pairs.estimated[start]) @ pairs.estimated[end]
        length = way[end] - way[start]
        translation.append(np.linalg.norm(error[:3, 3]) / length)
        rotation.append(np.degrees(Rotation.from_matrix(error[:3, :3]).magnitude()) / length)
    if not translation:
        return None
    return {
        "distance_m": distance,
        "pairs": len(translation),
        "translation_percent": 100.0 * rms(np.array(translation)),
        "rotation_deg_per_m": rms(np.array(rotation)),
    }


def rms(values: NDArray[np.floating]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def evaluate_run(
    folder: RunFolder, summary: dict[str, Any], truth: Trajectory, rules: Rules
) -> dict[str, Any]:
    """Errors of a replay's trajectories and closures. summary: the run's own"""
    # drives have frames of their own until closures join them: there is no one trajectory to compare
    separate = drives_in_map(summary) > 1
    odometry = None if separate else trajectory_errors(folder.read_trajectory(corrected=False), truth, rules)
    result: dict[str, Any] = {
        "rules": asdict(rules),
        "odometry": odometry,
        "corrected": trajectory_errors(folder.read_trajectory(), truth, rules),
        "closures": None,
    }
    if folder.closures.exists():
        closures = folder.read_closures()
        submaps = read_true_submaps(folder.open_submaps(), truth, rules.gap)
        result["closures"] = closure_errors(closures, submaps, rules.right_m, rules.right_deg)
    return result


def drives_in_map(summary: dict[str, Any]) -> int:
    """Number of drives that share the run's map."""
    drives = summary.get("drives")
    if not isinstance(drives, list):  # a run of an earlier version
        return 1
    return sum(isinstance(item, dict) and item.get("in_map") is True for item in drives)
