"""What a map says of points that it has not seen: error, coverage of its intervals, density.

python benchmark/map_calibration.py [SET ...]       prints the table of docs/benchmarks.md

A fifth of the points is held out. Maps are made as `gpgmap_from_points` makes them. "of cells": error against the mean
of the held-out points of a cell, of the mean of what is predicted for them; on dense sets (3 points or more to a cell)
a map, which has cells, is judged by it. The density of what states no uncertainty is that of a normal distribution with
its own RMSE. Points that a method has no answer for are left out of its row.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from grid_data import data_folder
from interpolators import LocalKriging, cell_mean, linear, natural_neighbour
from scipy import stats

from gpgmap_ros.config import Config, FilterConfig
from gpgmap_ros.mapping.elevation_map import ElevationMap, map_around
from gpgmap_ros.mapping.filters import lowest_surface

LEVELS = (0.68, 0.95, 0.997)
MODELS = {
    "default (matern54, learned noise)": {},
    "matern54, stated noise": {"learn_noise": False},
    "rbf, stated noise": {"kernel": "rbf", "learn_noise": False},
}
TESTS = 3000
"""Held-out points that are scored, at most: those of some cells, with all of each cell."""


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


Row = tuple[str, np.ndarray, str, str, str]
"""Name, heights predicted at the test points, coverage, log density, processor time."""


def score_maps(train: np.ndarray, test: np.ndarray, resolution: float) -> Iterator[Row]:
    """The rows of the maps."""
    start = map_around(train, resolution).config
    for name, changes in MODELS.items():
        config = dataclasses.replace(start, **changes)
        begin = time.process_time()
        middle = 0.5 * (train[:, :2].min(axis=0) + train[:, :2].max(axis=0))
        made = ElevationMap(config, middle, batch=True)
        made.add(train, np.full(len(train), Config().noise.height_std ** 2))
        made.posterior()
        seconds = time.process_time() - begin
        mean, scale, degrees = made.measured_heights(test[:, :2])
        error = test[:, 2] - mean
        inside = []
        for level in LEVELS:
            low, high = made.measured_interval(test[:, :2], level)
            inside.append((test[:, 2] >= low) & (test[:, 2] <= high))
        cover = " / ".join(f"{100.0 * share.mean():.1f}" for share in inside)
        density = float((stats.t.logpdf(error / scale, degrees) - np.log(scale)).mean())
        yield name, mean, cover, f"{density:.2f}", f"{seconds:.1f}"


def score_baselines(train: np.ndarray, test: np.ndarray, resolution: float) -> Iterator[Row]:
    """The rows of the others."""
    xy = test[:, :2]
    for name, mean in (
        ("linear (Delaunay)", linear(train, xy)),
        ("natural neighbour", natural_neighbour(train, xy)),
        ("cell mean", cell_mean(train, xy, resolution)),
    ):
        error = rms(test[:, 2] - mean)
        share = 100.0 * np.isfinite(mean).mean()
        yield f"{name} ({share:.0f} %)", mean, "-", f"{stats.norm.logpdf(1.0) - np.log(error):.2f}", "-"
    mean, variance = LocalKriging(train).predict(xy)
    score = (test[:, 2] - mean) / np.sqrt(variance)
    inside = [np.abs(score) <= stats.norm.ppf(0.5 + level / 2.0) for level in LEVELS]
    cover = " / ".join(f"{100.0 * share.mean():.1f}" for share in inside)
    density = float((stats.norm.logpdf(score) - 0.5 * np.log(variance)).mean())
    yield "local kriging", mean, cover, f"{density:.2f}", "-"


def of_cells(test: np.ndarray, mean: np.ndarray, resolution: float) -> float:
    """Error of the mean of what was predicted for the points of a cell against the mean of these points."""
    known = np.isfinite(mean)
    cell = np.unique(np.floor(test[known, :2] / resolution), axis=0, return_inverse=True)[1].ravel()
    return rms(np.bincount(cell, test[known, 2] - mean[known]) / np.bincount(cell))


def choose_tests(held: np.ndarray, resolution: float) -> np.ndarray:
    """Held-out points of cells drawn at random, with all of each cell."""
    cell = np.unique(np.floor(held[:, :2] / resolution), axis=0, return_inverse=True)[1].ravel()
    order = np.random.default_rng(2).permutation(int(cell.max()) + 1)[cell]
    return held[np.argsort(order, kind="stable")[:TESTS]]


def rms(error: np.ndarray) -> float:
    error = error[np.isfinite(error)]
    return float(np.sqrt(np.mean(error**2)))


def main() -> None:
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder")
        return
    print(
        "| set (points per cell) | map | RMSE, m | of cells, m | coverage at 68 / 95 / 99.7 % | log density | CPU, s |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, (resolution, read) in SETS.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        xyz = read(folder)
        held = np.random.default_rng(0).random(len(xyz)) < 0.2
        train, test = xyz[~held], choose_tests(xyz[held], resolution)
        area = np.prod(np.ptp(xyz[:, :2], axis=0) / resolution)
        density = len(train) / min(len(np.unique(np.floor(xyz[:, :2] / resolution), axis=0)) / 0.95, area)
        for score in (score_maps, score_baselines):
            for kind, mean, cover, likely, seconds in score(train, test, resolution):
                errors = f"{rms(test[:, 2] - mean):.4f} | {of_cells(test, mean, resolution):.4f}"
                print(
                    f"| {name} ({density:.1f}) | {kind} | {errors} | {cover} | {likely} | {seconds} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
