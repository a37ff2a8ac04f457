"""How fast the grid engine is: a scan into a full map, a tenth of it, points per second, growth, memory.

python benchmark/grid_speed.py
"""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
from grid_data import ROOT, cost, scan

from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF, Kernel, Matern

POINTS = 131_072
KERNEL = 0.09 * RBF(0.5)
ROUGH = (0.09 * Matern(1.5, nu=1.5), 0.09 * Matern(3.0, nu=1.5), 0.09 * Matern(1.5, nu=2.5))
NOISE = 1e-3


def full_map(cells: int, rng: np.random.Generator, kernel: Kernel = KERNEL) -> GridGP:
    gp = GridGP(Grid((0.0, 0.0), (cells, cells), 0.1), kernel, NOISE)
    side = 0.1 * cells
    for _ in range(3):
        gp.update(*scan(POINTS * cells**2 // 200**2, 0.0, side, rng))
    gp.posterior()
    return gp


def start_time() -> float:
    """Seconds from nothing to the first posterior in a new process."""
    program = (
        "import numpy as np; from gp_core.grid import Grid, GridGP; from gp_core.kernels import RBF\n"
        "gp = GridGP(Grid((0, 0), (200, 200), 0.1), RBF(0.5), 0.01)\n"
        "gp.update(np.random.default_rng(0).uniform(0, 20, (1000, 2)), np.zeros(1000)); gp.posterior()"
    )
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
    return time.perf_counter() - start


def rough_kernels(rng: np.random.Generator) -> None:
    """Strips against tiles: the maps take turns, so that a busy machine slows all of them alike."""
    data = scan(POINTS, 0.0, 20.0, rng)
    tenth = scan(POINTS // 10, 6.0, 6.0 + 20.0 / np.sqrt(10.0), rng)
    maps = {repr(kernel): full_map(200, rng, kernel) for kernel in (KERNEL, *ROUGH)}

    def renew(gp: GridGP, points: tuple[np.ndarray, np.ndarray]) -> None:
        gp.update(*points)
        gp.posterior()

    for name, points in (("statistics and posterior", data), ("a tenth of the map changed", tenth)):
        print(f"rough kernels, {name}; wall and processor time over those of the RBF:")
        rounds = [
            [cost(lambda gp=gp: renew(gp, points), 1) for gp in maps.values()]  # noqa: B023 (called at once)
            for _ in range(7)
        ]
        best = [
            (min(c.wall for c in costs), min(c.cpu for c in costs)) for costs in zip(*rounds, strict=True)
        ]
        for (kernel, gp), (wall, cpu) in zip(maps.items(), best, strict=True):
            print(
                f"  {kernel:42} {1e3 * wall:7.1f} ms, processor {1e3 * cpu:7.1f} ms; "
                f"{wall / best[0][0]:.1f}, {cpu / best[0][1]:.1f}; blocks of {gp.prior.spacing[0] / 0.1:.2f} cells, "
                f"{gp.nbytes / 200**2:.0f} bytes per cell"
            )
    for kernel in (KERNEL, *ROUGH):
        print(f"  making a map of {kernel!r}: {cost(lambda k=kernel: empty_map(k), 3)}")


def empty_map(kernel: Kernel) -> GridGP:
    return GridGP(Grid((0.0, 0.0), (200, 200), 0.1), kernel, NOISE)


def main() -> None:
    rng = np.random.default_rng(0)
    gp = full_map(200, rng)
    data = scan(POINTS, 0.0, 20.0, rng)
    tenth = scan(POINTS // 10, 6.0, 6.0 + 20.0 / np.sqrt(10.0), rng)

    def whole() -> None:
        gp.update(*data)
        gp.posterior()

    def part() -> None:
        gp.update(*tenth)
        gp.posterior()

    print(f"200 x 200 cells of 0.1 m, length scale 0.5 m, {POINTS} points, map full of earlier data")
    print("statistics and posterior   ", cost(whole, 9))
    print("a tenth of the map changed ", cost(part, 9))
    one = GridGP(gp.grid, KERNEL, NOISE, threads=1)
    one.update(*data)
    for name, of in (("statistics alone           ", gp), ("  on one thread            ", one)):
        update = cost(lambda of=of: of.update(*data), 30)
        print(name, update, f"{POINTS / update.wall / 1e6:.0f} million points per s")
    print("all of it on one thread    ", cost(lambda: (one.update(*data), one.posterior()), 5))
    print(f"memory {gp.nbytes / 200**2:.0f} bytes per cell; fallbacks {gp.fallbacks}")
    rough_kernels(rng)
    print("growth with the map:")
    sizes, times = (100, 200, 400, 1000), []
    for cells in sizes:
        gp = full_map(cells, rng)
        points = scan(POINTS * cells**2 // 200**2, 0.0, 0.1 * cells, rng)

        def again(gp: GridGP = gp, points: tuple[np.ndarray, np.ndarray] = points) -> None:
            gp.update(*points)
            gp.posterior()

        found = cost(again, 3)
        times.append(found.cpu)
        print(f"  {cells:5} x {cells:<5} {found}")
    exponent = np.polyfit(np.log(np.square(sizes)), np.log(times), 1)[0]
    print(f"  processor time grows as cells^{exponent:.2f}")
    print(f"start to first posterior, compiled code cached: {start_time():.1f} s")


if __name__ == "__main__":
    main()
