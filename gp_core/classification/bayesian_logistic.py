"""Bayesian logistic regression: a Gaussian prior on the weights, Laplace's Gaussian after the data."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, as_covariance, as_float, integer_at_least
from gp_core.basis import Basis, PolynomialBasis
from gp_core.classification.labels import (
    class_probabilities,
    class_weights,
    fit_inputs_and_labels,
    one_vs_rest,
    signs,
)
from gp_core.classification.links import LINKS, Link
from gp_core.classification.options import choose
from gp_core.classification.predictive import Averager
from gp_core.classification.weights import WeightPosterior, feature_weights, laplace_weights
from gp_core.estimators import Inputs, query_inputs, report
from gp_core.optimize import Optimum
from gp_core.parameters import Bounds, Parameter, Parametrised, Values
from gp_core.search import SearchSettings, check_optimizer, maximize_likelihood

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

    Parameters
    ----------
    basis : Basis or None
        φ; None for (1, x), see `gp_core.basis`.
    prior_mean : number or array (F,)
        m0.
    prior_covariance : number, array (F,) or (F, F)
        S0: a variance, variances or a covariance, possibly singular.
    link : {"logit", "probit"}
        s.
    optimizer : "lbfgs" or None
        None keeps S0 and φ as given; "lbfgs" for type-2 maximum likelihood: a factor on S0 and the free
        parameters of the basis (learned features) maximise Laplace's log p(y).
    max_iter : int
        The most Newton steps, and iterations of the optimiser.

    Attributes
    ----------
    classes_ : array (C,)
        The labels.
    weights_mean_, weights_covariance_ : arrays (F,) and (F, F), or (C, F) and (C, F, F) for C > 2 classes
        ŵ and S.
    posteriors_ : tuple of WeightPosterior
        The same as objects, one per class (one for two classes).
    basis_ : Basis, or a tuple of them for C > 2 classes
        φ with its learned parameters.
    prior_scale_ : float or array (C,)
        The factor on S0.
    log_marginal_likelihood_value_ : float
        Summed over the classes.
    n_iter_ : int
        Newton steps of the last posterior.

    References
    ----------
    Lecture "Kernels and Gaussian processes": "Bayesian Logistic Regression", "Gaussian Approximation".

    Examples
    --------
    >>> import numpy as np
    >>> from gp_core import BayesianLogisticRegression
    >>> X = np.linspace(-2.0, 2.0, 20)[:, None]
    >>> model = BayesianLogisticRegression().fit(X, X[:, 0] > 0.1)
    >>> model.predict([[-1.5], [1.5]])
    array([False,  True])
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

    def fit(
        self, X: Inputs, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
    ) -> BayesianLogisticRegression:
        """The posterior from X (N, D) and labels y (N,).

        sample_weight: (N,) how often each point counts, not negative; a weight of 2 is the point twice
        """
        link = choose(LINKS, self.link, "link")
        check_optimizer(self.optimizer)
        max_iter = integer_at_least(self.max_iter, 1, "max_iter")
        points, codes = fit_inputs_and_labels(self, X, y)
        counts = class_weights(sample_weight, codes)
        self._link = link
        basis = PolynomialBasis(1) if self.basis is None else self.basis
        if not isinstance(basis, Basis):
            raise ValueError(f"basis must be a gp_core Basis, got {basis!r}")
        mean, root = self._prior(basis(points[:1]).shape[1])
        fits = [
            _fit(
                basis,
                points,
                _Labels(signs(codes, code), link, counts),
                mean,
                root,
                self.optimizer is not None,
                max_iter,
            )
            for code in one_vs_rest(len(self.classes_))
        ]
        self.posteriors_ = tuple(fit.posterior for fit in fits)
        self._bases = tuple(fit.features.basis for fit in fits)
        self.basis_ = self._bases[0] if len(fits) == 1 else self._bases
        self.weights_mean_ = _squeeze([q.mean for q in self.posteriors_])
        self.weights_covariance_ = _squeeze([q.root @ q.root.T for q in self.posteriors_])
        scales = np.array([float(fit.features.prior_scale) for fit in fits])
        self.prior_scale_ = float(scales[0]) if len(scales) == 1 else scales
        self.log_marginal_likelihood_value_ = sum(q.log_evidence for q in self.posteriors_)
        self.n_iter_ = max(q.iterations for q in self.posteriors_)
        for fit in fits:
            report(fit.optimum, 0.0)
            if not fit.posterior.converged:
                warnings.warn(
                    f"Newton did not converge in {fit.posterior.iterations} steps: raise max_iter",
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

    def predict(self, X: Inputs) -> NDArray[Any]:
        """Most probable label (M,) at X."""
        check_is_fitted(self)
        labels: NDArray[Any] = self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return labels

    def predict_proba(
        self, X: Inputs, *, method: str = "integral", n_samples: int = 10_000, random_state: Any = None
    ) -> Array:
        """Probabilities (M, C) of the classes at X, averaged over the posterior of the weights.

        method: "integral", or "sampling" for a Monte Carlo average, to check the former with
        n_samples: draws per point, for "sampling"
        random_state: seed of the draws: None, an int or a numpy Generator
        """
        average = Averager(method, n_samples, random_state)
        columns = [average(self._link, mean, variance) for mean, variance in self._latent(X)]
        return class_probabilities(np.stack(columns, axis=1))

    def predict_latent(self, X: Inputs, return_std: bool = False) -> Any:
        """Posterior mean of w'φ(x): (M,), or (M, C) for C > 2 classes; with its deviation if asked for."""
        moments = self._latent(X)
        mean = _squeeze([m for m, _ in moments], axis=1)
        return (mean, _squeeze([np.sqrt(v) for _, v in moments], axis=1)) if return_std else mean

    def _latent(self, X: Any) -> list[tuple[Array, Array]]:
        check_is_fitted(self)
        queries = query_inputs(self, X)
        return [q.latent(basis(queries)) for q, basis in zip(self.posteriors_, self._bases, strict=True)]


