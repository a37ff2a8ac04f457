"""Variational inference: the Gaussian, with full covariance, that maximises the lower bound on the evidence.

Shapes: N training points.
"""

from __future__ import annotations

import numpy as np

from gp_core.arrays import Array
from gp_core.classification.laplace import laplace
from gp_core.classification.links import Link
from gp_core.classification.posterior import LatentPosterior, Marginals
from gp_core.classification.sites import Cavity, solve_sites
from gp_core.irls import Rows, irls
from gp_core.quadrature import gaussian_expectation


def variational(
    K: Array,
    y: Array,
    link: Link,
    start: LatentPosterior | None = None,
    *,
    offset: Array | None = None,
    tol: float = 1e-7,
    max_iter: int = 1000,
) -> LatentPosterior:
    """q = argmax E_q log p(y | f) - KL(q || N(0, K)) over all Gaussians: the highest lower bound on log p(y).

    At the optimum q has mean K α and precision K⁻¹ + diag(w), with α = E_q ∂ log p and w = -E_q ∂² log p:
    2N numbers instead of N²/2 (Opper & Archambeau 2009). This holds exactly when every marginal of q is the
    best Gaussian for its own factor times its cavity, so the search is the one of expectation propagation
    with that projection.

    K: (N, N) kernel matrix
    y: (N,) labels -1, +1
    link: likelihood
    start: a posterior for a nearby K, to begin from; without one, Laplace's
    offset: (N,) prior mean m: the labels see f + m, and q is that of f; 0 unless given
    tol: on the gap between marginals and projections, in units of the posterior standard deviation
    max_iter: the most sweeps
    """
    m = np.zeros_like(y) if offset is None else offset

    def project(cavity: Cavity, q: Marginals) -> tuple[Array, Array]:
        shifted = Cavity(cavity.mean + m, cavity.variance)
        mean, variance = _closest_gaussians(y, link, shifted, q.mean + m, q.variance)
        return mean - m, variance

    start = start or laplace(K, y, link, offset=m, tol=1e-3)
    sites = solve_sites(K, start, project, tol=tol, max_iter=max_iter)
    q = sites.posterior
    # KL(q || N(0, K)) = (tr B⁻¹ - N + α'K α + log|B|) / 2
    divergence = 0.5 * (np.sum(q.kept - 1.0) + q.alpha @ q.mean + q.factor.log_determinant)
    expected = float(np.sum(_expected_log_p(y, link, q.mean + m, q.variance)))
    return sites.latent_posterior(expected - float(divergence))


def _expected_log_p(y: Array, link: Link, mean: Array, variance: Array) -> Array:
    """E log p(y | f) (N,) under N(mean, variance)."""
    return gaussian_expectation(lambda f: link.log_p(y[:, None], f), mean, variance)


def _closest_gaussians(
    y: Array, link: Link, cavity: Cavity, mean: Array, variance: Array
) -> tuple[Array, Array]:
    """Means (N,) and variances (N,) that maximise E log p(y_i | f_i) - KL(N(m, s²) || cavity_i), one by one.

    The search begins at `mean` and `variance`. Each bound is concave in (m, s) for a log-concave link
    (Challis & Barber 2011): Newton finds all at once.
    """

    def value(state: Array, rows: Rows) -> Array:
        m, s = state.T
        inside = s > 0.0
        s = np.where(inside, s, 1.0)
        distance = (s**2 + (m - cavity.mean[rows]) ** 2) / cavity.variance[rows]
        bound = _expected_log_p(y[rows], link, m, s**2) - 0.5 * distance + np.log(s)
        return np.where(inside, bound, -np.inf)

    def direction(state: Array, rows: Rows) -> tuple[Array, Array]:
        m, s = state.T
        at = link.expected(y[rows], m, s**2)
        precision = 1.0 / cavity.variance[rows]
        slope_m = at.d1 - (m - cavity.mean[rows]) * precision
        slope_s = 1.0 / s - s * (at.w + precision)
        # Minus the Hessian is [[a, b], [b, c]].
        a, b, c = at.w + precision, at.wt, at.wtt + precision + s**-2.0
        determinant = a * c - b**2
        step_m = (c * slope_m - b * slope_s) / determinant
        step_s = (a * slope_s - b * slope_m) / determinant
        return np.stack([step_m, step_s], axis=1), slope_m * step_m + slope_s * step_s

    result = irls(value, direction, np.stack([mean, np.sqrt(variance)], axis=1), tol=1e-8)
    # One more step: the bound's rounding hides the last digits of its maximiser, Newton's equation does not.
    polish, _ = direction(result.state, np.arange(len(y)))
    m, s = (result.state + polish).T
    return m, s**2
