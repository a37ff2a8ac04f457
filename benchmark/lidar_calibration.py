"""Covariance of LiDAR odometry on simulated scenes: errors of poses by what is stated for them.

python benchmark/lidar_calibration.py                  two draws of each scene
python benchmark/lidar_calibration.py --draws 5 --clouds 100

Scenes: a hall with pillars; bare ground with hills and rocks (SRTM relief, shrunk) under a 32-beam LiDAR; a forest of
stems on rough ground; a street between houses. A sensor goes through them on a curve, 0.3 m and 4 degrees a cloud,
with 2 cm of range noise. Step errors are those of the motion between two clouds; NEES is their squared size by the
sum of the covariances stated for both poses, over six: 1 where they are right. The scale of the covariance is measured
by the odometry itself; the edge of its cubes (`HALVES_BLOCK`) was chosen with --seed 1. Lost: clouds without a pose.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from lidar_odometry import Result, step_errors, trajectory_error
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gpgmap_ros.demo.lidar import SpinningLidar
from gpgmap_ros.demo.terrain import rover_terrain
from gpgmap_ros.sensing.lidar_odometry import LidarOdometry, LostTrack

Array = NDArray[np.float64]
Scan = Callable[[Array, np.random.Generator], Array]
"""What a sensor at a pose (4, 4) sees, (N, 3) in its own frame."""
NOISE = 0.02
STEP, TURN = 0.3, 4.0
"""Metres and degrees from one cloud to the next."""


def plane(
    origin: list[float], a: list[float], b: list[float], density: float, rng: np.random.Generator
) -> Array:
    """Points on the parallelogram origin + s a + t b. density: per square metre"""
    count = int(density * np.linalg.norm(np.cross(a, b)))
    return np.asarray(
        np.array(origin) + rng.random((count, 1)) * np.array(a) + rng.random((count, 1)) * np.array(b)
    )


def box(x: float, y: float, width: float, depth: float, height: float, rng: np.random.Generator) -> Array:
    walls = [
        plane([x, y, 0], [width, 0, 0], [0, 0, height], 40.0, rng),
        plane([x, y + depth, 0], [width, 0, 0], [0, 0, height], 40.0, rng),
        plane([x, y, 0], [0, depth, 0], [0, 0, height], 40.0, rng),
        plane([x + width, y, 0], [0, depth, 0], [0, 0, height], 40.0, rng),
    ]
    return np.concatenate(walls)


def hall(rng: np.random.Generator) -> Array:
    floor = plane([-10, -7, 0], [20, 0, 0], [0, 14, 0], 40.0, rng)
    pillars = [box(x, y, 1.0, 1.0, 6.0, rng) for x, y in rng.uniform([-9, -6], [8, 5], (4, 2))]
    return np.concatenate([floor, box(-10, -7, 20, 14, 6.0, rng), *pillars])


def street(rng: np.random.Generator) -> Array:
    ground = plane([-30, -8, 0], [60, 0, 0], [0, 16, 0], 30.0, rng)
    ground[:, 2] += 0.05 * np.sin(0.7 * ground[:, 0]) * np.sin(0.9 * ground[:, 1])
    houses = [
        box(
            x + rng.uniform(0, 2),
            side * rng.uniform(7, 9) - (4 if side < 0 else 0),
            7.0,
            4.0,
            rng.uniform(4, 9),
            rng,
        )
        for x in range(-30, 30, 10)
        for side in (-1, 1)
    ]
    return np.concatenate([ground, *houses])


def forest(rng: np.random.Generator) -> Array:
    ground = plane([-20, -20, 0], [40, 0, 0], [0, 40, 0], 25.0, rng)
    ground[:, 2] += (
        0.3 * np.sin(0.5 * ground[:, 0]) + 0.2 * np.cos(0.4 * ground[:, 1]) + rng.normal(0, 0.05, len(ground))
    )
    stems = []
    for x, y in rng.uniform(-20, 20, (90, 2)):
        radius, angle, height = (
            rng.uniform(0.1, 0.3),
            rng.uniform(0, 2 * np.pi, 300),
            rng.uniform(-0.5, 6.0, 300),
        )
        stems.append(np.column_stack([x + radius * np.cos(angle), y + radius * np.sin(angle), height]))
    return np.concatenate([ground, *stems])


def visible(scene: Array, reach: float = 15.0) -> Scan:
    """A scanner that sees a random third of the points within its reach, not hidden ones alone: no ray is cast."""

    def scan(T: Array, rng: np.random.Generator) -> Array:
        local = (scene - T[:3, 3]) @ T[:3, :3]
        ranges = np.linalg.norm(local, axis=1)
        seen = (ranges < reach) & (ranges > 0.5) & (rng.random(len(local)) < 0.33)
        return np.asarray(
            local[seen] * (1.0 + rng.normal(0.0, NOISE, (int(seen.sum()), 1)) / ranges[seen, None])
        )

    return scan


def bare_ground(rng: np.random.Generator) -> tuple[Scan, Array]:
    """Scan, and the middle of the terrain, 1.8 m above it."""
    terrain = rover_terrain(rng)
    lidar = SpinningLidar(noise=NOISE)
    x, y = np.array(terrain.size) / 2.0
    middle = np.array([x, y, float(terrain.height_at(x, y)) + 1.8])
    return lambda T, draw: lidar.scan(terrain, T, draw), middle


def curve(clouds: int, middle: Array, rng: np.random.Generator) -> Array:
    """(N, 4, 4) on a circle around the middle, with roll and pitch of some degrees."""
    poses = np.tile(np.eye(4), (clouds, 1, 1))
    radius = STEP / np.deg2rad(TURN)
    sway = rng.normal(0.0, 1.0, (clouds, 2))
    for k in range(clouds):
        angle = np.deg2rad(TURN * k)
        poses[k, :3, :3] = Rotation.from_euler("ZYX", [TURN * k + 90.0, *sway[k]], degrees=True).as_matrix()
        poses[k, :3, 3] = middle + radius * np.array([np.cos(angle), np.sin(angle), 0.0])
    return poses


def evaluate(scan: Scan, truth: Array, rng: np.random.Generator) -> Result:
    odometry, result = LidarOdometry(), Result()
    for k, T in enumerate(truth):
        try:
            step = odometry.register(scan(T, rng), 1 + k * 100_000_000)
        except LostTrack:
            continue
        result.poses[k] = step.T_odom_sensor
        if step.covariance.any():
            result.covariances[k] = step.covariance
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--clouds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7000)
    parser.add_argument("--only", default="", help="scenes whose names contain this")
    options = parser.parse_args()
    scenes: dict[str, Callable[[np.random.Generator], tuple[Scan, Array]]] = {
        "hall": lambda rng: (visible(hall(rng)), np.array([0.0, 0.0, 1.5])),
        "street": lambda rng: (visible(street(rng)), np.array([0.0, 0.0, 1.8])),
        "forest": lambda rng: (visible(forest(rng)), np.array([0.0, 0.0, 1.8])),
        "bare ground": bare_ground,
    }
    print(
        f"{'':12} {'lost':>9} {'ATE (m)':>8} {'step (m)':>9} {'(deg)':>7} {'NEES':>6} {'median':>7} {'95 %':>6}"
    )
    for name, make in ((name, make) for name, make in scenes.items() if options.only in name):
        for draw in range(options.draws):
            rng = np.random.default_rng(options.seed + draw)
            scan, middle = make(rng)
            truth = curve(options.clouds, middle, rng)
            result = evaluate(scan, truth, rng)
            errors, nees = step_errors(result, truth)
            metres, degrees = (
                np.linalg.norm(errors[:, :3], axis=1), np.degrees(np.linalg.norm(errors[:, 3:], axis=1)),
            )  # fmt: skip
            lost = options.clouds - len(result.poses)
            print(
                f"{name:12} {lost:3d} of {options.clouds:2d} {trajectory_error(result, truth):8.3f}"
                f" {np.sqrt(np.mean(metres**2)):9.4f} {np.sqrt(np.mean(degrees**2)):7.3f} {nees.mean():6.2f}"
                f" {np.median(nees):7.2f} {np.percentile(nees, 95):6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
