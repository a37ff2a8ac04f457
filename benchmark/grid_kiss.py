"""The grid engine against GPyTorch's KISS-GP on the same points and cells: time and error, side by side.

python benchmark/grid_kiss.py

200 x 200 cells of 0.1 m, length scale 0.5 m; the surface is drawn from the kernel, so that the exact posterior is the
best there can be, and mean square of error / sd is 1. Both start with points and end with mean and variance at every
cell; the grid engine gives the gradients and their variances too. Its tables, which all maps of a kernel share, are
made before; "first" is an empty map, "next" one that has had as many points before. KISS-GP keeps nothing that a next
scan could use, so its time holds for both. It gets the cubic interpolation, the Toeplitz products and the fast
variances (LOVE) that it is known for, on a lattice of three nodes per length scale. It is given
up after `LIMIT` seconds, and the ratio is then a lower bound.
"""

from __future__ import annotations

import time
import warnings
from importlib.util import find_spec

import numpy as np
from grid_data import run_limited

from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF

warnings.filterwarnings("ignore")
GRID = Grid((0.0, 0.0), (200, 200), 0.1)
LENGTH, VARIANCE, NOISE = 0.5, 0.09, 0.03**2
LIMIT = 100.0


class Drawn:
    """A surface from the prior, by random waves (Rahimi and Recht, 2007)."""

    def __init__(self, waves: int, rng: np.random.Generator) -> None:
        self.wave = rng.standard_normal((2, waves)) / LENGTH
        self.phase = rng.uniform(0.0, 2.0 * np.pi, waves)

    def __call__(self, xy: np.ndarray) -> np.ndarray:
        parts = np.array_split(xy, max(1, len(xy) // 2000))
        sums = [np.cos(part @ self.wave + self.phase).sum(1) for part in parts]
        return np.sqrt(2.0 * VARIANCE / self.phase.size) * np.concatenate(sums)


def grid_engine(gp: GridGP, xy: np.ndarray, z: np.ndarray) -> tuple[float, tuple[np.ndarray, np.ndarray]]:
    start = time.perf_counter()
    gp.update(xy, z)
    p = gp.posterior()
    return time.perf_counter() - start, (p.mean, p.variance)


def kiss(xy: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    import gpytorch
    import torch

    torch.set_num_threads(2)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
            base.base_kernel.lengthscale, base.outputscale = LENGTH, VARIANCE
            side = GRID.bounds[2]
            self.covar_module = gpytorch.kernels.GridInterpolationKernel(
                base,
                grid_size=round(3.0 * side / LENGTH) + 6,
                num_dims=2,
                grid_bounds=[(-0.3, side + 0.3)] * 2,
            )

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.GreaterThan(1e-9)
    )
    likelihood.noise = NOISE
    model = Model(torch.tensor(xy), torch.tensor(z), likelihood).double().eval()
    likelihood.double().eval()
    at = torch.tensor(GRID.centers.reshape(-1, 2))
    with torch.no_grad(), gpytorch.settings.fast_pred_var(True), gpytorch.settings.max_cg_iterations(2000):
        found = model(at)
        return found.mean.numpy().reshape(GRID.shape), found.variance.numpy().reshape(GRID.shape)


def main() -> None:
    rng = np.random.default_rng(0)
    kernel = VARIANCE * RBF(LENGTH)
    terrain = Drawn(1500, rng)
    truth = terrain(GRID.centers.reshape(-1, 2)).reshape(GRID.shape)

    def scan(count: int) -> tuple[np.ndarray, np.ndarray]:
        xy = rng.uniform(0.0, 20.0, (count, 2))
        return xy, terrain(xy) + np.sqrt(NOISE) * rng.standard_normal(count)

    grid_engine(GridGP(GRID, kernel, NOISE), *scan(1000))  # compiled code is loaded before any clock runs
    print(
        f"{'points':>8} {'method':14}{'time':>12}{'RMSE':>12}{'mean square of error / sd':>28}{'ratio to next':>16}"
    )
    for count in (10_000, 131_072):
        xy, z = scan(count)
        gp = GridGP(GRID, kernel, NOISE)
        first, ours = grid_engine(gp, xy, z)
        print(f"{count:8} {'grid, first':14}{line(first, ours, truth)}", flush=True)
        times = [grid_engine(gp, *scan(count))[0] for _ in range(5)]
        seconds = min(times)
        print(f"{count:8} {'grid, next':14}{1e3 * seconds:9.0f} ms", flush=True)
        if find_spec("gpytorch") is None:
            print(f"{count:8} {'KISS-GP':14} not installed")
            continue
        found = run_limited(lambda xy=xy, z=z: kiss(xy, z), LIMIT)
        if found is None:
            print(
                f"{count:8} {'KISS-GP':14} no answer in {LIMIT:.0f} s {'> ' + format(LIMIT / seconds, '.0f'):>54}"
            )
        else:
            print(
                f"{count:8} {'KISS-GP':14}{line(found[0], found[1], truth)}{found[0] / seconds:16.0f}",
                flush=True,
            )


def line(seconds: float, found: tuple[np.ndarray, np.ndarray], truth: np.ndarray) -> str:
    error = found[0] - truth
    score = np.mean(error**2 / np.maximum(found[1], 1e-12))
    return f"{1e3 * seconds:9.0f} ms{1e3 * np.sqrt(np.mean(error**2)):9.2f} mm{score:28.2f}"


if __name__ == "__main__":
    main()
