"""Sparse variational inference: a Gaussian process with a Bernoulli likelihood, seen through inducing points.

With M points Z, u = f(Z) - m(Z) = L v and K_ZZ = L L', the posterior is sought among

    q(f) = ∫ p(f | v) q(v) dv,   q(v) = N(mu, S)
    f_i ~ N(m_i + a_i'mu, k_ii - a_i'a_i + a_i'S a_i),   a_i = L^-1 k(Z, x_i)

by the bound Σ_i E log p(y_i | f_i) - KL(q(v) || N(0, I)) on log p(y) (Hensman, Matthews & Ghahramani 2015). With
Z = X it is the exact variational posterior. For given hyperparameters the best q has S^-1 = I + Σ w_i a_i a_i' and
mu = Σ_i a_i E ∂ log p_i, with w_i = -E ∂² log p_i under q: a fixed point, which is a step along the natural gradient.

Shapes: N training points, M inducing points, P hyperparameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from gp_core.arrays import Array
from gp_core.classification.gp_binary import LatentPrior
from gp_core.classification.links import Expected, Link
from gp_core.kernels import Kernel
from gp_core.linalg import cholesky
from gp_core.parallel import map_blocks

_JITTER = 1e-8
"""Added to the diagonal of K_ZZ, relative to its mean: inducing points may lie close together."""
_BLOCK = 2048
"""Training points at a time."""
_INTEGRALS = 256
"""Quadratures at a time: their nodes stay in the cache."""


@dataclass(frozen=True)
class Whitened:
    """q(v) = N(mu, S), S = root root'."""

    mu: Array
    root: Array

    @staticmethod
    def prior(m: int) -> Whitened:
        return Whitened(np.zeros(m), np.eye(m))

    def divergence(self) -> float:
        """KL(q || N(0, I))."""
        log_determinant = 2.0 * float(np.log(np.abs(np.diagonal(self.root))).sum())
        return 0.5 * (
            float(np.vdot(self.root, self.root)) + float(self.mu @ self.mu) - len(self.mu) - log_determinant
        )


@dataclass(frozen=True)
class SparseBound:
    """The bound at its best q for given hyperparameters.

    value: the lower bound on log p(y)
    q: the posterior of v
    converged: whether the gain of the last step was below the tolerance
    iterations: passes over the data
    """

    value: float
    q: Whitened
    converged: bool
    iterations: int


class SparseModel:
    """f ~ GP(m, k) through inducing points Z, for one set of hyperparameters.

    prior: k and m
    Z: (M, D) inducing points, or M objects
    """

    def __init__(self, prior: LatentPrior, Z: Any) -> None:
        self.prior, self.Z = prior, Z
        K = prior.kernel(Z)
        jitter = _JITTER * float(np.diagonal(K).mean())
        K.flat[:: len(K) + 1] += jitter
        self.lower = cholesky(
            K, what="the kernel matrix of the inducing points", remedy="use fewer inducing points"
        ).lower

    def project(self, X: Any) -> tuple[Array, Array]:
        """A (n, M) with rows a_i, and k_ii (n,)."""
        A = solve_triangular(self.lower, self.prior.kernel(self.Z, X), lower=True, check_finite=False)
        return np.ascontiguousarray(A.T), self.prior.kernel.diag(X)

    def latent(self, X: Any, q: Whitened) -> tuple[Array, Array]:
        """Mean (n,) and variance (n,) of f at X."""
        mean, variance = np.empty(len(X)), np.empty(len(X))

        def fill(rows: slice) -> None:
            A, k = self.project(X[rows])
            mean[rows], variance[rows] = marginals(A, k, q)

        map_blocks(fill, blocks(len(X)))
        return mean + self.prior.offset(X), variance

    def fit(
        self, X: Any, y: Array, link: Link, start: Whitened | None, *, tol: float, max_iter: int
    ) -> SparseBound:
        """The q with the highest bound on log p(y), by fixed-point steps, halved where the bound falls.

        y: (N,) labels -1, +1
        start: q(v) to begin from; the prior unless given
        tol: a step that gains less than this ends the search
        """
        m = len(self.lower)
        offset = self.prior.offset(X)
        parts = [self.project(X[rows]) for rows in blocks(len(y))]

        def evaluate(q: Whitened) -> tuple[float, Array, Array]:
            """The bound at q, and the natural parameters that it asks for: precision (M, M), shift (M,)."""

            def contribution(block: tuple[slice, tuple[Array, Array]]) -> tuple[float, Array, Array]:
                rows, (A, k) = block
                mean, variance = marginals(A, k, q)
                at = expected(link, y[rows], mean + offset[rows], variance)
                return float(at.log_p.sum()), A.T @ (at.w[:, None] * A), A.T @ (at.d1 + at.w * mean)

            results = map_blocks(contribution, list(zip(blocks(len(y)), parts, strict=True)))
            value = sum(r[0] for r in results) - q.divergence()
            precision = np.sum([r[1] for r in results], axis=0)
            precision.flat[:: m + 1] += 1.0
            return value, precision, np.sum([r[2] for r in results], axis=0)

        q = Whitened.prior(m) if start is None else start
        natural = _natural(q)
        value, *target = evaluate(q)
        step, iterations, converged = 1.0, 1, False
        while iterations < max_iter:
            trial = (
                natural[0] + step * (target[0] - natural[0]),
                natural[1] + step * (target[1] - natural[1]),
            )
            trial_q = _from_natural(*trial)
            trial_value, *trial_target = evaluate(trial_q)
            iterations += 1
            gain = trial_value - value
            if gain < -1e-9 * abs(value):
                step *= 0.5
                if step < 1e-4:
                    break
                continue
            natural, q, value, target = trial, trial_q, trial_value, trial_target
            step = min(1.0, 2.0 * step)
            if gain <= tol:
                converged = True
                break
        return SparseBound(value, q, converged, iterations)

    def gradient(self, X: Any, y: Array, link: Link, q: Whitened) -> Array:
        """Gradient (P,) of the bound by the hyperparameters, at q: where q is the best, its own change is 0.

        By a_i its derivative is d1_i mu - w_i (S - I) a_i, by k_ii it is -w_i / 2.
        """
        kernel = self.prior.kernel
        S_less_one = q.root @ q.root.T
        S_less_one.flat[:: len(S_less_one) + 1] -= 1.0
        offset = self.prior.offset(X)
        total = np.zeros(self.prior.n_theta)
        by_root = np.zeros_like(self.lower)
        for rows in blocks(len(y)):
            A, k = self.project(X[rows])
            mean, variance = marginals(A, k, q)
            at = expected(link, y[rows], mean + offset[rows], variance)
            g = at.d1[:, None] * q.mu - at.w[:, None] * (A @ S_less_one)
            by_K = solve_triangular(
                self.lower, g.T, lower=True, trans="T", check_finite=False
            )  # dA = L^-1 dK
            by_root -= by_K @ A  # and -L^-1 dL A
            size = kernel.n_theta
            total[:size] += kernel.theta_vjp(self.Z, by_K, X[rows])
            total[:size] += diagonal_vjp(kernel, X[rows], -0.5 * at.w)
            if self.prior.mean.n_theta:
                total[size:] += self.prior.mean.theta_vjp(X[rows], at.d1[:, None])
        total[: kernel.n_theta] += kernel.theta_vjp(self.Z, _through_cholesky(self.lower, by_root))
        return total


