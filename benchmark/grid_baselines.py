"""The grid engine against others on held-out real points: time, error, density.

python benchmark/grid_baselines.py       draws docs/benchmarks/grid_baselines.png

Hyperparameters are learned once, by the grid engine, and used by all methods with a kernel, so that the table
compares engines and not optimisers. Exact methods get as many points as they can take.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from grid_data import PICTURES, Survey, blanca, data_folder, norlab, run_limited
from scipy import stats

from gp_core.grid import Grid, GridGP
from gp_core.kernels import RBF

warnings.filterwarnings("ignore")
EXACT = 2000
KISS = 10_000
TESTS = 1000
LIMIT = 150.0
"""Seconds after which a method is given up."""
Prediction = tuple[np.ndarray, np.ndarray, np.ndarray | float]
"""Mean, scale and degrees of freedom of the distribution of noisy heights; infinite: a normal one."""


def normal(mean: np.ndarray, variance: np.ndarray) -> Prediction:
    return np.asarray(mean), np.sqrt(np.maximum(variance, 1e-12)), np.inf


class Task:
    """A survey with learned hyperparameters, which a method turns into a `Prediction`."""

    def __init__(self, survey: Survey, length: float, variance: float, noise: float) -> None:
        self.survey, self.length, self.variance, self.noise = survey, length, variance, noise
        self.center = float(np.median(survey.z))
        rng = np.random.default_rng(1)
        order = rng.permutation(len(survey.z))
        self.few, self.many = order[:EXACT], order[:KISS]
        self.tests = rng.permutation(len(survey.test_z))[:TESTS]

    @property
    def test_xy(self) -> np.ndarray:
        return self.survey.test_xy[self.tests]


def grid_engine(task: Task, rows: np.ndarray | None = None, local_noise: bool = False) -> Prediction:
    s = task.survey
    cells = round(s.side / s.resolution)
    gp = GridGP(
        Grid((0.0, 0.0), (cells, cells), s.resolution),
        task.variance * RBF(task.length),
        task.noise,
        mean=task.center,
    )
    xy, z = (s.xy, s.z) if rows is None else (s.xy[rows], s.z[rows])
    gp.update(xy, z)
    if local_noise:
        gp.learn_noise()
    gp.posterior()
    mean, std = gp.predict(task.test_xy, return_std=True)
    noise, degrees = gp.noise_at(task.test_xy)
    return mean, np.sqrt(std**2 + noise), degrees


def cell_means(task: Task) -> Prediction:
    s = task.survey
    cells = round(s.side / s.resolution)

    def index(xy: np.ndarray) -> np.ndarray:
        i, j = np.clip((xy / s.resolution).astype(int), 0, cells - 1).T
        return j * cells + i

    n, sums, squares = (
        np.bincount(index(s.xy), weights=w, minlength=cells**2)
        for w in (np.ones_like(s.z), s.z - task.center, (s.z - task.center) ** 2)
    )
    with np.errstate(all="ignore"):
        mean = sums / n
        spread = np.maximum(squares / n - mean**2, 0.0)
    known = n > 0
    inside = spread[n > 1].mean()
    mean = np.where(known, mean, 0.0) + task.center
    variance = np.where(known, inside * (1.0 + 1.0 / np.maximum(n, 1)), (s.z - task.center).var())
    at = index(task.test_xy)
    return normal(mean[at], variance[at])


def sklearn_exact(task: Task) -> Prediction:
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    model = GaussianProcessRegressor(
        kernels.ConstantKernel(task.variance) * kernels.RBF(task.length), alpha=task.noise, optimizer=None
    )
    model.fit(task.survey.xy[task.few], task.survey.z[task.few] - task.center)
    mean, std = model.predict(task.test_xy, return_std=True)
    return normal(mean + task.center, std**2 + task.noise)


def _gpytorch(task: Task, rows: np.ndarray, wrap: Callable, fast: bool) -> Prediction:
    import gpytorch
    import torch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
            base.base_kernel.lengthscale, base.outputscale = task.length, task.variance
            self.covar_module = wrap(base, likelihood)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x = torch.tensor(task.survey.xy[rows])
    y = torch.tensor(task.survey.z[rows] - task.center)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.GreaterThan(1e-9)
    )
    likelihood.noise = task.noise
    model = Model(x, y, likelihood).double().eval()
    likelihood.double().eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var(fast), gpytorch.settings.max_cg_iterations(2000):
        found = model(torch.tensor(task.test_xy))
        return normal(found.mean.numpy() + task.center, found.variance.numpy() + task.noise)


def gpytorch_exact(task: Task) -> Prediction:
    return _gpytorch(task, task.few, lambda kernel, likelihood: kernel, False)


def gpytorch_sgpr(task: Task) -> Prediction:
    import gpytorch
    import torch

    points = torch.tensor(task.survey.xy[task.few[:600]])
    return _gpytorch(
        task,
        task.many,
        lambda kernel, likelihood: gpytorch.kernels.InducingPointKernel(kernel, points, likelihood),
        False,
    )


def gpytorch_kiss(task: Task) -> Prediction:
    import gpytorch

    size = int(np.ceil(task.survey.side / task.length * 3.0)) + 6
    bounds = [(-task.length, task.survey.side + task.length)] * 2
    return _gpytorch(
        task,
        task.many,
        lambda kernel, likelihood: gpytorch.kernels.GridInterpolationKernel(
            kernel, grid_size=size, num_dims=2, grid_bounds=bounds
        ),
        True,
    )


def gstools_kriging(task: Task) -> Prediction:
    import gstools

    model = gstools.Gaussian(
        dim=2, var=task.variance, len_scale=task.length, rescale=1.0 / np.sqrt(2.0), nugget=task.noise
    )
    s = task.survey
    krige = gstools.krige.Ordinary(model, s.xy[task.few].T, s.z[task.few], exact=False)
    mean, variance = krige(task.test_xy.T)
    return normal(mean, variance)


def pykrige_window(task: Task) -> Prediction:
    from pykrige.ok import OrdinaryKriging

    s = task.survey
    krige = OrdinaryKriging(
        *s.xy[task.many].T,
        s.z[task.many],
        variogram_model="gaussian",
        variogram_parameters={
            "psill": task.variance,
            "range": task.length * np.sqrt(2.0) * 7.0 / 4.0,
            "nugget": task.noise,
        },
        exact_values=False,
    )
    mean, variance = krige.execute("points", *task.test_xy.T, backend="loop", n_closest_points=24)
    return normal(mean, variance)


METHODS: list[tuple[str, str, Callable[[Task], Prediction], str]] = [
    ("grid engine, all points", "numpy", grid_engine, "all"),
    ("grid engine, noise by place", "numpy", lambda task: grid_engine(task, local_noise=True), "all"),
    (f"grid engine, {EXACT}", "numpy", lambda task: grid_engine(task, task.few), "few"),
    ("cell means", "numpy", cell_means, "all"),
    (f"scikit-learn exact, {EXACT}", "sklearn", sklearn_exact, "few"),
    (f"GPyTorch exact, {EXACT}", "gpytorch", gpytorch_exact, "few"),
    (f"GPyTorch SGPR 600, {KISS}", "gpytorch", gpytorch_sgpr, "many"),
    (f"GPyTorch KISS-GP, {KISS}", "gpytorch", gpytorch_kiss, "many"),
    (f"gstools kriging, {EXACT}", "gstools", gstools_kriging, "few"),
    (f"PyKrige, 24 nearest, {KISS}", "pykrige", pykrige_window, "many"),
]


def fit_hyperparameters(survey: Survey) -> Task:
    """Hyperparameters of a survey, from the grid engine's own fit."""
    cells = round(survey.side / survey.resolution)
    noise, length = 0.01 * survey.z.var(), 4.0 * survey.resolution
    gp = GridGP(
        Grid((0.0, 0.0), (cells, cells), survey.resolution),
        float(survey.z.var()) * RBF(length),
        noise,
        mean=float(np.median(survey.z)),
    )
    gp.update(survey.xy, survey.z)
    gp.posterior()  # compiled code is loaded before any clock runs
    start = time.perf_counter()
    found = gp.fit_hyperparameters()
    variance, length = np.exp(found.kernel.theta)
    print(
        f"\n{survey.name}: {len(survey.z)} points, {survey.side:.0f} m; "
        f"learned in {time.perf_counter() - start:.1f} s: "
        f"length {length:.2f} m, deviation {np.sqrt(variance):.3f} m, "
        f"noise {np.sqrt(gp.noise_variance):.4f} m"
    )
    return Task(survey, float(length), float(variance), gp.noise_variance)


