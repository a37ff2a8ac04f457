"""A spinning LiDAR over a height field: every beam is followed until it meets the ground, so rocks cast shadows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gpgmap_ros.arrays import Array
from gpgmap_ros.demo.terrain import Terrain


@dataclass(frozen=True)
class SpinningLidar:
    """Beam pattern and noise, as of a 32-beam sensor on a rover's mast.

    beams, turns: beams in elevation and firings per revolution.
    lowest, highest: elevation angles of the beams in degrees.
    max_range: metres; noise: standard deviation of the range in metres.
    """

    beams: int = 32
    turns: int = 720
    lowest: float = -40.0
    highest: float = 5.0
    max_range: float = 15.0
    noise: float = 0.015

    def directions(self) -> Array:
        """Unit vectors (beams * turns, 3) in the sensor's frame."""
        elevation = np.radians(np.linspace(self.lowest, self.highest, self.beams))
        azimuth = np.linspace(0.0, 2.0 * np.pi, self.turns, endpoint=False)
        e, a = (grid.ravel() for grid in np.meshgrid(elevation, azimuth, indexing="ij"))
        return np.column_stack([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])

    def scan(self, terrain: Terrain, T_world_sensor: Array, rng: np.random.Generator) -> Array:
        """Measured points (N, 3) in the sensor's frame; beams that meet nothing within range return nothing."""
        directions = self.directions()
        world = directions @ T_world_sensor[:3, :3].T
        ranges = cast_rays(terrain.heights, terrain.resolution, T_world_sensor[:3, 3], world, self.max_range)
        hit = np.isfinite(ranges)
        measured = ranges[hit] + rng.normal(0.0, self.noise, int(hit.sum()))
        return np.asarray(directions[hit] * measured[:, None])

    def sweep(
        self, terrain: Terrain, T_world_sensor: Array, rng: np.random.Generator
    ) -> tuple[Array, NDArray[np.int64]]:
        """One revolution of a moving sensor: measured points (N, 3), and the firing (N,) that each is from.

        T_world_sensor: (turns, 4, 4) the sensor's pose at each firing; points are in the sensor's frame at that moment
        """
        directions = self.directions().reshape(self.beams, self.turns, 3)
        points, firings = [], []
        for k, T in enumerate(T_world_sensor):
            beams = directions[:, k]
            ranges = cast_rays(
                terrain.heights, terrain.resolution, T[:3, 3], beams @ T[:3, :3].T, self.max_range
            )
            hit = np.isfinite(ranges)
            measured = ranges[hit] + rng.normal(0.0, self.noise, int(hit.sum()))
            points.append(beams[hit] * measured[:, None])
            firings.append(np.full(len(measured), k))
        return np.concatenate(points), np.concatenate(firings)


@compiled()
def cast_rays(heights, resolution, origin, directions, max_range):  # type: ignore[no-untyped-def]
    """Range (N,) at which each ray first falls below the bilinear height field; NaN where it does not.

    heights (rows, columns), origin (3,), directions (N, 3) of unit length. Steps of half a cell bracket the hit and
    bisection refines it. Numba, because each ray stops at a step of its own.
    """
    rows, columns = heights.shape
    step = 0.5 * resolution
    ranges = np.full(directions.shape[0], np.nan)
    for ray in range(directions.shape[0]):
        before, distance = 0.0, step
        while distance <= max_range:
            clearance = _clearance(heights, resolution, rows, columns, origin, directions[ray], distance)
            if np.isnan(clearance):
                break
            if clearance < 0.0:
                low, high = before, distance
                for _ in range(12):
                    middle = 0.5 * (low + high)
                    if _clearance(heights, resolution, rows, columns, origin, directions[ray], middle) < 0.0:
                        high = middle
                    else:
                        low = middle
                ranges[ray] = 0.5 * (low + high)
                break
            before = distance
            distance += step
    return ranges


@compiled()
def _clearance(heights, resolution, rows, columns, origin, direction, distance):  # type: ignore[no-untyped-def]
    """Height of the ray above the ground at a distance; NaN beyond the edge of the field."""
    u = (origin[0] + distance * direction[0]) / resolution
    v = (origin[1] + distance * direction[1]) / resolution
    if u < 0.0 or v < 0.0 or u >= columns - 1 or v >= rows - 1:
        return np.nan
    j, i = int(u), int(v)
    s, t = u - j, v - i
    south = (1.0 - s) * heights[i, j] + s * heights[i, j + 1]
    north = (1.0 - s) * heights[i + 1, j] + s * heights[i + 1, j + 1]
    return origin[2] + distance * direction[2] - ((1.0 - t) * south + t * north)
