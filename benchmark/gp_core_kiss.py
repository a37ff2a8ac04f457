"""Structured kernel interpolation side by side with GPyTorch's KISS-GP (`pip install -r requirements/bench.in`).

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmark/gp_core_kiss.py [--quick] [--cpu] [--turns 3]

Both get the same data, kernel, noise and grid, so that nothing is learned: `InterpolatedGaussianProcessRegressor` with
linear weights, KISS-GP with cubic ones. Printed are the largest differences from the exact process, in posterior
standard deviations for means and relative for deviations, and the best time of conditioning and predicting in turn.
GPyTorch keeps its defaults: above 800 points it solves by conjugate gradients, whose tolerance then shows.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import gpytorch
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmark.gp_core_timing import best_in_turn, choose_clock, make_parser
from gp_core import GaussianProcessRegressor, InterpolatedGaussianProcessRegressor
from gp_core.kernels import RBF

NOISE, LENGTH_SCALE = 0.05, 1.0
Prediction = tuple[np.ndarray, np.ndarray]


def data(n: int, D: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(D)
    X = rng.uniform(-4.0, 4.0, (n, D))
    return X, np.sin(X).sum(axis=1) + NOISE**0.5 * rng.normal(size=n), rng.uniform(-4.0, 4.0, (500, D))


class KissGP(gpytorch.models.ExactGP):
    """GPyTorch's model with the kernel interpolated on a grid over the data and 5 % beyond."""

    def __init__(self, X: np.ndarray, y: np.ndarray, nodes: int) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        likelihood.noise = NOISE
        super().__init__(torch.tensor(X), torch.tensor(y), likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        base = gpytorch.kernels.RBFKernel()
        base.lengthscale = LENGTH_SCALE
        margin = 0.05 * np.ptp(X, axis=0)
        bounds = list(zip(X.min(axis=0) - margin, X.max(axis=0) + margin, strict=True))
        self.covar_module = gpytorch.kernels.GridInterpolationKernel(
            base, grid_size=nodes, num_dims=X.shape[1], grid_bounds=bounds
        )

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def kiss(X: np.ndarray, y: np.ndarray, Q: np.ndarray, nodes: int) -> Prediction:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = KissGP(X, y, nodes).double().eval()(torch.tensor(Q))
        return found.mean.numpy(), found.stddev.numpy()


def ours(X: np.ndarray, y: np.ndarray, Q: np.ndarray, nodes: int) -> Prediction:
    model = InterpolatedGaussianProcessRegressor(
        RBF(LENGTH_SCALE), noise_variance=NOISE, grid_size=nodes, optimizer=None
    )
    mean, std = model.fit(X, y).predict(Q, return_std=True)
    return mean, std


def main() -> None:
    parser = make_parser(__doc__, turns=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    clock = choose_clock(options.cpu)
    for n, D, nodes in [(500, 1, 60), (500, 2, 20)] if options.quick else [(2000, 1, 100), (2000, 2, 30)]:
        X, y, Q = data(n, D)
        exact = GaussianProcessRegressor(RBF(LENGTH_SCALE), noise_variance=NOISE, optimizer=None).fit(X, y)
        mean, std = exact.predict(Q, return_std=True)
        calls: list[Callable[[], Prediction]] = [lambda: ours(X, y, Q, nodes), lambda: kiss(X, y, Q, nodes)]  # noqa: B023
        times, found = best_in_turn(calls, options.turns, clock)
        print(
            f"n = {n}, {D} inputs, {nodes} nodes per input: {times[1] / times[0]:.1f} x the speed of KISS-GP"
        )
        for name, seconds, (m, s) in zip(("gp_core", "KISS-GP"), times, found, strict=True):
            print(
                f"    {name}  {seconds:8.3f} s   mean off by {np.abs((m - mean) / std).max():.3f} sd, "
                f"deviation by {100.0 * np.abs(s / std - 1.0).max():.1f} %"
            )


if __name__ == "__main__":
    main()