@dataclass(frozen=True, repr=False)
class _Features(Parametrised):
    """What type-2 maximum likelihood chooses: a factor on the prior covariance, and the features."""

    basis: Basis
    prior_scale: Values = 1.0
    prior_scale_bounds: Bounds = SCALE_BOUNDS

    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("prior_scale"),)

    def _children(self) -> tuple[Basis, ...]:
        return (self.basis,)

    def _with_children(self, children: tuple[Any, ...]) -> Self:
        return type(self)(children[0], self.prior_scale, self.prior_scale_bounds)


@dataclass(frozen=True)
class _Labels:
    """Labels (N,) of one problem as -1 and +1, their likelihood, and how often each counts (N,)."""

    y: Array
    link: Link
    counts: Array


@dataclass(frozen=True)
class _Fit:
    """The posterior of one problem, what was learned, and how the search went."""

    posterior: WeightPosterior
    features: _Features
    optimum: Optimum | None


def _fit(
    basis: Basis, X: Array, labels: _Labels, mean: Array, root: Array, learn: bool, max_iter: int
) -> _Fit:
    def posterior(features: _Features, Phi: Array) -> WeightPosterior:
        scaled = np.sqrt(float(features.prior_scale)) * root
        return laplace_weights(
            Phi, labels.y, labels.link, mean, scaled, counts=labels.counts, max_iter=max_iter
        )

    start = _Features(basis)
    if not learn:
        return _Fit(posterior(start, basis(X)), start, None)

    def likelihood(features: _Features, gradient: bool) -> tuple[float, Array]:
        Phi = features.basis(X)
        q = posterior(features, Phi)
        by_basis = np.zeros(0)
        if features.basis.n_theta:
            by_basis = features.basis.theta_vjp(
                X, feature_weights(Phi, labels.y, labels.link, q, labels.counts)
            )
        return q.log_evidence, np.append(q.slope, by_basis)

    learned, optimum = maximize_likelihood(start, likelihood, SearchSettings(max_iter, tolerance=1e-5))
    return _Fit(posterior(learned, learned.basis(X)), learned, optimum)


def _squeeze(parts: list[Array], axis: int = 0) -> Array:
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=axis)
