"""Expectation propagation: Gaussian sites whose posterior has the moments that each true factor asks for.

Shapes: N training points.
"""

from __future__ import annotations

import numpy as np

from gp_core.arrays import Array
from gp_core.classification.laplace import laplace
from gp_core.classification.links import Link
from gp_core.classification.posterior import LatentPosterior, Marginals
from gp_core.classification.sites import Cavity, Sites, solve_sites


def expectation_propagation(
    K: Array,
    y: Array,
    link: Link,
    start: LatentPosterior | None = None,
    *,
    offset: Array | None = None,
    tol: float = 1e-7,
    max_iter: int = 1000,
) -> LatentPosterior:
    """Sites such that every tilted density p(y_i | f_i) N(f_i; cavity_i) has q's mean and variance.

    log p(y) ≈ log ∫ N(f; 0, K) Π sites, each site scaled so that with the cavity it has the mass of the
    tilted density (Rasmussen & Williams 3.65).

    K: (N, N) kernel matrix
    y: (N,) labels -1, +1
    link: likelihood
    start: a posterior for a nearby K, to begin from; without one, Laplace's
    offset: (N,) prior mean m: the labels see f + m, and q is that of f; 0 unless given
    tol: on the gap between the moments, in units of the posterior standard deviation
    max_iter: the most sweeps
    """
    m = np.zeros_like(y) if offset is None else offset

    def project(cavity: Cavity, q: Marginals) -> tuple[Array, Array]:
        _, mean, variance = link.tilted(y, cavity.mean + m, cavity.variance)
        return mean - m, variance

    start = start or laplace(K, y, link, offset=m, tol=1e-3)
    sites = solve_sites(K, start, project, tol=tol, max_iter=max_iter)
    log_z = link.tilted(y, sites.cavity.mean + m, sites.cavity.variance)[0]
    return sites.latent_posterior(_log_evidence(sites, log_z))


def _log_evidence(sites: Sites, log_z: Array) -> float:
    """log Z_EP in ν and w, so that a site without weight needs no division (Rasmussen & Williams 3.65)."""
    nu, w, mean, variance = sites.nu, sites.w, sites.cavity.mean, sites.cavity.variance
    # log ∫ exp(ν f - w f²/2) N(f; mean, variance) df
    spread = 1.0 + w * variance
    site_log_mass = 0.5 * (variance * nu**2 + 2.0 * mean * nu - w * mean**2) / spread - 0.5 * np.log(spread)
    q = sites.posterior
    return float(np.sum(log_z - site_log_mass) + 0.5 * nu @ q.mean - 0.5 * q.factor.log_determinant)
