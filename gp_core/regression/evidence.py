"""The marginal likelihood of a Gaussian process with Gaussian noise, and its gradient.

With A = K + Lambda + noise_variance I, residuals r = y - m(X) and a = A^-1 r, per output

    log p(y) = -1/2 r'a - 1/2 log|A| - N/2 log 2 pi
    d log p / dtheta = sum_ij W_ij dA_ij/dtheta,   W = (a a' - A^-1) / 2
    d log p / dm = a
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import blas

from gp_core.arrays import Array
from gp_core.kernels import Kernel
from gp_core.linalg import Cholesky, cholesky
from gp_core.parallel import single_threaded_blas
from gp_core.parameters import Bounds, Parameter, Parametrised, Values
from gp_core.regression.means import Mean

_ONE_THREAD = 128
"""From this many points on BLAS is kept on one thread; below, saying so would take longer than it saves."""


@dataclass(frozen=True)
class Targets:
    """y as the model sees it: residuals from the mean, which is in the units of y, in units of `scale`.

    values: (N, O)
    scale: (O,)
    """

    values: Array
    scale: Array


@dataclass(frozen=True, repr=False)
class GPModel(Parametrised):
    """y = f(x) + e, f ~ GP(m, k), e ~ N(0, noise_variance I + Lambda).

    kernel, mean: k and m
    noise_variance: of the independent noise; 0 for none, which also keeps it out of theta
    """

    kernel: Kernel
    mean: Mean
    noise_variance: Values
    noise_variance_bounds: Bounds

    part_of_estimator: ClassVar[bool] = True
    parameters: ClassVar[tuple[Parameter, ...]] = (Parameter("noise_variance", zero=True, role="noise"),)

    def _children(self) -> tuple[Parametrised, ...]:
        return (self.kernel, self.mean)

    def _with_children(self, children: tuple[Any, ...]) -> Self:
        kernel, mean = children
        return type(self)(kernel, mean, self.noise_variance, self.noise_variance_bounds)

    def covariance(self, X: Any, noise: Array | None) -> Array:
        """A (N, N), symmetric.

        noise: Lambda, None, variances (N,) or a covariance (N, N)
        """
        A = self.kernel(X)
        n = len(A)
        if noise is not None and noise.ndim == 2:
            A += noise
        elif noise is not None:
            A.flat[:: n + 1] += noise
        A.flat[:: n + 1] += float(self.noise_variance)
        return A

    def residuals(self, X: Any, targets: Targets) -> Array:
        """(Y - m(X)) / scale, (N, O)."""
        m = self.mean(X)
        if m.ndim == 2 and m.shape[1] not in (1, targets.values.shape[1]):
            raise ValueError(f"the mean has {m.shape[1]} outputs but y has {targets.values.shape[1]}")
        difference: Array = targets.values - (m[:, None] if m.ndim == 1 else m)
        return difference / targets.scale


@dataclass(frozen=True)
class Evidence:
    """log p(y) and what its computation leaves behind.

    value: log p(y), summed over outputs
    gradient: by theta (P,); empty if it was not asked for
    factor: of A; None if the gradient was asked for, which consumes it
    dual: a (N, O)
    jitter: what the factorisation needed
    """

    value: float
    gradient: Array
    factor: Cholesky | None
    dual: Array
    jitter: float


def evidence(
    model: GPModel, X: Any, targets: Targets, noise: Array | None, gradient: bool = False
) -> Evidence:
    """log p of the scaled residuals (N, O), outputs independent given the shared hyperparameters.

    O(N^3) time. Memory: one N x N matrix for the value, and with the gradient the same one turned into the
    inverse plus what the kernel needs to contract it.
    """
    with single_threaded_blas() if len(targets.values) >= _ONE_THREAD else nullcontext():
        return _evidence(model, X, targets, noise, gradient)


def _evidence(model: GPModel, X: Any, targets: Targets, noise: Array | None, gradient: bool) -> Evidence:
    factor = cholesky(model.covariance(X, noise), overwrite=True)
    state = condition_on(model, X, targets, factor)
    if not gradient or not model.n_theta:
        return state
    dual, outputs = state.dual, state.dual.shape[1]
    V = _weights(factor, dual)
    parts = []
    if model._is_free("noise_variance"):
        parts.append(np.array([-outputs * float(model.noise_variance) * np.trace(V)]))
    if model.kernel.n_theta:
        parts.append(-outputs * model.kernel._contract(X, None, V, upper=True)[1])
    parts.append(model.mean.theta_vjp(X, dual / targets.scale))
    return Evidence(state.value, np.concatenate(parts), None, dual, factor.jitter)


def condition_on(model: GPModel, X: Any, targets: Targets, factor: Cholesky) -> Evidence:
    """log p of the scaled residuals, from the factor of A."""
    n, outputs = targets.values.shape
    residuals = model.residuals(X, targets)
    dual = factor.solve(residuals)
    value = (
        -0.5 * float(np.vdot(residuals, dual))
        - 0.5 * outputs * factor.log_determinant
        - 0.5 * n * outputs * np.log(2.0 * np.pi)
    )
    return Evidence(value, np.zeros(0), factor, dual, factor.jitter)


def _weights(factor: Cholesky, dual: Array) -> Array:
    """V = -W / O (N, N) folded into its upper triangle, V_ij + V_ji for i < j; consumes the factor.

    Since dA is symmetric the sum over the folded half is the sum over all of V. It is V rather than W because the
    inverse, which it is made from in place, then needs no further pass for the sign.
    """
    V = factor.inverse_lower(overwrite=True)
    for a in dual.T:
        V = blas.dsyr(-1.0 / dual.shape[1], a, lower=1, a=V, overwrite_a=1)
    V.T.flat[:: len(V) + 1] *= 0.5
    return V.T  # Fortran order lower is C order upper
