"""Local logistic regression: a small logistic regression around every query."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, integer_at_least, non_negative, take_rows
from gp_core.bandwidth import deviations, scott_kernel
from gp_core.classification.labels import fit_inputs_and_labels
from gp_core.classification.logistic_fit import (
    fit_logistic,
    log_probabilities,
    probabilities,
    weight_sensitivity,
)
from gp_core.estimators import Inputs, NamedKernelParameters, query_inputs, report, sample_weights
from gp_core.kernels import Kernel
from gp_core.optimize import Optimum
from gp_core.search import SearchSettings, check_optimizer, maximize_likelihood

_BATCH_ENTRIES = 1_000_000
"""Numbers per temporary array that a batch of queries may take."""
_FINE = 1e-20
"""Newton decrement at which a left-out fit ends: the bandwidth's likelihood must be smooth."""


class LocalLogisticRegression(NamedKernelParameters, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """p(c | x) ∝ exp(w_c(x)'(1, x)), with weights of its own for every query x:

        w(x) = argmax Σ_n ω_n(x) log p(y_n | x_n, w) - alpha |slopes of w|² / 2
        ω_n(x) = s_n k(x, x_n) / Σ_m s_m k(x, x_m),  s the weights of the points, 1 unless given

    by IRLS (the weighted cross entropy of local logistic regression in the lecture on kernel regression), all
    queries of a batch together. O(N) times a few Newton steps per query; nothing is learned
    beforehand but the kernel. With degree 0 the probabilities are the kernel-weighted frequencies of the
    labels, that is the Nadaraya-Watson estimate. Far from all data the weights go to the nearest points,
    since they are formed from log k.

    Parameters
    ----------
    kernel : Kernel or None
        k >= 0; its length scale is the bandwidth. None for an RBF with a bandwidth per input that starts at
        Scott's rule.
    degree : {1, 0}
        1 for a local linear log-odds, 0 for a local constant (the only one for sets and strings).
    alpha : float
        Penalty on the slopes, in units of the inputs' standard deviation and of the weights' sum, > 0 unless degree
        is 0. It keeps neighbourhoods that can be separated finite.
    optimizer : "loo" or None
        "loo" chooses the kernel's free hyperparameters by the log probability of left-out labels; None keeps them.
    n_restarts_optimizer : int
        Further starts, drawn within the bounds.
    max_iter : int
        Iterations per start.
    random_state : None, int or numpy Generator
        Seed of the restarts.

    Attributes
    ----------
    classes_ : array (C,)
        The labels.
    kernel_ : Kernel
        With the bandwidth that was chosen.
    loo_log_likelihood_ : float
        Mean log probability of a left-out label.
    optimum_ : Optimum or None
        How the search went.
    n_iter_ : int
        Its evaluations, at least 1.
    X_train_ : array (N, D), or N objects
        The training points that weigh something.

    References
    ----------
    Lecture "Kernel regression and gaussian processes": "Local logistic regression".

    Examples
    --------
    >>> import numpy as np
    >>> from gp_core import LocalLogisticRegression
    >>> X = np.linspace(-3.0, 3.0, 40)[:, None]
    >>> LocalLogisticRegression().fit(X, np.abs(X[:, 0]) < 1.5).predict([[0.0], [2.5]])
    array([ True, False])
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        degree: int = 1,
        alpha: float = 1e-3,
        optimizer: str | None = "loo",
        n_restarts_optimizer: int = 0,
        max_iter: int = 50,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.degree = degree
        self.alpha = alpha
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.max_iter = max_iter
        self.random_state = random_state

    # -- learning --------------------------------------------------------------------------------------

    def fit(
        self, X: Inputs, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
    ) -> LocalLogisticRegression:
        """Keep X (N, D), or N objects, and labels y (N,); choose the bandwidth.

        sample_weight: (N,) factors on k(x, x_i), not negative; a weight of 2 is the point twice, so that one of the two
            stays where the other is left out
        """
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise ValueError(f"kernel must be a gp_core kernel, got {self.kernel!r}")
        if integer_at_least(self.degree, 0, "degree") > 1:
            raise ValueError(f"degree must be 0 or 1, got {self.degree}")
        if non_negative(self.alpha, "alpha") == 0.0 and self.degree > 0:
            raise ValueError("alpha must be > 0: near a border between classes the slopes have no maximum")
        check_optimizer(self.optimizer, "loo")
        points, self._codes = fit_inputs_and_labels(self, X, y, self.kernel)
        if not isinstance(points, np.ndarray) and self.degree > 0:
            raise ValueError("there are no slopes over sets or strings: use degree=0")
        self._counts = sample_weights(sample_weight, len(points))
        if sample_weight is not None:
            used = np.flatnonzero(self._counts)
            points, self._codes, self._counts = take_rows(points, used), self._codes[used], self._counts[used]
        self.X_train_ = points
        self._centre, self._scale = _location(points, self._counts)
        kernel = scott_kernel(points, self._counts) if self.kernel is None else self.kernel
        self.optimum_: Optimum | None = None
        if self.optimizer == "loo" and kernel.n_theta and len(points) > 2:
            settings = SearchSettings.of(self, tolerance=1e-4)
            kernel, self.optimum_ = maximize_likelihood(kernel, self._left_out, settings)
        self.kernel_ = kernel
        self.loo_log_likelihood_ = self._left_out(kernel, gradient=False)[0] / float(self._counts.sum())
        self.n_iter_ = 1 if self.optimum_ is None else max(1, self.optimum_.evaluations)
        report(self.optimum_, 0.0)
        return self

    def _left_out(self, kernel: Kernel, gradient: bool) -> tuple[float, Array]:
        """Σ_n log p(y_n | the other points), and its gradient by theta (P,) if asked for."""
        X = self.X_train_
        Phi, penalty = self._features(X)
        n, C = len(Phi), len(self.classes_)
        value, slope = 0.0, np.zeros(kernel.n_theta)
        for rows in self._batches(n):
            log_k = kernel.log(X[rows], X)
            counts = np.tile(self._counts, (len(log_k), 1))
            counts[np.arange(len(log_k)), np.arange(rows.start, rows.stop)] -= 1.0
            np.maximum(counts, 0.0, out=counts)
            log_sum = logsumexp(log_k, axis=1, b=counts)
            if not np.isfinite(log_sum).all() or log_sum.min() < -600.0:
                raise ValueError(
                    "a point has no neighbour that weighs anything: give a kernel that decays more slowly"
                )
            weights = counts * np.exp(log_k - log_sum[:, None])
            w = fit_logistic(
                Phi, self._codes, C, weights, penalty, start=self._frequencies(weights), tol=_FINE
            ).state
            eta = np.einsum("blf,bf->lb", w, Phi[rows])
            log_p = log_probabilities(eta)[self._codes[rows], np.arange(len(w))]
            value += float(self._counts[rows] @ log_p)
            if gradient:
                S = weight_sensitivity(Phi, self._codes, C, weights, penalty, w, Phi[rows], self._codes[rows])
                # ω = s k / Σ s k, so ∂ω_n = (s_n ∂k_n - ω_n Σ_m s_m ∂k_m) / Σ s k.
                S -= np.einsum("bn,bn->b", S, weights)[:, None]
                S *= counts * (self._counts[rows] * np.exp(-log_sum))[:, None]
                slope += kernel.theta_vjp(X[rows], S, X)
        return value, slope

    def _frequencies(self, weights: Array) -> Array:
        """Coefficients (B, L, F) without slopes that give each class its share of the weights (B, N).

        Newton begins there: with the maximum itself for degree 0, and where a class hardly weighs anything with
        log-odds that it would reach only by unit steps.
        """
        C, features = len(self.classes_), 1 if self.degree == 0 else 1 + self.X_train_.shape[1]
        shares = weights @ (self._codes[:, None] == np.arange(C))
        log_shares = np.log(np.maximum(shares, np.finfo(np.float64).tiny))
        start = np.zeros((len(weights), 1 if C == 2 else C, features))
        if C == 2:
            start[:, 0, 0] = log_shares[:, 1] - log_shares[:, 0]
        else:
            start[:, :, 0] = log_shares - log_shares.mean(axis=1, keepdims=True)
        return start

    # -- prediction ------------------------------------------------------------------------------------

    def predict(self, X: Inputs) -> NDArray[Any]:
        """Most probable label (M,) at X."""
        check_is_fitted(self)
        labels: NDArray[Any] = self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return labels

    def predict_proba(self, X: Inputs) -> Array:
        """Probabilities (M, C) of the classes at X."""
        check_is_fitted(self)
        points = query_inputs(self, X, self.kernel_)
        train, penalty = self._features(self.X_train_)
        queries, _ = self._features(points)
        log_counts = np.log(self._counts)
        p = np.empty((len(points), len(self.classes_)))
        converged = True
        for rows in self._batches(len(points)):
            log_w = self.kernel_.log(points[rows], self.X_train_) + log_counts
            weights = np.exp(log_w - logsumexp(log_w, axis=1, keepdims=True))
            if not np.isfinite(weights).all():
                raise ValueError("every weight is 0 at some point: give a kernel that decays more slowly")
            result = fit_logistic(
                train, self._codes, len(self.classes_), weights, penalty, start=self._frequencies(weights)
            )
            p[rows] = probabilities(np.einsum("blf,bf->lb", result.state, queries[rows])).T
            converged = converged and bool(result.converged.all())
        if not converged:
            warnings.warn(
                "IRLS did not converge at some points: raise alpha, or the bandwidth",
                ConvergenceWarning,
                stacklevel=2,
            )
        return p

    def _features(self, X: Any) -> tuple[Array, Array]:
        """(1, x) standardised (M, 1 + D), or 1 (M, 1), and the penalty on each feature."""
        ones = np.ones((len(X), 1))
        if self.degree == 0:
            return ones, np.zeros(1)
        Phi = np.hstack([ones, (X - self._centre) / self._scale])
        return Phi, np.append(0.0, np.full(X.shape[1], float(self.alpha)))

    def _batches(self, m: int) -> Iterator[slice]:
        latents = 1 if len(self.classes_) == 2 else len(self.classes_)
        features = 1 if self.degree == 0 else 1 + self.X_train_.shape[1]
        step = max(1, _BATCH_ENTRIES // (len(self.X_train_) * max(latents, features)))
        for start in range(0, m, step):
            yield slice(start, min(start + step, m))


def _location(X: Any, weights: Array) -> tuple[Array, Array]:
    """Mean (D,) and standard deviation (D,) of the inputs, 1 where they do not vary."""
    if not isinstance(X, np.ndarray):
        return np.zeros(1), np.ones(1)
    return np.average(X, axis=0, weights=weights), deviations(X, weights)
