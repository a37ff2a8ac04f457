"""Are slopes as certain as the map says? On elevation models, and on the demo's terrain seen from its rover.

python benchmark/slope_calibration.py [NAME ...] [--picture FILE]      prints the table of docs/benchmarks.md
python benchmark/slope_calibration.py --simulated [--seed 1]           the same on simulated ground, cells of 0.1 m

Elevation models: windows of 100 x 100 cells, two points to a cell at random places, noise 0.02 m as stated by default,
mapped by `ElevationMap` as `gpgmap_from_points` does. The true slope is the difference of the heights across a cell.
Demo: its terrain, LiDAR and route, with true poses, through the pipeline that the node uses. Cells with points count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
from grid_data import data_folder
from scipy.ndimage import map_coordinates
from simulated_ground import CELLS as SIMULATED_CELLS
from simulated_ground import SAMPLES, grounds

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.demo.drive import drive, sensor_mount, start_pose
from gpgmap_ros.demo.scene import DURATION, LIDAR, RATE, ROUTE, SEED, TERRAIN_SIZE
from gpgmap_ros.demo.terrain import rover_terrain
from gpgmap_ros.geometry import apply
from gpgmap_ros.mapping.cells import flat_cells
from gpgmap_ros.mapping.elevation_map import map_around
from gpgmap_ros.mapping.gpgmap import GPGMap
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline

CELLS, PER_CELL, MARGIN = 100, 2.0, 3
SIMULATED_EDGE = 0.1
Heights = Callable[[np.ndarray], np.ndarray]


def models() -> Iterator[tuple[str, np.ndarray, float]]:
    """Name, heights and edge of the cells of the elevation models of the data folder."""
    folder = data_folder()
    if folder is None:
        return
    with np.load(folder / "dem_gabilan_1m.npz") as file:
        yield "gabilan, 1 m", file["z"][300:400, 300:400].astype(float), 1.0
    with np.load(folder / "dem_small_pack.npz") as file:
        yield "hirise (Mars), 1 m", file["hirise_z"].astype(float)[:CELLS, :CELLS], 1.01
        yield "davos, 10 m", file["davos_z"].astype(float)[200:300, 200:300], 10.0
        yield "jacksboro, 80 m", file["jacksboro_z"].astype(float)[100:200, 100:200], 80.0


def score(gpgmap: GPGMap, height: Heights, seen: np.ndarray) -> str:
    """RMSE of heights and slopes, and how they compare with what the map states, over the cells `seen` (ny, nx)."""
    half = 0.5 * gpgmap.grid.resolution
    at = gpgmap.grid.centers.reshape(-1, 2)[seen.ravel()]
    error = gpgmap["elevation"][seen] - height(at)
    std = np.sqrt(gpgmap["variance"][seen])
    out = [f"{rms(error):.4f}", f"{100.0 * np.mean(np.abs(error) <= 2.0 * std):.1f}"]
    slopes, scores = [], []
    for name, step in (("gradient_x", [half, 0.0]), ("gradient_y", [0.0, half])):
        true = (height(at + step) - height(at - step)) / (2.0 * half)
        slopes.append(gpgmap[name][seen] - true)
        scores.append(slopes[-1] ** 2 / gpgmap[f"{name}_variance"][seen])
    normalised = np.concatenate(scores)
    out += [
        f"{rms(np.concatenate(slopes)):.4f}",
        f"{normalised.mean():.2f}",
        f"{100 * (normalised <= 4.0).mean():.1f}",
    ]
    return " | ".join(out)


def rms(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(error**2)))


def map_model(z: np.ndarray, edge: float) -> str:
    """The figures of one elevation model."""
    rng = np.random.default_rng(0)
    rows, columns = z.shape

    def height(xy: np.ndarray) -> np.ndarray:
        return map_coordinates(z, [xy[:, 1] / edge, xy[:, 0] / edge], order=1, mode="nearest")

    count = int(PER_CELL * rows * columns)
    xy = rng.uniform(0.0, 1.0, (count, 2)) * [(columns - 1) * edge, (rows - 1) * edge]
    return map_points(xy, height, Config().noise.height_std, edge, rng)


def map_simulated(heights: np.ndarray, per_cell: float, noise: float, rng: np.random.Generator) -> str:
    """The figures of simulated ground. noise: standard deviation in cells; 0.02 m is stated"""
    fine = SIMULATED_EDGE / SAMPLES

    def height(xy: np.ndarray) -> np.ndarray:
        return SIMULATED_EDGE * map_coordinates(
            heights, [xy[:, 1] / fine, xy[:, 0] / fine], order=1, mode="nearest"
        )

    xy = rng.uniform(0.0, SIMULATED_CELLS * SIMULATED_EDGE, (int(per_cell * SIMULATED_CELLS**2), 2))
    return map_points(xy, height, noise * SIMULATED_EDGE, SIMULATED_EDGE, rng)


def map_points(xy: np.ndarray, height: Heights, noise: float, edge: float, rng: np.random.Generator) -> str:
    """The figures of a map of points at xy (N, 2) with noise."""
    count = len(xy)
    points = np.column_stack([xy, height(xy) + noise * rng.standard_normal(count)])
    made = map_around(points, edge)
    made.add(points, np.full(count, Config().noise.height_std ** 2))
    gpgmap = made.gpgmap()
    seen = gpgmap.known & np.isfinite(gpgmap["elevation"])
    seen[:MARGIN] = seen[-MARGIN - 1 :] = False
    seen[:, :MARGIN] = seen[:, -MARGIN - 1 :] = False
    return score(gpgmap, height, seen)


def map_demo(picture: str | None) -> str:
    """The figures of the map around the demo's rover at the end of its drive."""
    config = with_settings(Config(), {"map_frame": "odom", "filter.max_range": 9.0, "submap.enabled": False})
    terrain = rover_terrain(np.random.default_rng(SEED), TERRAIN_SIZE)
    pipeline, counts, mount = MappingPipeline(config), None, sensor_mount()
    T_world_odom = start_pose(terrain, ROUTE.radius)
    clouds: list[np.ndarray] = []
    for frame in drive(terrain, np.random.default_rng(SEED + 1), DURATION, RATE, ROUTE, LIDAR):
        if frame.time > 40.0:
            break
        T = frame.T_odom_base @ mount
        pipeline.add_cloud(frame.points, T, 1 + round(frame.time * 1e9), None, mount)
        clouds.append(apply(T, frame.points.astype(np.float64))[:, :2])
    gpgmap = pipeline.gpgmap()
    assert gpgmap is not None
    index, inside = flat_cells(gpgmap.grid, np.concatenate(clouds))
    counts = np.bincount(index[inside], minlength=gpgmap.known.size).reshape(gpgmap.known.shape)

    def height(xy: np.ndarray) -> np.ndarray:
        world = apply(T_world_odom, np.column_stack([xy, np.zeros(len(xy))]))
        return terrain.height_at(world[:, 0], world[:, 1]) - T_world_odom[2, 3]

    if picture:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        pyplot.imsave(picture, np.nan_to_num(gpgmap["gradient_magnitude"])[::-1], vmin=0.0, vmax=1.0)
    return score(gpgmap, height, (counts > 0) & gpgmap.known)


