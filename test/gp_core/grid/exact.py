"""The reference: a dense GP in float64, and terrain with holes to compare on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from gp_core.kernels import Kernel


@dataclass(frozen=True)
class Exact:
    mean: np.ndarray
    variance: np.ndarray
    gradient: np.ndarray
    gradient_variance: np.ndarray
    log_likelihood: float


def exact_posterior(kernel: Kernel, X, z, noise, at, gradient: bool = True) -> Exact:
    K = kernel(X)
    K[np.diag_indices(len(X))] += noise
    L = cholesky(K, lower=True, overwrite_a=True)
    alpha = cho_solve((L, True), z)
    log_likelihood = -0.5 * z @ alpha - np.log(np.diagonal(L)).sum() - 0.5 * len(z) * np.log(2.0 * np.pi)
    k = kernel(at, X)
    mean = k @ alpha
    variance = kernel.diag(at) - (solve_triangular(L, k.T, lower=True) ** 2).sum(0)
    g, g_variance = np.zeros((len(at), 2)), np.full((len(at), 2), np.inf)
    if gradient:
        G = kernel.gradient_x(at, X)
        prior = kernel.gradient_xz_diag(at)
        for d in (0, 1):
            g[:, d] = G[:, :, d] @ alpha
            half = solve_triangular(L, np.ascontiguousarray(G[:, :, d].T), lower=True)
            g_variance[:, d] = prior[:, d, d] - (half**2).sum(0)
    return Exact(mean, variance, g, g_variance, float(log_likelihood))


def points_with_holes(n: int, side: float, rng: np.random.Generator) -> np.ndarray:
    """n positions in a square, none in four round holes."""
    X = rng.uniform(0.0, side, (2 * n, 2))
    for x, y, radius in ((0.25, 0.25, 0.11), (0.66, 0.73, 0.16), (0.8, 0.2, 0.08), (0.16, 0.83, 0.06)):
        X = X[np.hypot(X[:, 0] - x * side, X[:, 1] - y * side) > radius * side]
    return X[:n]


def draw(kernel: Kernel, X: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Heights drawn from the GP at X, with noise."""
    K = kernel(X)
    K[np.diag_indices(len(X))] += 1e-9 * K[0, 0]
    return np.linalg.cholesky(K) @ rng.standard_normal(len(X)) + np.sqrt(noise) * rng.standard_normal(len(X))
