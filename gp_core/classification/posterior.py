"""The Gaussian that every inference method ends with, and what all of them read from it.

Laplace, expectation propagation and the variational bound all replace each factor p(y_i | f_i) by a Gaussian
site exp(ν_i f_i - w_i f_i² / 2) and differ only in how they choose ν and w. So the posterior, its predictions
and most of the gradient of the evidence are the same for the three.

Shapes: N training points, M query points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas

from gp_core.arrays import Array
from gp_core.linalg import Cholesky, cholesky, matrix_vector, mirror_lower


@dataclass(frozen=True)
class LatentPosterior:
    """q(f) = N(K α, (K⁻¹ + diag w)⁻¹), an approximation of p(f | y) under the prior N(0, K).

    alpha: (N,) α, the posterior mean in the kernel's span: E[f] = K α
    mean: (N,) K α
    w: (N,) site precisions, not negative
    factor: Cholesky factor of B = I + √w K √w; its eigenvalues are at least 1
    log_evidence: approximate log p(y)
    skewness: (N,) ∂³ log p / w at the mode where the sites follow the mode (Laplace), else None
    converged: whether the method met its tolerance
    iterations: factorisations that it took
    """

    alpha: Array
    mean: Array
    w: Array
    factor: Cholesky
    log_evidence: float
    skewness: Array | None
    converged: bool
    iterations: int

    def latent(self, K_star: Array, k_diag: Array) -> tuple[Array, Array]:
        """Mean (M,) and variance (M,) of the latent function at queries (Rasmussen & Williams 3.21 and 3.24).

        K_star: (M, N) kernel between query and training points
        k_diag: (M,) prior variance at the query points
        """
        variance = k_diag - self.factor.quadratic(K_star * np.sqrt(self.w))
        return K_star @ self.alpha, np.maximum(variance, 0.0)

    def covariance(self, K_star: Array, K_star_star: Array) -> Array:
        """Joint covariance (M, M) of the latent function at query points.

        K_star: (M, N) kernel between query and training points
        K_star_star: (M, M) prior covariance of the query points
        """
        half = self.factor.half_solve(np.asfortranarray((K_star * np.sqrt(self.w)).T), overwrite=True)
        joint: Array = K_star_star - half.T @ half
        return joint

    def evidence_weights(self, K: Array) -> tuple[Array, Array]:
        """G (N, N), symmetric, and a (N,), the effect on q included, with

            ∂ log evidence / ∂θ = Σ_ij G_ij ∂K_ij/∂θ + Σ_i a_i ∂m_i/∂θ

        G = (α α' - R)/2 with R = (K + diag(w)⁻¹)⁻¹ where the evidence is stationary in q (Rasmussen &
        Williams 5.27). Laplace's mode moves with θ and carries W along, which adds (u α' + α u')/2 with
        u = (I - R K) s and s_i = V_ii ∂³ log p / 2 (Rasmussen & Williams 5.22-5.24). By the prior mean m the
        derivative is a = α, and α + u for Laplace: f̂ + m moves by (I + K W)⁻¹ for each unit of m.

        K: (N, N) the kernel matrix that q belongs to
        """
        root = np.sqrt(self.w)
        G = self.factor.inverse_lower()
        shrink = 1.0 - np.diagonal(G)  # w_i times the posterior variance of f_i
        G *= -0.5 * root[:, None]
        G *= root[None, :]  # -R/2, the lower triangle
        pull = self.alpha
        if self.skewness is not None:
            s = 0.5 * shrink * self.skewness
            pull = pull + 2.0 * s + 4.0 * blas.dsymv(1.0, G, matrix_vector(K, s), lower=1)  # α + 2u
        G = blas.dsyr2(0.25, self.alpha, pull, a=G, lower=1, overwrite_a=1)
        mirror_lower(G)
        return G.T, 0.5 * (self.alpha + pull)  # G in C order


def prior_times_sites(K: Array, w: Array) -> Cholesky:
    """Factor of B = I + √w K √w, well conditioned whatever K is (Rasmussen & Williams 3.26).

    K: (N, N) kernel matrix
    w: (N,) site precisions, not negative
    """
    root = np.sqrt(w)
    B = K * root[:, None]
    B *= root[None, :]
    B.flat[:: len(B) + 1] += 1.0
    factor = cholesky(B, overwrite=True, what=NOT_PSD, remedy=PSD_REMEDY)
    if factor.jitter > 0.0:
        raise ValueError(f"{NOT_PSD} is not positive definite here: {PSD_REMEDY}")
    return factor


NOT_PSD = "the kernel matrix of the training points"
PSD_REMEDY = "use a valid kernel (gp_core.kernels.is_valid_kernel tells which it is not) or add White to it"


@dataclass(frozen=True)
class Marginals:
    """What a set of Gaussian sites makes of the prior, point by point.

    factor: Cholesky factor of B = I + √w K √w
    alpha: (N,) posterior mean in the kernel's span
    mean: (N,) posterior means
    variance: (N,) posterior variances
    kept: (N,) diagonal of B⁻¹, the share of a point's posterior variance that its own site leaves: 1 - w v
    """

    factor: Cholesky
    alpha: Array
    mean: Array
    variance: Array
    kept: Array


def marginals(K: Array, nu: Array, w: Array) -> Marginals:
    """Posterior marginals under sites exp(ν f - w f²/2), in O(N³).

    K: (N, N) kernel matrix
    nu: (N,) ν
    w: (N,) positive site precisions
    """
    factor = prior_times_sites(K, w)
    root = np.sqrt(w)
    # α = ν - √w B⁻¹ √w K ν (Rasmussen & Williams 3.27).
    alpha = nu - root * factor.solve(root * matrix_vector(K, nu))
    inverse = factor.inverse()
    kept = np.diagonal(inverse).copy()
    # V_ii = (1 - (B⁻¹)_ii) / w_i, and the same without the cancellation where w_i V_ii is small.
    inverse *= K
    variance = np.where(kept < 0.9, (1.0 - kept) / w, (inverse @ root) / root)
    return Marginals(factor, alpha, matrix_vector(K, alpha), variance, kept)
