"""Locally weighted regression (LOESS): a small polynomial fitted around every query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, integer_at_least
from gp_core.basis import PolynomialBasis
from gp_core.estimators import NamedKernelParameters, fit_inputs_and_targets, query_inputs
from gp_core.kernels import Kernel
from gp_core.kernels.stationary import squared_distances

_BATCH_ENTRIES = 4_000_000
_RANK_TOLERANCE = 1e-10


class LocallyWeightedRegression(NamedKernelParameters, MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """f(x) = b_0, b = argmin sum_i k(x, x_i) |p(x_i - x)'b - y_i|^2, p all monomials up to `degree`.

    Degree 0 is Nadaraya-Watson; degree 1 removes its bias at the borders and on slopes; degree 2 also follows
    peaks. O(N F^2) per prediction, F the number of monomials. Directions that the points around x do not span
    get slope 0 (the solution of least norm), so few or duplicate points do no harm.

    kernel: the weights, k >= 0. None for LOESS: tricube weights that reach the nearest `span` of the points,
        with inputs scaled to unit variance
    degree: 0, 1 or 2
    span: in (0, 1], the fraction of points in a neighbourhood; not used if a kernel is given
    robust_iterations: how often points are weighted down by the bisquare of their residual, and fitted again;
        where that leaves no neighbour any weight it is not applied

    After fit: robustness_weights_ (N,), X_train_, y_train_.
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        degree: int = 1,
        span: float = 2.0 / 3.0,
        robust_iterations: int = 0,
    ) -> None:
        self.kernel = kernel
        self.degree = degree
        self.span = span
        self.robust_iterations = robust_iterations

    def fit(self, X: Any, y: Any) -> LocallyWeightedRegression:
        """Keep X (N, D) and y (N,) or (N, O), and find the robustness weights."""
        if integer_at_least(self.degree, 0, "degree") > 2:
            raise ValueError(f"degree must be 0, 1 or 2, got {self.degree}")
        if not 0.0 < self.span <= 1.0:
            raise ValueError(f"span must be in (0, 1], got {self.span}")
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise ValueError(f"kernel must be a gp_core kernel, got {self.kernel!r}")
        X, y = fit_inputs_and_targets(self, X, y, self.kernel)
        if not isinstance(X, np.ndarray) and self.degree > 0:
            raise ValueError("there are no polynomials of sets or strings: use degree=0")
        self.X_train_, self.y_train_ = X, y
        self._scale = _deviation(X) if isinstance(X, np.ndarray) else np.ones(1)
        self.robustness_weights_ = np.ones(len(y))
        for _ in range(integer_at_least(self.robust_iterations, 0, "robust_iterations")):
            residuals = (self._predict(X) - y).reshape(len(y), -1)
            size = np.sqrt(np.square(residuals).sum(axis=1))
            median = float(np.median(size))
            if median == 0.0:
                break  # most points are met exactly, so there is no scale to call others outliers by
            self.robustness_weights_ = np.square(np.maximum(1.0 - np.square(size / (6.0 * median)), 0.0))
        return self

    def predict(self, X: Any) -> Array:
        """f at X, (M,) or (M, O)."""
        check_is_fitted(self)
        return self._predict(query_inputs(self, X, self.kernel))

    def _predict(self, X: Any) -> Array:
        Y = self.y_train_[:, None] if self.y_train_.ndim == 1 else self.y_train_
        out = np.empty((len(X), Y.shape[1]))
        centre = Y.mean(axis=0)
        for rows in self._batches(X):
            weights = self._weights(X[rows])
            robust = weights * self.robustness_weights_
            # Where every neighbour counts as an outlier there is nothing to go by but all of them.
            weights = np.where(robust.any(axis=1, keepdims=True), robust, weights)
            out[rows] = centre + self._local(X[rows], weights, Y - centre)
        return out[:, 0] if self.y_train_.ndim == 1 else out

    def _local(self, X: Any, weights: Array, Y: Array) -> Array:
        """(m, O) constants of the local polynomials."""
        if self.degree == 0:
            total = weights.sum(axis=1, keepdims=True)
            _require_weight(total)
            constants: Array = weights @ Y / total
            return constants
        m, n = weights.shape
        offsets = (self.X_train_[None] - X[:, None]) / self._scale
        P = PolynomialBasis(self.degree)(offsets.reshape(m * n, -1)).reshape(m, n, -1)
        _require_weight(weights.sum(axis=1, keepdims=True))
        weighted = P * weights[:, :, None]
        normal = weighted.transpose(0, 2, 1) @ P
        # Columns scaled to unit length: rank is then judged alike whatever the neighbourhood's size.
        length = np.sqrt(np.maximum(np.einsum("mff->mf", normal), np.finfo(float).tiny))
        normal /= length[:, :, None] * length[:, None, :]
        right = (weighted.transpose(0, 2, 1) @ Y) / length[:, :, None]
        b = np.linalg.pinv(normal, rcond=_RANK_TOLERANCE, hermitian=True) @ right
        first: Array = b[:, 0] / length[:, :1]
        return first

    def _weights(self, X: Any) -> Array:
        """(m, N), the largest of each row 1 if a kernel is given."""
        weights: Array
        if self.kernel is not None:
            log_k = self.kernel.log(X, self.X_train_)
            largest = log_k.max(axis=1, keepdims=True)
            _require_weight(np.isfinite(largest))
            weights = np.exp(log_k - largest)
            return weights
        distance = np.sqrt(squared_distances(X / self._scale, self.X_train_ / self._scale))
        n = distance.shape[1]
        monomials = PolynomialBasis(self.degree).exponents(X.shape[1]).shape[0]
        nearest = min(n, max(int(self.span * n + 1e-10), monomials + 1))
        reach = np.partition(distance, nearest - 1, axis=1)[:, nearest - 1, None]
        u = np.divide(distance, reach, out=(distance > 0.0).astype(float), where=reach > 0.0)
        inside = np.maximum(1.0 - u**3, 0.0) ** 3
        # If all neighbours lie at the same distance the tricube vanishes on them: weigh them alike.
        weights = np.where(inside.any(axis=1, keepdims=True), inside, (u <= 1.0).astype(float))
        return weights

    def _batches(self, X: Any) -> Iterator[slice]:
        D = X.shape[1] if isinstance(X, np.ndarray) else 1
        monomials = PolynomialBasis(self.degree).exponents(D).shape[0]
        step = max(1, _BATCH_ENTRIES // (len(self.y_train_) * monomials * D))
        for start in range(0, len(X), step):
            yield slice(start, start + step)


def _deviation(X: Array) -> Array:
    scale = X.std(axis=0)
    return np.where(scale > 0.0, scale, 1.0)


def _require_weight(total: npt.NDArray[Any]) -> None:
    if not (np.isfinite(total).all() and (total > 0.0).all()):
        raise ValueError("no training point has any weight at some query: give a wider kernel or span")
