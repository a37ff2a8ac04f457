"""Logistic regression by Newton's method."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, integer_at_least, non_negative, positive
from gp_core.basis import Basis
from gp_core.classification.labels import class_weights, fit_inputs_and_labels
from gp_core.classification.logistic_fit import fit_logistic, log_probabilities, probabilities
from gp_core.estimators import Inputs, query_inputs


class LogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """p(c | x) ∝ exp(w_c'φ(x) + b_c); for two classes p(second | x) = 1 / (1 + exp(-w'φ(x) - b)).

        w, b = argmax Σ_n ω_n log p(y_n | x_n) - alpha |w|² / 2

    by iteratively reweighted least squares: w ← w + (Φ'RΦ + alpha I)⁻¹ (Φ'(t - p) - alpha w), R the variances of
    the labels, with step halving (Newton-Raphson and IRLS in the lecture on logistic regression). The offsets b
    are not penalised. About ten steps; where the curvature of many classes is too large to form, conjugate
    gradients find the step at O(N F C) per product; with more features than points the problem is first rotated
    into the N dimensions the points span.

    Parameters
    ----------
    alpha : float
        Weight of the penalty, >= 0. Without one, classes that can be separated drive w towards infinity: the fit
        stops where every training label is certain to twelve digits, and says so.
    basis : Basis or None
        φ; None for the inputs themselves.
    fit_intercept : bool
        Whether there are offsets b.
    tol : float
        The fit ends when a step promises to gain less than this.
    max_iter : int
        The most steps.

    Attributes
    ----------
    classes_ : array (C,)
        The labels.
    coef_ : array (1, F) or (C, F)
        w.
    intercept_ : array (1,) or (C,)
        b.
    n_iter_ : int
        Newton steps.
    objective_ : float
        The maximum.

    References
    ----------
    Lecture "Kernels and Gaussian processes":
        "Likelihood for Logistic Regression", "Iterative Reweighted Least Squares (IRLS)".

    Examples
    --------
    >>> from gp_core import LogisticRegression
    >>> LogisticRegression(0.1).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]).predict([[0.2], [2.9]])
    array([0, 1])
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        basis: Basis | None = None,
        fit_intercept: bool = True,
        tol: float = 1e-12,
        max_iter: int = 100,
    ) -> None:
        self.alpha = alpha
        self.basis = basis
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def fit(
        self, X: Inputs, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
    ) -> LogisticRegression:
        """From X (N, D) and labels y (N,).

        sample_weight: (N,) ω, not negative; 1 unless given. A weight of 2 is the point twice
        """
        alpha = non_negative(self.alpha, "alpha")
        tol = positive(self.tol, "tol")
        max_iter = integer_at_least(self.max_iter, 1, "max_iter")
        points, codes = fit_inputs_and_labels(self, X, y)
        weights = class_weights(sample_weight, codes)
        Phi = points if self.basis is None else self.basis(points)
        # Offsets absorb the mean of the features: without it the problem is better conditioned.
        offset = weights @ Phi / weights.sum() if self.fit_intercept else np.zeros(Phi.shape[1])
        features, rotation = _span(Phi - offset)
        penalty = np.full(features.shape[1], alpha)
        if self.fit_intercept:
            features = np.hstack([features, np.ones((len(features), 1))])
            penalty = np.append(penalty, 0.0)
        result = fit_logistic(
            features, codes, len(self.classes_), weights[None], penalty, tol=tol, max_iter=max_iter
        )
        w = result.state[0]
        span = rotation.shape[1]
        self.coef_: Array = w[:, :span] @ rotation.T
        self.intercept_: Array = w[:, span] - self.coef_ @ offset if self.fit_intercept else np.zeros(len(w))
        self.objective_ = float(result.value[0])
        self.n_iter_ = result.iterations
        _report(bool(result.converged[0]), alpha, self.objective_, self.n_iter_)
        return self

    def decision_function(self, X: Inputs) -> Array:
        """Latent functions w'φ(x) + b: (M,), or (M, C) for C > 2 classes."""
        eta = self._latent(X)
        return eta[0] if len(eta) == 1 else eta.T

    def predict(self, X: Inputs) -> NDArray[Any]:
        """Most probable label (M,) at X."""
        check_is_fitted(self)
        labels: NDArray[Any] = self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return labels

    def predict_proba(self, X: Inputs) -> Array:
        """Probabilities (M, C) of the classes at X."""
        return probabilities(self._latent(X)).T

    def predict_log_proba(self, X: Inputs) -> Array:
        """Logarithms (M, C) of the probabilities, finite where these underflow."""
        return log_probabilities(self._latent(X)).T

    def _latent(self, X: Any) -> Array:
        check_is_fitted(self)
        X = query_inputs(self, X)
        Phi = X if self.basis is None else self.basis(X)
        eta: Array = self.coef_ @ Phi.T + self.intercept_[:, None]
        return eta


def _span(Phi: Array) -> tuple[Array, Array]:
    """Features (N, S) and rotation (F, S) with Phi = features rotation', S = min(N, F).

    A penalised w has no part outside the span of the points, so that S numbers describe it.
    """
    if Phi.shape[1] <= Phi.shape[0]:
        return Phi, np.eye(Phi.shape[1])
    rotation, triangle = np.linalg.qr(Phi.T)
    return np.ascontiguousarray(triangle.T), rotation


def _report(converged: bool, alpha: float, log_likelihood: float, iterations: int) -> None:
    if not converged:
        warnings.warn(
            f"IRLS did not converge in {iterations} steps: raise max_iter, or scale the inputs",
            ConvergenceWarning,
            stacklevel=3,
        )
    elif alpha == 0.0 and log_likelihood > -1e-6:
        warnings.warn(
            "the classes can be separated, so the likelihood has no maximum: the weights are the first that "
            "make every label certain; set alpha > 0 for weights that mean something",
            ConvergenceWarning,
            stacklevel=3,
        )
