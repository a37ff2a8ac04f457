"""A sensor over a height field: rings of a spinning LiDAR, or a stereo camera, with the ground hiding itself.

ground = Ground(heights, 0.25)                      metres on a lattice, x along columns
scan(ground, T_world_sensor, lidar(32), rng)        points (N, 3) in the sensor's frame, noise along the beams
drifting(poses, 0.01, 0.5, rng)                     what an odometry would say instead of these poses
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates, spline_filter

from gp_core.compiled import compiled
from gpgmap_ros.geometry import inverse

Array = NDArray[np.float64]
Rng = np.random.Generator


@dataclass(frozen=True)
class Ground:
    """heights (rows, columns) at x = column * resolution, y = row * resolution."""

    heights: NDArray[np.float32]
    resolution: float

    @property
    def size(self) -> Array:
        return (np.array(self.heights.shape[::-1]) - 1.0) * self.resolution

    def height(self, xy: Array) -> Array:
        """(N,) bilinear heights at (N, 2) positions."""
        return map_coordinates(
            self.heights, np.asarray(xy)[:, ::-1].T / self.resolution, order=1, mode="nearest"
        )


@dataclass(frozen=True)
class Sensor:
    """directions (N, 3) of the beams, reach in metres; noise of a range r: noise + quadratic r^2, of a direction."""

    directions: Array
    reach: float
    noise: float = 0.02
    quadratic: float = 0.0
    angle: float = 0.0005


def beams(azimuths: Array, elevations: Array) -> Array:
    a, e = (part.ravel() for part in np.meshgrid(azimuths, elevations))
    return np.stack([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)], axis=1)


def lidar(rings: int = 32, reach: float = 25.0, step: float = 1.0) -> Sensor:
    """step: of the azimuth, degrees"""
    azimuths = np.deg2rad(np.arange(0.0, 360.0, step))
    return Sensor(beams(azimuths, np.deg2rad(np.linspace(-30.0, 10.0, rings))), reach)


def stereo(reach: float = 15.0, width: int = 120, height: int = 60, quadratic: float = 0.002) -> Sensor:
    """A camera that looks ahead and a little down; 90 x 50 degrees."""
    azimuths = np.deg2rad(np.linspace(-45.0, 45.0, width))
    return Sensor(
        beams(azimuths, np.deg2rad(np.linspace(-40.0, 10.0, height))), reach, 0.005, quadratic, 0.001
    )


def resample(
    z: NDArray[np.floating], cell: float, resolution: float, rng: Rng, rough: float = 0.03
) -> Ground:
    """A DEM of cells `cell` on a finer lattice by splines, with a roughness that it lacks.

    rough: its standard deviation in metres, in octaves from two lattice cells to four cells of the DEM
    """
    rows, columns = (np.arange(0.0, size - 1, resolution / cell) for size in z.shape)
    coefficients = spline_filter(np.asarray(z, float), order=3)
    fine = map_coordinates(coefficients, np.meshgrid(rows, columns, indexing="ij"), order=3, prefilter=False)
    octave, widest = 2.0, 4.0 * cell / resolution
    layers = []
    while octave <= widest:
        layer = gaussian_filter(rng.standard_normal(fine.shape).astype(np.float32), octave, mode="wrap")
        layers.append(layer / layer.std() * octave**0.7)
        octave *= 2.0
    if layers and rough > 0.0:
        detail = np.sum(layers, axis=0)
        fine = fine + rough / detail.std() * detail
    return Ground(fine.astype(np.float32), resolution)


def scan(ground: Ground, T_world_sensor: Array, sensor: Sensor, rng: Rng) -> Array:
    """Points (N, 3) in the sensor's frame."""
    directions = sensor.directions + rng.normal(scale=sensor.angle, size=sensor.directions.shape)
    ranges = cast(
        ground.heights,
        ground.resolution,
        T_world_sensor[:3, 3],
        directions @ T_world_sensor[:3, :3].T,
        sensor.reach,
    )
    hit = np.isfinite(ranges)
    r = ranges[hit] + rng.normal(size=int(hit.sum())) * (sensor.noise + sensor.quadratic * ranges[hit] ** 2)
    return sensor.directions[hit] * r[:, None]


@compiled()
def cast(heights, resolution, origin, directions, reach):  # type: ignore[no-untyped-def]
    """(N,) ranges at which rays meet the ground; NaN where they do not within reach."""
    rows, columns = heights.shape
    out = np.full(len(directions), np.nan)
    for n in range(len(directions)):
        dx, dy, dz = directions[n]
        before, above = 0.0, 1.0
        r = 0.5
        while r < reach:
            u, v = (origin[0] + r * dx) / resolution, (origin[1] + r * dy) / resolution
            if not (u >= 0.0 and v >= 0.0 and u < columns - 1 and v < rows - 1):
                break
            j, i = int(u), int(v)
            s, t = u - j, v - i
            low = (1.0 - s) * heights[i, j] + s * heights[i, j + 1]
            high = (1.0 - s) * heights[i + 1, j] + s * heights[i + 1, j + 1]
            over = origin[2] + r * dz - ((1.0 - t) * low + t * high)
            if over <= 0.0:
                out[n] = before + (r - before) * above / (above - over)
                break
            before, above = r, over
            r += min(max(0.5 * over, 0.02 + 0.002 * r), 0.5)  # a slope of two in three is never stepped over
    return out


def drive(ground: Ground, xy: Array, height: float = 1.5) -> Array:
    """(K, 4, 4) level poses of a sensor over positions (K, 2), heading along them."""
    heading = np.arctan2(*np.gradient(xy, axis=0).T[::-1])
    poses = np.tile(np.eye(4), (len(xy), 1, 1))
    poses[:, 0, 0], poses[:, 0, 1], poses[:, 1, 0] = np.cos(heading), -np.sin(heading), np.sin(heading)
    poses[:, 1, 1] = np.cos(heading)
    poses[:, :2, 3], poses[:, 2, 3] = xy, ground.height(xy) + height
    return poses


def drifting(poses: Array, per_way: float, degrees: float, rng: Rng) -> Array:
    """The poses as an odometry with drift states them, beginning at the true first one.

    per_way: standard deviation of the position error over the way, of 10 m; degrees: of the heading after 10 m
    Half of each variance is a factor that stays, as of wheels and gyroscopes; half comes anew with every step.
    """
    scale, bias = (
        rng.normal(size=3) * np.sqrt(0.5) * per_way,
        rng.normal() * np.sqrt(0.5) * np.deg2rad(degrees) / 10.0,
    )
    out = [poses[0]]
    for before, after in pairwise(poses):
        step = inverse(before) @ after
        way = float(np.linalg.norm(step[:3, 3]))
        noise = np.sqrt(0.5 * 10.0 * way) * per_way * rng.normal(size=3) * np.array([1.0, 0.5, 0.5])
        turn = bias * way + np.sqrt(0.5 * way / 10.0) * np.deg2rad(degrees) * rng.normal()
        error = np.eye(4)
        error[:2, :2] = [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
        error[:3, 3] = scale * way * np.array([1.0, 0.3, 0.3]) + noise
        out.append(out[-1] @ step @ error)
    return np.array(out)
