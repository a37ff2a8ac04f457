"""Pairs of submaps of real terrain with known relative pose, for the loop-closure benchmarks.

A submap is a disc of terrain, sampled by points in its own frame: any yaw, a height offset, an error in roll and
pitch. Two samples of one place never share a point. The terrains:

    blanca      airborne LiDAR, 1 m cells, 60 m discs; the two maps of a pair come from different flight lines
    gabilan     regular, self-similar ridges, 1 m cells, 120 m discs
    gabilan60   the same in 60 m discs
    davos       Alps, 10 m cells, 600 m discs
    jacksboro   SRTM, 80 m cells, 4.8 km discs
    hirise      Mars, 1 m cells, 44 m discs (the DEM is 120 m x 70 m)

DEMs are sampled at random positions with noise, behind shadows and holes. So is made ground that repeats itself
(closure_repeating.py), in 60 m discs: by name, or all of it as `repeating`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from closure_repeating import REPEATING
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates, spline_filter
from scipy.optimize import brentq
from scipy.spatial.transform import Rotation

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.geometry import apply, inverse
from gpgmap_ros.mapping import GPGMap, gpgmap_from_points

Array = NDArray[np.float64]
Rng = np.random.Generator

OVERLAPS = (1.0, 0.7, 0.5, 0.35)
HEIGHT_OFFSET = 2.0  # cells: z of each map's frame is off by up to this
TILT_STD = np.deg2rad(1.0) / np.sqrt(2.0)  # of roll and pitch of each map: 1 degree between two maps
SHADOWS, HOLES = 3, 4
SMOOTH = with_settings(
    Config(), {"mapping.kernel": "rbf", "mapping.learn_noise": False}
)  # as submaps are made
MIN_SEEN = 0.8  # part of the disc, in blocks of 4 x 4 cells, that must hold a point


def data_folder() -> Path | None:
    """`GPGMAP_DATA`, or shared/data beside the project; None where there is none."""
    folder = Path(os.environ.get("GPGMAP_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
    return folder if folder.is_dir() else None


@dataclass(frozen=True)
class Submap:
    """A map and what is true about it. T_map_world: rigid; centre: of the disc, in the world."""

    map: GPGMap
    T_map_world: Array
    centre: Array


@dataclass(frozen=True)
class Terrain:
    """A place to cut submaps from.

    radius: of a disc, metres; resolution: of the maps, metres; low, high: (2,) corners of the area of disc centres
    sample: (centre, radius, view, rng) -> points (N, 3) in the world; `view` is 0 or 1, the two maps of a pair
    """

    name: str
    radius: float
    resolution: float
    low: Array
    high: Array
    sample: Callable[[Array, float, int, Rng], Array]

    def submap(self, centre: Array, view: int, rng: Rng) -> Submap | None:
        """A map of the disc around `centre` in a frame of its own; None where there is too little ground."""
        points = self.sample(centre, self.radius, view, rng)
        blocks = np.unique(((points[:, :2] - centre) // (4.0 * self.resolution)).astype(int), axis=0)
        if len(blocks) * 16.0 < MIN_SEEN * np.pi * (self.radius / self.resolution) ** 2:
            return None
        T_map_world = self.random_frame(centre, rng)
        return Submap(map_as_submap(apply(T_map_world, points), self.resolution), T_map_world, centre)

    def random_frame(self, centre: Array, rng: Rng) -> Array:
        """A frame near the disc: origin at most a radius from its centre, any yaw, slightly tilted."""
        T_world_map = np.eye(4)
        tilt = Rotation.from_euler("xy", rng.normal(scale=TILT_STD, size=2))
        yaw = Rotation.from_euler("z", rng.uniform(-np.pi, np.pi))
        T_world_map[:3, :3] = (tilt * yaw).as_matrix()
        T_world_map[:2, 3] = centre + rng.uniform(-0.7, 0.7, 2) * self.radius
        T_world_map[2, 3] = (
            self.height(centre, rng) + rng.uniform(-1.0, 1.0) * HEIGHT_OFFSET * self.resolution
        )
        return inverse(T_world_map)

    def height(self, centre: Array, rng: Rng) -> float:
        points = self.sample(centre, self.radius / 4.0, 0, rng)
        return float(np.median(points[:, 2])) if len(points) else 0.0

    def random_centre(self, rng: Rng) -> Array:
        return rng.uniform(self.low, self.high)

    def positive(self, overlap: float, rng: Rng) -> tuple[Submap, Submap]:
        """Two maps of the same ground; `overlap`: shared area as a share of one disc."""
        distance = 2.0 * self.radius * centre_distance(overlap)
        while True:
            first = self.random_centre(rng)
            direction = rng.uniform(-np.pi, np.pi)
            second = first + distance * np.array([np.cos(direction), np.sin(direction)])
            if np.any(second < self.low) or np.any(second > self.high):
                continue
            source, target = self.submap(first, 0, rng), self.submap(second, 1, rng)
            if source is not None and target is not None:
                return source, target


def map_as_submap(points: Array, resolution: float) -> GPGMap:
    """A map of points (N, 3) with the kernel and the noise of submaps, at least five cells and the relief of the points
    wide."""
    mapping = replace(
        SMOOTH.mapping,
        length_scale=max(SMOOTH.mapping.length_scale, 5.0 * resolution),
        relief_std=max(SMOOTH.mapping.relief_std, float(np.std(points[:, 2]))),
    )
    return gpgmap_from_points(points, resolution, replace(SMOOTH, mapping=mapping))


def centre_distance(overlap: float) -> float:
    """Distance of two equal discs, in diameters, at which they share this part of their area."""
    if overlap >= 1.0:
        return 0.0

    def excess(s: float) -> float:
        return float(2.0 / np.pi * (np.arccos(s) - s * np.sqrt(1.0 - s * s))) - overlap

    return float(brentq(excess, 0.0, 1.0))


def true_pose(source: Submap, target: Submap) -> Array:
    """T_target_source."""
    return target.T_map_world @ inverse(source.T_map_world)


def pose_error(T: Array, source: Submap, target: Submap) -> tuple[float, float]:
    """How far the middle of the source lands from where it belongs (horizontally, in cells), and yaw (degrees)."""
    truth = true_pose(source, target)
    middle = middle_of(source.map)
    error = apply(T, middle[None])[0] - apply(truth, middle[None])[0]
    turn = T[:3, :3] @ truth[:3, :3].T
    yaw = np.arctan2(turn[1, 0] - turn[0, 1], turn[0, 0] + turn[1, 1])
    return float(np.hypot(error[0], error[1])) / source.map.grid.resolution, float(np.rad2deg(abs(yaw)))


def middle_of(m: GPGMap) -> Array:
    """The mean of the known surface, (3,)."""
    iy, ix = np.nonzero(m.known)
    return np.array([m.grid.x[ix].mean(), m.grid.y[iy].mean(), m["elevation"][iy, ix].mean()])


def terrains(
    folder: Path, names: tuple[str, ...] = (), noisier: float = 1.0, ground: int = 1
) -> list[Terrain]:
    """The terrains by name; all real ones unless told.

    noisier: factor on the noise of points drawn from DEMs; ground: seed of the ground that is made
    """
    small = np.load(folder / "dem_small_pack.npz")

    def dem(name: str, z: NDArray[np.floating], resolution: float, cells: int, noise: float) -> Terrain:
        return from_dem(name, z, resolution, cells, noise * noisier)

    makers: dict[str, Callable[[], Terrain]] = {
        "blanca": lambda: from_lines("blanca", folder / "als_blanca.npz", 30.0, 1.0),
        "gabilan": lambda: dem("gabilan", np.load(folder / "dem_gabilan_1m.npz")["z"], 1.0, 60, 0.05),
        "gabilan60": lambda: dem("gabilan60", np.load(folder / "dem_gabilan_1m.npz")["z"], 1.0, 30, 0.05),
        "davos": lambda: dem("davos", small["davos_z"], 10.0, 30, 0.3),
        "jacksboro": lambda: dem("jacksboro", squared(small), 80.0, 30, 1.5),
        "hirise": lambda: dem("hirise", small["hirise_z"], 1.0, 22, 0.03),
    }
    chosen = [part for name in names for part in (REPEATING if name == "repeating" else [name])]
    return [made(name, ground, noisier) if name in REPEATING else makers[name]() for name in chosen or makers]


def made(name: str, seed: int, noisier: float) -> Terrain:
    z = REPEATING[name](np.random.default_rng([seed, *name.encode()]))
    return from_dem(name, z, 1.0, 30, 0.05 * noisier)


def squared(pack: object) -> Array:
    """The SRTM heights, resampled from cells of 74 m x 93 m to square ones of 80 m."""
    z, (dx, dy) = np.asarray(pack["jacksboro_z"], float), pack["jacksboro_res_xy"]  # type: ignore[index]
    rows = np.arange(0.0, (z.shape[0] - 1) * dy, 80.0) / dy
    columns = np.arange(0.0, (z.shape[1] - 1) * dx, 80.0) / dx
    return map_coordinates(z, np.meshgrid(rows, columns, indexing="ij"), order=3)


def from_dem(name: str, z: NDArray[np.floating], resolution: float, cells: int, noise: float) -> Terrain:
    """z: (ny, nx) heights; cells: radius of a disc, in cells; noise: standard deviation of a height."""
    coefficients = spline_filter(np.asarray(z, float), order=3)
    size = (np.array(z.shape[::-1]) - 1.0) * resolution
    radius = cells * resolution

    def sample(centre: Array, within: float, view: int, rng: Rng) -> Array:
        density = rng.uniform(1.0, 3.0)  # points per cell
        count = int(density * np.pi * (within / resolution) ** 2)
        r, angle = within * np.sqrt(rng.uniform(size=count)), rng.uniform(-np.pi, np.pi, count)
        hidden = np.zeros(count, bool)
        for _ in range(SHADOWS):
            start, middle, width = (
                within * rng.uniform(0.2, 0.8),
                rng.uniform(-np.pi, np.pi),
                rng.uniform(0.05, 0.25),
            )
            hidden |= (r > start) & (np.abs((angle - middle + np.pi) % (2 * np.pi) - np.pi) < width)
        xy = np.stack([r * np.cos(angle), r * np.sin(angle)], axis=1)
        for _ in range(HOLES):
            hole = rng.uniform(-0.7, 0.7, 2) * within
            hidden |= np.hypot(*(xy - hole).T) < rng.uniform(0.04, 0.12) * within
        xy = xy[~hidden] + centre
        height = map_coordinates(
            coefficients, xy[:, ::-1].T / resolution, order=3, prefilter=False, mode="nearest"
        )
        return np.column_stack([xy, height + rng.normal(scale=noise, size=len(xy))])

    return Terrain(name, radius, resolution, np.full(2, radius), size - radius, sample)


def from_lines(name: str, path: Path, radius: float, resolution: float) -> Terrain:
    """Discs of a point cloud; view 0 sees flight line 1, view 1 line 2 where there is one, else line 0."""
    data = np.load(path)
    xyz, line = np.asarray(data["xyz"], float), data["line"]
    views = [xyz[line == 1], xyz[line == 2], xyz[line == 0]]

    def inside(points: Array, centre: Array, within: float) -> Array:
        return points[np.hypot(points[:, 0] - centre[0], points[:, 1] - centre[1]) < within]

    def sample(centre: Array, within: float, view: int, rng: Rng) -> Array:
        found = [inside(points, centre, within) for points in views]
        return found[0] if view == 0 else max(found[1:], key=len)

    return Terrain(name, radius, resolution, xyz[:, :2].min(0) + radius, xyz[:, :2].max(0) - radius, sample)
