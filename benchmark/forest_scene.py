"""A forest on real relief, seen by a robot's LiDAR or from the air: which returns are ground is known.

Trees stand on a DEM (drive_simulation.py): stems are cylinders, crowns are ellipsoids of leaves that a beam enters and
is stopped in after a random distance. Bushes are small crowns on the ground.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.demo.lidar import cast_rays
from gpgmap_ros.demo.terrain import Terrain

Array = NDArray[np.float64]
Rng = np.random.Generator

FREE_PATH = 1.2
"""Metres that a beam goes through leaves, in the mean."""


@dataclass(frozen=True, eq=False)
class Forest:
    """ground: under the trees
    stems: (N, 4) x, y, radius and height of the top; crowns: (M, 5) x, y, z, radius and half of the height
    """

    ground: Terrain
    stems: Array
    crowns: Array


def plant(ground: Terrain, centre: Array, reach: float, trees: float, bushes: float, rng: Rng) -> Forest:
    """trees, bushes: per square metre, on the square of 2 x `reach` metres around `centre`."""
    stems, crowns = [], []
    for _ in range(rng.poisson(trees * (2.0 * reach) ** 2)):
        x, y = centre + rng.uniform(-reach, reach, 2)
        base, height = float(ground.height_at(x, y)), rng.uniform(7.0, 18.0)
        stems.append([x, y, rng.uniform(0.08, 0.25), base + height])
        bottom = rng.uniform(1.5, 4.0)
        half = 0.5 * (height - bottom)
        crowns.append([x, y, base + bottom + half, rng.uniform(1.2, 3.0), half])
    for _ in range(rng.poisson(bushes * (2.0 * reach) ** 2)):
        x, y = centre + rng.uniform(-reach, reach, 2)
        radius = rng.uniform(0.3, 1.2)
        crowns.append([x, y, float(ground.height_at(x, y)) + 0.6 * radius, radius, 0.8 * radius])
    return Forest(ground, np.reshape(stems, (-1, 4)), np.reshape(crowns, (-1, 5)))


def scan(
    forest: Forest, T_world_sensor: Array, directions: Array, max_range: float, noise: float, rng: Rng
) -> tuple[Array, NDArray[np.bool_]]:
    """Points (N, 3) in the sensor's frame, and which of them are ground. directions: (K, 3) of the beams there"""
    origin, world = T_world_sensor[:3, 3], directions @ T_world_sensor[:3, :3].T
    ground = cast_rays(forest.ground.heights, forest.ground.resolution, origin, world, max_range)
    ranges = np.where(np.isfinite(ground), ground, np.inf)
    near = np.hypot(*(forest.stems[:, :2] - origin[:2]).T) < max_range
    others = np.full(len(world), np.inf)
    for x, y, radius, top in forest.stems[near]:
        hit = stem_range(origin, world, x - origin[0], y - origin[1], radius, top)
        others = np.minimum(others, hit)
    near = np.hypot(*(forest.crowns[:, :2] - origin[:2]).T) < max_range
    for crown in forest.crowns[near]:
        others = np.minimum(others, crown_range(origin, world, crown, rng))
    is_ground = ranges <= others
    first = np.minimum(ranges, others)
    hit = first < max_range
    measured = first[hit] + rng.normal(0.0, noise, int(hit.sum()))
    return directions[hit] * measured[:, None], is_ground[hit]


def stem_range(origin: Array, rays: Array, x: float, y: float, radius: float, top: float) -> Array:
    """(K,) where each ray meets an upright cylinder at (x, y) from the origin; infinite where it does not."""
    a = rays[:, 0] ** 2 + rays[:, 1] ** 2
    b = rays[:, 0] * x + rays[:, 1] * y
    root = b**2 - a * (x**2 + y**2 - radius**2)
    with np.errstate(invalid="ignore", divide="ignore"):
        at = (b - np.sqrt(root)) / a
    good = (root > 0.0) & (at > 0.0)
    return np.where(good & (origin[2] + at * rays[:, 2] < top), at, np.inf)


def crown_range(origin: Array, rays: Array, crown: Array, rng: Rng) -> Array:
    """(K,) where each ray is stopped in a crown; infinite where it misses it or goes through."""
    scale = np.array([crown[3], crown[3], crown[4]])
    d, o = rays / scale, (origin - crown[:3]) / scale
    a, b, c = (d * d).sum(axis=1), d @ o, o @ o - 1.0
    root = b**2 - a * c
    with np.errstate(invalid="ignore"):
        enter, leave = (-b - np.sqrt(root)) / a, (-b + np.sqrt(root)) / a
    met = (root > 0.0) & (leave > 0.0)
    out = np.full(len(rays), np.inf)
    stopped = np.maximum(enter[met], 0.0) + rng.exponential(FREE_PATH, int(met.sum()))
    out[met] = np.where(stopped < leave[met], stopped, np.inf)
    return out


def airborne_beams(count: int, reach: float, rng: Rng) -> Array:
    """(count, 3) beams from high above, nearly straight down: to be cast from `reach` * 10 metres up."""
    xy = rng.uniform(-reach, reach, (count, 2)) / (10.0 * reach)
    directions = np.column_stack([xy, -np.ones(count)])
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)
