"""Gaussian process regression with Student t noise: the variational posterior and its bound on the evidence.

Student t noise is normal noise whose precision varies from point to point:

    y_i = f(x_i) + e_i,   e_i ~ N(0, s / lambda_i),   lambda_i ~ Gamma(nu / 2, nu / 2)

with s = noise_variance, the squared scale, and nu degrees of freedom. The posterior of f and lambda is replaced by the
nearest product q(f) q(lambda). Each factor follows from the other:

    q(f)        is the posterior of a Gaussian process with the noise variances D_i = s / E[lambda_i]
    q(lambda_i) = Gamma((nu + 1) / 2, (nu + E[(y_i - f_i)^2] / s) / 2)

and the bound on log p(y), which rises with every step, is

    log N(y; m, K + D) + sum_i (E[log lambda_i] - log E[lambda_i]) / 2 - KL(q(lambda_i) | p(lambda_i))

At its maximum over q the gradient by a hyperparameter is that of its explicit appearance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import digamma, gammaln

from gp_core.arrays import Array
from gp_core.kernels import Kernel
from gp_core.linalg import cholesky
from gp_core.parameters import Bounds, Parameter, Parametrised, Values
from gp_core.regression.means import Mean

_TOLERANCE = 1e-6
"""Relative change of E[lambda] at which q counts as found."""
_MOST_STEPS = 1000


@dataclass(frozen=True, repr=False)
class StudentTModel(Parametrised):
    """f ~ GP(m, k) seen through Student t noise.

    kernel, mean: k and m
    noise_variance: s, the square of the noise's scale
    degrees_of_freedom: nu
    """

    kernel: Kernel
    mean: Mean
    noise_variance: Values
    degrees_of_freedom: Values
    noise_variance_bounds: Bounds
    degrees_of_freedom_bounds: Bounds

    part_of_estimator: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("noise_variance", role="noise"),
        Parameter("degrees_of_freedom"),
    )

    def _children(self) -> tuple[Parametrised, ...]:
        return (self.kernel, self.mean)

    def _with_children(self, children: tuple[Any, ...]) -> Self:
        kernel, mean = children
        return type(self)(
            kernel,
            mean,
            self.noise_variance,
            self.degrees_of_freedom,
            self.noise_variance_bounds,
            self.degrees_of_freedom_bounds,
        )


@dataclass(frozen=True)
class Bound:
    """The bound on log p(y) at its maximum over q.

    value: the bound
    gradient: by theta (P,); empty if it was not asked for
    precisions: E[lambda_i] (N,)
    converged: whether q was found
    """

    value: float
    gradient: Array
    precisions: Array
    converged: bool


def variational_bound(
    model: StudentTModel, X: Any, residuals: Array, scale: float, start: Array, gradient: bool = False
) -> Bound:
    """The best q by coordinate ascent, O(N^3) per step.

    X: (N, D) points, or N objects
    residuals: (N,) (y - m(X)) / scale
    scale: unit of the residuals in terms of y, for the gradient by the mean
    start: (N,) E[lambda_i] to begin with
    """
    s, nu = float(model.noise_variance), float(model.degrees_of_freedom)
    K = model.kernel(X)
    precisions, converged = start, False
    for _ in range(_MOST_STEPS):
        D = s / precisions
        A = K.copy()
        A.flat[:: len(A) + 1] += D
        factor = cholesky(A, overwrite=True)
        dual = factor.solve(residuals)
        inverse = np.diagonal(factor.inverse_lower())
        # y - E[f] = D a and var f = D - D^2 diag A^-1, with a = A^-1 (y - m)
        square = np.square(D * dual) + np.maximum(D - np.square(D) * inverse, 0.0)
        rate = 0.5 * (nu + square / s)
        last, precisions = precisions, 0.5 * (nu + 1.0) / rate
        if np.abs(precisions / last - 1.0).max() < _TOLERANCE:
            converged = True
            break
    log_precisions = digamma(0.5 * (nu + 1.0)) - np.log(rate)
    n = len(residuals)
    normal = -0.5 * (residuals @ dual + factor.log_determinant + n * np.log(2.0 * np.pi))
    entropy = 0.5 * (nu + 1.0) - np.log(rate) + gammaln(0.5 * (nu + 1.0))
    entropy += 0.5 * (1.0 - nu) * digamma(0.5 * (nu + 1.0))
    prior = 0.5 * nu * np.log(0.5 * nu) - gammaln(0.5 * nu) + (0.5 * nu - 1.0) * log_precisions
    prior -= 0.5 * nu * precisions
    value = float(normal + np.sum(0.5 * (log_precisions - np.log(precisions)) + prior + entropy))
    if not gradient:
        return Bound(value, np.zeros(0), precisions, converged)
    W = 0.5 * (np.outer(dual, dual) - factor.inverse())  # d log N / dA
    parts: list[Array] = []
    if model._is_free("noise_variance"):
        parts.append(np.array([np.diagonal(W) @ D]))
    if model._is_free("degrees_of_freedom"):
        by_nu = np.log(0.5 * nu) + 1.0 - digamma(0.5 * nu) + log_precisions - precisions
        parts.append(np.array([0.5 * nu * by_nu.sum()]))
    if model.kernel.n_theta:
        parts.append(model.kernel._contract(X, None, W)[1])
    parts.append(model.mean.theta_vjp(X, dual[:, None] / scale))
    return Bound(value, np.concatenate(parts), precisions, converged)


def log_density(e: Array, nu: float) -> Array:
    """log p(e) of Student t noise of unit scale."""
    constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * np.log(nu * np.pi)
    return np.asarray(constant - 0.5 * (nu + 1.0) * np.log1p(np.square(e) / nu))
