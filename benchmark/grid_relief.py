"""Does steep ground cost more than level ground? Maps of 60 x 60 cells whose relief grows against the noise.

python benchmark/grid_relief.py

Simulated hills with 20,000 points and 0.02 m of noise; the prior's standard deviation is that of the heights, the
length scale five cells of the RBF and thirty of the Matern kernel. Its tables are
made before; the first posterior of a map is timed.
"""

from __future__ import annotations

import numpy as np
from grid_data import cost

from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF, Kernel, Matern

CELLS, EDGE, POINTS, NOISE_STD = 60, 0.2, 20_000, 0.02


def hills(relief: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points on hills of so many metres from bottom to top."""
    xy = rng.uniform(0.0, CELLS * EDGE, (POINTS, 2))
    shape = 0.5 + 0.5 * np.sin(0.5 * xy[:, 0]) * np.cos(0.4 * xy[:, 1])
    return xy, relief * shape + NOISE_STD * rng.standard_normal(POINTS)


def main() -> None:
    rng = np.random.default_rng(0)
    print("relief (m)  relief / noise  kernel      processor time (ms)  fallbacks")
    for relief in (0.5, 2.0, 5.0, 10.0, 19.0, 60.0):
        xy, z = hills(relief, rng)
        variance = max(float(np.var(z)), 0.04)
        kernels: dict[str, Kernel] = {
            "rbf": variance * RBF(5.0 * EDGE),
            "matern32": variance * Matern(30.0 * EDGE, nu=1.5),
        }
        for name, kernel in kernels.items():
            first = GridGP(Grid((0.0, 0.0), (CELLS, CELLS), EDGE), kernel, NOISE_STD**2)
            first.update(xy, z)
            first.posterior()

            def solve(first: GridGP = first, xy: np.ndarray = xy, z: np.ndarray = z) -> None:
                gp = first.like(first.grid)
                gp.update(xy, z)
                gp.posterior()

            found = cost(solve, 3)
            print(
                f"{relief:10.1f} {relief / NOISE_STD:15.0f}  {name:10} {1e3 * found.cpu:20.0f} {first.fallbacks:10d}",
                flush=True,
            )


if __name__ == "__main__":
    main()
