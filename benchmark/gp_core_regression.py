"""GP regression side by side with scikit-learn: the likelihood with its gradient, prediction, memory.

    OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 python benchmark/gp_core_regression.py
        [--quick] [--large] [--cpu] [--turns 5]

Ratios are what counts: both libraries run in turn in one process, and each figure is the best of several
turns. --quick is a small run, --large adds the fit at n = 5000. --cpu takes processor time, not elapsed
time: on a machine that others use too, with OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1, that is the steadier
figure.
"""

from __future__ import annotations

import resource
import sys
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sklearn.gaussian_process.kernels as sk
from sklearn.gaussian_process import GaussianProcessRegressor as SklearnGP

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmark.gp_core_timing import Call, Clock, best_in_turn, choose_clock, make_parser
from gp_core import GaussianProcessRegressor
from gp_core.kernels import RBF, Matern

SCALES = np.array([1.0, 1.5, 2.0, 2.5, 3.0, 3.5])
NOISE = 0.01


def data(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (n, 6))
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=n)


def ours(n: int) -> GaussianProcessRegressor:
    return GaussianProcessRegressor(1.0 * RBF(SCALES), noise_variance=NOISE, optimizer=None).fit(*data(n))


def theirs(n: int) -> SklearnGP:
    kernel = sk.ConstantKernel(1.0) * sk.RBF(SCALES) + sk.WhiteKernel(NOISE)
    return SklearnGP(kernel, alpha=0.0, optimizer=None).fit(*data(n))


def likelihood(n: int, turns: int, clock: Clock) -> None:
    a, b = ours(n), theirs(n)
    value_a, gradient_a = a.log_marginal_likelihood(a.theta_, eval_gradient=True)
    value_b, gradient_b = b.log_marginal_likelihood(b.kernel_.theta, eval_gradient=True)
    assert np.isclose(value_a, value_b, rtol=1e-8)
    assert np.allclose(np.roll(gradient_a, -1), gradient_b, rtol=1e-5)  # ours has the noise first
    times, _ = best_in_turn(
        [
            lambda: a.log_marginal_likelihood(a.theta_, eval_gradient=True),
            lambda: b.log_marginal_likelihood(b.kernel_.theta, eval_gradient=True),
        ],
        turns,
        clock,
    )
    show(f"likelihood + gradient, n = {n}, ARD over 6 inputs", times, "s")


def prediction(n: int, m: int, turns: int, clock: Clock) -> None:
    a, b = ours(n), theirs(n)
    Q = np.random.default_rng(1).uniform(-3.0, 3.0, (m, 6))
    std_a = a.predict(Q[:100], return_std=True, include_noise=True)[1]
    assert np.allclose(std_a, b.predict(Q[:100], return_std=True)[1], rtol=1e-5)
    times, _ = best_in_turn(
        [lambda: a.predict(Q, return_std=True), lambda: b.predict(Q, return_std=True)], turns, clock
    )
    show(f"mean and deviation at {m} points, n = {n}", times, "s")


def kernel_matrix(n: int, D: int, turns: int, clock: Clock) -> None:
    X = np.random.default_rng(0).normal(size=(n, D))
    pairs = [("RBF", RBF(1.0), sk.RBF(1.0)), ("Matern 3/2", Matern(1.0, nu=1.5), sk.Matern(1.0, nu=1.5))]
    for name, a, b in pairs:
        assert np.allclose(a(X), b(X))
        times, _ = best_in_turn([lambda a=a: a(X), lambda b=b: b(X)], 4 * turns, clock)
        show(f"K(X), {name}, n = {n}, D = {D}", times, "s")


def memory(n: int) -> None:
    a, b = ours(n), theirs(n)
    peaks = (
        _measure_allocation(lambda: a.log_marginal_likelihood(a.theta_, eval_gradient=True)),
        _measure_allocation(lambda: b.log_marginal_likelihood(b.kernel_.theta, eval_gradient=True)),
    )
    label = f"peak memory of that likelihood, n = {n}"
    show(label, peaks, "MB")


def _measure_allocation(call: Call) -> float:
    """The most that numpy holds at a time during the call, in MB, above what it held before."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def _peak() -> float:
    """Peak resident memory of the process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def large(n: int) -> None:
    start = time.perf_counter()
    X, y = data(n)
    gp = GaussianProcessRegressor(1.0 * RBF(np.full(6, 2.0)), noise_variance=0.1).fit(X, y)
    seconds = time.perf_counter() - start
    print(
        f"fit with learned hyperparameters, n = {n}: {seconds:.0f} s, {gp.optimum_.evaluations} evaluations, "
        f"peak of the process {_peak():.0f} MB, noise {gp.noise_variance_:.4f} (true 0.01)"
    )


def show(label: str, costs: Sequence[float], unit: str) -> None:
    a, b = costs
    print(f"{label:52s}  gp_core {a:8.4f} {unit}  scikit-learn {b:8.4f} {unit}  {b / a:6.2f} x", flush=True)


def main() -> None:
    parser = make_parser(__doc__, turns=5)
    parser.add_argument("--large", action="store_true", help="also learn hyperparameters at n = 5000")
    options = parser.parse_args()
    n, m, turns = (300, 500, 2) if options.quick else (2000, 10_000, options.turns)
    clock = choose_clock(options.cpu)
    likelihood(300, 20 * turns, clock)  # milliseconds: the best of a few would be that of a cold cache
    likelihood(n, turns, clock)
    memory(n)
    prediction(n, m, turns, clock)
    kernel_matrix(n // 2, 2, turns, clock)
    kernel_matrix(n, 6, turns, clock)
    if options.large:
        large(300 if options.quick else 5000)


if __name__ == "__main__":
    main()
