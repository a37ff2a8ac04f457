"""Nadaraya-Watson kernel regression: a weighted average of the targets near by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, as_vector, integer_at_least, positive
from gp_core.estimators import NamedKernelParameters, fit_inputs_and_targets, generator, query_inputs, report
from gp_core.kernels import RBF, Kernel
from gp_core.optimize import Optimum, minimize

_BATCH_ENTRIES = 4_000_000


class NadarayaWatson(NamedKernelParameters, MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """f(x) = sum_i w_i(x) y_i, w_i(x) = k(x, x_i) / sum_j k(x, x_j): E[y | x] of a kernel density estimate.

    Behind the mean is the conditional density p(y | x) = sum_i w_i(x) N(y; y_i, h^2). O(N) per prediction;
    the search for the bandwidth is O(N^2) per step. Far from all data the weights go to the nearest points,
    since they are formed from log k.

    kernel: k >= 0; its length scale is the bandwidth. None for an RBF that starts at Scott's rule
    optimizer: "loo" to choose the kernel's free hyperparameters by least squares on left-out points; None to
        keep them as given
    target_bandwidth: h; None for the normal reference rule on the left-out residuals
    n_restarts_optimizer: further starts, drawn within the bounds
    max_iter: iterations per start
    random_state: seed of the restarts

    After fit: kernel_, loo_error_ (mean squared, NaN for N = 1), target_bandwidth_ (per output), optimum_,
    n_iter_, X_train_, y_train_.
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        optimizer: str | None = "loo",
        target_bandwidth: float | None = None,
        n_restarts_optimizer: int = 0,
        max_iter: int = 200,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.optimizer = optimizer
        self.target_bandwidth = target_bandwidth
        self.n_restarts_optimizer = n_restarts_optimizer
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> NadarayaWatson:
        """Choose the bandwidth from X (N, D) or N objects, and y (N,) or (N, O)."""
        if self.optimizer not in ("loo", None):
            raise ValueError(f'optimizer must be "loo" or None, got {self.optimizer!r}')
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise ValueError(f"kernel must be a gp_core kernel, got {self.kernel!r}")
        X, y = fit_inputs_and_targets(self, X, y, self.kernel)
        self.X_train_, self.y_train_ = X, y
        Y = y[:, None] if y.ndim == 1 else y
        kernel = RBF(_scott(X)) if self.kernel is None else self.kernel
        self.optimum_: Optimum | None = None
        if self.optimizer == "loo" and kernel.n_theta and len(Y) > 1:
            kernel, self.optimum_ = self._learn(kernel, X, Y)
        self.kernel_ = kernel
        residuals = _left_out(kernel, X, Y)[0] - Y if len(Y) > 1 else np.full_like(Y, np.nan)
        self.loo_error_ = float(np.square(residuals).mean())
        self.target_bandwidth_ = self._spread(residuals, Y)
        self.n_iter_ = 1 if self.optimum_ is None else max(1, self.optimum_.iterations)
        report(self.optimum_, 0.0)
        return self

    def _learn(self, kernel: Kernel, X: Any, Y: Array) -> tuple[Kernel, Optimum]:
        n_restarts = integer_at_least(self.n_restarts_optimizer, 0, "n_restarts_optimizer")
        optimum = minimize(
            lambda theta: leave_one_out(kernel.with_theta(theta), X, Y),
            kernel.theta,
            kernel.bounds,
            n_restarts=n_restarts,
            rng=generator(self.random_state) if n_restarts else None,
            max_iterations=integer_at_least(self.max_iter, 1, "max_iter"),
        )
        return kernel.with_theta(optimum.x), optimum

    def _spread(self, residuals: Array, Y: Array) -> Array:
        """h per output (O,)."""
        if self.target_bandwidth is not None:
            return np.full(Y.shape[1], positive(self.target_bandwidth, "target_bandwidth"))
        if len(Y) == 1:
            return np.ones(Y.shape[1])
        deviation = np.sqrt(np.square(residuals).mean(axis=0))
        floor = 1e-6 * np.maximum(np.abs(Y).max(axis=0), 1.0)  # a density needs some width
        return np.asarray(np.maximum(1.06 * deviation * len(Y) ** -0.2, floor))

    def weights(self, X: Any) -> Array:
        """w (M, N), each row sums to 1."""
        check_is_fitted(self)
        return self._weights(query_inputs(self, X, self.kernel_))

    def _weights(self, X: Any) -> Array:
        W: Array = softmax(self.kernel_.log(X, self.X_train_), axis=1)
        if not np.isfinite(W).all():
            raise ValueError("every weight is 0 at some point: give a kernel that decays more slowly")
        return W

    def _batches(self, m: int) -> Iterator[slice]:
        step = max(1, _BATCH_ENTRIES // len(self.X_train_))
        for start in range(0, m, step):
            yield slice(start, start + step)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Mean (M,) or (M, O) of p(y | x) at X, and its standard deviation if asked for."""
        check_is_fitted(self)
        X = query_inputs(self, X, self.kernel_)
        Y = self.y_train_[:, None] if self.y_train_.ndim == 1 else self.y_train_
        mean = np.empty((len(X), Y.shape[1]))
        variance = np.empty_like(mean)
        centre = Y.mean(axis=0)
        for rows in self._batches(len(X)):
            W = self._weights(X[rows])
            mean[rows] = W @ Y
            if return_std:  # about the centre, so that the difference of squares loses no digits
                variance[rows] = W @ np.square(Y - centre) - np.square(mean[rows] - centre)
        if self.y_train_.ndim == 1:
            mean, variance = mean[:, 0], variance[:, 0]
        if not return_std:
            return mean
        h = self.target_bandwidth_[0] if self.y_train_.ndim == 1 else self.target_bandwidth_
        return mean, np.sqrt(np.maximum(variance, 0.0) + np.square(h))

    def conditional_density(self, X: Any, t: Any) -> Array:
        """(M, T) with p(y = t_j | x_i) = sum_n w_n(x_i) N(t_j; y_n, h^2), for one output.

        t: (T,) target values
        """
        check_is_fitted(self)
        if self.y_train_.ndim != 1:
            raise ValueError("conditional_density is for one output: fit on y of shape (N,)")
        t = as_vector(t, "t")
        h = float(self.target_bandwidth_[0])
        z = np.subtract.outer(self.y_train_, t) / h
        normal = np.exp(-0.5 * z * z) / (h * np.sqrt(2.0 * np.pi))
        density: Array = self.weights(X) @ normal
        return density


def leave_one_out(kernel: Kernel, X: Any, Y: Array) -> tuple[float, Array]:
    """Mean over points and outputs of (f_-i(x_i) - y_i)^2, and its gradient by the kernel's theta (P,).

    f_-i uses all points but i.
    """
    left_out, W, log_k = _left_out(kernel, X, Y)
    error = left_out - Y
    # With f = sum_j w_j y_j, df/dlog k_ij = w_ij (y_j - f_i), and dlog k = dk / k.
    by_log = W * (2.0 / Y.size) * (error @ Y.T - np.sum(error * left_out, axis=1)[:, None])
    # Where k underflows, a small change of theta changes nothing that is representable.
    by_k = by_log * np.exp(-np.where(log_k > -700.0, log_k, np.inf))
    return float(np.square(error).mean()), kernel.theta_vjp(X, by_k)


def _left_out(kernel: Kernel, X: Any, Y: Array) -> tuple[Array, Array, Array]:
    log_k = kernel.log(X)
    np.fill_diagonal(log_k, -np.inf)
    if np.isneginf(log_k.max(axis=1)).any():
        raise ValueError("a point has no weight on any other: give a kernel that decays more slowly")
    W = softmax(log_k, axis=1)
    return W @ Y, W, log_k


def _scott(X: Array) -> float:
    """Scott's rule: deviation times N^(-1 / (D + 4))."""
    n, D = X.shape
    deviation = float(np.sqrt(X.var(axis=0).mean()))
    return max(deviation, 1e-3) * float(np.power(float(n), -1.0 / (D + 4)))
