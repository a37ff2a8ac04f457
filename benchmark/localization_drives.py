"""Simulated drives for benchmark/localization.py: a spinning LiDAR on real relief, drifting odometry, a saved run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import zoom
from scipy.spatial.transform import Rotation

from gpgmap_ros.closure import LoopCloser
from gpgmap_ros.config import Config
from gpgmap_ros.config.yaml import save_config
from gpgmap_ros.demo.lidar import SpinningLidar
from gpgmap_ros.demo.terrain import Terrain
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping import Submap, SubmapStore
from gpgmap_ros.slam import MappingPipeline

Array = NDArray[np.float64]
SECOND = 1_000_000_000
MAST = 1.0
"""Metres of the sensor above the ground."""


@dataclass(frozen=True)
class Odometry:
    """Errors per metre: scale and turn are constant on a drive, walks are random. Metres and radians."""

    scale: float = 0.01
    turn: float = 0.001
    walk_position: float = 0.02
    walk_turn: float = 0.003


@dataclass
class Drive:
    """Poses T_world_robot on a terrain, seen by a LiDAR; iterates over (stamp, points, T_odom_robot, T_world_robot)."""

    terrain: Terrain
    poses: list[Array]
    seed: int
    start: int = 1_700_000_000 * SECOND
    odometry: Odometry = field(default_factory=Odometry)
    lidar: SpinningLidar = field(default_factory=lambda: SpinningLidar(turns=360, max_range=10.0))

    def __iter__(self) -> Iterator[tuple[int, Array, Array, Array]]:
        rng = np.random.default_rng(self.seed)
        signs = rng.choice([-1.0, 1.0], 2)
        T_odom = np.eye(4)
        T_odom[2, 3] = self.poses[0][2, 3]
        before: Array | None = None
        for k, T in enumerate(self.poses):
            if before is not None:
                T_odom = T_odom @ self._drifted(inverse(before) @ T, signs, rng)
            before = T
            yield self.start + k * SECOND, self.lidar.scan(self.terrain, T, rng), T_odom.copy(), T

    def _drifted(self, motion: Array, signs: Array, rng: np.random.Generator) -> Array:
        way = float(np.linalg.norm(motion[:3, 3]))
        error = self.odometry
        out = motion.copy()
        out[:3, 3] *= 1.0 + signs[0] * error.scale
        out[:2, 3] += rng.normal(scale=error.walk_position * np.sqrt(way), size=2)
        turn = signs[1] * error.turn * way + rng.normal(scale=error.walk_turn * np.sqrt(way))
        out[:3, :3] = out[:3, :3] @ Rotation.from_euler("z", turn).as_matrix()
        return out


def pose_at(terrain: Terrain, x: float, y: float, yaw: float) -> Array:
    """The sensor upright, on its mast above the ground."""
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("z", yaw).as_matrix()
    T[:3, 3] = x, y, float(terrain.height_at(x, y)) + MAST
    return T


def lanes(terrain: Terrain, low: Array, high: Array, spacing: float, step: float) -> list[Array]:
    """Up and down between two corners, lane beside lane, and back across them: the loops close."""
    points: list[tuple[float, float]] = []
    for number, x in enumerate(np.arange(low[0], high[0] + 1e-6, spacing)):
        ends = (low[1], high[1]) if number % 2 == 0 else (high[1], low[1])
        points += [(float(x), float(ends[0])), (float(x), float(ends[1]))]
    middle = float(low[1] + high[1]) / 2.0
    points += [(points[-1][0], middle), (float(low[0]), middle)]
    return along(terrain, np.array(points), step)


def along(terrain: Terrain, corners: Array, step: float) -> list[Array]:
    """Poses every `step` metres on a polyline (N, 2)."""
    out = []
    for a, b in pairwise(corners):
        length = float(np.hypot(*(b - a)))
        yaw = float(np.arctan2(*(b - a)[::-1]))
        out += [pose_at(terrain, *(a + (b - a) * s / length), yaw) for s in np.arange(0.0, length, step)]
    return out


def wander(
    terrain: Terrain, low: Array, high: Array, way: float, step: float, rng: np.random.Generator
) -> list[Array]:
    """A curved way of so many metres from a random start, inside two corners."""
    for _ in range(10_000):
        xy, yaw, bend = rng.uniform(low, high), rng.uniform(-np.pi, np.pi), rng.normal(scale=0.03)
        out = []
        for _ in range(int(way / step) + 1):
            out.append(pose_at(terrain, *xy, yaw))
            xy = xy + step * np.array([np.cos(yaw), np.sin(yaw)])
            yaw += bend * step + rng.normal(scale=0.02 * np.sqrt(step))
        inside = np.array([T[:2, 3] for T in out])
        if (inside >= low).all() and (inside <= high).all():
            return out
    raise ValueError(f"no way of {way} m fits between {low} and {high}")


def rover_relief(z: NDArray[np.floating], cell: float, flatten: float, fine: int) -> Terrain:
    """A DEM shrunk to cells of `cell` metres, slopes flattened, interpolated to cells `fine` times smaller."""
    heights = np.asarray(z, float)
    heights = (heights - heights.mean()) * flatten
    return Terrain(zoom(heights, fine, order=3), cell / fine)


@dataclass
class Truth:
    """Of a drive that was mapped. anchors: T_world_submap by id; tracks: (N, 4, 4) T_world_robot and T_submap_robot of
    its clouds by id; drift: the largest error of the odometry, metres"""

    anchors: dict[int, Array] = field(default_factory=dict)
    tracks: dict[int, tuple[Array, Array]] = field(default_factory=dict)
    drift: float = 0.0


def save_run(folder: Path, drive: Drive, config: Config) -> Truth:
    """Map a drive and keep it as a run."""
    pipeline, closer = MappingPipeline(config), LoopCloser(config.closure)
    store = SubmapStore(folder / "submaps", config)
    save_config(config, folder / "config.yaml")
    out, made = Truth(), []
    first: tuple[Array, Array] | None = None

    def finish(submap: Submap | None) -> None:
        if submap is not None:
            out.anchors[submap.id] = made[0][1]
            local = inverse(submap.T_map_submap) @ np.array([T_odom for T_odom, _ in made])
            out.tracks[submap.id] = np.array([T_world for _, T_world in made]), local
            store.add(submap)
            closer.add(submap)
        made.clear()

    for stamp, points, T_odom, T_world in drive:
        first = first or (T_odom, T_world)
        off = inverse(first[0]) @ T_odom - inverse(first[1]) @ T_world
        out.drift = max(out.drift, float(np.linalg.norm(off[:3, 3])))
        report = pipeline.add_cloud(points, T_odom, stamp)
        made.append((T_odom, T_world))
        if report.submap is not None:
            finish(report.submap)
    finish(pipeline.finish_submap("end"))
    closer.save(folder / "closures.npz", surfaces=False)
    return out
