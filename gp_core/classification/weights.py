"""Laplace's method for the weights of a linear classifier.

Shapes: N points, F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gp_core.arrays import Array
from gp_core.classification.links import Derivatives, Link
from gp_core.irls import Rows, irls
from gp_core.linalg import Cholesky, cholesky


@dataclass(frozen=True)
class WeightPosterior:
    """q(w) = N(mean, root root').

    mean: (F,) mode of p(w | y)
    root: (F, F) a square root of the covariance
    log_evidence: approximate log p(y)
    slope: derivative of log_evidence by the logarithm of a factor on the prior covariance
    converged: whether Newton met its tolerance
    iterations: Newton steps
    """

    mean: Array
    root: Array
    log_evidence: float
    slope: float
    converged: bool
    iterations: int

    def latent(self, Phi: Array) -> tuple[Array, Array]:
        """Mean (N,) and variance (N,) of φ'w for features Phi (N, F)."""
        half = Phi @ self.root
        return Phi @ self.mean, np.einsum("nf,nf->n", half, half)


@dataclass(frozen=True)
class _Likelihood:
    """log p(y | f) of points that may count several times.

    link: p(y | f)
    y: (N,) labels -1, +1
    counts: (N,) how often each point counts; None for once
    """

    link: Link
    y: Array
    counts: Array | None

    def log_p(self, f: Array) -> float:
        """Sum over the points."""
        parts = self.link.log_p(self.y, f)
        return float(parts.sum() if self.counts is None else self.counts @ parts)

    def derivatives(self, f: Array) -> Derivatives:
        """Of each point's part of the sum, by its f."""
        at = self.link.derivatives(self.y, f)
        s = self.counts
        if s is None:
            return at
        return Derivatives(s * at.log_p, s * at.d1, s * at.w, s * at.d3)


def laplace_weights(
    Phi: Array,
    y: Array,
    link: Link,
    prior_mean: Array,
    prior_root: Array,
    *,
    counts: Array | None = None,
    tol: float = 1e-18,
    max_iter: int = 100,
) -> WeightPosterior:
    """q(w) = N(ŵ, (S0⁻¹ + Φ'WΦ)⁻¹), ŵ = argmax log p(y | Φ w) + log N(w; m0, S0), W = -∇∇ log p(y | Φ ŵ).

    With w = m0 + S0^½ u and X = Φ S0^½ the prior of u is N(0, I) and its posterior precision A = I + X'WX, so
    a singular S0 does no harm. log p(y) ≈ log p(y | Φ ŵ) - û'û/2 - log|A|/2.

    Phi: (N, F) features
    y: (N,) labels -1, +1
    link: likelihood
    prior_mean: (F,) m0
    prior_root: (F, F) S0^½
    counts: (N,) how often each point counts; None for once
    tol: on half the Newton decrement
    max_iter: the most Newton steps
    """
    offset, X = Phi @ prior_mean, Phi @ prior_root
    likelihood = _Likelihood(link, y, counts)

    def value(u: Array, rows: Rows) -> Array:
        return np.array([likelihood.log_p(offset + X @ u[0]) - 0.5 * u[0] @ u[0]])

    def direction(u: Array, rows: Rows) -> tuple[Array, Array]:
        at = likelihood.derivatives(offset + X @ u[0])
        gradient = X.T @ at.d1 - u[0]
        step = _precision(X, at.w).solve(gradient)
        return step[None], np.array([gradient @ step])

    result = irls(value, direction, np.zeros((1, Phi.shape[1])), tol=tol, max_iter=max_iter)
    u = result.state[0]
    at = likelihood.derivatives(offset + X @ u)
    factor = _precision(X, at.w)
    half = factor.half_solve(X.T)  # (F, N)
    variance = np.einsum("fn,fn->n", half, half)
    # By the logarithm of a factor on S0: u'u/2 - tr(I - A⁻¹)/2, and what W does as ŵ moves along X A⁻¹ u.
    drift = 0.5 * (variance * at.d3) @ (X @ factor.solve(u))
    return WeightPosterior(
        mean=prior_mean + prior_root @ u,
        root=factor.half_solve(np.asfortranarray(prior_root.T)).T,
        log_evidence=float(result.value[0]) - 0.5 * factor.log_determinant,
        slope=float(0.5 * (u @ u) - 0.5 * (at.w @ variance) + drift),
        converged=bool(result.converged[0]),
        iterations=result.iterations,
    )


def feature_weights(
    Phi: Array, y: Array, link: Link, q: WeightPosterior, counts: Array | None = None
) -> Array:
    """G (N, F) with ∂ log evidence / ∂θ = Σ_nf G_nf ∂φ_f(x_n)/∂θ: type-2 maximum likelihood of the features.

    With v_n = φ_n'S φ_n, c = v ∂³ log p / 2 and t = S Φ'c,

        G = (∂ log p + c - W Φ t) ŵ' + ∂ log p t' - W Φ S

    The first term moves the log odds at fixed ŵ, c is what W does as they move, t how ŵ follows, and the last
    is the explicit change of log|A|.

    Phi: (N, F) features
    y: (N,) labels -1, +1
    link: likelihood
    q: the posterior found with them
    counts: (N,) how often each point counts; None for once
    """
    at = _Likelihood(link, y, counts).derivatives(Phi @ q.mean)
    half = Phi @ q.root
    c = 0.5 * np.einsum("nf,nf->n", half, half) * at.d3
    t = q.root @ (half.T @ c)
    G = np.outer(at.d1 + c - at.w * (Phi @ t), q.mean) + np.outer(at.d1, t)
    G -= at.w[:, None] * (half @ q.root.T)
    return np.asarray(G)


def _precision(X: Array, w: Array) -> Cholesky:
    """Factor of A = I + X' diag(w) X; its eigenvalues are at least 1."""
    A = X.T @ (w[:, None] * X)
    A.flat[:: len(A) + 1] += 1.0
    return cholesky(A, overwrite=True, what="the posterior precision", remedy="scale the features")
