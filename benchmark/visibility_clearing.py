"""Visibility clearing on a simulated drive with passers-by: ghosts that stay in the map, and ground that is lost.

python benchmark/visibility_clearing.py [--seed 1] [--kernel matern32]

Four maps of the same drive: with and without people and a vehicle around the robot, with and without clearing. Poses
have noise (1 cm, 0.1 deg), which the pipeline is told.

A ghost is a known cell that a user would call wrong because somebody was there: within 0.3 m of a point on a
passer-by, and higher than the map of the drive without passers-by by more than 0.1 m and two standard deviations of
the difference.
It was looked through where, since the passers-by are gone, three clouds had rays deeper than `clearing.tolerance` below
it as the map without clearing shows it. Ground is lost where a cell that is known without clearing is unknown with it,
or is off by more than 0.1 m from it, on the drive without passers-by.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from scipy.ndimage import binary_dilation

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpgmap_ros.arrays import Array, Mask
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.demo.lidar import SpinningLidar
from gpgmap_ros.demo.terrain import Terrain, rover_terrain
from gpgmap_ros.geometry import apply
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.cells import flat_cells
from gpgmap_ros.mapping.ray_evidence import COUNT, HEIGHT, SUMS, WEIGHT, follow_rays
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline

CLOUDS, RATE, SPEED = 160, 10.0, 1.0
SENSOR_HEIGHT = 1.2
POSITION_STD, ANGLE_STD = 0.01, np.radians(0.1)
OFF, NEAR = 0.1, 3
"""Metres that a height is off at least to be wrong, and cells around a point on a passer-by."""
MAX_RANGE = 15.0
LEAVES = 0.7
"""Share of the drive after which the passers-by are gone."""


def robot_at(terrain: Terrain, seconds: float) -> Array:
    """The sensor's pose on a gentle curve across the terrain."""
    T = np.eye(4)
    T[0, 3], T[1, 3] = 12.0 + SPEED * seconds, 20.0 + 2.0 * np.sin(0.3 * seconds)
    T[2, 3] = terrain.height_at(T[0, 3], T[1, 3]) + SENSOR_HEIGHT
    return T


def add_passers_by(terrain: Terrain, seconds: float, walks: Array) -> Terrain:
    """The terrain with people of 1.8 m, the last of them a vehicle, where they are at a time.

    walks: (P, 5) where each begins, its velocity, and after how many seconds it stands still for two
    """
    heights = terrain.heights.copy()
    if seconds > LEAVES * CLOUDS / RATE:
        return terrain
    for number, (x, y, v_x, v_y, pause) in enumerate(walks):
        walked = min(seconds, pause) + max(seconds - pause - 2.0, 0.0)
        at = np.array([x + v_x * walked, y + v_y * walked])
        half = np.array([2.0, 0.9]) if number == len(walks) - 1 else np.array([0.3, 0.3])
        low = np.clip(np.floor((at - half) / terrain.resolution).astype(int), 0, None)
        high = np.ceil((at + half) / terrain.resolution).astype(int)
        part = heights[low[1] : high[1], low[0] : high[0]]
        part += 1.6 if number == len(walks) - 1 else 1.8
    return Terrain(heights, terrain.resolution)


def record(terrain: Terrain, walks: Array | None, seed: int) -> tuple[list[tuple[Array, Array]], Array]:
    """Clouds with the poses that a noisy odometry states, and where (M, 2) points lie on passers-by."""
    rng, lidar, clouds = np.random.default_rng(seed), SpinningLidar(), []
    theirs = [np.empty((0, 2))]
    for k in range(CLOUDS):
        T = robot_at(terrain, k / RATE)
        scene = terrain if walks is None else add_passers_by(terrain, k / RATE, walks)
        points = lidar.scan(scene, T, rng)
        x, y, _ = apply(T, points).T
        raised = scene.height_at(x, y) > terrain.height_at(x, y)
        theirs.append(np.column_stack([x, y])[raised])
        w_x, w_y, w_z = rng.normal(0.0, ANGLE_STD, 3)
        stated = T.copy()
        stated[:3, :3] = np.array([[1.0, -w_z, w_y], [w_z, 1.0, -w_x], [-w_y, w_x, 1.0]])
        stated[:3, :3] = np.linalg.qr(stated[:3, :3])[0] * np.sign(np.diag(np.linalg.qr(stated[:3, :3])[1]))
        stated[:3, 3] += rng.normal(0.0, POSITION_STD, 3)
        clouds.append((points, stated))
    return clouds, np.concatenate(theirs)


