"""Laplace's method: the Gaussian at the posterior mode with the curvature found there.

Shapes: N training points.
"""

from __future__ import annotations

import numpy as np

from gp_core.arrays import Array
from gp_core.classification.links import Link
from gp_core.classification.posterior import LatentPosterior, prior_times_sites
from gp_core.irls import Rows, irls
from gp_core.linalg import matrix_vector

SHRINK = (*(0.7**k for k in range(33)), 0.0)
"""Multiples of a guess that are tried as a start."""

STALE = 0.1
"""A factorisation is renewed when a step with it leaves more than this of the decrement."""


def laplace(
    K: Array,
    y: Array,
    link: Link,
    start: LatentPosterior | None = None,
    *,
    offset: Array | None = None,
    tol: float = 1e-18,
    max_iter: int = 100,
) -> LatentPosterior:
    """q(f) = N(f̂, (K⁻¹ + W)⁻¹), f̂ = argmax Ψ(f), Ψ(f) = log p(y | f) - f'K⁻¹f/2, W = -∇∇ log p(y | f̂).

    log p(y) ≈ Ψ(f̂) - log|B|/2 (Rasmussen & Williams 3.32). Newton runs on α = K⁻¹f: K is never inverted.

    K: (N, N) kernel matrix
    y: (N,) labels -1, +1
    link: likelihood
    start: a posterior for a nearby K, to begin the search from
    offset: (N,) prior mean m: the labels see f + m, and q is that of f; 0 unless given
    tol: on half the Newton decrement; log|B| is off by its square root
    max_iter: the most Newton steps
    """
    offset = np.zeros_like(y) if offset is None else offset
    mode = _Mode(K, y, link, offset)
    alphas = [link.derivatives(y, offset).d1] + ([] if start is None else [start.alpha])
    guesses = [np.stack([alpha, matrix_vector(K, alpha)])[None] for alpha in alphas]
    # Newton crawls along the link's flat tails where K is large, or has changed since the old mode.
    rows = np.zeros(1, dtype=np.intp)
    state = max((c * g for g in guesses for c in SHRINK), key=lambda s: mode.value(s, rows)[0])
    result = irls(mode.value, mode.direction, state, tol=tol, max_iter=max_iter)
    alpha, f = result.state[0]
    at = link.derivatives(y, f + offset)
    mode.factorise(at.w)
    # Where the link is flat to the last bit w is 0, and so is w times anything.
    skewness = np.divide(at.d3, at.w, out=np.zeros_like(at.w), where=at.w > 0.0)
    return LatentPosterior(
        alpha=alpha,
        mean=f,
        w=at.w,
        factor=mode.factor,
        log_evidence=float(result.value[0]) - 0.5 * mode.factor.log_determinant,
        skewness=skewness,
        converged=bool(result.converged[0]),
        iterations=mode.factorisations,
    )


class _Mode:
    """Ψ and its Newton step on the state (α, f = K α), a batch of one. Both parts are linear in a step.

    A factorisation serves for as long as steps with its old W still divide the decrement by ten: such a step
    costs O(N²) instead of O(N³).
    """

    def __init__(self, K: Array, y: Array, link: Link, offset: Array) -> None:
        self.K, self.y, self.link, self.offset = K, y, link, offset
        self.w = np.empty(0)
        self.factorisations = 0
        self.decrement = 0.0

    def factorise(self, w: Array) -> None:
        if self.factorisations == 0 or not np.array_equal(w, self.w):
            self.factor = prior_times_sites(self.K, w)
            self.w = w
            self.factorisations += 1

    def value(self, state: Array, rows: Rows) -> Array:
        alpha, f = state[0]
        return np.array([self.link.log_p(self.y, f + self.offset).sum() - 0.5 * alpha @ f])

    def direction(self, state: Array, rows: Rows) -> tuple[Array, Array]:
        alpha, f = state[0]
        at = self.link.derivatives(self.y, f + self.offset)
        if self.factorisations:
            step = self.step(alpha, f, at.d1)
            decrement = float((at.d1 - alpha) @ step[1])
        if self.factorisations == 0 or decrement > STALE * self.decrement:
            self.factorise(at.w)
            step = self.step(alpha, f, at.d1)
            decrement = float((at.d1 - alpha) @ step[1])
        self.decrement = decrement
        return step[None], np.array([decrement])

    def step(self, alpha: Array, f: Array, d1: Array) -> Array:
        """Newton's step (2, N) in (α, f) with the curvature K⁻¹ + W that was factorised last."""
        # Rasmussen & Williams algorithm 3.1: b = W f + ∇ log p, a = b - √W B⁻¹ √W K b.
        root = np.sqrt(self.w)
        b = self.w * f + d1
        a = b - root * self.factor.solve(root * matrix_vector(self.K, b))
        return np.stack([a - alpha, matrix_vector(self.K, a) - f])
