"""LiDAR odometry with and without an IMU on simulated drives: small_gicp, kiss-icp and rko-lio in the same run.

python benchmark/lidar_inertial.py                     a hall and a forest, 20 s each
python benchmark/lidar_inertial.py --shake 15 --speed 2

Simulated: a 10 Hz scanner, every point from the pose at its own time, 2 cm of range noise, and an IMU of 200 Hz in the
same frame with the noise and bias of a MEMS sensor (gpgmap_ros/demo/sensors.py). The sensor stands for a second, then
goes round and nods and rolls as one that is carried. Points are deskewed by each program itself. ATE: root mean square
of the positions after the best rigid motion; steps: of the motion between two clouds. One thread each, CPU per cloud.
kiss-icp and rko-lio are left out where they are not installed (pip install kiss-icp rko-lio).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
from lidar_calibration import forest, hall
from lidar_odometry import Result, step_errors, trajectory_error
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gpgmap_ros.demo.sensors import SimulatedImu
from gpgmap_ros.sensing import Cloud, SourceSetup, make_source
from gpgmap_ros.sensing.messages import ImuMeasurement
from gpgmap_ros.sensing.waiting import LocatedCloud, PoseQueue

Array = NDArray[np.float64]
NANOSECONDS = 1_000_000_000
START = 1_000 * NANOSECONDS
STILL = 1.0
"""Seconds before the sensor moves."""
FIRINGS, PERIOD = 100, 0.1
"""Directions in which the scanner looks in turn, and seconds of a scan."""
NOISE = 0.02
Locate = Callable[[Cloud, list[ImuMeasurement]], Array | None]
"""The pose of a cloud; the samples of the IMU since the cloud before, up to its end. None where track is lost."""


def carried(middle: Array, speed: float, shake: float) -> Callable[[float], Array]:
    """T_world_sensor over time: a circle of 3 m, entered at a growing speed, with roll and pitch of `shake` degrees."""

    def pose_at(seconds: float) -> Array:
        t = max(seconds - STILL, 0.0)
        way = speed * t * t / (t + 1.0)
        angle, grown = way / 3.0, min(t, 1.0) ** 2
        roll, pitch = (grown * shake * math.sin(rate * t) for rate in (9.0, 7.0))
        T = np.eye(4)
        T[:3, :3] = Rotation.from_euler(
            "ZYX", [math.degrees(angle) + 90.0, pitch, roll], degrees=True
        ).as_matrix()
        T[:3, 3] = middle
        T[:2, 3] += 3.0 * math.cos(angle), 3.0 * math.sin(angle)
        return T

    return pose_at


def spin(scene: Array, pose_at: Callable[[float], Array], begin: float, rng: np.random.Generator) -> Cloud:
    """A scan stamped at its first point."""
    seen = scene[rng.random(len(scene)) < 0.33]
    offsets = np.arange(FIRINGS) * PERIOD / FIRINGS
    poses = np.stack([pose_at(begin + offset) for offset in offsets])
    local = (seen - poses[0, :3, 3]) @ poses[0, :3, :3]
    firing = ((np.arctan2(local[:, 1], local[:, 0]) / (2.0 * np.pi) % 1.0) * FIRINGS).astype(int) % FIRINGS
    T = poses[firing]
    points = np.einsum("nji,nj->ni", T[:, :3, :3], seen - T[:, :3, 3])
    ranges = np.linalg.norm(points, axis=1)
    near = (ranges > 0.5) & (ranges < 15.0)
    points, ranges = points[near], ranges[near]
    points = points * (1.0 + rng.normal(0.0, NOISE, (len(points), 1)) / ranges[:, None])
    return Cloud(START + round(begin * NANOSECONDS), "lidar", points, offsets[firing[near]])


def own(kind: str, with_imu: bool) -> Locate:
    queue = PoseQueue(make_source(kind, SourceSetup.recorded("odom", "base_link", "lidar")), 1.0, lambda: 0)

    def locate(cloud: Cloud, samples: list[ImuMeasurement]) -> Array | None:
        for sample in samples if with_imu else []:
            queue.source.insert_imu(sample)
        queue.put(cloud)
        found = queue.poll()
        return found.pose.T_map_sensor if isinstance(found, LocatedCloud) else None

    return locate


def kiss() -> Locate:
    from kiss_icp.config import KISSConfig
    from kiss_icp.kiss_icp import KissICP

    config = KISSConfig()
    config.data.max_range, config.data.min_range, config.mapping.voxel_size = 15.0, 0.5, 0.5
    config.registration.max_num_threads = 1
    odometry = KissICP(config)

    def locate(cloud: Cloud, samples: list[ImuMeasurement]) -> Array | None:
        # it states poses at the middle of the scan where it is given times, and moves the points there
        odometry.register_frame(cloud.points, cloud.times)
        return np.array(odometry.last_pose)

    return locate


def run(locate: Locate, clouds: list[Cloud], imu: list[ImuMeasurement]) -> tuple[Result, float]:
    """Poses, and CPU seconds per cloud."""
    result, used, times = Result(), 0, []
    for k, cloud in enumerate(clouds):
        end = cloud.stamp + round(PERIOD * NANOSECONDS)
        after = used
        while after < len(imu) and imu[after].stamp <= end:
            after += 1
        begin = time.process_time()
        found = locate(cloud, imu[used:after])
        times.append(time.process_time() - begin)
        used = after
        if found is not None:
            result.poses[k] = found
    return result, float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--speed", type=float, default=1.5, help="m/s")
    parser.add_argument("--shake", type=float, default=8.0, help="degrees of roll and pitch")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    programs: dict[str, Callable[[], Locate]] = {
        "lidar": lambda: own("lidar", False),
        "lidar, with IMU": lambda: own("lidar", True),
        "lidar_inertial (rko-lio)": lambda: own("lidar_inertial", True),
        "kiss-icp": kiss,
    }
    print(f"{'':10} {'':26} {'located':>10} {'ATE (m)':>8} {'step (m)':>9} {'(deg)':>7} {'CPU (ms)':>9}")
    for name, make in {"hall": hall, "forest": forest}.items():
        scene = make(np.random.default_rng(options.seed))
        pose_at = carried(np.array([0.0, 0.0, 1.8]), options.speed, options.shake)
        rng = np.random.default_rng(options.seed + 1)
        imu = list(SimulatedImu(frame_id="lidar").samples(pose_at, 0.0, options.seconds + 1.0, START, rng))
        begins = np.arange(0.6, options.seconds, PERIOD)
        clouds = [spin(scene, pose_at, t, rng) for t in begins]
        truth = np.stack([pose_at(t) for t in begins])
        for program, start in programs.items():
            try:
                result, cpu = run(start(), clouds, imu)
            except (ImportError, ValueError) as error:
                print(f"{name:10} {program:26} {error}")
                continue
            errors, _ = step_errors(result, truth)
            metres, degrees = (
                np.sqrt((part**2).sum(axis=1).mean()) for part in (errors[:, :3], errors[:, 3:])
            )
            print(
                f"{name:10} {program:26} {len(result.poses):3d} of {len(clouds)} {trajectory_error(result, truth):8.3f}"
                f" {metres:9.4f} {np.degrees(degrees):7.3f} {1e3 * cpu:9.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
