"""Principal components in the feature space of a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, integer_at_least
from gp_core.estimators import Inputs, NamedKernelParameters, default_kernel, fit_inputs, query_inputs
from gp_core.kernels import Kernel


class KernelPCA(
    NamedKernelParameters,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """z_c(x) = sum_i a_ic k~(x, x_i), with K~ a_c = lambda_c a_c and lambda_c |a_c|^2 = 1.

    K~ = K - 1K/N - K1/N + 1K1/N^2 is the Gram matrix of features about their mean, so that z are the
    principal components of phi(x) without phi (the kernel trick applied to PCA). O(N^3) to fit, O(N) per
    component of a query.

    Parameters
    ----------
    n_components : int or None
        Components to keep; None for all with a positive eigenvalue.
    kernel : Kernel or None
        k, on vectors or on objects; None for 1.0 * RBF(1.0).

    Attributes
    ----------
    eigenvalues_ : array (C,)
        lambda, in falling order: the sum of squares of each component over the training points.
    eigenvectors_ : array (N, C)
        Unit eigenvectors of K~; the entry of largest magnitude is positive.
    kernel_ : Kernel
        k.
    X_train_ : array (N, D), or N objects
        The training points.

    References
    ----------
    Lecture "Kernels and Gaussian processes": "Applications of Kernels: dimensionality reduction".
    Schoelkopf, Smola and Mueller (1998), Nonlinear component analysis as a kernel eigenvalue problem.

    Examples
    --------
    >>> import numpy as np
    >>> from gp_core import KernelPCA
    >>> from gp_core.kernels import RBF
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> KernelPCA(2, RBF(1.0)).fit_transform(X).shape
    (50, 2)
    """

    def __init__(self, n_components: int | None = None, kernel: Kernel | None = None) -> None:
        self.n_components = n_components
        self.kernel = kernel

    def fit(self, X: Inputs, y: Any = None) -> KernelPCA:
        """Components of X (N, D), or of N objects; y is ignored."""
        kernel = default_kernel(self.kernel)
        wanted = None if self.n_components is None else integer_at_least(self.n_components, 1, "n_components")
        self.X_train_ = fit_inputs(self, X, kernel)
        K = kernel(self.X_train_)
        self._row_means = K.mean(axis=0)
        self._mean = float(self._row_means.mean())
        values, vectors = np.linalg.eigh(self._centre(K))
        values, vectors = values[::-1], vectors[:, ::-1]
        size = max(float(np.abs(values).max()), np.finfo(float).tiny)
        if values[-1] < -1e-8 * size:
            raise ValueError(
                f"not a valid kernel on these points (eigenvalue {values[-1]:.3g}): "
                "gp_core.kernels.is_valid_kernel tells which it is not"
            )
        kept = np.flatnonzero(values > 1e-12 * size)[:wanted]
        self.eigenvalues_ = values[kept]
        vectors = vectors[:, kept]
        largest = np.abs(vectors).argmax(axis=0)
        self.eigenvectors_ = vectors * np.sign(vectors[largest, np.arange(len(kept))])
        self.kernel_ = kernel
        self._n_features_out = len(kept)
        return self

    def transform(self, X: Inputs) -> Array:
        """Components (M, C) of X (M, D), or of M objects."""
        check_is_fitted(self)
        queries = query_inputs(self, X, self.kernel_)
        K = self._centre(self.kernel_(queries, self.X_train_))
        components: Array = K @ (self.eigenvectors_ / np.sqrt(self.eigenvalues_))
        return components

    def _centre(self, K: Array) -> Array:
        """k~(x, x_i) (M, N) from k(x, x_i)."""
        return np.asarray(K - K.mean(axis=1, keepdims=True) - self._row_means + self._mean)
