"""Ridge regression in its primal and dual form, and with a kernel in place of the inner products."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, non_negative
from gp_core.basis import Basis
from gp_core.estimators import (
    Inputs,
    NamedKernelParameters,
    default_kernel,
    fit_inputs_and_targets,
    query_inputs,
    sample_weights,
)
from gp_core.kernels import Kernel
from gp_core.linalg import cholesky, report_jitter


class Ridge(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """w = argmin |Phi w - y|^2 / 2 + alpha |w|^2 / 2, f(x) = phi(x)'w + b.

        primal: w = (Phi'Phi + alpha I_F)^-1 Phi'y       O(N F^2 + F^3)
        dual:   w = Phi'(Phi Phi' + alpha I_N)^-1 y      O(N^2 F + N^3)

    The two are equal (the matrix inversion lemma in the lecture on the dual representation); the smaller system
    is solved. The offset b is not penalised.

    Parameters
    ----------
    alpha : float
        Weight of the penalty, >= 0.
    basis : Basis or None
        phi; None for the inputs themselves.
    fit_intercept : bool
        Whether there is an offset b.
    solver : {"auto", "primal", "dual"}
        The form that is solved.

    Attributes
    ----------
    coef_ : array (F,) or (O, F)
        w.
    intercept_ : float or array (O,)
        b.
    solver_ : str
        The form that was used.
    jitter_ : float
        What had to be added to the diagonal of the system.

    References
    ----------
    Lecture "Kernels and Gaussian processes": "Ridge Regression Objective", "Dual Representation".

    Examples
    --------
    >>> from gp_core import Ridge
    >>> Ridge(1e-6).fit([[0.0], [1.0], [2.0]], [1.0, 3.0, 5.0]).predict([[3.0]]).round(3)
    array([7.])
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        basis: Basis | None = None,
        fit_intercept: bool = True,
        solver: str = "auto",
    ) -> None:
        self.alpha = alpha
        self.basis = basis
        self.fit_intercept = fit_intercept
        self.solver = solver

    def fit(self, X: Inputs, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> Ridge:
        """From X (N, D) and y (N,) or (N, O).

        sample_weight: (N,) factors on the squared errors, not negative; a weight of 2 is the point twice
        """
        alpha = non_negative(self.alpha, "alpha")
        if self.solver not in ("auto", "primal", "dual"):
            raise ValueError(f'solver must be "auto", "primal" or "dual", got {self.solver!r}')
        points, targets = fit_inputs_and_targets(self, X, y)
        Phi = self._features(points)
        Y = targets[:, None] if targets.ndim == 1 else targets
        n, n_features = Phi.shape
        weights = sample_weights(sample_weight, n)
        shares = weights / weights.sum()
        feature_mean = shares @ Phi if self.fit_intercept else np.zeros(n_features)
        target_mean = shares @ Y if self.fit_intercept else np.zeros(Y.shape[1])
        root = np.sqrt(weights)[:, None]
        Phi, Y = root * (Phi - feature_mean), root * (Y - target_mean)
        self.solver_ = ("primal" if n_features <= n else "dual") if self.solver == "auto" else self.solver
        gram = Phi.T @ Phi if self.solver_ == "primal" else Phi @ Phi.T
        gram.flat[:: len(gram) + 1] += alpha
        factor = cholesky(gram, overwrite=True, what="the system", remedy="raise alpha")
        w = factor.solve(Phi.T @ Y) if self.solver_ == "primal" else Phi.T @ factor.solve(Y)
        self.jitter_ = factor.jitter
        report_jitter(factor.jitter, "the ridge system", "Features that depend on each other and alpha = 0")
        intercept = target_mean - feature_mean @ w
        self.coef_ = w[:, 0] if targets.ndim == 1 else w.T
        self.intercept_ = float(intercept[0]) if targets.ndim == 1 else intercept
        return self

    def predict(self, X: Inputs) -> Array:
        """f at X, (M,) or (M, O)."""
        check_is_fitted(self)
        prediction: Array = self._features(query_inputs(self, X)) @ self.coef_.T + self.intercept_
        return prediction

    def _features(self, X: Array) -> Array:
        return X if self.basis is None else self.basis(X)


class KernelRidge(NamedKernelParameters, MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """f(x) = k(x, X) a, a = (K + alpha I)^-1 y: ridge regression in the feature space of the kernel.

    The dual solution of the lecture on the dual representation, and the posterior mean of a Gaussian process with
    noise variance alpha. O(N^3) to fit, O(N) to predict.

    Parameters
    ----------
    kernel : Kernel or None
        k; None for 1.0 * RBF(1.0).
    alpha : float
        Weight of the penalty, >= 0.

    Attributes
    ----------
    dual_coef_ : array (N,) or (N, O)
        a.
    X_fit_ : array (N, D), or N objects
        The training points.
    kernel_ : Kernel
        k.
    jitter_ : float
        What had to be added to the diagonal of K.

    References
    ----------
    Lecture "Kernels and Gaussian processes": "Dual Solution", "Predictions Using the Dual Representation".
    Lecture "Dual Linear Regression": "Dual Linear Regression".

    Examples
    --------
    >>> from gp_core import KernelRidge
    >>> from gp_core.kernels import RBF
    >>> KernelRidge(RBF(2.0), alpha=1e-6).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0]).predict([[1.0]]).round(3)
    array([1.])
    """

    def __init__(self, kernel: Kernel | None = None, *, alpha: float = 1.0) -> None:
        self.kernel = kernel
        self.alpha = alpha

    def fit(self, X: Inputs, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> KernelRidge:
        """From X (N, D) or N objects, and y (N,) or (N, O).

        sample_weight: (N,) factors on the squared errors, not negative; a weight of 2 is the point twice. With S the
            diagonal matrix of their square roots, a = S (S K S + alpha I)^-1 S y
        """
        alpha = non_negative(self.alpha, "alpha")
        kernel = default_kernel(self.kernel)
        points, targets = fit_inputs_and_targets(self, X, y, kernel)
        K = kernel(points)
        root = np.sqrt(sample_weights(sample_weight, len(K)))
        if sample_weight is not None:
            K *= root
            K *= root[:, None]
        K.flat[:: len(K) + 1] += alpha
        factor = cholesky(K, overwrite=True, remedy="raise alpha")
        self.kernel_, self.X_fit_ = kernel, points
        root = root if targets.ndim == 1 else root[:, None]
        self.dual_coef_ = root * factor.solve(root * targets)
        self.jitter_ = factor.jitter
        report_jitter(factor.jitter, "the kernel matrix", "Duplicate points or a tiny alpha")
        return self

    def predict(self, X: Inputs) -> Array:
        """f at X, (M,) or (M, O)."""
        check_is_fitted(self)
        points = query_inputs(self, X, self.kernel_)
        prediction: Array = self.kernel_(points, self.X_fit_) @ self.dual_coef_
        return prediction
