"""LiDAR odometry on a real recording with reference poses, beside kiss-icp in the same run.

python benchmark/lidar_odometry.py                   one thread
python benchmark/lidar_odometry.py --threads 2 --kiss-voxels 0.4 0.6 0.8 1.0

bag_balm_lidar_only: 177 clouds at 2 Hz of a LiDAR carried 74 m by hand, which turns by up to 48 degrees between two
clouds. ATE: root mean square of the positions after the best rigid motion onto the reference, metres. Step errors are
those of the motion between two clouds; NEES is their squared size by the sum of the covariances stated for both poses
(each is against the scans before), over its six dimensions: 1 where they are right, larger where they promise too much.
kiss-icp (requirements/bench.in) is left out where it is not installed; it states no covariance.
Drift: errors of the motion over more clouds, root mean square, beside what loop closure makes of the covariances (their
sum along the way) and of the settings `closure.drift_*`.
Skipped without the data folder.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from closure_terrain import data_folder
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gpgmap_ros.closure import Drift
from gpgmap_ros.geometry import inverse
from gpgmap_ros.io.recordings import Decoder, Recording
from gpgmap_ros.io.trajectory import read_tum
from gpgmap_ros.sensing import Cloud, decode_cloud
from gpgmap_ros.sensing.lidar_odometry import LidarOdometry, LostTrack

Array = NDArray[np.float64]
FIRST, LAST = slice(3), slice(3, 6)
Register = Callable[[Cloud], tuple[Array, Array | None]]
"""Pose (4, 4) of a cloud, and its covariance (6, 6) against the clouds before."""


@dataclass
class Result:
    """poses: T_odom_sensor by number of the cloud; covariances: of these; seconds: per cloud."""

    poses: dict[int, Array] = field(default_factory=dict)
    covariances: dict[int, Array] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)


def read_clouds(bag: Path) -> list[Cloud]:
    decode = Decoder()
    with Recording([bag]) as recording:
        return [decode_cloud(decode(message)) for message in recording.messages(["/points"], None, None)]


def own(threads: int) -> Register:
    odometry = LidarOdometry(threads=threads)

    def register(cloud: Cloud) -> tuple[Array, Array | None]:
        step = odometry.register(cloud.points, cloud.stamp)
        return step.T_odom_sensor, step.covariance if step.covariance.any() else None

    return register


def kiss(voxel_size: float, threads: int, reach: float) -> Register:
    from kiss_icp.config import KISSConfig
    from kiss_icp.kiss_icp import KissICP

    config = KISSConfig()
    config.data.max_range, config.data.min_range, config.data.deskew = reach, 0.5, False
    config.mapping.voxel_size = voxel_size
    config.registration.max_num_threads = threads
    odometry = KissICP(config)

    def register(cloud: Cloud) -> tuple[Array, Array | None]:
        odometry.register_frame(cloud.points, np.zeros(len(cloud.points)))
        return np.array(odometry.last_pose), None

    return register


def run(register: Register, clouds: list[Cloud]) -> Result:
    result = Result()
    for k, cloud in enumerate(clouds):
        begin = time.perf_counter()
        try:
            result.poses[k], covariance = register(cloud)
        except LostTrack:
            continue
        finally:
            result.seconds.append(time.perf_counter() - begin)
        if covariance is not None:
            result.covariances[k] = covariance
    return result


def trajectory_error(result: Result, truth: Array) -> float:
    found = np.stack([T[:3, 3] for T in result.poses.values()])
    true = truth[list(result.poses), :3, 3]
    x, y = found - found.mean(axis=0), true - true.mean(axis=0)
    aligned = x @ Rotation.align_vectors(y, x)[0].as_matrix().T
    return float(np.sqrt(np.mean(np.sum((aligned - y) ** 2, axis=1))))


def step_errors(result: Result, truth: Array) -> tuple[Array, Array]:
    """(N, 6) errors of the steps (position, rotation vector), in the axes of the odometry frame; (N,) NEES, or none."""
    errors, nees = [], []
    for k, T in result.poses.items():
        if k - 1 not in result.poses:
            continue
        before = result.poses[k - 1]
        expected = before @ inverse(truth[k - 1]) @ truth[k]
        turn = Rotation.from_matrix(T[:3, :3] @ expected[:3, :3].T).as_rotvec()
        error = np.append(T[:3, 3] - expected[:3, 3], turn)
        errors.append(error)
        if k in result.covariances and k - 1 in result.covariances:
            covariance = result.covariances[k] + result.covariances[k - 1]
            nees.append(error @ np.linalg.solve(covariance, error) / 6.0)
    return np.array(errors), np.array(nees)


def report(name: str, result: Result, clouds: list[Cloud], truth: Array) -> None:
    errors, nees = step_errors(result, truth)
    metres, degrees = np.linalg.norm(errors[:, :3], axis=1), np.degrees(np.linalg.norm(errors[:, 3:], axis=1))
    calibrated = f"{nees.mean():5.2f} {np.median(nees):6.2f}" if len(nees) else f"{'-':>5} {'-':>6}"
    print(
        f"{name:24} {len(result.poses):4d} of {len(clouds)} {trajectory_error(result, truth):8.3f}"
        f" {np.sqrt(np.mean(metres**2)):8.3f} {np.sqrt(np.mean(degrees**2)):8.2f}  {calibrated}"
        f" {1e3 * np.median(result.seconds):8.0f} {1e3 * np.percentile(result.seconds, 95):7.0f}",
        flush=True,
    )


def report_drift(result: Result, truth: Array) -> None:
    """Errors over ways of several lengths, metres and degrees: found, by the stated covariances, by the settings."""
    drift = Drift()
    print("drift:      way (m)    error (m, deg)    stated (m, deg)    settings (m, deg)")
    for span in (5, 10, 20, 40):
        rows = []
        for k in range(0, len(truth) - span, span // 2):
            if any(j not in result.poses for j in range(k, k + span + 1)):
                continue
            poses = np.stack([result.poses[j] for j in range(k, k + span + 1)])
            off = inverse(inverse(truth[k]) @ truth[k + span]) @ inverse(poses[0]) @ poses[-1]
            turn = float(Rotation.from_matrix(off[:3, :3]).magnitude())
            way = float(np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1).sum())
            steps = [result.covariances[j] for j in range(k + 1, k + span + 1) if j in result.covariances]
            stated = [sum(np.linalg.eigvalsh(C[part, part])[-1] for C in steps) for part in (FIRST, LAST)]
            settings = drift.covariance(way)
            rows.append(
                [way, off[:3, 3] @ off[:3, 3], turn**2, 3.0 * stated[0], 3.0 * stated[1],
                 np.trace(settings[FIRST, FIRST]), np.trace(settings[LAST, LAST])]
            )  # fmt: skip
        way, *squares = np.mean(rows, axis=0)
        metres, degrees = np.sqrt(squares[::2]), np.degrees(np.sqrt(squares[1::2]))
        pairs = "".join(f"{m:12.3f} {d:6.2f}" for m, d in zip(metres, degrees, strict=True))
        print(f"{way:18.1f}{pairs}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kiss-voxels", type=float, nargs="+", default=[0.4, 1.0], help="metres")
    options = parser.parse_args()
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder")
        return
    clouds = read_clouds(folder / "bag_balm_lidar_only")
    truth = np.asarray(read_tum(folder / "bag_balm_poses.txt").poses)
    reach = max(float(np.linalg.norm(cloud.points, axis=1).max()) for cloud in clouds)
    print(f"{'':24} {'clouds':>11} {'ATE (m)':>8} {'step (m)':>8} {'(deg)':>8}  {'NEES':>5} {'median':>6}"
          f" {'ms':>8} {'95 %':>7}")  # fmt: skip
    found = run(own(options.threads), clouds)
    report("gpgmap (small_gicp)", found, clouds, truth)
    for voxel_size in options.kiss_voxels:
        try:
            peer = kiss(voxel_size, options.threads, reach)
        except ImportError:
            print("kiss-icp: not installed (pip install kiss-icp)")
            break
        report(f"kiss-icp, voxel {voxel_size:g} m", run(peer, clouds), clouds, truth)
    report_drift(found, truth)


if __name__ == "__main__":
    main()
