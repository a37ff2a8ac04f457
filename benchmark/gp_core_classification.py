"""Classifiers side by side with scikit-learn: GP fit and prediction, logistic regression; and what EP costs.

    OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 python benchmark/gp_core_classification.py
        [--quick] [--fit-only] [--cpu] [--turns 3]

Ratios are what counts: both libraries run in turn in one process, and each figure is the best of several
turns. The GP fits start from the same hyperparameters and search with the same optimiser (L-BFGS-B) in the
same bounds; the evidence that each reaches is printed, and so is the number of its evaluations. --cpu takes
processor time, not elapsed time: on a machine that others use too, with OMP_NUM_THREADS=1
OPENBLAS_NUM_THREADS=1, that is the steadier figure.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn.gaussian_process.kernels as sk
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.gaussian_process import GaussianProcessClassifier as SklearnGPC
from sklearn.linear_model import LogisticRegression as SklearnLogistic
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmark.gp_core_timing import Clock, best_in_turn, choose_clock, make_parser
from gp_core import GaussianProcessClassifier, LogisticRegression, SparseGaussianProcessClassifier
from gp_core.kernels import RBF

CLOCK: Clock = time.perf_counter


def data(n: int, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A border that bends, with noise: neither all certain nor all a coin toss."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, (np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n) > 0).astype(int)


def show(label: str, times: list[float]) -> None:
    ratio = times[1] / times[0]
    print(
        f"{label:<64} ours {times[0]:7.3f} s  scikit-learn {times[1]:7.3f} s  ratio {ratio:5.2f}", flush=True
    )


def gp_fit(n: int, turns: int, scales: float | np.ndarray) -> None:
    X, y = data(n)
    our_kernel, their_kernel = 1.0 * RBF(scales), sk.ConstantKernel(1.0) * sk.RBF(scales)
    our_kernel(X)  # compiled loops are loaded at their first call
    times, (ours, theirs) = best_in_turn(
        [
            lambda: GaussianProcessClassifier(our_kernel, inference="laplace", link="logit").fit(X, y),
            lambda: SklearnGPC(their_kernel).fit(X, y),
        ],
        turns,
        CLOCK,
    )
    what = "one length scale" if np.ndim(scales) == 0 else "ARD"
    show(f"GPC Laplace fit, n = {n}, {what}", times)
    print(
        f"    evidence: ours {ours.log_marginal_likelihood_value_:.6f} in {ours.n_iter_} evaluations, "
        f"scikit-learn {theirs.log_marginal_likelihood_value_:.6f}"
    )
    queries = np.random.default_rng(1).normal(size=(5000, X.shape[1]))
    times, (p, q) = best_in_turn(
        [lambda: ours.predict_proba(queries), lambda: theirs.predict_proba(queries)], turns, CLOCK
    )
    show(f"GPC class probabilities at 5000 points, n = {n}, {what}", times)
    print(f"    largest difference between the probabilities: {np.abs(p - q).max():.1e}")


def gp_methods(n: int) -> None:
    X, y = data(n)
    for inference in ("laplace", "ep", "variational"):
        for link in ("logit", "probit"):
            start = time.perf_counter()
            model = GaussianProcessClassifier(1.0 * RBF(1.0), inference=inference, link=link).fit(X, y)
            print(
                f"    {inference:<12} {link:<7} n = {n}: fit {time.perf_counter() - start:7.2f} s, "
                f"{model.n_iter_} evaluations, log evidence {model.log_marginal_likelihood_value_:.3f}"
            )


def calibration() -> None:
    """What learning by each evidence makes of the probabilities: the log loss on the other half of the data."""
    for name, load in (("breast cancer", load_breast_cancer), ("iris", load_iris)):
        X, y = load(return_X_y=True)
        train, test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
        for inference in ("laplace", "ep", "variational"):
            for link in ("logit", "probit"):
                model = make_pipeline(
                    StandardScaler(), GaussianProcessClassifier(inference=inference, link=link)
                ).fit(train, y_train)
                loss = log_loss(y_test, model.predict_proba(test))
                print(f"    {name:<14} {inference:<12} {link:<7} log loss {loss:.3f}")


def sparse(n: int) -> None:
    """A large map of labelled cells on inducing points, and the exact model on as many points as it can take."""
    rng = np.random.default_rng(0)

    def labelled(size: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.uniform(0.0, 10.0, (size, 2))
        f = 3.0 * np.sin(X[:, 0]) * np.cos(0.7 * X[:, 1]) + 0.5
        return X, rng.uniform(size=size) < 1.0 / (1.0 + np.exp(-f))

    X, y = labelled(n)
    test, y_test = labelled(20_000)
    start, cpu_start = time.perf_counter(), time.process_time()
    model = SparseGaussianProcessClassifier(random_state=0).fit(X, y)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    start = time.perf_counter()
    loss = log_loss(y_test, model.predict_proba(test))
    print(
        f"sparse variational GPC, n = {n}, {len(model.inducing_points_)} inducing points: fit {seconds:.1f} s "
        f"({cpu_seconds:.1f} s of processor time), 20000 probabilities {time.perf_counter() - start:.2f} s, "
        f"log loss {loss:.4f}"
    )
    exact = GaussianProcessClassifier().fit(X[:1000], y[:1000])
    print(f"    exact GPC on 1000 of them: log loss {log_loss(y_test, exact.predict_proba(test)):.4f}")


def logistic(turns: int) -> None:
    """Against each solver at its tightest, and against scikit-learn's default, which stops far earlier."""
    X, y = load_digits(return_X_y=True)
    pairs = [
        ("L-BFGS to 1e-8", LogisticRegression(1.0), SklearnLogistic(C=1.0, tol=1e-8, max_iter=10_000)),
        (
            "Newton-Cholesky",
            LogisticRegression(1.0),
            SklearnLogistic(C=1.0, tol=1e-8, solver="newton-cholesky"),
        ),
        ("default accuracy", LogisticRegression(1.0, tol=1e-2), SklearnLogistic(C=1.0, max_iter=10_000)),
    ]
    for what, our_model, their_model in pairs:
        times, (ours, theirs) = best_in_turn(
            [lambda m=our_model: m.fit(X, y), lambda m=their_model: m.fit(X, y)], turns, CLOCK
        )
        show(f"logistic regression, digits, 10 classes; {what}", times)
        values = [float(np.log(m.predict_proba(X)[np.arange(len(y)), y]).sum()) for m in (ours, theirs)]
        values = [v - 0.5 * float(np.sum(m.coef_**2)) for v, m in zip(values, (ours, theirs), strict=True)]
        print(f"    penalised log likelihood: ours {values[0]:.6f}, scikit-learn {values[1]:.6f}")


def main() -> None:
    parser = make_parser(__doc__, turns=3)
    parser.add_argument("--fit-only", action="store_true", help="only the GP fit with one length scale")
    options = parser.parse_args()
    global CLOCK
    CLOCK = choose_clock(options.cpu)
    quick = options.quick
    warnings.simplefilter("ignore")
    print("threads:", ", ".join(f"{lib['internal_api']} {lib['num_threads']}" for lib in threadpool_info()))
    n, turns = (200, 1) if quick else (1000, options.turns)
    gp_fit(n, turns, 1.0)
    if options.fit_only:
        return
    gp_fit(n, turns, np.ones(3))
    logistic(turns)
    print("the inference methods side by side, hyperparameters learned:")
    gp_methods(100 if quick else 500)
    print("what each makes of the probabilities:")
    calibration()
    sparse(5000 if quick else 100_000)


if __name__ == "__main__":
    main()
