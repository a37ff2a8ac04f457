"""Bayesian logistic regression: a Gaussian prior on the weights, Laplace's Gaussian after the data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, as_covariance, as_float, integer_at_least
from gp_core.basis import Basis, PolynomialBasis
from gp_core.classification.labels import class_probabilities, fit_inputs_and_labels, one_vs_rest, signs
from gp_core.classification.links import LINKS, Link
from gp_core.classification.options import choose
from gp_core.classification.predictive import Averager
from gp_core.classification.weights import WeightPosterior, laplace_weights
from gp_core.estimators import query_inputs, report
from gp_core.optimize import Optimum, minimize

SCALE_BOUNDS = (1e-6, 1e6)
"""Range of the factor on the prior covariance that "lbfgs" searches."""


class BayesianLogisticRegression(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """p(y = +1 | x, w) = s(w'φ(x)), w ~ N(m0, S0), s(f) = 1 / (1 + exp(-f)) (logit) or Φ(f) (probit).

        q(w) = N(ŵ, S), ŵ = argmax p(w | y), S = (S0⁻¹ + Φ'WΦ)⁻¹     Laplace's method
        p(y_* = +1 | x_*, y) = ∫ s(f) N(f; φ_*'ŵ, φ_*'S φ_*) df

    The integral is in closed form for probit, by quadrature for logit; it is less certain than plain logistic
    regression, the more so the less the data say about φ_*. O(N F² + F³) per Newton step. It is the Gaussian
    process classifier with the kernel φ(x)'S0 φ(z) and inference="laplace". Several classes are learned one
    against the rest.

    basis: φ; None for (1, x), see `gp_core.basis`
    prior_mean: m0, a number or (F,)
    prior_covariance: S0, a variance, variances (F,) or a covariance (F, F), possibly singular
    link: "logit" or "probit"
    optimizer: None to keep S0 as given; "lbfgs" for type-2 maximum likelihood of a factor on S0
    max_iter: the most Newton steps, and iterations of the optimiser

    After fit: classes_, weights_mean_ (F,), or (C, F) for C > 2 classes, weights_covariance_ (F, F) or
    (C, F, F), prior_scale_ (the factor on S0, or one per class), log_marginal_likelihood_value_ (summed over
    the classes), n_iter_.
    """

    def __init__(
        self,
        basis: Basis | None = None,
        *,
        prior_mean: Any = 0.0,
        prior_covariance: Any = 1.0,
        link: str = "logit",
        optimizer: str | None = None,
        max_iter: int = 100,
    ) -> None:
        self.basis = basis
        self.prior_mean = prior_mean
        self.prior_covariance = prior_covariance
        self.link = link
        self.optimizer = optimizer
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any) -> BayesianLogisticRegression:
        """The posterior from X (N, D) and labels y (N,)."""
        link = choose(LINKS, self.link, "link")
        if self.optimizer not in ("lbfgs", None):
            raise ValueError(f'optimizer must be "lbfgs" or None, got {self.optimizer!r}')
        max_iter = integer_at_least(self.max_iter, 1, "max_iter")
        X, codes = fit_inputs_and_labels(self, X, y)
        self._link = link
        self._basis = PolynomialBasis(1) if self.basis is None else self.basis
        Phi = self._basis(X)
        mean, root = self._prior(Phi.shape[1])
        fits = [
            _fit(Phi, signs(codes, code), link, mean, root, self.optimizer is not None, max_iter)
            for code in one_vs_rest(len(self.classes_))
        ]
        self.posteriors_ = tuple(posterior for posterior, _, _ in fits)
        self.weights_mean_ = _squeezed([q.mean for q in self.posteriors_])
        self.weights_covariance_ = _squeezed([q.root @ q.root.T for q in self.posteriors_])
        scales = np.array([scale for _, scale, _ in fits])
        self.prior_scale_ = float(scales[0]) if len(scales) == 1 else scales
        self.log_marginal_likelihood_value_ = sum(q.log_evidence for q in self.posteriors_)
        self.n_iter_ = max(q.iterations for q in self.posteriors_)
        for posterior, _, optimum in fits:
            report(optimum, 0.0)
            if not posterior.converged:
                warnings.warn(
                    f"Newton did not converge in {posterior.iterations} steps: raise max_iter",
                    ConvergenceWarning,
                    stacklevel=2,
                )
        return self

    def _prior(self, size: int) -> tuple[Array, Array]:
        """m0 (F,) and S0^½ (F, F)."""
        mean = as_float(self.prior_mean, "prior_mean")
        if mean.shape not in ((), (size,)):
            raise ValueError(f"prior_mean must be a number or have shape ({size},), got shape {mean.shape}")
        covariance = as_covariance(self.prior_covariance, size, "prior_covariance")
        values, vectors = np.linalg.eigh(covariance)
        if values[0] < -1e-10 * max(values[-1], 0.0) or values[-1] <= 0.0:
            raise ValueError(
                f"prior_covariance must be positive semi-definite and not 0: its eigenvalues range from "
                f"{values[0]:.3g} to {values[-1]:.3g}"
            )
        return np.broadcast_to(mean, (size,)).copy(), vectors * np.sqrt(np.maximum(values, 0.0))

    def predict(self, X: Any) -> NDArray[Any]:
        """Most probable label (M,) at X."""
        check_is_fitted(self)
        labels: NDArray[Any] = self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return labels

    def predict_proba(
        self, X: Any, *, method: str = "integral", n_samples: int = 10_000, random_state: Any = None
    ) -> Array:
        """Probabilities (M, C) of the classes at X, averaged over the posterior of the weights.

        method: "integral", or "sampling" for a Monte Carlo average, to check the former with
        n_samples: draws per point, for "sampling"
        random_state: seed of the draws: None, an int or a numpy Generator
        """
        average = Averager(method, n_samples, random_state)
        columns = [average(self._link, mean, variance) for mean, variance in self._latent(X)]
        return class_probabilities(np.stack(columns, axis=1))

    def predict_latent(self, X: Any, return_std: bool = False) -> Any:
        """Posterior mean of w'φ(x): (M,), or (M, C) for C > 2 classes; with its deviation if asked for."""
        moments = self._latent(X)
        mean = _squeezed([m for m, _ in moments], axis=1)
        return (mean, _squeezed([np.sqrt(v) for _, v in moments], axis=1)) if return_std else mean

    def _latent(self, X: Any) -> list[tuple[Array, Array]]:
        check_is_fitted(self)
        Phi = self._basis(query_inputs(self, X))
        return [q.latent(Phi) for q in self.posteriors_]


def _fit(
    Phi: Array, y: Array, link: Link, mean: Array, root: Array, learn: bool, max_iter: int
) -> tuple[WeightPosterior, float, Optimum | None]:
    """The posterior of one problem, the factor on the prior covariance, and how the search for it went."""

    def posterior(log_scale: float) -> WeightPosterior:
        return laplace_weights(Phi, y, link, mean, np.exp(0.5 * log_scale) * root, max_iter=max_iter)

    if not learn:
        return posterior(0.0), 1.0, None

    def negative(theta: Array) -> tuple[float, Array]:
        q = posterior(float(theta[0]))
        return -q.log_evidence, np.array([-q.slope])

    bounds = np.log([SCALE_BOUNDS])
    optimum = minimize(negative, np.zeros(1), bounds, max_iterations=max_iter, tolerance=1e-5)
    return posterior(float(optimum.x[0])), float(np.exp(optimum.x[0])), optimum


def _squeezed(parts: list[Array], axis: int = 0) -> Array:
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=axis)
