"""Does GICP on the surfaces' points improve a closure that our own fit has found? Pairs of real terrain, known poses.

python benchmark/closure_gicp.py                 four pairs per overlap of each terrain
python benchmark/closure_gicp.py --pairs 8 --terrains hirise davos

Each pair is registered by gpgmap_ros; accepted poses that are right (within 1.5 cells and 2 degrees) are refined by
Open3D's generalized ICP, and by small_gicp where it is installed. Errors are at the middle of the source: position in
cells, rotation in degrees over all three axes. Times are of one processor, per pair.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from closure_peers import points_of
from closure_terrain import OVERLAPS, Submap, data_folder, middle_of, pose_error, terrains, true_pose
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gpgmap_ros.closure import (
    ClosureConfig,
    PointRegistrationMissing,
    Registration,
    refine_se3,
    register,
)
from gpgmap_ros.geometry import apply, inverse
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.open3d_import import import_open3d

Array = NDArray[np.float64]
Refine = Callable[[Registration, GPGMap, GPGMap], Array]
RIGHT_CELLS, RIGHT_YAW = 1.5, 2.0
REACH = 2.0
"""Cells: points farther apart do not correspond; as in closure/se3.py."""


@dataclass(frozen=True)
class Row:
    """One method on one pair. position: cells; rotation: degrees; seconds: of CPU"""

    terrain: str
    method: str
    position: float
    rotation: float
    seconds: float


def ours(found: Registration, source: GPGMap, target: GPGMap) -> Array:
    return found.T_target_source


def open3d_gicp(found: Registration, source: GPGMap, target: GPGMap) -> Array:
    """Open3D's generalized ICP from our pose, on the observed cells."""
    open3d = import_open3d()
    registration = open3d.pipelines.registration
    middle = middle_of(target)
    shift = np.eye(4)
    shift[:3, 3] = -middle
    clouds = []
    for points in (points_of(source), points_of(target) - middle):
        cloud = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(points))
        cloud.estimate_covariances(open3d.geometry.KDTreeSearchParamKNN(12))
        clouds.append(cloud)
    result = registration.registration_generalized_icp(
        clouds[0],
        clouds[1],
        REACH * target.grid.resolution,
        shift @ found.T_target_source,
        registration.TransformationEstimationForGeneralizedICP(),
        registration.ICPConvergenceCriteria(max_iteration=50),
    )
    return np.asarray(inverse(shift) @ result.transformation)


def small_gicp(found: Registration, source: GPGMap, target: GPGMap) -> Array:
    return refine_se3(found, source, target, "gicp", ClosureConfig(threads=1)).T_target_source


def methods() -> dict[str, Refine]:
    found: dict[str, Refine] = {"gpgmap_ros": ours, "+ Open3D GICP": open3d_gicp}
    try:
        from gpgmap_ros.closure.registration.se3 import load_small_gicp

        load_small_gicp()
        found["+ small_gicp"] = small_gicp
    except PointRegistrationMissing as error:
        print(f"without small_gicp: {error}")
    return found


def errors(T: Array, source: Submap, target: Submap) -> tuple[float, float]:
    """Cells at the middle of the source, in space; degrees over all axes."""
    true = true_pose(source, target)
    middle = middle_of(source.map)[None]
    position = float(np.linalg.norm(apply(T, middle) - apply(true, middle)))
    turn = Rotation.from_matrix(T[:3, :3].T @ true[:3, :3]).magnitude()
    return position / target.map.grid.resolution, float(np.degrees(turn))


def measure(folder: Path, names: tuple[str, ...], pairs: int, seed: int) -> list[Row]:
    rows: list[Row] = []
    refinements = methods()
    for terrain in terrains(folder, names):
        rng = np.random.default_rng([seed, len(terrain.name)])
        for overlap in OVERLAPS:
            for _ in range(pairs):
                source, target = terrain.positive(overlap, rng)
                begin = time.process_time()
                found = register(source.map, target.map, ClosureConfig(threads=1))
                spent = time.process_time() - begin
                cells, yaw = pose_error(found.T_target_source, source, target)
                if not found.accepted or cells > RIGHT_CELLS or yaw > RIGHT_YAW:
                    continue
                for name, refine in refinements.items():
                    begin = time.process_time()
                    T = refine(found, source.map, target.map)
                    own = time.process_time() - begin
                    rows.append(
                        Row(terrain.name, name, *errors(T, source, target), spent if refine is ours else own)
                    )
        print(f"{terrain.name}: {len([row for row in rows if row.terrain == terrain.name])} rows", flush=True)
    return rows


def table(rows: list[Row]) -> str:
    """Median and 90th percentile of the errors per terrain and method, and the time that each method adds."""
    lines = [
        "| terrain | method | pairs | position, median (cells) | p90 | rotation, median (deg) | p90 | CPU (s) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    names = [*dict.fromkeys(row.terrain for row in rows), "all"]
    for terrain in names:
        for method in dict.fromkeys(row.method for row in rows):
            own = [row for row in rows if row.method == method and terrain in (row.terrain, "all")]
            position, rotation, seconds = (
                np.array([getattr(row, name) for row in own]) for name in ("position", "rotation", "seconds")
            )
            lines.append(
                f"| {terrain} | {method} | {len(own)} | {np.median(position):.3f} | {np.percentile(position, 90):.3f}"
                f" | {np.median(rotation):.3f} | {np.percentile(rotation, 90):.3f} | {np.median(seconds):.2f} |"
            )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=4, help="per overlap and terrain (default: 4)")
    parser.add_argument("--terrains", nargs="*", default=[], help="only these")
    parser.add_argument("--seed", type=int, default=11)
    arguments = parser.parse_args()
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder")
        return 0
    print(table(measure(folder, tuple(arguments.terrains), arguments.pairs, arguments.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
