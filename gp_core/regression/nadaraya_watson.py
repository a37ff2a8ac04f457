"""Nadaraya-Watson kernel regression: a weighted average of the targets near by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import softmax
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, as_float, as_vector, positive
from gp_core.bandwidth import scott_kernel
from gp_core.estimators import (
    Inputs,
    NamedKernelParameters,
    fit_inputs_and_targets,
    query_inputs,
    report,
    sample_weights,
)
from gp_core.kernels import Kernel
from gp_core.kernels.compact import rows_per_sparse_block
from gp_core.kernels.distances import squared_distances
from gp_core.optimize import Optimum
from gp_core.parallel import map_blocks
from gp_core.search import SearchSettings, check_optimizer, count_iterations, maximize_likelihood

_BLOCK_ENTRIES = 500_000
"""Entries of the weights that a block of rows holds."""


class NadarayaWatson(NamedKernelParameters, MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """f(x) = sum_i w_i(x) y_i, w_i(x) = k(x, x_i) / sum_j k(x, x_j): E[y | x] of a kernel density estimate.

    The predictive mean of kernel regression in the lectures. Behind it is the conditional density p(y | x) = sum_i
    w_i(x) N(y; y_i, h^2). O(N) per prediction; the search for the bandwidth is O(N^2) per step, in blocks of
    rows. Far from all data the weights go to the nearest points, since they are formed from log k.

    Parameters
    ----------
    kernel : Kernel or None
        k >= 0; its length scale is the bandwidth. None for an RBF with a bandwidth per input that starts at
        Scott's rule.
    optimizer : "loo" or None
        "loo" chooses the kernel's free hyperparameters by least squares on left-out points; None keeps them.
    target_bandwidth : float or None
        h; None for the normal reference rule on the left-out residuals.
    n_restarts_optimizer : int
        Further starts, drawn within the bounds.
    max_iter : int
        Iterations per start.
    random_state : None, int or numpy Generator
        Seed of the restarts.

    Attributes
    ----------
    kernel_ : Kernel
        With the bandwidth that was chosen.
    loo_error_ : float
        Mean squared error on left-out points that have others within the kernel's reach; NaN if none has.
    target_bandwidth_ : array (O,)
        h per output.
    optimum_ : Optimum or None
        How the search went.
    n_iter_ : int
        Its iterations, at least 1.
    X_train_, y_train_ : arrays (N, D) and (N,) or (N, O)
        The training points (or N objects) and their targets.

    References
    ----------
    Lecture "Kernels and Gaussian processes": "Predictive Mean in Kernel Regression".
    Lecture "Kernel regression and gaussian processes": "Kernel regression".

    Examples
    --------
    >>> import numpy as np
    >>> from gp_core import NadarayaWatson
    >>> X = np.linspace(0.0, 6.0, 200)[:, None]
    >>> NadarayaWatson().fit(X, np.sin(X[:, 0])).predict([[1.5]]).round(2)
    array([1.])
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

    def fit(self, X: Inputs, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> NadarayaWatson:
        """Choose the bandwidth from X (N, D) or N objects, and y (N,) or (N, O).

        sample_weight: (N,) factors on k(x, x_i), not negative; a weight of 2 is the point twice, so that one of the two
            stays where the other is left out. For weights that count nothing give a bandwidth and optimizer=None
        """
        check_optimizer(self.optimizer, "loo")
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise ValueError(f"kernel must be a gp_core kernel, got {self.kernel!r}")
        points, targets = fit_inputs_and_targets(self, X, y, self.kernel)
        self.X_train_, self.y_train_ = points, targets
        Y = targets[:, None] if targets.ndim == 1 else targets
        given = None if sample_weight is None else sample_weights(sample_weight, len(Y))
        self._log_weights = None if given is None else _log(given)
        kernel = scott_kernel(points, given) if self.kernel is None else self.kernel
        self.optimum_: Optimum | None = None
        several = len(Y) > 1 if given is None else float(given.sum()) > 1.0
        if self.optimizer == "loo" and kernel.n_theta and several:
            kernel, self.optimum_ = self._learn(kernel, points, Y, given)
        self.kernel_ = kernel
        self._sparse_rows = rows_per_sparse_block(kernel, points)
        square = np.full(Y.shape[1], np.nan)
        if several:
            errors = np.square(left_out_predictions(kernel, points, Y, given) - Y)
            known = np.isfinite(errors[:, 0])
            if given is not None:
                known &= given > 0.0
            if known.any():
                square = np.average(errors[known], axis=0, weights=None if given is None else given[known])
        self.loo_error_ = float(square.mean())
        self.target_bandwidth_ = self._spread(square, Y, given)
        self.n_iter_ = count_iterations(self.optimum_)
        report(self.optimum_, 0.0)
        return self

    def _learn(self, kernel: Kernel, X: Any, Y: Array, counts: Array | None) -> tuple[Kernel, Optimum]:
        def negative_error(kernel: Kernel, gradient: bool) -> tuple[float, Array]:
            error, slope = leave_one_out(kernel, X, Y, counts)
            return -error, -slope

        return maximize_likelihood(kernel, negative_error, SearchSettings.of(self))

    def _spread(self, square: Array, Y: Array, counts: Array | None) -> Array:
        """h per output (O,), from the mean squared left-out residuals (O,)."""
        if self.target_bandwidth is not None:
            return np.full(Y.shape[1], positive(self.target_bandwidth, "target_bandwidth"))
        if np.isnan(square).any():
            return np.ones(Y.shape[1])
        n = float(len(Y)) if counts is None else float(counts.sum())
        counted = Y if counts is None else Y[counts > 0.0]
        floor = 1e-6 * np.maximum(np.abs(counted).max(axis=0), 1.0)  # a density needs some width
        return np.asarray(np.maximum(1.06 * np.sqrt(square) * n**-0.2, floor))

    def weights(self, X: Inputs) -> Array:
        """w (M, N), each row sums to 1."""
        check_is_fitted(self)
        W = self._weights(query_inputs(self, X, self.kernel_))
        return W if isinstance(W, np.ndarray) else W.toarray()

    def _weights(self, X: Any) -> Array | csr_array:
        if self._sparse_rows:
            K = self.kernel_._sparse(X, self.X_train_)
            W = _normalized(K, None if self._log_weights is None else np.exp(self._log_weights)[K.indices])
            if (np.diff(W.indptr) == 0).any():
                raise ValueError("every weight is 0 at some point: give a kernel that decays more slowly")
            return W
        log_k = self.kernel_.log(X, self.X_train_)
        if self._log_weights is not None:
            log_k += self._log_weights
        if not np.isfinite(log_k.max(axis=1)).all():
            raise ValueError("every weight is 0 at some point: give a kernel that decays more slowly")
        dense: Array = softmax(log_k, axis=1)
        return dense

    def _query_blocks(self, m: int) -> Iterator[slice]:
        return _blocks(m, len(self.y_train_), self._sparse_rows)

    def predict(self, X: Inputs, return_std: bool = False) -> Any:
        """Mean (M,) or (M, O) of p(y | x) at X, and its standard deviation if asked for."""
        check_is_fitted(self)
        points = query_inputs(self, X, self.kernel_)
        Y = self.y_train_[:, None] if self.y_train_.ndim == 1 else self.y_train_
        mean = np.empty((len(points), Y.shape[1]))
        variance = np.empty_like(mean)
        centre = Y.mean(axis=0)

        def fill(rows: slice) -> None:
            W = self._weights(points[rows])
            mean[rows] = W @ Y
            if return_std:  # about the centre, so that the difference of squares loses no digits
                variance[rows] = W @ np.square(Y - centre) - np.square(mean[rows] - centre)

        map_blocks(fill, self._query_blocks(len(points)))
        if self.y_train_.ndim == 1:
            mean, variance = mean[:, 0], variance[:, 0]
        if not return_std:
            return mean
        h = self.target_bandwidth_[0] if self.y_train_.ndim == 1 else self.target_bandwidth_
        return mean, np.sqrt(np.maximum(variance, 0.0) + np.square(h))

    def conditional_density(self, X: Inputs, t: npt.ArrayLike) -> Array:
        """(M, T) with p(y = t_j | x_i) = sum_n w_n(x_i) prod_o N(t_jo; y_no, h_o^2).

        t: (T,) target values, or (T, O) for several outputs
        """
        check_is_fitted(self)
        queries = query_inputs(self, X, self.kernel_)
        Y = self.y_train_[:, None] if self.y_train_.ndim == 1 else self.y_train_
        targets = as_vector(t, "t")[:, None] if self.y_train_.ndim == 1 else as_float(t, "t")
        if targets.ndim != 2 or targets.shape[1] != Y.shape[1]:
            raise ValueError(
                f"t must have shape (T, {Y.shape[1]}), one column per output, got {targets.shape}"
            )
        h = self.target_bandwidth_
        log_normal = -0.5 * squared_distances(Y / h, targets / h)
        log_normal -= np.log(h).sum() + 0.5 * len(h) * np.log(2.0 * np.pi)
        normal = np.exp(log_normal)
        parts = map_blocks(
            lambda rows: self._weights(queries[rows]) @ normal, self._query_blocks(len(queries))
        )
        return np.concatenate(parts)


def leave_one_out(kernel: Kernel, X: Any, Y: Array, counts: Array | None = None) -> tuple[float, Array]:
    """Mean over points and outputs of (f_-i(x_i) - y_i)^2, and its gradient by the kernel's theta (P,).

    f_-i uses all points but i; of a point that counts several times it leaves one out. Rows are worked on in blocks:
    the memory does not grow with N^2.
    """

    def contribution(rows: slice) -> tuple[float, Array]:
        log_k, W = _weights_of_others(kernel, X, rows, counts)
        if np.isnan(W).any():
            raise ValueError("a point has no weight on any other: give a kernel that decays more slowly")
        left_out = W @ Y
        error = left_out - Y[rows]
        share = 1.0 / total if counts is None else counts[rows, None] / total
        value = float(np.vdot(error, share * error))
        # With f = sum_j w_j y_j, df/dlog k_ij = w_ij (y_j - f_i), and dlog k = dk / k.
        W *= error @ Y.T - np.sum(error * left_out, axis=1)[:, None]
        W *= 2.0 * share
        # Where k underflows, a small change of theta changes nothing that is representable.
        np.negative(log_k, out=log_k)
        log_k[log_k >= 700.0] = -np.inf
        W *= np.exp(log_k, out=log_k)
        return value, kernel.theta_vjp(X[rows], W, X)

    total = Y.shape[1] * (float(len(Y)) if counts is None else float(counts.sum()))
    parts = map_blocks(contribution, _blocks(len(Y), len(Y)))
    return sum(value for value, _ in parts), np.sum([gradient for _, gradient in parts], axis=0)


def left_out_predictions(kernel: Kernel, X: Any, Y: Array, counts: Array | None = None) -> Array:
    """(N, O) with f_-i(x_i): the prediction at each point from all others; NaN where the kernel reaches none."""
    step = rows_per_sparse_block(kernel, X)
    if not step:
        parts = map_blocks(
            lambda rows: _weights_of_others(kernel, X, rows, counts)[1] @ Y, _blocks(len(Y), len(Y))
        )
        return np.concatenate(parts)

    def predict(rows: slice) -> Array:
        K = kernel._sparse(X[rows], X)
        point = rows.start + np.repeat(np.arange(K.shape[0]), np.diff(K.indptr))
        factors = (np.ones(len(Y)) if counts is None else counts)[K.indices] - (K.indices == point)
        W = _normalized(K, np.maximum(factors, 0.0))
        return np.where((np.diff(W.indptr) > 0)[:, None], W @ Y, np.nan)

    return np.concatenate(map_blocks(predict, _blocks(len(Y), len(Y), step)))


def _weights_of_others(kernel: Kernel, X: Any, rows: slice, counts: Array | None) -> tuple[Array, Array]:
    """log k (m, N) and the weights (m, N) of a block of rows, each point without itself; NaN where all are 0."""
    log_k = kernel.log(X[rows], X)
    own = np.arange(len(log_k))
    if counts is None:
        log_k[own, rows.start + own] = -np.inf
        weighted = log_k
    else:
        weighted = log_k + _log(counts)
        weighted[own, rows.start + own] = log_k[own, rows.start + own] + _log(counts[rows] - 1.0)
    alone = np.isneginf(weighted.max(axis=1))
    if counts is not None and alone.any():
        unused = alone & (counts[rows] == 0.0)
        weighted[unused], alone = 0.0, alone & ~unused
    weighted[alone] = 0.0
    W = softmax(weighted, axis=1)
    W[alone] = np.nan
    return log_k, W


def _normalized(K: csr_array, factors: Array | None = None) -> csr_array:
    """The rows of K, with a factor on each entry, divided by their sums; rows of zeros hold no entry."""
    W = csr_array(K)
    if factors is not None:
        W.data = W.data * factors
    W.eliminate_zeros()
    sums = np.asarray(W.sum(axis=1)).ravel()
    W.data = W.data / np.repeat(sums, np.diff(W.indptr))
    return W


def _log(counts: Array) -> Array:
    """log of what counts, -inf of what is 0 or less."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(counts, 0.0)))


def _blocks(m: int, n: int, step: int = 0) -> Iterator[slice]:
    step = step or max(1, _BLOCK_ENTRIES // n)
    for start in range(0, m, step):
        yield slice(start, min(m, start + step))
