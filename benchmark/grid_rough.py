"""Rough kernels on the grid: time with and without holes, and the error against the dense GP.

python benchmark/grid_rough.py            time; then the error for nu = 1, 3/2, 5/2 and l = 3, 10, 30, 50 cells
python benchmark/grid_rough.py --time     time only
python benchmark/grid_rough.py --errors   errors only
"""

from __future__ import annotations

import sys

import numpy as np
from grid_data import ROOT, cost, scan, surface

from gp_core.grid import Grid, GridGP
from gp_core.kernels import Matern

sys.path.insert(0, str(ROOT / "test" / "gp_core" / "grid"))
from exact import draw, exact_posterior, points_with_holes

POINTS = 131_072
SIDE = 20.0
KERNELS = tuple(0.09 * Matern(1.5, nu=nu) for nu in (1.0, 1.5, 2.5))
NOISE = 1e-3
SEED = 2028
"""Of the draws in the table of errors; no constant of the engine was chosen on them."""

Cloud = tuple[np.ndarray, np.ndarray]


def without_two_holes(n: int, rng: np.random.Generator) -> Cloud:
    """Points everywhere but in two large holes."""
    xy, z = scan(2 * n, 0.0, SIDE, rng)
    keep = (np.hypot(*(xy - (6.0, 7.0)).T) > 3.0) & (np.hypot(*(xy - (14.0, 13.0)).T) > 2.5)
    return xy[keep][:n], z[keep][:n]


def rings(n: int, rng: np.random.Generator) -> Cloud:
    """Points on the circles that 32 beams of a LiDAR draw around the centre, 1 m above flat ground."""
    beams = np.tan(np.radians(np.linspace(4.0, 60.0, 32)))
    radius = 1.0 / beams[rng.integers(0, beams.size, 2 * n)] + 0.01 * rng.standard_normal(2 * n)
    angle = rng.uniform(0.0, 2.0 * np.pi, 2 * n)
    xy = 0.5 * SIDE + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    xy = xy[((xy > 0.0) & (xy < SIDE)).all(1)][:n]
    return xy, surface(xy) + 0.03 * rng.standard_normal(len(xy))


def print_times(rng: np.random.Generator) -> None:
    cells = int(SIDE / 0.1)
    everywhere = scan(POINTS, 0.0, SIDE, rng)
    clouds = {
        "everywhere": everywhere,
        "two holes": without_two_holes(POINTS, rng),
        "rings": rings(POINTS, rng),
    }
    print(
        f"{POINTS} points into {cells} x {cells} cells: statistics and all four layers; a tenth of the map changed"
    )
    for kernel in KERNELS:
        made = cost(lambda k=kernel: GridGP(Grid((0.0, 0.0), (cells, cells), 0.1), k, NOISE), 1)
        for name, cloud in clouds.items():
            gp = GridGP(Grid((0.0, 0.0), (cells, cells), 0.1), kernel, NOISE)
            gp.update(*cloud)
            first = cost(gp.posterior, 1)
            tenth = (np.abs(cloud[0] - (9.2, 9.2)) < 3.16).all(1)
            part = cloud[0][tenth], cloud[1][tenth]
            whole = cost(lambda gp=gp, cloud=cloud: (gp.update(*cloud), gp.posterior()), 5)
            changed = cost(lambda gp=gp, part=part: (gp.update(*part), gp.posterior()), 5)
            print(
                f"{kernel!r:40} {name:11} all  {whole}\n{'':52} tenth{changed}  {gp.nbytes / cells**2:.0f} B/cell"
            )
        print(f"{'':40} making the map {made}\n{'':40} first posterior, with tables {first}", flush=True)


def print_errors(cells: int = 50, points: int = 2500) -> None:
    rng = np.random.default_rng(SEED)
    side = 0.1 * cells
    grid = Grid((0.0, 0.0), (cells, cells), 0.1)
    print(f"{points} points with holes in {cells} x {cells} cells, noise variance 0.01 of the relief's")
    print("  nu     l   mean rms    max   variance median, p95   gradient rms   its variance median, p95")
    for nu in (1.0, 1.5, 2.5):
        for length in (3, 10, 30, 50):
            kernel = 1.0 * Matern(0.1 * length, nu=nu)
            X = points_with_holes(points, side, rng)
            z = draw(kernel, X, 0.01, rng)
            gp = GridGP(grid, kernel, 0.01)
            gp.update(X, z)
            p = gp.posterior()
            exact = exact_posterior(kernel, X, z, 0.01, grid.centers.reshape(-1, 2), gradient=nu > 1.0)
            mean = (p.mean.ravel() - exact.mean) / np.sqrt(exact.variance)
            ratio = np.abs(p.variance.ravel() / exact.variance - 1.0)
            row = f"{nu:4} {length:5} {np.sqrt(np.mean(mean**2)):10.4f} {np.abs(mean).max():6.3f}"
            row += f" {np.median(ratio):10.4f} {np.quantile(ratio, 0.95):10.4f}"
            if nu > 1.0:  # paths with nu = 1 have no derivative
                slope = (p.gradient.reshape(-1, 2) - exact.gradient) / np.sqrt(exact.gradient_variance)
                ratio = np.abs(p.gradient_variance.reshape(-1, 2) / exact.gradient_variance - 1.0)
                row += f" {np.sqrt(np.mean(slope**2)):14.4f}"
                row += f" {np.median(ratio):14.4f} {np.quantile(ratio, 0.95):10.4f}"
            print(row, flush=True)


if __name__ == "__main__":
    if "--errors" not in sys.argv:
        print_times(np.random.default_rng(0))
    if "--time" not in sys.argv:
        print_errors()
