"""Laplace's method: the Gaussian at the posterior mode with the curvature found there.

Shapes: N training points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gp_core.arrays import Array
from gp_core.classification.links import Derivatives, Link
from gp_core.classification.posterior import LatentPosterior, prior_times_sites
from gp_core.irls import Rows, irls
from gp_core.linalg import Cholesky


def laplace(
    K: Array,
    y: Array,
    link: Link,
    start: LatentPosterior | None = None,
    *,
    tol: float = 1e-13,
    max_iter: int = 100,
) -> LatentPosterior:
    """q(f) = N(f̂, (K⁻¹ + W)⁻¹), f̂ = argmax Ψ(f), Ψ(f) = log p(y | f) - f'K⁻¹f/2, W = -∇∇ log p(y | f̂).

    log p(y) ≈ Ψ(f̂) - log|B|/2 (Rasmussen & Williams 3.32). Newton runs on α = K⁻¹f: K is never inverted.

    K: (N, N) kernel matrix
    y: (N,) labels -1, +1
    link: likelihood
    start: a posterior for a nearby K, to begin the search from
    tol: on half the Newton decrement; log|B| is off by its square root
    max_iter: the most Newton steps
    """
    mode = _Mode(K, y, link)
    alpha = np.zeros_like(y) if start is None else start.alpha
    result = irls(mode.value, mode.direction, np.stack([alpha, K @ alpha])[None], tol=tol, max_iter=max_iter)
    alpha, f = result.state[0]
    at, factor = mode.last
    # Where the link is flat to the last bit w is 0, and so is w times anything.
    skewness = np.divide(at.d3, at.w, out=np.zeros_like(at.w), where=at.w > 0.0)
    return LatentPosterior(
        alpha=alpha,
        mean=f,
        w=at.w,
        factor=factor,
        log_evidence=float(result.value[0]) - 0.5 * factor.log_determinant,
        skewness=skewness,
        converged=bool(result.converged[0]),
        iterations=result.iterations,
    )


@dataclass
class _Mode:
    """Ψ and its Newton step on the state (α, f = K α), a batch of one. Both parts are linear in a step."""

    K: Array
    y: Array
    link: Link

    def value(self, state: Array, rows: Rows) -> Array:
        alpha, f = state[0]
        return np.array([self.link.log_p(self.y, f).sum() - 0.5 * alpha @ f])

    def direction(self, state: Array, rows: Rows) -> tuple[Array, Array]:
        alpha, f = state[0]
        at = self.link.derivatives(self.y, f)
        factor = prior_times_sites(self.K, at.w)
        self.last: tuple[Derivatives, Cholesky] = (at, factor)
        # Rasmussen & Williams algorithm 3.1: b = W f + ∇ log p, a = b - √W B⁻¹ √W K b.
        root = np.sqrt(at.w)
        b = at.w * f + at.d1
        a = b - root * factor.solve(root * (self.K @ b))
        step = np.stack([a - alpha, self.K @ a - f])
        return step[None], np.array([(at.d1 - alpha) @ step[1]])
