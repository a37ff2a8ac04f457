"""Error against time for several settings of the engine, compared with the dense GP.

python benchmark/grid_accuracy.py        draws docs/benchmarks/grid_accuracy.png
"""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from grid_data import PICTURES, ROOT, cost

from gp_core.grid import Grid, GridGP, Tiles, TileSize
from gp_core.grid.tile_solver import DEFAULT_TILES
from gp_core.kernels import RBF

import sys  # isort: skip

sys.path.insert(0, str(ROOT / "test" / "gp_core" / "grid"))
from exact import draw, exact_posterior, points_with_holes

SETTINGS = {
    "halo 1": Tiles(TileSize(3.0, 1.0, 0.5, 1e-6), TileSize(3.0, 1.0, 0.4, 1e-6), DEFAULT_TILES.likelihood),
    "halo 1.5": Tiles(TileSize(4.0, 1.5, 0.7, 5e-7), TileSize(4.0, 1.5, 0.5, 5e-7), DEFAULT_TILES.likelihood),
    "halo 2": Tiles(TileSize(4.0, 2.0, 1.0, 1e-7), DEFAULT_TILES.variance, DEFAULT_TILES.likelihood),
    "halo 3": Tiles(TileSize(4.0, 3.0, 1.5, 5e-8), DEFAULT_TILES.variance, DEFAULT_TILES.likelihood),
    "default (4)": DEFAULT_TILES,
    "halo 5": Tiles(TileSize(5.0, 5.0, 2.2, 1e-8), TileSize(4.0, 3.0, 1.0, 3e-8), DEFAULT_TILES.likelihood),
}


def main() -> None:
    rng = np.random.default_rng(0)
    kernel, noise, cells = RBF(0.5), 0.01, 70
    X = points_with_holes(8000, 7.0, rng)
    z = draw(kernel, X, noise, rng)
    grid = Grid((0.0, 0.0), (cells, cells), 0.1)
    exact = exact_posterior(kernel, X, z, noise, grid.centers.reshape(-1, 2), gradient=False)
    rows = []
    print(f"{'setting':14}{'processor':>12}{'mean rms':>10}{'max':>8}{'variance':>10}{'p95':>8}")
    for name, tiles in SETTINGS.items():
        gp = GridGP(grid, kernel, noise, tiles=tiles)
        gp.update(X, z)
        p = gp.posterior()
        found = cost(lambda gp=gp: (gp.update(X, z, 1e12), gp.posterior()), 5)
        mean = (p.mean.ravel() - exact.mean) / np.sqrt(exact.variance)
        ratio = np.abs(p.variance.ravel() / exact.variance - 1.0)
        row = (
            1e9 * found.cpu / cells**2,
            float(np.sqrt(np.mean(mean**2))),
            float(np.abs(mean).max()),
            float(np.median(ratio)),
            float(np.quantile(ratio, 0.95)),
        )
        rows.append(row)
        print(f"{name:14}{row[0]:9.0f} ns{row[1]:10.4f}{row[2]:8.3f}{row[3]:10.4f}{row[4]:8.4f}")
    time, rms, worst, median, p95 = np.array(rows).T
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), constrained_layout=True)
    left.loglog(time, rms, "o-", label="root mean square")
    left.loglog(time, worst, "s--", label="largest")
    left.axhline(0.02, color="C0", lw=0.7, ls=":")
    left.axhline(0.1, color="C1", lw=0.7, ls=":")
    left.set_ylabel("error of the mean, posterior sd")
    right.loglog(time, median, "o-", label="median")
    right.loglog(time, p95, "s--", label="95th percentile")
    right.axhline(0.01, color="C0", lw=0.7, ls=":")
    right.axhline(0.05, color="C1", lw=0.7, ls=":")
    right.set_ylabel("relative error of the variance")
    for axes, values in ((left, rms), (right, median)):
        axes.set_xlabel("processor time per cell, ns")
        axes.grid(True, which="both", alpha=0.2)
        axes.legend(frameon=False)
        for name, x, y in zip(SETTINGS, time, values, strict=True):
            axes.annotate(name, (x, y), textcoords="offset points", xytext=(4, 5), fontsize=7)
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURES / "grid_accuracy.png", dpi=110)


if __name__ == "__main__":
    main()
