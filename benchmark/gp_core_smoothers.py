"""Kernel smoothers side by side with statsmodels: LOESS, local linear regression, Nadaraya-Watson.

    OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 python benchmark/gp_core_smoothers.py [--quick] [--cpu] [--turns 3]

Ratios are what counts: both libraries run in turn in one process, and each figure is the best of several
turns. --cpu takes processor time, not elapsed time: on a machine that others use too, with OMP_NUM_THREADS=1
OPENBLAS_NUM_THREADS=1, that is the steadier figure.
"""

from __future__ import annotations

import sys
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
from statsmodels.nonparametric.kernel_regression import KernelReg
from statsmodels.nonparametric.smoothers_lowess import lowess

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmark.gp_core_timing import Call, Clock, best_in_turn, choose_clock, make_parser
from gp_core import LocallyWeightedRegression, NadarayaWatson
from gp_core.kernels import RBF


def data(n: int, d: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (n, d))
    return X, np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=n)


def side_by_side(label: str, ours: Call, theirs: Call, turns: int, clock: Clock) -> None:
    """Print the best time of each and how far their answers are apart."""
    ours()  # loops are compiled at their first call
    best, results = best_in_turn([ours, theirs], turns, clock)
    gap = float(np.max(np.abs(np.asarray(results[0]) - np.asarray(results[1]))))
    ratio = best[1] / best[0]
    print(
        f"{label:<58} ours {best[0]:8.3f} s  statsmodels {best[1]:8.3f} s  ratio {ratio:6.1f}  gap {gap:.0e}",
        flush=True,
    )


def loess(n: int, span: float, robust: int, turns: int, clock: Clock) -> None:
    X, y = data(n)
    model = LocallyWeightedRegression(span=span, robust_iterations=robust)
    side_by_side(
        f"LOESS, n = {n}, span {span:.2f}, {robust} robust iterations",
        lambda: model.fit(X, y).predict(X),
        lambda: lowess(y, X[:, 0], frac=span, it=robust, delta=0.0, return_sorted=False),
        turns,
        clock,
    )


def with_a_kernel(n: int, m: int, turns: int, clock: Clock) -> None:
    X, y = data(n, 2)
    queries = data(m, 2)[0]
    side_by_side(
        f"local linear, RBF weights, n = {n}, {m} queries, 2 inputs",
        lambda: LocallyWeightedRegression(RBF([0.5, 0.8])).fit(X, y).predict(queries),
        lambda: KernelReg(y, X, "cc", reg_type="ll", bw=[0.5, 0.8]).fit(queries)[0],
        turns,
        clock,
    )
    side_by_side(
        f"Nadaraya-Watson, n = {n}, {m} queries, 2 inputs",
        lambda: NadarayaWatson(RBF([0.5, 0.8]), optimizer=None).fit(X, y).predict(queries),
        lambda: KernelReg(y, X, "cc", reg_type="lc", bw=[0.5, 0.8]).fit(queries)[0],
        turns,
        clock,
    )


def bandwidth(n: int, turns: int, clock: Clock) -> None:
    X, y = data(n)
    side_by_side(
        f"Nadaraya-Watson, bandwidth by leave-one-out, n = {n}",
        lambda: NadarayaWatson().fit(X, y).kernel_.length_scale,
        lambda: np.abs(KernelReg(y, X, "c", reg_type="lc", bw="cv_ls").bw),  # its search is unsigned
        turns,
        clock,
    )


def memory(n: int) -> None:
    X, y = data(n, 2)
    model = NadarayaWatson(max_iter=1)
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(
        f"peak memory of Nadaraya-Watson's search, n = {n}: {peak / 2**20:.0f} MB, {peak / n**2:.1f} N^2 bytes"
    )


def main() -> None:
    parser = make_parser(__doc__, turns=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    clock = choose_clock(options.cpu)
    n, turns = (500, 1) if options.quick else (5000, options.turns)
    for span, robust in ((0.05, 0), (0.3, 0), (2.0 / 3.0, 0), (0.3, 3)):
        loess(n, span, robust, turns, clock)
    with_a_kernel(n // 5, n // 10, turns, clock)
    bandwidth(n // 10, turns, clock)
    memory(n)


if __name__ == "__main__":
    main()
