"""A support vector machine on the kernels of gp_core; the quadratic programme is scikit-learn's (LIBSVM)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, positive, take_rows
from gp_core.classification.labels import fit_inputs_and_labels
from gp_core.estimators import Inputs, NamedKernelParameters, default_kernel, query_inputs, sample_weights
from gp_core.kernels import Kernel


class SupportVectorClassifier(NamedKernelParameters, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """f(x) = sum_i a_i y_i k(x, x_i) + b, with the largest margin between the classes:

        max_a sum_i a_i - 1/2 sum_ij a_i a_j y_i y_j k(x_i, x_j),   0 <= a_i <= C,  sum_i a_i y_i = 0

    Only the support vectors, those with a_i > 0, enter a prediction. Several classes are learned one against
    one. The labels are decisions without probabilities; `GaussianProcessClassifier` gives these.

    Parameters
    ----------
    kernel : Kernel or None
        k, on vectors or on objects; None for 1.0 * RBF(1.0). It is used as given: choose its
        hyperparameters by cross-validation.
    C : float
        The most that one point may weigh, > 0: large for few errors, small for a wide margin.
    tol : float
        Of the solver.

    Attributes
    ----------
    classes_ : array (C,)
        The labels.
    support_ : array (S,)
        Indices of the support vectors among the training points.
    dual_coef_ : array (C - 1, S)
        a_i y_i.
    intercept_ : array
        b, one per pair of classes.
    kernel_ : Kernel
        k.
    n_iter_ : array
        Iterations of the solver, one per pair of classes.

    References
    ----------
    Lecture "Kernels and Gaussian processes": "Applications of Kernels: classification".

    Examples
    --------
    >>> from gp_core import SupportVectorClassifier
    >>> from gp_core.kernels import EditDistance
    >>> model = SupportVectorClassifier(EditDistance()).fit(["kitten", "mitten", "house", "mouse"], [0, 0, 1, 1])
    >>> model.predict(["bitten", "louse"])
    array([0, 1])
    """

    def __init__(self, kernel: Kernel | None = None, *, C: float = 1.0, tol: float = 1e-3) -> None:
        self.kernel = kernel
        self.C = C
        self.tol = tol

    def fit(
        self, X: Inputs, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
    ) -> SupportVectorClassifier:
        """From X (N, D), or N objects, and labels y (N,).

        sample_weight: (N,) factors on C for each point, not negative
        """
        kernel = default_kernel(self.kernel)
        C, tol = positive(self.C, "C"), positive(self.tol, "tol")
        points, codes = fit_inputs_and_labels(self, X, y, kernel)
        weights = sample_weights(sample_weight, len(codes))
        used = np.flatnonzero(weights)  # LIBSVM loses count of a precomputed matrix where a weight is 0
        missing = np.setdiff1d(np.arange(len(self.classes_)), codes[used])
        if missing.size:
            raise ValueError(f"sample_weight is zero for all points of class {self.classes_[missing[0]]}")
        machine = SVC(C=C, tol=tol, kernel="precomputed").fit(
            kernel(take_rows(points, used)), codes[used], sample_weight=weights[used]
        )
        self._machine = machine
        self.kernel_ = kernel
        self.support_ = used[machine.support_]
        self._vectors = take_rows(points, self.support_)
        self.dual_coef_, self.intercept_, self.n_iter_ = (
            machine.dual_coef_,
            machine.intercept_,
            machine.n_iter_,
        )
        return self

    def decision_function(self, X: Inputs) -> Array:
        """f at X: (M,), or (M, C) for C > 2 classes, votes of the pairs with ties broken by f."""
        values: Array = self._machine_at(X, "decision_function")
        return values

    def predict(self, X: Inputs) -> npt.NDArray[Any]:
        """Label (M,) at X."""
        codes = self._machine_at(X, "predict")
        labels: npt.NDArray[Any] = self.classes_[codes]
        return labels

    def _machine_at(self, X: Any, method: str) -> Any:
        check_is_fitted(self)
        queries = query_inputs(self, X, self.kernel_)
        # The solver wants a column per training point and reads those of the support vectors.
        K = np.zeros((len(queries), self._machine.n_features_in_))
        K[:, self._machine.support_] = self.kernel_(queries, self._vectors)
        return getattr(self._machine, method)(K)
