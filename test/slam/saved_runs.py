"""Small runs on disk for the tests: drives over made relief, mapped by the real pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fast_mapping import FAST
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates
from scipy.spatial.transform import Rotation

from gpgmap_ros.closure import LoopCloser
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.config.yaml import save_config
from gpgmap_ros.geometry import apply, inverse
from gpgmap_ros.mapping import SubmapStore
from gpgmap_ros.slam import MappingPipeline

Array = NDArray[np.float64]
SECOND = 1_000_000_000
SETTINGS = {
    **FAST,
    "mapping.resolution": 0.5, "mapping.size_x": 12.0, "mapping.size_y": 12.0, "mapping.length_scale": 1.0,
    "filter.min_range": 0.0, "filter.max_height": 50.0, "filter.min_height": -50.0, "gate.enabled": False,
    "submap.size": 24.0, "submap.resolution": 0.5, "submap.length_scale": 1.0, "submap.max_distance": 8.0,
    "closure.threads": 1, "localization.step": 4.0,
}  # fmt: skip
CONFIG = with_settings(Config(), SETTINGS)


@dataclass(frozen=True)
class Step:
    stamp: int
    points: Array
    T_odom_robot: Array
    T_world_robot: Array


@dataclass(frozen=True)
class StraightDrive:
    """From a place of a made world in one direction; odometry begins at the origin and turns too much.

    world: seed of the relief; reach: metres that the sensor sees; seed: of points and noise
    """

    start: tuple[float, float]
    heading: float
    length: float
    seed: int
    world: int = 3
    reach: float = 9.0
    turn: float = 0.002
    first_stamp: int = 1_700_000_000 * SECOND

    def __iter__(self) -> Iterator[Step]:
        rng = np.random.default_rng([self.seed, self.world])
        T_odom, before = np.eye(4), None
        for k in range(int(self.length) + 1):
            T = self.pose(float(k))
            if before is not None:
                T_odom = T_odom @ inverse(before) @ T
                T_odom[:3, :3] = T_odom[:3, :3] @ Rotation.from_euler("z", self.turn).as_matrix()
            before = T
            n = 1500
            r, a = self.reach * np.sqrt(rng.uniform(size=n)), rng.uniform(-np.pi, np.pi, n)
            xy = T[:2, 3] + np.column_stack([r * np.cos(a), r * np.sin(a)])
            seen = np.column_stack([xy, relief(self.world, xy) + rng.normal(scale=0.02, size=n)])
            yield Step(self.first_stamp + k * SECOND, apply(inverse(T), seen), T_odom.copy(), T)

    def pose(self, way: float) -> Array:
        T = np.eye(4)
        T[:3, :3] = Rotation.from_euler("z", self.heading).as_matrix()
        T[:2, 3] = np.array(self.start) + way * np.array([np.cos(self.heading), np.sin(self.heading)])
        T[2, 3] = float(relief(self.world, T[None, :2, 3])[0]) + 1.0
        return T


_WORLDS: dict[int, Array] = {}


def relief(world: int, xy: Array) -> Array:
    """Heights of a periodic fractal, 256 m wide."""
    if world not in _WORLDS:
        rng = np.random.default_rng(world)
        f = np.hypot(np.fft.fftfreq(256)[:, None], np.fft.fftfreq(256)[None, :])
        f[0, 0] = np.inf
        z = np.fft.ifft2(np.fft.fft2(rng.normal(size=(256, 256))) * f**-1.8).real
        _WORLDS[world] = 2.0 * z / z.std()
    return np.asarray(map_coordinates(_WORLDS[world], xy[:, ::-1].T, order=3, mode="grid-wrap"))


def save_run(folder: Path, drive: StraightDrive, config: Config = CONFIG) -> dict[int, Array]:
    """Map a drive into a folder as a node does; returns T_world_robot where each submap began."""
    pipeline, closer = MappingPipeline(config), LoopCloser(config.closure)
    store = SubmapStore(folder / "submaps", config)
    save_config(config, folder / "config.yaml")
    truth: dict[int, Array] = {}
    began: Array | None = None
    for step in drive:
        began = step.T_world_robot if began is None else began
        submap = pipeline.add_cloud(step.points, step.T_odom_robot, step.stamp).submap
        if submap is not None:
            truth[submap.id], began = began, None
            store.add(submap)
            closer.add(submap)
    closer.save(folder / "closures.npz", surfaces=False)
    return truth
