"""The elevation map: points in, GPGMap out. A Gaussian process on a grid does the work (gp_core.grid)."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF
from gpgmap_ros.config import Config, MappingConfig, NoiseConfig
from gpgmap_ros.mapping.gpgmap import GPGMap

Array = NDArray[np.float64]


class ElevationMap:
    """Fuses points in a gravity-aligned frame. The points themselves are not kept.

    centre: x and y of the middle of the map; its edges are on whole cells of the frame.
    """

    def __init__(self, config: MappingConfig, centre: ArrayLike) -> None:
        self._config = config
        self._grid = grid_around(np.asarray(centre, dtype=np.float64), config)
        self._gp: GridGP | None = None

    @property
    def grid(self) -> Grid:
        return self._grid

    def add(self, xyz: Array, variance: Array) -> int:
        """Fuse points (N, 3) with the variances (N,) of their heights; returns how many lie on the map."""
        if not len(xyz):
            return 0
        if self._gp is None:
            self._gp = self._started_at(float(np.median(xyz[:, 2])))
        return self._gp.update(xyz[:, :2], xyz[:, 2], variance).used

    def _started_at(self, height: float) -> GridGP:
        """The relief is a deviation from the height of the ground where mapping began."""
        kernel = self._config.relief_std**2 * RBF(self._config.length_scale)
        # every point comes with its own variance; the argument is for those that do not
        return GridGP(self._grid, kernel, noise_variance=NoiseConfig().height_std ** 2, mean=height)

    def gpgmap(self, frame_id: str = "map", stamp: int = 0) -> GPGMap:
        """The terrain as it is known now."""
        posterior = (self._gp or self._started_at(0.0)).posterior()
        unknown = posterior.variance > self._config.known_variance_ratio * self._config.relief_std**2
        gradient_x, gradient_y = posterior.gradient[..., 0], posterior.gradient[..., 1]
        layers = {
            "elevation": masked(posterior.mean, unknown),
            "variance": posterior.variance,
            "gradient_x": masked(gradient_x, unknown),
            "gradient_y": masked(gradient_y, unknown),
            "gradient_magnitude": masked(np.hypot(gradient_x, gradient_y), unknown),
            "gradient_x_variance": posterior.gradient_variance[..., 0],
            "gradient_y_variance": posterior.gradient_variance[..., 1],
        }
        float32 = {name: np.ascontiguousarray(layer, dtype=np.float32) for name, layer in layers.items()}
        return GPGMap(self._grid, float32, frame_id, stamp)


def grid_around(centre: Array, config: MappingConfig) -> Grid:
    columns, rows = (max(round(size / config.resolution), 1) for size in (config.size_x, config.size_y))
    corner = np.round(centre / config.resolution - np.array([columns, rows]) / 2.0) * config.resolution
    return Grid((float(corner[0]), float(corner[1])), (rows, columns), config.resolution)


def masked(layer: Array, unknown: NDArray[np.bool_]) -> Array:
    return np.where(unknown, np.nan, layer)


def gpgmap_from_points(
    xyz: ArrayLike, resolution: float, config: Config | None = None, frame_id: str = "map"
) -> GPGMap:
    """A GPGMap of points (N, 3) in a gravity-aligned frame, just large enough to hold them.

    resolution: edge of a cell in metres.
    config: everything else; the default's length scale is widened to five cells where the cells are coarser.
    """
    points = np.asarray(xyz, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"xyz must be (N, 3), got {points.shape}")
    if not len(points):
        raise ValueError("there are no points to map")
    if bad := int((~np.isfinite(points).all(axis=1)).sum()):
        raise ValueError(f"{bad} of {len(points)} points are not finite: leave them out first")
    given = config or Config()
    low, high = points[:, :2].min(axis=0), points[:, :2].max(axis=0)
    size = np.maximum(np.ceil((high - low) / resolution) + 1.0, 1.0) * resolution
    changes = {"resolution": resolution, "size_x": float(size[0]), "size_y": float(size[1])}
    if config is None:
        changes["length_scale"] = max(given.mapping.length_scale, 5.0 * resolution)
        changes["relief_std"] = max(given.mapping.relief_std, float(np.std(points[:, 2])))
    elevation_map = ElevationMap(dataclasses.replace(given.mapping, **changes), (low + high) / 2.0)
    elevation_map.add(points, np.full(len(points), given.noise.height_std**2))
    return elevation_map.gpgmap(frame_id)
