"""Ground under trees: which returns `lowest_surface` keeps, and what closures come of it.

python benchmark/forest.py [--seed 1] [--cells 0.1 0.3 1 2 4] [--pairs 0] [--terrain gabilan]

Clouds of a 32-beam LiDAR in a made forest (forest_scene.py), and lone_star with bushes added to it. For each edge of
the cells, the share of ground returns kept and the share of the rest let in. `--pairs N`: also N pairs of submaps of a
place at each overlap (100, 70, 50, 35 %) and as many of different places, mapped through the filter, registered:
closures accepted, and wrong ones among them (beyond 1.5 cells or 2 deg).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from closure_terrain import centre_distance, data_folder
from drive_simulation import LIDAR, RELIEFS, make_ground
from forest_scene import Array, Forest, Rng, plant, scan
from scipy.spatial.transform import Rotation

from gpgmap_ros.closure import register
from gpgmap_ros.config import Config, FilterConfig, with_settings
from gpgmap_ros.demo.terrain import Terrain
from gpgmap_ros.geometry import apply, inverse
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.filters import lowest_surface, select_ground
from gpgmap_ros.mapping.noise import height_variance
from gpgmap_ros.mapping.submaps import SubmapBuilder

MAST = 1.8
KINDS = {"open": (0.005, 0.01), "forest": (0.04, 0.02), "dense": (0.1, 0.05)}
"""Trees and bushes per square metre."""
TREES_AROUND = 45.0
OVERLAPS = (1.0, 0.7, 0.5, 0.35)
WAY, STEP = 25.0, 2.5
"""Metres driven in a submap, and between its clouds."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cells", type=float, nargs="+", default=[0.1, 0.3, 1.0, 2.0, 4.0])
    parser.add_argument("--terrain", choices=list(RELIEFS), default="gabilan")
    parser.add_argument("--clouds", type=int, default=8, help="of each forest")
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--filter", choices=["lowest", "none"], default="lowest", help="of the pairs")
    args = parser.parse_args()
    data = data_folder()
    if data is None:
        print("skipped: no data folder; set GPGMAP_DATA")
        return 0
    rng = np.random.default_rng(args.seed)
    ground = make_ground(args.terrain, data, rng)
    if args.pairs:
        for cell in args.cells:
            closures(ground, cell, args.pairs, args.filter == "lowest", np.random.default_rng(args.seed))
        return 0
    print("share of ground returns kept / of the rest let in, in per cent, by edge of the cells (m)")
    print(f"{'':12s}{'ground':>8s}" + "".join(f"{cell:>14g}" for cell in args.cells))
    for name, (trees, bushes) in KINDS.items():
        clouds = [view(ground, trees, bushes, rng) for _ in range(args.clouds)]
        show(name, clouds, args.cells)
    show("lone_star", [bushy_mound(data / "lone_star.npz", rng)], args.cells)
    return 0


def show(name: str, clouds: list[tuple[Array, np.ndarray]], cells: list[float]) -> None:
    share = np.mean(np.concatenate([is_ground for _, is_ground in clouds]))
    row = f"{name:12s}{100.0 * share:7.0f}%"
    for cell in cells:
        config = FilterConfig(lowest_surface=True, lowest_cell=cell)
        kept = np.concatenate([lowest_surface(xyz, config) for xyz, _ in clouds])
        is_ground = np.concatenate([is_ground for _, is_ground in clouds])
        row += f"{100.0 * kept[is_ground].mean():8.1f} /{100.0 * kept[~is_ground].mean():5.1f}"
    print(row)


def level_pose(ground: Terrain, x: float, y: float, heading: float) -> Array:
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("z", heading).as_matrix()
    T[:3, 3] = x, y, float(ground.height_at(x, y))
    return T


def mount() -> Array:
    T = np.eye(4)
    T[2, 3] = MAST
    return T


def view(ground: Terrain, trees: float, bushes: float, rng: Rng) -> tuple[Array, np.ndarray]:
    """Points (N, 3) in the world of one cloud within the filter's range, and which are ground."""
    centre = rng.uniform(0.2, 0.8, 2) * np.array(ground.size)
    forest = plant(ground, centre, TREES_AROUND, trees, bushes, rng)
    T = level_pose(ground, *centre, rng.uniform(-np.pi, np.pi)) @ mount()
    points, is_ground = scan(forest, T, LIDAR.directions(), 30.0, LIDAR.noise, rng)
    return apply(T, points), is_ground


