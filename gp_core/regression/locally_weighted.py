"""Locally weighted regression (LOESS): a small polynomial fitted around every query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, integer_at_least
from gp_core.bandwidth import deviations
from gp_core.basis import PolynomialBasis
from gp_core.estimators import (
    Inputs,
    NamedKernelParameters,
    fit_inputs_and_targets,
    query_inputs,
    sample_weights,
)
from gp_core.kernels import Kernel
from gp_core.kernels.distances import squared_distances
from gp_core.parallel import map_blocks
from gp_core.regression.local_polynomial import (
    Indices,
    fit_around,
    fit_on_a_line,
    monomial_pairs,
    tricube,
)

_BLOCK_ENTRIES = 500_000
"""Entries of the weights that a block of queries holds."""
_BLOCK_QUERIES = 2000
"""Queries of a block where no weights are kept."""
_TREE_SHARE = 0.2
_TREE_INPUTS = 8
"""A tree finds neighbours faster than all distances do up to this share of the points and this many inputs."""
_TREE_POINTS = 200
"""Below this many points there is nothing to gain."""


class LocallyWeightedRegression(NamedKernelParameters, MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """f(x) = b_0(x), b(x) = argmin sum_i k(x, x_i) |p(x_i - x)'b - y_i|^2, p all monomials up to `degree`.

    In matrices b(x) = (P'Psi P)^-1 P'Psi y with Psi = diag k(x, x_i) (the normal equations of locally
    weighted regression in the lecture on kernel regression). Degree 0 is Nadaraya-Watson; degree 1 removes
    its bias at the borders and on slopes; degree 2 also follows peaks. O(K F^2) per prediction, K the number
    of neighbours and F that of monomials. Directions that the points around x do not span get slope 0 (the
    solution of least norm), so few or duplicate points do no harm.

    Parameters
    ----------
    kernel : Kernel or None
        The weights, k >= 0. None for LOESS: tricube weights that reach the nearest `span` of the points, with
        inputs scaled to unit variance.
    degree : int
        0, 1 or 2.
    span : float
        In (0, 1], the fraction of points in a neighbourhood; not used if a kernel is given.
    robust_iterations : int
        How often points are weighted down by the bisquare of their residual, and fitted again; where that
        leaves no neighbour any weight it is not applied.

    Attributes
    ----------
    robustness_weights_ : array (N,)
        Factors on the weights, 1 without robust iterations.
    X_train_, y_train_ : arrays (N, D) and (N,) or (N, O)
        The training points (or N objects) and their targets.

    References
    ----------
    Lecture "Kernel regression and gaussian processes": "Locally weighted regression".
    Cleveland (1979), Robust locally weighted regression and smoothing scatterplots.

    Examples
    --------
    >>> import numpy as np
    >>> from gp_core import LocallyWeightedRegression
    >>> X = np.linspace(0.0, 4.0, 41)[:, None]
    >>> model = LocallyWeightedRegression(degree=2, span=0.3).fit(X, X[:, 0] ** 2)
    >>> model.predict([[2.0]]).round(1)
    array([4.])
    >>> model.coefficients([[2.0]]).round(1)  # value, slope and half the curvature at 2
    array([[4., 4., 1.]])
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

    def fit(
        self, X: Inputs, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
    ) -> LocallyWeightedRegression:
        """Keep X (N, D) and y (N,) or (N, O), and find the robustness weights.

        sample_weight: (N,) factors on k(x, x_i), not negative; a weight of 2 is the point twice, in the span as well
        """
        if integer_at_least(self.degree, 0, "degree") > 2:
            raise ValueError(f"degree must be 0, 1 or 2, got {self.degree}")
        if not 0.0 < self.span <= 1.0:
            raise ValueError(f"span must be in (0, 1], got {self.span}")
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            raise ValueError(f"kernel must be a gp_core kernel, got {self.kernel!r}")
        self.X_train_, self.y_train_ = fit_inputs_and_targets(self, X, y, self.kernel)
        points = self.X_train_
        if not isinstance(points, np.ndarray) and self.degree > 0:
            raise ValueError("there are no polynomials of sets or strings: use degree=0")
        given = sample_weight is not None
        self._counts = sample_weights(sample_weight, len(points)) if given else None
        self._prepare()
        self.robustness_weights_ = np.ones(len(points))
        for _ in range(integer_at_least(self.robust_iterations, 0, "robust_iterations")):
            residuals = (self._predict(points) - self.y_train_).reshape(len(points), -1)
            size = np.sqrt(np.square(residuals).sum(axis=1))
            median = _median(size, self._counts)
            if median == 0.0:
                break  # most points are met exactly, so there is no scale to call others outliers by
            self.robustness_weights_ = np.square(np.maximum(1.0 - np.square(size / (6.0 * median)), 0.0))
        return self

    def _prepare(self) -> None:
        """What every prediction needs: scaled points, centred targets, a tree or an order to search them by."""
        X, y = self.X_train_, self.y_train_
        n = len(y)
        Y = y[:, None] if y.ndim == 1 else y
        counts = self._counts
        self._centre = np.average(Y, axis=0, weights=counts)
        self._Y = np.ascontiguousarray(Y - self._centre)
        if not isinstance(X, np.ndarray):
            return
        D = X.shape[1]
        self._exponents = PolynomialBasis(self.degree).exponents(D)
        self._scale = deviations(X, counts)
        self._points = X / self._scale
        total = float(n) if counts is None else float(counts.sum())
        self._enough = min(total, max(float(int(self.span * total + 1e-10)), len(self._exponents) + 1.0))
        self._nearest = int(self._enough)
        self._order: Indices | None = None
        self._tree: cKDTree | None = None
        if counts is not None:
            return  # the neighbourhood ends where enough weight is in it, which neither the order nor the tree knows
        if self.kernel is None and D == 1:
            self._order = np.argsort(self._points[:, 0], kind="stable")
            self._line = self._points[self._order, 0]
            self._line_Y = self._Y[self._order]
        elif (
            self.kernel is None
            and n >= _TREE_POINTS
            and self._nearest <= _TREE_SHARE * n
            and D <= _TREE_INPUTS
        ):
            self._tree = cKDTree(self._points)

    def predict(self, X: Inputs) -> Array:
        """f at X, (M,) or (M, O)."""
        check_is_fitted(self)
        return self._predict(query_inputs(self, X, self.kernel))

    def coefficients(self, X: Inputs) -> Array:
        """b(x), the coefficients of the polynomial in x_i - x around each query: (M, F) or (M, F, O).

        The first is the prediction; for degree 1 or more the next D are the gradient of the local fit. The
        order of the monomials is that of `gp_core.basis.PolynomialBasis(degree)`.
        """
        check_is_fitted(self)
        b = self._fit_at(query_inputs(self, X, self.kernel))
        return b[:, :, 0] if self.y_train_.ndim == 1 else b

    def weights(self, X: Inputs) -> Array:
        """k(x, x_i), the weights of the training points in the fit around each query: (M, N).

        The robustness weights are in them; with a kernel the largest of each row is 1 without these.
        """
        check_is_fitted(self)
        queries = query_inputs(self, X, self.kernel)
        out = np.zeros((len(queries), len(self.y_train_)))
        for rows in _blocks(len(queries), max(1, _BLOCK_ENTRIES // out.shape[1])):
            neighbours, weights = self._weights(queries[rows])
            if neighbours.shape[1]:
                np.put_along_axis(out[rows], neighbours, weights, axis=1)
            else:
                out[rows] = weights
        robust = out * self.robustness_weights_
        # Where every neighbour counts as an outlier there is nothing to go by but all of them.
        return np.where(robust.any(axis=1, keepdims=True), robust, out)

    def _predict(self, X: Any) -> Array:
        b = self._fit_at(X)[:, 0]
        return b[:, 0] if self.y_train_.ndim == 1 else b

    def _fit_at(self, X: Any) -> Array:
        """(M, F, O) coefficients in units of the inputs."""
        if not isinstance(X, np.ndarray):
            out = np.empty((len(X), 1, self._Y.shape[1]))
        else:
            out = np.empty((len(X), len(self._exponents), self._Y.shape[1]))
        if isinstance(X, np.ndarray) and self._order is not None:
            step = _BLOCK_QUERIES
        else:
            step = max(1, min(_BLOCK_QUERIES, _BLOCK_ENTRIES // len(self.y_train_)))

        def fill(rows: slice) -> None:
            out[rows] = self._fit_block(X[rows])

        map_blocks(fill, _blocks(len(X), step))
        if not np.isfinite(out[:, 0]).all():
            raise ValueError("no training point has any weight at some query: give a wider kernel or span")
        out[:, 0] += self._centre
        return out

    def _fit_block(self, X: Any) -> Array:
        if not isinstance(X, np.ndarray):
            _, weights = self._weights(X)
            robust = weights * self.robustness_weights_
            weights = np.where(robust.any(axis=1, keepdims=True), robust, weights)
            mean: Array = (weights @ self._Y / weights.sum(axis=1, keepdims=True))[:, None]
            return mean
        queries = X / self._scale
        if self._order is not None:
            unit = np.empty(len(X))
            b = fit_on_a_line(
                self._line,
                self._line_Y,
                self.robustness_weights_[self._order],
                queries[:, 0],
                self._nearest,
                int(self.degree),
                unit,
            )
            powers = np.arange(int(self.degree) + 1)
            b /= (unit[:, None] * self._scale[0])[:, :, None] ** powers[None, :, None]
            return b
        neighbours, weights = self._weights(X)
        pairs = monomial_pairs(self._exponents)
        b = fit_around(self._points, self._Y, self.robustness_weights_, queries, neighbours, weights, pairs)
        b /= np.prod(self._scale**self._exponents, axis=1)[None, :, None]
        return b

    def _weights(self, X: Any) -> tuple[Indices, Array]:
        """Neighbours (m, K) and their weights (m, K); neighbours (m, 0) if the weights are of all N points."""
        everyone = np.empty((len(X), 0), dtype=np.intp)
        if self.kernel is not None:
            log_k = self.kernel.log(X, self.X_train_)
            if self._counts is not None:
                with np.errstate(divide="ignore"):
                    log_k += np.log(self._counts)
            largest = log_k.max(axis=1, keepdims=True)
            return everyone, np.exp(log_k - np.where(np.isfinite(largest), largest, np.inf))
        queries = X / self._scale
        if self._tree is None:
            return everyone, self._weights_of_all(queries)
        found = self._tree.query(queries, k=self._nearest)
        distance, neighbours = np.asarray(found[0]), np.asarray(found[1], dtype=np.intp)
        weights, alike = tricube(distance, distance[:, -1])
        if alike.any():  # points as far as the last neighbour count too
            return everyone, self._weights_of_all(queries)
        return neighbours, weights

    def _weights_of_all(self, queries: Array) -> Array:
        distance = np.sqrt(squared_distances(queries, self._points))
        if self._counts is not None:
            distance[:, self._counts == 0.0] = np.inf
            order = np.argsort(distance, axis=1, kind="stable")
            gathered = np.cumsum(self._counts[order], axis=1)
            last = np.argmax(gathered >= self._enough * (1.0 - 1e-12), axis=1)
            reach = np.take_along_axis(distance, np.take_along_axis(order, last[:, None], axis=1), axis=1)[
                :, 0
            ]
            return tricube(distance, reach)[0] * self._counts
        reach = np.partition(distance, self._nearest - 1, axis=1)[:, self._nearest - 1]
        return tricube(distance, reach)[0]


def _median(size: Array, counts: Array | None) -> float:
    """The median of what is there, each value as often as it counts."""
    if counts is None:
        return float(np.median(size))
    order = np.argsort(size, kind="stable")
    gathered = np.cumsum(counts[order])
    half = 0.5 * gathered[-1]
    margin = 1e-12 * gathered[-1]
    low = np.argmax(gathered >= half - margin)
    high = np.argmax(gathered > half + margin)
    return float(0.5 * (size[order[low]] + size[order[high]]))


def _blocks(m: int, step: int) -> Iterator[slice]:
    for start in range(0, m, step):
        yield slice(start, min(m, start + step))
