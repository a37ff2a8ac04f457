"""Gaussian process classification."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, as_vector, integer_at_least
from gp_core.classification.gp_binary import (
    INFERENCE,
    TOLERANCE,
    LatentPrior,
    evidence_and_gradient,
    fit_binary_gp,
)
from gp_core.classification.labels import class_probabilities, fit_inputs_and_labels, one_vs_rest, signs
from gp_core.classification.links import LINKS
from gp_core.classification.options import choose
from gp_core.classification.predictive import Averager
from gp_core.estimators import Inputs, NamedKernelParameters, default_kernel, generator, query_inputs, report
from gp_core.kernels import Kernel
from gp_core.priors import Prior
from gp_core.regression.means import Mean, as_mean
from gp_core.search import SearchSettings, check_optimizer


class GaussianProcessClassifier(NamedKernelParameters, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """p(y = +1 | x) = s(f(x)), f ~ GP(m, k), s(f) = 1 / (1 + exp(-f)) (logit) or Φ(f) (probit).

    p(f | y) is replaced by a Gaussian q; then

        p(y_* = +1 | x_*, y) = ∫ s(f_*) q(f_*) df_*

    in closed form for probit, by quadrature for logit (the predictive integral of the lecture on GP
    classification). Hyperparameters maximise the approximate evidence of the labels. Several classes are
    learned one against the rest, each with its own hyperparameters, and the probabilities are scaled to add
    up to 1. Cost: O(N³) per evaluation of the evidence, O(N) per predicted latent mean, O(N²) per predicted
    probability. For more than a few thousand points see `SparseGaussianProcessClassifier`.

    Parameters
    ----------
    kernel : Kernel or None
        k; None for a scaled RBF that starts in the scale of the inputs.
    mean : number, callable, Mean, list of these, or None
        m, the prior mean of the latent function: a number, a function of X (N, D) that returns (N,), or a
        `gp_core.regression.Mean`, whose hyperparameters are learned. A list holds one per class. None for 0.
    inference : {"variational", "ep", "laplace"}
        How q is chosen. "variational": by a lower bound on the evidence, which it maximises; the best
        calibrated after learning. "ep": by the moments of every factor, the most accurate for given
        hyperparameters. "laplace": at the mode, the fastest, but its probabilities stay too close to 1/2.
    link : {"probit", "logit"}
        s.
    optimizer : "lbfgs" or None
        None keeps the hyperparameters as given.
    n_restarts_optimizer : int
        Further starts, drawn in the scale of the inputs.
    priors : mapping or None
        Hyperparameter name -> Prior, see `gp_core.priors`.
    max_iter : int
        Iterations of the optimiser per start.
    random_state : None, int or numpy Generator
        Seed of the restarts.

    Attributes
    ----------
    classes_ : array (C,)
        The labels.
    kernel_, mean_ : Kernel and Mean, or tuples of them
        With the learned hyperparameters; for more than two classes one per class.
    log_marginal_likelihood_value_ : float
        Approximate log p(y), summed over the classes.
    n_iter_ : int
        Evaluations of the evidence, the most that a class took.
    models_ : tuple of BinaryGP
        One per class (one for two), with the posterior and how the search went.

    References
    ----------
    Lecture "Kernels and Gaussian processes": "Gaussian Processes for Classification", "Predictive Distribution".
    Lecture "Gaussian inference, from problem definition to GP classification": "5. Gaussian Process Classification".
    Rasmussen and Williams (2006), equations 3.21 to 3.25 (Laplace) and 3.65 (EP).

    Examples
    --------
    >>> import numpy as np
    >>> from gp_core import GaussianProcessClassifier
    >>> X = np.linspace(-3.0, 3.0, 30)[:, None]
    >>> model = GaussianProcessClassifier().fit(X, X[:, 0] > 0.5)
    >>> model.predict([[-2.0], [2.0]])
    array([False,  True])
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        mean: Any = None,
        inference: str = "variational",
        link: str = "probit",
        optimizer: str | None = "lbfgs",
        n_restarts_optimizer: int = 0,
        priors: Mapping[str, Prior] | None = None,
        max_iter: int = 200,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.mean = mean
        self.inference = inference
        self.link = link
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.priors = priors
        self.max_iter = max_iter
        self.random_state = random_state

    # -- learning --------------------------------------------------------------------------------------

    def fit(self, X: Inputs, y: npt.ArrayLike) -> GaussianProcessClassifier:
        """Learn the hyperparameters from X (N, D), or N objects, and labels y (N,); approximate p(f | y)."""
        kernel = default_kernel(self.kernel)
        inference = choose(INFERENCE, self.inference, "inference")
        link = choose(LINKS, self.link, "link")
        check_optimizer(self.optimizer)
        settings = SearchSettings.of(self, TOLERANCE)
        points, codes = fit_inputs_and_labels(self, X, y, kernel)
        self.models_ = tuple(
            fit_binary_gp(
                LatentPrior(kernel, mean),
                points,
                signs(codes, code),
                link,
                inference,
                settings=None if self.optimizer is None else settings,
                start_from_data=self.kernel is None,
                priors=self.priors,
            )
            for code, mean in zip(
                one_vs_rest(len(self.classes_)), means_of_classes(self.mean, len(self.classes_)), strict=True
            )
        )
        self._codes = codes
        kernels = tuple(model.kernel for model in self.models_)
        self.kernel_ = kernels[0] if len(kernels) == 1 else kernels
        means = tuple(model.prior.mean for model in self.models_)
        self.mean_ = means[0] if len(means) == 1 else means
        self.log_marginal_likelihood_value_ = sum(model.posterior.log_evidence for model in self.models_)
        self.n_iter_ = max(1 if m.optimum is None else m.optimum.evaluations for m in self.models_)
        for model in self.models_:
            report(model.optimum, 0.0)
            if not model.posterior.converged:
                warnings.warn(
                    f"{self.inference} did not converge in {model.posterior.iterations} iterations: "
                    "bound the kernel's variance, or use another inference",
                    ConvergenceWarning,
                    stacklevel=2,
                )
        return self

    def log_marginal_likelihood(self, theta: Any = None, eval_gradient: bool = False) -> Any:
        """Approximate log p(y), with its gradient if asked for; for "variational" a lower bound on log p(y).

        Summed over the one-vs-rest models. Priors on hyperparameters are not in it.

        theta: (P,) hyperparameters, or (C P,) for C > 2 classes, one set after the other; the learned ones
            unless given
        eval_gradient: also return the gradient, of theta's shape
        """
        check_is_fitted(self)
        if theta is None and not eval_gradient:
            return self.log_marginal_likelihood_value_
        parts: list[Array]
        if theta is None:
            parts = [model.prior.theta for model in self.models_]
        else:
            sizes = [model.prior.n_theta for model in self.models_]
            parts = np.split(as_vector(theta, "theta", sum(sizes)), np.cumsum(sizes)[:-1])
        inference = INFERENCE[self.inference]
        results = [
            evidence_and_gradient(
                model.prior.with_theta(part), model.X, signs(self._codes, code), model.link, inference
            )
            for model, part, code in zip(self.models_, parts, one_vs_rest(len(self.classes_)), strict=True)
        ]
        value = sum(result[0] for result in results)
        return (value, np.concatenate([result[1] for result in results])) if eval_gradient else value

    # -- prediction ------------------------------------------------------------------------------------

    def predict(self, X: Inputs) -> NDArray[Any]:
        """Most probable label (M,) at X."""
        check_is_fitted(self)
        if len(self.models_) == 1:
            # s is symmetric, so the average of s(f) exceeds 1/2 exactly where the mean of f exceeds 0.
            points = query_inputs(self, X, self.models_[0].kernel)
            winners = (self.models_[0].latent_mean(points) > 0.0).astype(np.intp)
        else:
            winners = np.argmax(self.predict_proba(X), axis=1)
        labels: NDArray[Any] = self.classes_[winners]
        return labels

    def predict_proba(
        self, X: Inputs, *, method: str = "integral", n_samples: int = 10_000, random_state: Any = None
    ) -> Array:
        """Probabilities (M, C) of the classes at X, averaged over the posterior of f.

        method: "integral", or "sampling" for a Monte Carlo average of s(f), to check the former with
        n_samples: draws per point, for "sampling"
        random_state: seed of the draws: None, an int or a numpy Generator
        """
        check_is_fitted(self)
        average = Averager(method, n_samples, random_state)
        points = query_inputs(self, X, self.models_[0].kernel)
        columns = [average(model.link, *model.latent(points)) for model in self.models_]
        return class_probabilities(np.stack(columns, axis=1))

    def predict_latent(self, X: Inputs, return_std: bool = False) -> Any:
        """Posterior mean of f at X: (M,), or (M, C) for C > 2 classes; with its deviation if asked for."""
        check_is_fitted(self)
        points = query_inputs(self, X, self.models_[0].kernel)
        if not return_std:
            return _columns([model.latent_mean(points) for model in self.models_])
        moments = [model.latent(points) for model in self.models_]
        return _columns([mean for mean, _ in moments]), _columns([np.sqrt(v) for _, v in moments])

    def sample_latent(self, X: Inputs, n_samples: int = 1, random_state: Any = None) -> Array:
        """Functions f drawn jointly at X from the posterior: (M, n_samples), or (M, C, n_samples) for C > 2.

        n_samples: number of functions
        random_state: seed: None, an int or a numpy Generator
        """
        check_is_fitted(self)
        points = query_inputs(self, X, self.models_[0].kernel)
        n_samples = integer_at_least(n_samples, 1, "n_samples")
        rng = generator(random_state)
        return _columns([model.sample_latent(points, n_samples, rng) for model in self.models_])


def means_of_classes(mean: Any, n_classes: int) -> list[Mean]:
    """The prior mean of every one-vs-rest model: one for all, or a list with one per class."""
    n_models = 1 if n_classes == 2 else n_classes
    if not isinstance(mean, (list, tuple)):
        return [as_mean(mean)] * n_models
    if len(mean) != n_models:
        raise ValueError(f"mean must be one mean, or a list of {n_models}, one per class; got {len(mean)}")
    return [as_mean(m) for m in mean]


def _columns(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
