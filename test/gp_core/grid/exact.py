"""The reference: a dense GP in float64, and terrain with holes to compare on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.blas import dtrmv

from gp_core.kernels import Kernel

BLOCK = 500
"""Cells at a time: all at once would take gigabytes."""


@dataclass(frozen=True)
class Exact:
    """At all cells; gradients at every so many of them."""

    mean: np.ndarray
    variance: np.ndarray
    gradient: np.ndarray
    gradient_variance: np.ndarray
    log_likelihood: float


def exact_posterior(kernel: Kernel, X, z, noise, at, gradient: bool = True, gradient_every: int = 1) -> Exact:
    """gradient_every: cells of which one gets a gradient: each costs twice as much as all else about a cell."""
    K = kernel(X)
    K[np.diag_indices(len(X))] += noise
    L = _factor(K)
    alpha = cho_solve((L, True), z)
    log_likelihood = -0.5 * z @ alpha - np.log(np.diagonal(L)).sum() - 0.5 * len(z) * np.log(2.0 * np.pi)
    mean, variance = np.zeros(len(at)), kernel.diag(at)
    for first in range(0, len(at), BLOCK):
        block = slice(first, first + BLOCK)
        k = kernel(at[block], X)
        mean[block] = k @ alpha
        variance[block] -= _explained(L, k)
    steep = at[::gradient_every]
    g, g_variance = np.zeros((len(steep), 2)), np.full((len(steep), 2), np.inf)
    if gradient:
        g_variance[:] = np.diagonal(kernel.gradient_xz_diag(steep), axis1=1, axis2=2)
        for first in range(0, len(steep), BLOCK):
            block = slice(first, first + BLOCK)
            G = kernel.gradient_x(steep[block], X)
            for d in (0, 1):
                g[block, d] = G[:, :, d] @ alpha
                g_variance[block, d] -= _explained(L, G[:, :, d])
    return Exact(mean, variance, g, g_variance, float(log_likelihood))


def _factor(K: np.ndarray) -> np.ndarray:
    """Lower triangular, in the place of K: as the transpose, LAPACK's order, it needs no copy."""
    return cholesky(K.T, lower=True, overwrite_a=True, check_finite=False)


def _explained(L: np.ndarray, k: np.ndarray) -> np.ndarray:
    """What the points take from the prior variance, for each row of k."""
    half = solve_triangular(L, np.ascontiguousarray(k).T, lower=True, overwrite_b=True, check_finite=False)
    return np.einsum("ij,ij->j", half, half)


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
    return dtrmv(_factor(K), rng.standard_normal(len(X)), lower=1) + np.sqrt(noise) * rng.standard_normal(
        len(X)
    )