def print_simulated(seed: int) -> None:
    for per_cell in (0.5, 2.0, 10.0):
        for noise in (0.005, 0.02, 0.2):
            rng = np.random.default_rng(seed)
            for name, heights in grounds(rng):
                found = map_simulated(heights, per_cell, noise, rng)
                print(f"| {name}; {per_cell:g} per cell, noise {noise} cells | {found} |", flush=True)


def main() -> None:
    arguments = sys.argv[1:]
    seed = 1
    if "--seed" in arguments:
        at = arguments.index("--seed")
        seed = int(arguments[at + 1])
        del arguments[at : at + 2]
    picture = None
    if "--picture" in arguments:
        at = arguments.index("--picture")
        picture = arguments[at + 1]
        del arguments[at : at + 2]
    print(
        "| ground | RMSE, m | within 2 sd, % | slope RMSE | normalised squared slope error | slopes within 2 sd, % |"
    )
    print("|---|---|---|---|---|---|")
    if "--simulated" in arguments:
        print_simulated(seed)
        return
    if not arguments or "demo" in arguments:
        print(f"| demo | {map_demo(picture)} |", flush=True)
    for name, z, edge in models():
        if not arguments or name.split(",")[0] in arguments:
            print(f"| {name} | {map_model(z, edge)} |", flush=True)


if __name__ == "__main__":
    main()
