"""Ground in unclassified clouds: what `gpgmap map --ground` and the cloth simulation filter leave out and let in.

python benchmark/ground_filter.py [--seed 1]

Real ground with made objects (ground_scene.py): als_blanca, whole and one point in six, and the Gabilan DEM sampled at
3.3 points per square metre; and lone_star, its lowest surface taken as ground, with bushes added (forest.py). The cloth
is that of `pip install cloth-simulation-filter`, with the rigidity for relief (1) and for flat ground (3); its
resolution is the edge of our cells. Ground lost and objects kept in per cent, seconds of a processor.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from closure_terrain import data_folder
from forest import bushy_mound
from ground_scene import KINDS, Array, Mask, Objects, Scene, make_scene
from scipy.ndimage import map_coordinates

from gpgmap_ros.apps.survey_ground import TOLERANCE, TOLERANCE_CELLS
from gpgmap_ros.mapping.survey_ground import GroundCells, filter_edge, ground_surface, is_ground

WIDTH = 20.0


def scenes(data: Path, seed: int) -> Iterator[tuple[str, Scene, float]]:
    """Name, points, and width of the widest object."""
    rng = np.random.default_rng(seed)
    with np.load(data / "als_blanca.npz") as file:
        blanca = file["xyz"].astype(np.float64)
    yield "als_blanca", make_scene(blanca, Objects(), rng), WIDTH
    yield "als_blanca, 1 in 6", make_scene(blanca[::6], Objects(), rng), WIDTH
    with np.load(data / "dem_gabilan_1m.npz") as file:
        heights = file["z"].astype(np.float64)
    xy = rng.uniform(100.0, 400.0, (300_000, 2))
    z = map_coordinates(heights, [xy[:, 1], xy[:, 0]], order=1) + rng.normal(0.0, 0.03, len(xy))
    yield "gabilan", make_scene(np.column_stack([xy, z]), Objects(), rng), WIDTH
    xyz, ground = bushy_mound(data / "lone_star.npz", rng)
    yield "lone_star", Scene(xyz, np.where(ground, 0, KINDS.index("bush"))), WIDTH / 5.0


def density(xyz: Array) -> float:
    return float(len(xyz) / np.prod(np.ptp(xyz[:, :2], axis=0)))


def own(xyz: Array, edge: float, width: float) -> Mask:
    """What the command does with one square."""
    low = xyz[:, :2].min(axis=0)
    columns, rows = np.floor(np.ptp(xyz[:, :2], axis=0) / edge).astype(int) + 1
    cells = GroundCells((float(low[0]), float(low[1])), (int(rows), int(columns)), edge)
    xy, z = np.ascontiguousarray(xyz[:, :2]), np.ascontiguousarray(xyz[:, 2])
    tolerance, lowest = min(TOLERANCE, TOLERANCE_CELLS * edge), cells.lowest()
    cells.add(lowest, xy, z, tolerance)
    return is_ground(xy, z, ground_surface(lowest, edge, tolerance, width), cells, tolerance)


def cloth(xyz: Array, edge: float, rigidness: int) -> Mask:
    import CSF

    filter_ = CSF.CSF()
    filter_.params.bSloopSmooth = True
    filter_.params.cloth_resolution, filter_.params.rigidness = edge, rigidness
    filter_.params.class_threshold = min(0.5, edge)
    filter_.setPointCloud(np.ascontiguousarray(xyz - xyz.mean(axis=0)))
    ground, rest = CSF.VecInt(), CSF.VecInt()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)  # it prints
    os.dup2(nowhere, 1)
    try:
        filter_.do_filtering(ground, rest, False)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
    out = np.zeros(len(xyz), dtype=bool)
    out[np.array(ground, dtype=int)] = True
    return out


def show(name: str, scene: Scene, find: Callable[[Array], Mask]) -> None:
    begin = time.process_time()
    found = find(scene.xyz)
    seconds = time.process_time() - begin
    ground = scene.is_ground
    kinds = "  ".join(
        f"{kind} {100.0 * found[scene.kind == n].mean():.1f}"
        for n, kind in enumerate(KINDS)
        if n and (scene.kind == n).any()
    )
    print(f"  {name:16s} ground lost {100.0 * (1.0 - found[ground].mean()):5.1f}   objects kept"
          f" {100.0 * found[~ground].mean():5.2f} ({kinds})   {seconds:6.2f} s", flush=True)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    data = data_folder()
    if data is None:
        print("skipped: no data folder; set GPGMAP_DATA")
        return 0
    for name, scene, width in scenes(data, arguments.seed):
        edge = filter_edge(0.0, density(scene.xyz))
        print(f"{name}: {len(scene.xyz):,} points, cells of {edge:.2f} m")
        own(scene.xyz[:1000], edge, width)  # compiled before it is timed
        show("gpgmap --ground", scene, lambda xyz: own(xyz, edge, width))  # noqa: B023
        try:
            for rigidness in (1, 3):
                show(f"cloth, rigid {rigidness}", scene, lambda xyz: cloth(xyz, edge, rigidness))  # noqa: B023
        except ImportError:
            print("  cloth left out: pip install cloth-simulation-filter")
    return 0


if __name__ == "__main__":
    sys.exit(main())
