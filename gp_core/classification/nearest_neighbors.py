"""Nearest neighbours in the feature space of a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, integer_at_least
from gp_core.classification.labels import fit_inputs_and_labels
from gp_core.estimators import Inputs, NamedKernelParameters, default_kernel, query_inputs
from gp_core.kernels import Kernel

_BATCH_ENTRIES = 2_000_000
"""Distances that a query holds at a time."""


class KernelNearestNeighbors(NamedKernelParameters, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The label that most of the nearest points have, near by d(x, z)² = k(x, x) + k(z, z) - 2 k(x, z).

    The kernelised nearest neighbour of the lectures: d is the distance |φ(x) - φ(z)| in the kernel's feature space:
    no feature is ever computed, so points may be sets or strings. For a kernel that falls with the Euclidean
    distance the neighbours are the Euclidean ones; others, such as polynomials, rank points differently. O(N)
    kernel values per query.

    Parameters
    ----------
    kernel : Kernel or None
        k; None for 1.0 * RBF(1.0).
    n_neighbors : int
        How many points vote.
    weights : {"uniform", "distance"}
        "distance" for votes of 1/d.

    Attributes
    ----------
    classes_ : array (C,)
        The labels.
    X_train_ : array (N, D), or N objects
        The training points.
    kernel_ : Kernel
        k.

    References
    ----------
    Lecture "Kernels and Gaussian processes": "Kernelized Nearest Neighbor".

    Examples
    --------
    >>> from gp_core import KernelNearestNeighbors
    >>> KernelNearestNeighbors(n_neighbors=1).fit([[0.0], [1.0]], ["a", "b"]).predict([[0.8]])
    array(['b'], dtype='<U1')
    """

    def __init__(
        self, kernel: Kernel | None = None, *, n_neighbors: int = 5, weights: str = "uniform"
    ) -> None:
        self.kernel = kernel
        self.n_neighbors = n_neighbors
        self.weights = weights

    def fit(self, X: Inputs, y: npt.ArrayLike) -> KernelNearestNeighbors:
        """Keep X (N, D), or N objects, and labels y (N,)."""
        kernel = default_kernel(self.kernel)
        integer_at_least(self.n_neighbors, 1, "n_neighbors")
        if self.weights not in ("uniform", "distance"):
            raise ValueError(f'weights must be "uniform" or "distance", got {self.weights!r}')
        points, self._codes = fit_inputs_and_labels(self, X, y, kernel)
        self.kernel_, self.X_train_ = kernel, points
        self._squares = kernel.diag(points)
        return self

    def kneighbors(self, X: Inputs, n_neighbors: int | None = None) -> tuple[Array, NDArray[np.intp]]:
        """Distances (M, n_neighbors) to the nearest training points and their indices, the nearest first.

        Among points at the same distance those with the smaller index come first.
        """
        check_is_fitted(self)
        count = integer_at_least(self.n_neighbors if n_neighbors is None else n_neighbors, 1, "n_neighbors")
        n = len(self.X_train_)
        if count > n:
            raise ValueError(
                f"n_neighbors is {count}, but there are {n} training points: ask for at most {n}"
            )
        points = query_inputs(self, X, self.kernel_)
        distances, indices = np.empty((len(points), count)), np.empty((len(points), count), dtype=np.intp)
        for rows in self._batches(len(points)):
            squared = self._squared_distances(points[rows])
            indices[rows] = _smallest(squared, count)
            distances[rows] = np.sqrt(np.take_along_axis(squared, indices[rows], axis=1))
        return distances, indices

    def predict(self, X: Inputs) -> NDArray[Any]:
        """Label (M,) with the most votes at X; of labels with equal votes the smallest."""
        check_is_fitted(self)
        labels: NDArray[Any] = self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return labels

    def predict_proba(self, X: Inputs) -> Array:
        """Share (M, C) of the votes that each class gets at X."""
        distances, indices = self.kneighbors(X)
        votes = np.ones_like(distances) if self.weights == "uniform" else _inverse(distances)
        shares = np.zeros((len(distances), len(self.classes_)))
        for code in range(len(self.classes_)):
            shares[:, code] = np.where(self._codes[indices] == code, votes, 0.0).sum(axis=1)
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def _squared_distances(self, X: Any) -> Array:
        """d² (M, N)."""
        own = self.kernel_.diag(X)[:, None]
        squared: Array = own + self._squares - 2.0 * self.kernel_(X, self.X_train_)
        size = own + self._squares
        if (squared < -1e-8 * size).any():
            raise ValueError(
                "the kernel gives a negative squared distance, so it is not positive semi-definite on these "
                "points: use a valid kernel (gp_core.kernels.is_valid_kernel)"
            )
        return np.maximum(squared, 0.0)

    def _batches(self, m: int) -> Iterator[slice]:
        step = max(1, _BATCH_ENTRIES // len(self.X_train_))
        for start in range(0, m, step):
            yield slice(start, start + step)


def _smallest(values: Array, count: int) -> NDArray[np.intp]:
    """Indices (M, count) of the smallest entries of each row (M, N), sorted; ties by index."""
    if count == values.shape[1]:
        return np.argsort(values, axis=1, kind="stable")
    chosen = np.sort(np.argpartition(values, count - 1, axis=1)[:, :count], axis=1)
    picked = np.take_along_axis(values, chosen, axis=1)
    # argpartition picks at will among entries that tie for the last place.
    tied = np.flatnonzero((values <= picked.max(axis=1, keepdims=True)).sum(axis=1) > count)
    chosen[tied] = np.sort(np.argsort(values[tied], axis=1, kind="stable")[:, :count], axis=1)
    picked = np.take_along_axis(values, chosen, axis=1)
    return np.take_along_axis(chosen, np.argsort(picked, axis=1, kind="stable"), axis=1)


def _inverse(distances: Array) -> Array:
    """1/d, relative to the nearest; where some d are 0, these alone get a vote."""
    nearest = distances[:, :1]
    exact = np.where(distances == 0.0, 1.0, 0.0)
    ratio = np.divide(nearest, distances, out=np.ones_like(distances), where=distances > 0.0)
    return np.where(nearest == 0.0, exact, ratio)
