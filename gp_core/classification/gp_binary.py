"""One Gaussian process with a Bernoulli likelihood: hyperparameters, posterior, predictions.

Shapes: N training points, M query points, P hyperparameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gp_core.arrays import Array
from gp_core.classification.ep import expectation_propagation
from gp_core.classification.laplace import laplace
from gp_core.classification.links import Link
from gp_core.classification.posterior import NOT_PSD, PSD_REMEDY, LatentPosterior
from gp_core.classification.variational import variational
from gp_core.kernels import Kernel
from gp_core.linalg import cholesky
from gp_core.optimize import Optimum
from gp_core.parallel import single_threaded_blas
from gp_core.parameters import Parametrised
from gp_core.priors import Prior, log_prior
from gp_core.regression.means import Mean
from gp_core.scales import DataScale
from gp_core.search import SearchSettings, maximize_likelihood

Inference = Callable[..., LatentPosterior]
"""(K, y, link, start, offset=m) -> q."""
INFERENCE: dict[str, Inference] = {
    "laplace": laplace,
    "ep": expectation_propagation,
    "variational": variational,
}
TOLERANCE = 1e-5
"""Of the search for hyperparameters: the evidence itself is only known to about 1e-7."""

_BATCH_ENTRIES = 2_000_000
"""Entries of K(X*, X) that a prediction holds at a time."""


@dataclass(frozen=True, repr=False)
class LatentPrior(Parametrised):
    """f ~ GP(m, k): what the hyperparameters belong to.

    kernel: k
    mean: m
    """

    kernel: Kernel
    mean: Mean

    def _children(self) -> tuple[Parametrised, ...]:
        return (self.kernel, self.mean)

    def _with_children(self, children: tuple[Any, ...]) -> Self:
        return type(self)(*children)

    def offset(self, X: Any) -> Array:
        """m(X) (N,)."""
        m = self.mean(X)
        if m.ndim != 1:
            raise ValueError(f"the mean of a latent function must have shape ({len(X)},), got {m.shape}")
        return m


@dataclass(frozen=True)
class BinaryGP:
    """p(y_i | f(x_i)) with f ~ GP(m, k), seen through a Gaussian approximation of p(f - m | y).

    prior: k and m
    link: p(y | f)
    X: training points (N, D), or N objects
    posterior: q(f - m)
    optimum: how the search for the hyperparameters went; None if they were given
    """

    prior: LatentPrior
    link: Link
    X: Any
    posterior: LatentPosterior
    optimum: Optimum | None

    @property
    def kernel(self) -> Kernel:
        """k, with the learned hyperparameters."""
        return self.prior.kernel

    def latent(self, X: Any) -> tuple[Array, Array]:
        """Mean (M,) and variance (M,) of f at X."""
        mean, variance = np.empty(len(X)), np.empty(len(X))
        with single_threaded_blas():
            for rows in _batches(len(X), len(self.X)):
                K_star = self.kernel(X[rows], self.X)
                mean[rows], variance[rows] = self.posterior.latent(K_star, self.kernel.diag(X[rows]))
        return mean + self.prior.offset(X), variance

    def latent_mean(self, X: Any) -> Array:
        """Mean (M,) of f at X, in O(N) per point."""
        parts = [
            self.kernel(X[rows], self.X) @ self.posterior.alpha for rows in _batches(len(X), len(self.X))
        ]
        return np.concatenate(parts) + self.prior.offset(X)

    def sample_latent(self, X: Any, n_samples: int, rng: np.random.Generator) -> Array:
        """Functions (M, n_samples) drawn jointly from q at X."""
        K_star = self.kernel(X, self.X)
        covariance = self.posterior.covariance(K_star, self.kernel(X))
        scale = max(float(self.kernel.diag(X).mean()), np.finfo(np.float64).tiny)
        factor = cholesky(covariance, overwrite=True, scale=scale, remedy=PSD_REMEDY)
        draws = factor.lower @ rng.standard_normal((len(X), n_samples))
        return np.asarray(draws + (K_star @ self.posterior.alpha + self.prior.offset(X))[:, None])


def fit_binary_gp(
    prior: LatentPrior,
    X: Any,
    y: Array,
    link: Link,
    inference: Inference,
    *,
    settings: SearchSettings | None,
    start_from_data: bool,
    priors: Mapping[str, Prior] | None,
) -> BinaryGP:
    """The posterior under the hyperparameters that maximise the approximate evidence (times their prior).

    prior: k and m with the first hyperparameters to try
    X: (N, D) points, or N objects
    y: (N,) labels -1, +1
    link: p(y | f)
    inference: one of INFERENCE
    settings: of the search; None keeps the hyperparameters
    start_from_data: whether the search begins where the scale of the inputs suggests, not at those of `prior`
    priors: hyperparameter name -> Prior
    """
    optimum = None
    last: LatentPosterior | None = None

    def likelihood(trial: LatentPrior, gradient: bool) -> tuple[float, Array]:
        nonlocal last
        log_p, log_p_gradient = log_prior(priors, trial)
        if not gradient:  # far from the last point, which would be no help
            q = inference(trial.kernel(X), y, link, None, offset=trial.offset(X))
            return q.log_evidence + log_p, log_p_gradient
        value, slope, last = evidence_and_gradient(trial, X, y, link, inference, last)
        return value + log_p, slope + log_p_gradient

    with single_threaded_blas():
        if settings is not None and prior.n_theta:
            # A latent function has no unit but that of the link, so only the inputs set a scale.
            prior, optimum = maximize_likelihood(prior, likelihood, settings, DataScale(X), start_from_data)
        K = prior.kernel(X)
        # Inference never inverts K, so a matrix that is not a covariance could pass it unnoticed.
        cholesky(K, what=NOT_PSD, remedy=PSD_REMEDY)
        return BinaryGP(prior, link, X, inference(K, y, link, last, offset=prior.offset(X)), optimum)


def evidence_and_gradient(
    prior: LatentPrior,
    X: Any,
    y: Array,
    link: Link,
    inference: Inference,
    start: LatentPosterior | None = None,
) -> tuple[float, Array, LatentPosterior]:
    """Approximate log p(y), its gradient (P,) by theta, and the posterior it was read from."""
    with single_threaded_blas():
        K, offset = prior.kernel(X), prior.offset(X)
        posterior = inference(K, y, link, start, offset=offset)
        if start is not None and not posterior.converged:
            posterior = inference(K, y, link, None, offset=offset)  # the start was too far off to be of help
        by_K, by_mean = posterior.evidence_weights(K)
        gradient = prior.kernel._contract(X, None, by_K)[1]
        if prior.mean.n_theta:
            gradient = np.concatenate([gradient, prior.mean.theta_vjp(X, by_mean[:, None])])
        return posterior.log_evidence, gradient, posterior


def _batches(m: int, n: int) -> Iterator[slice]:
    step = max(1, _BATCH_ENTRIES // n)
    for start in range(0, m, step):
        yield slice(start, start + step)
