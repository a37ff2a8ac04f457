"""What a map says of points that it has not seen: error, coverage of its intervals, density.

python benchmark/map_calibration.py [SET ...]       prints the table of docs/benchmarks.md

A fifth of the points is held out. Maps are made as `gpgmap_from_points` makes them: length scale and relief follow the
cells and the data, the noise is the default. The rows differ in `mapping.kernel` and `mapping.learn_noise` alone.
Linear interpolation (Delaunay) and cell means state no uncertainty; points outside their hull or cells are not scored.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from grid_data import data_folder
from scipy import stats
from scipy.interpolate import LinearNDInterpolator

from gpgmap_ros.config import Config, FilterConfig
from gpgmap_ros.mapping.elevation_map import ElevationMap, map_around
from gpgmap_ros.mapping.filters import lowest_surface

LEVELS = (0.68, 0.95, 0.997)
MODELS = {
    "default (rbf)": {},
    "matern32": {"kernel": "matern32"},
    "matern32, learn_noise": {"kernel": "matern32", "learn_noise": True},
}
TESTS = 20_000
"""Held-out points that are scored, at most."""


def thin(xyz: np.ndarray, resolution: float, per_cell: float) -> np.ndarray:
    """Some of the points, so many to a cell that has points."""
    cells = len(np.unique(np.floor(xyz[:, :2] / resolution), axis=0))
    count = min(len(xyz), int(per_cell * cells))
    return xyz[np.random.default_rng(1).choice(len(xyz), count, replace=False)]


def read_norlab(folder: Path) -> np.ndarray:
    """Points of 14 scans from one place within 8 m, in a gravity-aligned frame, the lowest surface only."""
    with np.load(folder / "norlab_static14.npz") as file:
        number = np.repeat(np.arange(len(file["n"])), file["n"])
        T = file["T_map_base"][number]
        xyz = np.einsum("nij,nj->ni", T[:, :3, :3], file["points"]) + T[:, :3, 3]
    near = (np.abs(xyz[:, :2] - np.median(xyz[:, :2], axis=0)) < 8.0).all(axis=1)
    return lowest(xyz[near])


def lowest(xyz: np.ndarray) -> np.ndarray:
    xyz = np.ascontiguousarray(xyz, dtype=np.float64)
    return xyz[lowest_surface(xyz, FilterConfig())]


def read_xyz(path: Path) -> np.ndarray:
    with np.load(path) as file:
        return file["xyz"].astype(np.float64)


SETS: dict[str, tuple[float, Callable[[Path], np.ndarray]]] = {
    "als_blanca": (1.0, lambda folder: read_xyz(folder / "als_blanca.npz")),
    "als_blanca, 0.3 per cell": (1.0, lambda folder: thin(read_xyz(folder / "als_blanca.npz"), 1.0, 0.375)),
    "norlab": (0.1, read_norlab),
    "lone_star": (0.2, lambda folder: lowest(read_xyz(folder / "lone_star.npz"))),
    "gravel": (0.05, lambda folder: read_xyz(folder / "gravel_otira_1cm.npz")),
}
"""Edge of a cell, and the points. A fifth of 0.375 points per cell is held out."""


def score_maps(train: np.ndarray, test: np.ndarray, resolution: float) -> Iterator[tuple[str, str]]:
    """Name and figures of each map."""
    start = map_around(train, resolution).config
    for name, changes in MODELS.items():
        config = dataclasses.replace(start, **changes)
        begin = time.process_time()
        made = ElevationMap(config, 0.5 * (train[:, :2].min(axis=0) + train[:, :2].max(axis=0)))
        made.add(train, np.full(len(train), Config().noise.height_std ** 2))
        made.posterior()
        seconds = time.process_time() - begin
        mean, scale, degrees = made.measured_heights(test[:, :2])
        error = test[:, 2] - mean
        inside = [np.abs(error) <= scale * stats.t.ppf(0.5 + level / 2.0, degrees) for level in LEVELS]
        cover = " / ".join(f"{100.0 * share.mean():.1f}" for share in inside)
        density = float((stats.t.logpdf(error / scale, degrees) - np.log(scale)).mean())
        yield name, f"{rms(error):.4f} | {cover} | {density:.2f} | {seconds:.1f}"


def score_baselines(train: np.ndarray, test: np.ndarray, resolution: float) -> Iterator[tuple[str, str]]:
    linear = LinearNDInterpolator(train[:, :2], train[:, 2])(test[:, :2])
    yield "linear (Delaunay)", f"{rms(test[:, 2] - linear):.4f} | - | - | -"
    low = np.floor(train[:, :2].min(axis=0) / resolution)
    cell, at = ((np.floor(xyz[:, :2] / resolution) - low).astype(int) for xyz in (train, test))
    size = np.maximum(cell.max(axis=0), at.max(axis=0)) + 1
    inside = (at >= 0).all(axis=1)
    flat, flat_at = cell[:, 0] * size[1] + cell[:, 1], at[inside, 0] * size[1] + at[inside, 1]
    count = np.bincount(flat, minlength=size.prod())
    total = np.bincount(flat, train[:, 2], minlength=size.prod())
    some = count[flat_at] > 0
    mean = total[flat_at[some]] / count[flat_at[some]]
    share = 100.0 * some.sum() / len(test)
    yield f"cell mean ({share:.0f} % of the points)", f"{rms(test[inside, 2][some] - mean):.4f} | - | - | -"


def rms(error: np.ndarray) -> float:
    error = error[np.isfinite(error)]
    return float(np.sqrt(np.mean(error**2)))


def main() -> None:
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder")
        return
    print("| set | map | RMSE, m | coverage at 68 / 95 / 99.7 % | log density | processor, s |")
    print("|---|---|---|---|---|---|")
    for name, (resolution, read) in SETS.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        xyz = read(folder)
        held = np.random.default_rng(0).random(len(xyz)) < 0.2
        train = xyz[~held]
        test = np.random.default_rng(2).permutation(xyz[held])[:TESTS]
        for score in (score_maps, score_baselines):
            for kind, figures in score(train, test, resolution):
                print(f"| {name} | {kind} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
