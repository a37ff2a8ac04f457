"""The fixed-point iteration behind expectation propagation and variational inference.

Both look for sites exp(ν f - w f²/2) such that every posterior marginal is a projection of the true factor
times the cavity: onto its own moments (expectation propagation) or onto the Gaussian that is closest in the
other direction of the Kullback-Leibler divergence (variational inference). Only the projection differs.

Shapes: N training points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gp_core.arrays import Array
from gp_core.classification.posterior import LatentPosterior, Marginals, marginals

FLOOR = 1e-10
"""Site precisions stay above this times the prior precision: a site that says nothing keeps its place."""

MEMORY = 6
"""Past iterates that the acceleration looks back on."""

REACH = 0.5
"""An accelerated step longer than this, in posterior standard deviations and in log w, is not trusted."""


@dataclass(frozen=True)
class Cavity:
    """The posterior with one site divided out, point by point.

    mean: (N,) means
    variance: (N,) variances
    """

    mean: Array
    variance: Array


Projection = Callable[[Cavity, Marginals], tuple[Array, Array]]
"""Means (N,) and variances (N,) that the factors ask for, given the cavities and the present marginals."""


@dataclass(frozen=True)
class Sites:
    """Where the iteration ended.

    nu: (N,) ν
    w: (N,) w, positive
    posterior: marginals under these sites
    cavity: cavities under these sites
    converged: whether the gap fell below the tolerance
    iterations: factorisations
    """

    nu: Array
    w: Array
    posterior: Marginals
    cavity: Cavity
    converged: bool
    iterations: int

    def latent_posterior(self, log_evidence: float) -> LatentPosterior:
        """q under these sites, with the evidence that the method gives it."""
        q = self.posterior
        return LatentPosterior(
            alpha=q.alpha,
            mean=q.mean,
            w=self.w,
            factor=q.factor,
            log_evidence=log_evidence,
            skewness=None,
            converged=self.converged,
            iterations=self.iterations,
        )


def solve_sites(K: Array, start: LatentPosterior, project: Projection, *, tol: float, max_iter: int) -> Sites:
    """Sites whose posterior marginals equal their projections, all updated at once.

    A sweep costs one factorisation and one inverse. One that widens the gap between marginals and projections
    damps the next; close to the solution Anderson's method, on (ν, log w), takes over. For log-concave
    factors w stays positive and every cavity is proper.

    K: (N, N) kernel matrix
    start: where to begin
    project: what the factors make of their cavities
    tol: on the gap, in units of the posterior standard deviation
    max_iter: the most sweeps
    """
    K = _without_zeros(K)
    floor = FLOOR / np.diagonal(K)
    x = np.concatenate([start.alpha + start.w * start.mean, np.log(np.maximum(start.w, floor))])
    n = len(floor)
    damping, last_gap = 1.0, np.inf
    history: list[tuple[Array, Array]] = []
    for iteration in range(1, max_iter + 1):
        nu, w = x[:n], np.maximum(np.exp(x[n:]), floor)
        q = marginals(K, nu, w)
        # Dividing the site out of q (Rasmussen & Williams 3.56), with 1 - w v = q.kept.
        cavity = Cavity((q.mean - q.variance * nu) / q.kept, q.variance / q.kept)
        mean, variance = project(cavity, q)
        std = np.sqrt(q.variance)
        gap = float(np.max(np.abs([(mean - q.mean) / std, variance / q.variance - 1.0])))
        if not np.isfinite(gap):
            raise ValueError(
                "the posterior is not finite here: bound the kernel's variance, or scale the inputs"
            )
        if gap <= tol or iteration == max_iter:
            break
        # The site that turns the cavity into the projection (Rasmussen & Williams 3.59).
        new_w = np.maximum(1.0 / variance - 1.0 / cavity.variance, floor)
        new_nu = mean / variance - cavity.mean / cavity.variance
        if gap > last_gap:
            damping = max(0.5 * damping, 0.02)
            history.clear()
        else:
            damping = min(1.2 * damping, 1.0)
        last_gap = gap
        history.append((x, np.concatenate([new_nu, np.log(new_w)])))
        del history[:-MEMORY]
        scale = np.concatenate([std, np.ones(n)])
        accelerated = _anderson(history, scale)
        if len(history) > 1 and np.max(np.abs(scale * (accelerated - x))) <= REACH:
            x = accelerated
        else:
            x = np.concatenate([nu + damping * (new_nu - nu), np.log(w + damping * (new_w - w))])
    return Sites(nu, w, q, cavity, gap <= tol, iteration)


def _without_zeros(K: Array) -> Array:
    """K, with a little variance where the prior says that f is exactly 0: a marginal needs some width."""
    diagonal = np.diagonal(K)
    least = 1e-12 * (float(diagonal.max()) or 1.0)
    if diagonal.min() >= least:
        return K
    K = K.copy()
    np.fill_diagonal(K, np.maximum(diagonal, least))
    return K


def _anderson(history: list[tuple[Array, Array]], scale: Array) -> Array:
    """Next iterate of a fixed-point map from its past (Anderson 1965; type II of Walker & Ni 2011).

    history: pairs (x, g(x)), the latest last
    scale: weights that make the entries of x comparable
    """
    points = np.array([x for x, _ in history])
    residuals = np.array([image - x for x, image in history])
    steps = np.diff(points, axis=0)
    changes = np.diff(residuals, axis=0)
    mix, *_ = np.linalg.lstsq((changes * scale).T, residuals[-1] * scale, rcond=1e-8)
    result: Array = points[-1] - mix @ steps + residuals[-1] - mix @ changes
    return result