def main() -> None:
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder; set GPGMAP_DATA")
        return
    figure, panels = plt.subplots(1, 2, figsize=(10.0, 4.2), constrained_layout=True)
    for survey, axes in zip((norlab(folder), blanca(folder)), panels, strict=True):
        task = fit_hyperparameters(survey)
        print(f"{'method':30}{'time':>12}{'RMSE':>10}{'log density':>13}{'within 68/95/99.7 %':>24}")
        for name, package, method, _ in METHODS:
            if find_spec(package) is None:
                print(f"{name:30} not installed")
                continue
            found = run_limited(lambda method=method, task=task: method(task), LIMIT)
            if found is None:
                print(f"{name:30} no answer in {LIMIT:.0f} s", flush=True)
                continue
            seconds, (mean, scale, degrees) = found
            score = (survey.test_z[task.tests] - mean) / scale
            density = float(np.mean(stats.t.logpdf(score, degrees) - np.log(scale)))
            rmse = float(np.sqrt(np.mean((score * scale) ** 2)))
            levels = 2.0 * stats.t.cdf(np.abs(score), degrees) - 1.0
            inside = [100.0 * np.mean(levels < level) for level in (0.6827, 0.95, 0.997)]
            shares = f"{inside[0]:10.1f}{inside[1]:7.1f}{inside[2]:7.1f}"
            print(f"{name:30}{seconds:10.2f} s{rmse:10.4f}{density:13.3f}{shares}", flush=True)
            axes.semilogx(
                seconds,
                density,
                "*" if name.startswith("grid") else "o",
                ms=10 if name.startswith("grid") else 6,
            )
            axes.annotate(name, (seconds, density), textcoords="offset points", xytext=(5, 4), fontsize=7)
        axes.set_title(survey.name, fontsize=10)
        axes.set_xlabel("time to learn and predict, s")
        axes.set_ylabel("mean log density of held-out heights")
        axes.grid(True, alpha=0.2)
        axes.margins(x=0.25, y=0.12)
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURES / "grid_baselines.png", dpi=110)


if __name__ == "__main__":
    main()