def bushy_mound(path: Path, rng: Rng) -> tuple[Array, np.ndarray]:
    """lone_star, its own lowest surface taken as ground, with leaves and stems added above it."""
    xyz = np.asarray(np.load(path)["xyz"], float)
    xyz = xyz[lowest_surface(xyz, FilterConfig(lowest_surface=True, lowest_cell=0.1, lowest_tolerance=0.1))]
    added = []
    for n in rng.choice(len(xyz), 150, replace=False):
        radius, bottom = rng.uniform(0.3, 1.5), rng.uniform(0.0, 2.0)
        leaves = rng.normal(size=(1500, 3))
        leaves *= radius * rng.uniform(0.6, 1.0, (1500, 1)) / np.linalg.norm(leaves, axis=1, keepdims=True)
        stem = np.column_stack([rng.normal(0.0, 0.03, (60, 2)), rng.uniform(0.3, bottom + 0.5, 60)])
        added += [xyz[n] + leaves + [0.0, 0.0, bottom + radius + 0.3], xyz[n] + stem]
    above = np.concatenate(added)
    return np.vstack([xyz, above]), np.arange(len(xyz) + len(above)) < len(xyz)


def drive(forest: Forest, start: Array, heading: float, config: Config, rng: Rng) -> tuple[GPGMap, Array]:
    """The map of a submap driven straight ahead, and where its frame is in the world."""
    builder, T_world_submap = None, np.eye(4)
    for k, way in enumerate(np.arange(-0.5 * WAY, 0.5 * WAY, STEP)):
        x, y = start + way * np.array([np.cos(heading), np.sin(heading)])
        T = level_pose(forest.ground, x, y, heading)
        if builder is None:
            builder, T_world_submap = SubmapBuilder(config, T, 1, 1), T
        points, _ = scan(forest, T @ mount(), LIDAR.directions(), 30.0, LIDAR.noise, rng)
        kept = select_ground(points, T @ mount(), mount(), config.filter)
        variance = height_variance(kept.xyz - (T @ mount())[:3, 3], None, config.noise)
        builder.add(kept.xyz, variance, T, k + 1)
    assert builder is not None
    submap = builder.finish(0, "distance")
    assert submap is not None
    return submap.gpgmap, T_world_submap


def closures(ground: Terrain, cell: float, pairs: int, filtered: bool, rng: Rng) -> None:
    """Accepted and wrong closures between submaps of forest."""
    config = with_settings(
        Config(), {"filter.lowest_surface": filtered, "filter.lowest_cell": cell, "filter.max_height": 30.0}
    )
    size = np.array(ground.size)
    trees, bushes = KINDS["forest"]
    right, wrong, reasons = [], 0, []
    for overlap in (*OVERLAPS, 0.0):
        good = 0
        for _ in range(pairs):
            first = rng.uniform(0.25, 0.75, 2) * size
            angle = rng.uniform(-np.pi, np.pi)
            apart = 60.0 * centre_distance(overlap) if overlap else 120.0
            second = first + apart * np.array([np.cos(angle), np.sin(angle)])
            forest = plant(ground, 0.5 * (first + second), TREES_AROUND + 0.5 * apart, trees, bushes, rng)
            (source, T_s), (target, T_t) = (
                drive(forest, at, rng.uniform(-np.pi, np.pi), config, rng) for at in (first, second)
            )
            found = register(source, target)
            error = inverse(inverse(T_t) @ T_s) @ found.T_target_source if found.accepted else np.eye(4)
            turn = np.degrees(Rotation.from_matrix(error[:3, :3]).magnitude())
            shift = float(np.hypot(*error[:2, 3])) / source.grid.resolution
            is_right = found.accepted and overlap > 0.0 and shift < 1.5 and turn < 2.0
            good += is_right
            if found.accepted and not is_right:
                wrong += 1
                print(f"  WRONG at {overlap:.0%}: {shift:.2f} cells, {turn:.2f} deg, {found.probability:.3f}")
            if not found.accepted:
                reasons.append(found.reason[:50])
        right.append(good)
    print(f"cells of {cell:g} m: accepted and right {right[:-1]} of {pairs} each, wrong {wrong}")
    for reason in sorted(set(reasons)):
        print(f"  {reasons.count(reason):3d} refused: {reason}")


if __name__ == "__main__":
    sys.exit(main())
