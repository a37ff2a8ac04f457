"""Synthetic terrain for the closure tests: fractal relief, sampled like a robot would, with known poses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates
from scipy.spatial.transform import Rotation

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.geometry import apply, inverse
from gpgmap_ros.mapping import GPGMap, gpgmap_from_points

Array = NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """Relief on a periodic lattice, z[iy, ix], 1 m apart."""

    z: Array

    def map_at(
        self,
        centre: tuple[float, float],
        seed: int,
        yaw: float = 0.0,
        radius: float = 24.0,
        tilt: float = 0.0,
        noise: float = 0.02,
    ) -> tuple[GPGMap, Array]:
        """A submap of the disc around `centre` in a frame turned by `yaw` about it, and its T_map_world.

        tilt: of the frame, radians, about an axis that the seed chooses; noise: of a height, standard deviation.
        Points, noise and a hole come from the seed.
        """
        rng = np.random.default_rng(seed)
        count = int(2.0 * np.pi * radius**2)
        r, angle = radius * np.sqrt(rng.uniform(size=count)), rng.uniform(-np.pi, np.pi, count)
        xy = np.stack([r * np.cos(angle), r * np.sin(angle)], axis=1)
        hole = rng.uniform(-0.6, 0.6, 2) * radius
        xy = xy[np.hypot(*(xy - hole).T) > 0.12 * radius] + centre
        z = map_coordinates(self.z, xy[:, ::-1].T, order=3, mode="grid-wrap") + rng.normal(
            scale=0.02, size=len(xy)
        )
        T_world_map = np.eye(4)
        axis = rng.uniform(-np.pi, np.pi)
        lean = Rotation.from_rotvec(tilt * np.array([np.cos(axis), np.sin(axis), 0.0]))
        T_world_map[:3, :3] = (lean * Rotation.from_euler("z", yaw)).as_matrix()
        T_world_map[:3, 3] = [*centre, float(np.mean(z)) + 1.5]
        T_map_world = inverse(T_world_map)
        return map_as_submap(apply(T_map_world, np.column_stack([xy, z]))), T_map_world


def map_as_submap(points: Array) -> GPGMap:
    """A map of points (N, 3) in cells of 1 m with the kernel and the noise of submaps."""
    relief = max(1.0, float(np.std(points[:, 2])))
    settings = {
        "mapping.kernel": "rbf",
        "mapping.learn_noise": False,
        "mapping.length_scale": 5.0,
        "mapping.relief_std": relief,
    }
    return gpgmap_from_points(points, 1.0, with_settings(Config(), settings))


def fractal(seed: int, size: int = 256, slope: float = 2.0, relief: float = 4.0) -> Array:
    """Gaussian relief with the amplitude spectrum f^-slope."""
    rng = np.random.default_rng(seed)
    f = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.fftfreq(size)[None, :])
    f[0, 0] = np.inf
    z = np.fft.ifft2(np.fft.fft2(rng.normal(size=(size, size))) * f**-slope).real
    return relief * z / z.std()


def pose_error(T: Array, truth: Array, at: Array) -> tuple[float, float]:
    """Horizontal distance at the point `at` of the source, metres, and yaw, degrees."""
    shift = apply(T, at[None])[0] - apply(truth, at[None])[0]
    turn = T[:3, :3] @ truth[:3, :3].T
    return float(np.hypot(*shift[:2])), float(np.rad2deg(abs(np.arctan2(turn[1, 0], turn[0, 0]))))
