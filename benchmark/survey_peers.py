"""The map of a survey against PDAL's and PyKrige's, at points that were held out: run by `survey.py --only peers`.

PDAL (`writers.gdal`, Debian's package pdal) grids means and inverse-distance weights, and knows no error. PyKrige krigs
at any point, with a variance. Each is left out, with a sentence, where it is not installed.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import time
from pathlib import Path

import laspy
import numpy as np
import rasterio
from scipy.ndimage import map_coordinates

NEAR = 25.0  # metres around the middle in which PyKrige is compared: it is slow
KRIGED = 3000  # points that it is given there
CLOSEST = 32  # of them for each prediction
WITHIN = 2.0  # standard deviations whose interval should hold 95 % of the points


def compare_peers(folder: Path, known: Path, held: np.ndarray, edge: float) -> None:
    """Errors at the points `held` (N, 3). folder: with our run in `ours`; known: the points that all may use"""
    layers = folder / "ours" / "layers"
    print(f"points of als_blanca that were held out ({len(held):,}), cells of {edge:g} m:")
    for how, order in (("height of the cell", 0), ("between the middles of cells", 1)):
        print(
            f"  {report_error(f'gpgmap, {how}', sample(layers / 'elevation.tif', held, order) - held[:, 2])}"
        )
    ours = along_gradient(layers, held, edge)
    print(f"  {report_error('gpgmap, along the gradient', ours - held[:, 2])}")
    if shutil.which("pdal") is None:
        print("  PDAL left out: not installed (sudo apt install pdal)")
    else:
        compare_pdal(folder, known, held, edge)
    variance = sample(layers / "variance.tif", held, 0) + sample(layers / "noise_variance.tif", held, 0)
    compare_kriging(known, held, ours, np.sqrt(variance))


def sample(path: Path, points: np.ndarray, order: int) -> np.ndarray:
    """The raster at points (N, 2 or more): of the cell that they are in, or bilinear between the middles (order 1)."""
    with rasterio.open(path) as file:
        image = file.read(1).astype(np.float64)
        image[image == file.nodata] = np.nan
        row = (file.bounds.top - points[:, 1]) / file.res[1] - 0.5
        column = (points[:, 0] - file.bounds.left) / file.res[0] - 0.5
    return np.asarray(map_coordinates(image, [row, column], order=order, mode="nearest"))


def along_gradient(layers: Path, points: np.ndarray, edge: float) -> np.ndarray:
    """Our height at points: a point lies off the middle of its cell, and the map says how the ground goes on there."""
    with rasterio.open(layers / "elevation.tif") as file:
        corner = np.array([file.bounds.left, file.bounds.bottom])
    off = np.mod(points[:, :2] - corner, edge) - 0.5 * edge
    height, x, y = (
        sample(layers / f"{name}.tif", points, 0) for name in ("elevation", "gradient_x", "gradient_y")
    )
    return height + x * off[:, 0] + y * off[:, 1]


def compare_pdal(folder: Path, known: Path, held: np.ndarray, edge: float) -> None:
    """Means and inverse-distance weights, over PDAL's own radius (1.4 cells); means also over half of that, about the
    cell's own points.
    """
    for kind, radius in (("mean", 0.0), ("mean", 0.7 * edge), ("idw", 0.0)):
        out = folder / "pdal.tif"
        writer = {"type": "writers.gdal", "filename": str(out), "resolution": edge, "output_type": kind,
                  "window_size": 3, **({"radius": radius} if radius else {})}  # fmt: skip
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        pipeline = json.dumps([str(known), writer])
        subprocess.run(["pdal", "pipeline", "--stdin"], input=pipeline, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        name = f"PDAL {kind}, radius {radius or 2.0**0.5 * edge:.1f} m"
        errors = [sample(out, held, order) - held[:, 2] for order in (0, 1)]
        print(f"  {report_error(f'{name}, height of the cell', errors[0])} ({cpu:.1f} s of CPU)")
        print(f"  {report_error(f'{name}, between the middles', errors[1])}")


def compare_kriging(known: Path, held: np.ndarray, ours: np.ndarray, deviation: np.ndarray) -> None:
    """PyKrige on the nearest points of each held-out one: its variogram is fitted by itself.

    ours, deviation: (N,) heights, and standard deviations of a measured point
    """
    try:
        from pykrige.ok import OrdinaryKriging
    except ImportError:
        print("  PyKrige left out: not installed (pip install pykrige)")
        return
    xyz = laspy.read(known).xyz
    middle = np.median(xyz[:, :2], axis=0)
    asked = np.abs(held[:, :2] - middle).max(axis=1) < NEAR
    near = np.flatnonzero(np.abs(xyz[:, :2] - middle).max(axis=1) < NEAR)
    some = xyz[np.random.default_rng(0).permutation(near)[:KRIGED]] - [*middle, 0.0]
    some = some[
        np.unique(some[:, :2].round(2), axis=0, return_index=True)[1]
    ]  # two at one place are singular
    points = held[asked] - [*middle, 0.0]
    begin = time.process_time()
    krige = OrdinaryKriging(*some.T, variogram_model="spherical", nlags=20)
    z, square = krige.execute("points", *points[:, :2].T, n_closest_points=CLOSEST, backend="loop")
    spent = time.process_time() - begin
    print(f"  within {NEAR:g} m of the middle ({len(points)} points):")
    for name, height, std in (
        ("gpgmap, along the gradient", ours[asked], deviation[asked]),
        (f"PyKrige, {len(some):,} points ({spent:.1f} s of CPU)", np.asarray(z), np.sqrt(np.asarray(square))),
    ):
        error = height - points[:, 2]
        share = np.mean(np.abs(error) < WITHIN * std)
        print(f"    {report_error(name, error)}, mean standard deviation of a point {std.mean():.3f} m, within"
              f" {WITHIN:g} of them {share:.1%}")  # fmt: skip


def report_error(name: str, error: np.ndarray) -> str:
    return f"{name}: RMSE {np.sqrt(np.nanmean(error**2)):.3f} m, known at {np.isfinite(error).mean():.1%}"