def make_map(clouds: list[tuple[Array, Array]], clearing: bool, kernel: str) -> tuple[GPGMap, int, float]:
    """The map, how many cells were cleared, and the processor time per cloud in ms."""
    given = {"clearing.enabled": clearing, "mapping.rolling": False, "submap.enabled": False}
    size = {
        "mapping.size_x": 36.0,
        "mapping.size_y": 28.0,
        "mapping.kernel": kernel,
        "filter.max_range": MAX_RANGE,
    }
    pipeline = MappingPipeline(with_settings(Config(), given | size))
    covariance = np.diag([POSITION_STD**2] * 3 + [ANGLE_STD**2] * 3)
    cleared, begin = 0, time.process_time()
    for k, (points, T) in enumerate(clouds):
        stamp = 1_000_000_000 + round(k / RATE * 1e9)
        cleared += pipeline.add_cloud(points.astype(np.float32), T, stamp, covariance).cleared
    cpu = 1e3 * (time.process_time() - begin) / len(clouds)
    gpgmap = pipeline.gpgmap()
    assert gpgmap is not None
    return gpgmap, cleared, cpu


def ghosts(gpgmap: GPGMap, clean: GPGMap, theirs: Array) -> Mask:
    """(ny, nx) cells that are too high because somebody was there."""
    near = np.zeros(gpgmap.grid.shape, dtype=bool)
    index, inside = flat_cells(gpgmap.grid, theirs)
    near.ravel()[index[inside]] = True
    near = binary_dilation(near, np.ones((3, 3), dtype=bool), iterations=NEAR)
    above = gpgmap["elevation"] - clean["elevation"]
    return np.asarray(near & (above > OFF) & (above > 2.0 * np.sqrt(gpgmap["variance"] + clean["variance"])))


def looked_through(gpgmap: GPGMap, clouds: list[tuple[Array, Array]]) -> Array:
    """(ny, nx) clouds since the passers-by are gone that had rays below what the map shows."""
    grid, height = gpgmap.grid, gpgmap["elevation"].astype(np.float64)
    place, limits = (*grid.origin, grid.resolution), (Config().clearing.tolerance, 0.0, 0.0, 0.0)
    sums = np.zeros((SUMS, *grid.shape))
    sums[[COUNT, WEIGHT]], sums[HEIGHT] = gpgmap.known, np.nan_to_num(height)
    count = np.zeros(grid.shape, dtype=np.int64)
    for points, T in clouds[int(LEAVES * CLOUDS) + 1 :]:
        near = points[np.linalg.norm(points, axis=1) < MAX_RANGE]
        world, sensor = apply(T, near.astype(np.float64)), T[:3, 3].copy()
        # a cell further, for all of them that they pass
        beyond = grid.resolution / np.maximum(np.hypot(*(world - sensor)[:, :2].T), grid.resolution)
        world += (world - sensor) * beyond[:, None]
        below, beside = np.zeros(grid.shape, dtype=bool), np.zeros((2, *grid.shape))
        highest, top = np.zeros(grid.shape), float(np.nanmax(height))
        follow_rays(sensor, world, (1, 0), top, height, place, sums, limits, highest, below, beside)
        count += below
    return count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernel", default=Config().mapping.kernel)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    terrain = rover_terrain(rng)
    people = 8
    walks = np.column_stack(
        [
            rng.uniform(12.0, 32.0, people + 1),
            rng.uniform(13.0, 27.0, people + 1),
            rng.uniform(-1.2, 1.2, (people + 1, 2)),
            rng.uniform(1.0, 8.0, people + 1),
        ]
    )
    empty, _ = record(terrain, None, arguments.seed)
    crowded, theirs = record(terrain, walks, arguments.seed)
    clean, _, plain_cost = make_map(empty, False, arguments.kernel)
    kept, wrongly, cost = make_map(empty, True, arguments.kernel)
    before, _, _ = make_map(crowded, False, arguments.kernel)
    after, cleared, _ = make_map(crowded, True, arguments.kernel)
    off = np.abs(kept["elevation"] - clean["elevation"]) > OFF
    lost = (clean.known & ~kept.known) | (clean.known & kept.known & off)
    missing = before.known & ~after.known
    stood, left = ghosts(before, clean, theirs), ghosts(after, clean, theirs)
    seen = looked_through(before, crowded) >= Config().clearing.clouds
    still = looked_through(after, crowded) >= Config().clearing.clouds
    print(
        f"{people} people and a vehicle, {CLOUDS} clouds, {arguments.kernel}, seed {arguments.seed}\n"
        f"ghost cells without clearing {stood.sum()}, with {left.sum()}; cells cleared {cleared}\n"
        f"looked through by enough clouds since the passers-by are gone: {(stood & seen).sum()} without clearing, "
        f"with it {(left & (seen | still)).sum()} still show somebody\n"
        f"without passers-by: cells cleared {wrongly}, ground lost {int(lost.sum())} of {int(clean.known.sum())}\n"
        f"with passers-by: cells known without clearing and unknown with it {int(missing.sum())}\n"
        f"processor time per cloud {plain_cost:.0f} ms without clearing, {cost:.0f} ms with"
    )


if __name__ == "__main__":
    main()