def marginals(A: Array, k: Array, q: Whitened) -> tuple[Array, Array]:
    """Mean (n,) and variance (n,) of f - m from rows A (n, M) and prior variances k (n,)."""
    spread = A @ q.root
    variance = k - np.einsum("nm,nm->n", A, A) + np.einsum("nm,nm->n", spread, spread)
    return A @ q.mu, np.maximum(variance, 1e-12 * np.maximum(k, 1e-300))


def expected(link: Link, y: Array, mean: Array, variance: Array) -> Expected:
    """`link.expected` of many points, in blocks."""
    parts = [
        link.expected(y[i : i + _INTEGRALS], mean[i : i + _INTEGRALS], variance[i : i + _INTEGRALS])
        for i in range(0, len(y), _INTEGRALS)
    ]
    return Expected(
        *(np.concatenate([getattr(p, name) for p in parts]) for name in ("log_p", "d1", "w", "wt", "wtt"))
    )


def diagonal_vjp(kernel: Kernel, X: Any, w: Array) -> Array:
    """(P,) with Σ_i w_i dk(x_i, x_i)/dtheta, from small blocks of the kernel's derivative."""
    total = np.zeros(kernel.n_theta)
    step = 16
    for i in range(0, len(w), step):
        part = X[i : i + step]
        total += kernel.theta_vjp(part, np.diag(w[i : i + step]))
    return total


def blocks(n: int) -> Iterator[slice]:
    """Slices of the training points."""
    for start in range(0, n, _BLOCK):
        yield slice(start, min(n, start + _BLOCK))


def _natural(q: Whitened) -> tuple[Array, Array]:
    """Precision (M, M) and shift (M,) of q(v)."""
    inverse = solve_triangular(q.root, np.eye(len(q.mu)), lower=False)  # the root is upper triangular
    precision: Array = inverse.T @ inverse
    return precision, precision @ q.mu


def _from_natural(precision: Array, shift: Array) -> Whitened:
    factor = cholesky(precision, what="the posterior precision", remedy="scale the inputs")
    root = solve_triangular(factor.lower, np.eye(len(shift)), lower=True).T
    return Whitened(factor.solve(shift), np.ascontiguousarray(root))


def _through_cholesky(lower: Array, by_lower: Array) -> Array:
    """The derivative by K (M, M), symmetric, from that by its Cholesky factor L (Murray 2016)."""
    P = np.tril(lower.T @ np.tril(by_lower))
    P.flat[:: len(P) + 1] *= 0.5
    half = solve_triangular(lower, P, lower=True, trans="T", check_finite=False)
    full = solve_triangular(lower, half.T, lower=True, trans="T", check_finite=False)
    return np.asarray(0.5 * (full + full.T))
