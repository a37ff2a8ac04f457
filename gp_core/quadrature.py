"""The one quadrature of the package: integrals against one-dimensional Gaussians.

A Gauss-Hermite rule is the usual choice and the wrong one for links: a sigmoid bends within a few units of
the origin, so under a Gaussian with a standard deviation of 100 the rule hardly sees the bend. Here every
integral is cut into panels, at the sigmoid's bend and at the Gaussian's shoulders, and each panel gets
Gauss-Legendre nodes. The error stays near 1e-10 or below for any mean and any variance, at Q = 128
evaluations per integral.

Shapes: N integrals, Q nodes, R integrands.
"""

from collections.abc import Callable

import numpy as np

from gp_core.arrays import Array

# The Gaussian is cut at nine standard deviations: exp(-81/2) = 3e-18 of its peak.
_REACH = 9.0
# Panels end at the Gaussian's shoulders, in standard deviations, ...
_SHOULDERS = np.array([-_REACH, -2.5, 2.5, _REACH])
# ... and where a sigmoid bends and where it is flat to machine precision, in units of f.
_BEND = np.array([-36.0, -8.0, 0.0, 8.0, 36.0])
_LEGENDRE_NODES, _LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(16)
_LOG_SQRT_2PI = 0.5 * float(np.log(2.0 * np.pi))


def panel_rule(centre: Array, scale: Array) -> tuple[Array, Array]:
    """Nodes and weights of ∫ g(centre + scale u) du over |u| ≤ 9, for a g that bends near f = 0.

    centre: (N,) middle of the interval, in units of f.
    scale: (N,) positive length of one unit of u, in units of f.

    Returns nodes (N, Q) and weights (N, Q), both in units of u.
    """
    bend = np.clip((_BEND[None, :] - centre[:, None]) / scale[:, None], -_REACH, _REACH)
    edges = np.sort(np.concatenate([np.broadcast_to(_SHOULDERS, (len(centre), 4)), bend], axis=1), axis=1)
    half = 0.5 * np.diff(edges, axis=1)[:, :, None]
    middle = 0.5 * (edges[:, 1:] + edges[:, :-1])[:, :, None]
    nodes = middle + half * _LEGENDRE_NODES
    weights = half * _LEGENDRE_WEIGHTS
    return nodes.reshape(len(centre), -1), weights.reshape(len(centre), -1)


def gaussian_expectation(function: Callable[[Array], Array], mean: Array, variance: Array) -> Array:
    """E[g(f)] for f ~ N(mean, variance), one expectation per entry.

    function: g, elementwise on an (N, Q) array; may return (R, N, Q) for R integrands that share their work.
    mean: (N,) means.
    variance: (N,) variances, zero allowed: then E[g(f)] = g(mean).

    Returns (N,) or (R, N).
    """
    scale = np.maximum(np.sqrt(variance), 1e-150)
    nodes, weights = panel_rule(mean, scale)
    density = weights * np.exp(-0.5 * nodes**2 - _LOG_SQRT_2PI)
    # The rule's own sum is 1 up to rounding; dividing by it makes the expectation of a constant exact.
    density /= density.sum(axis=1, keepdims=True)
    values = function(mean[:, None] + scale[:, None] * nodes)
    expectation: Array = np.einsum("...nq,nq->...n", values, density)
    return expectation


def tilted_moments(
    log_factor: Callable[[Array], Array], mode: Array, mean: Array, variance: Array
) -> tuple[Array, Array, Array]:
    """log Z, mean and variance of p(f) = g(f) N(f; mean, variance) / Z for a log-concave g.

    The interval is mode ± 9 standard deviations of the Gaussian: log p falls from its mode at least as
    fast as the Gaussian's own logarithm, so nothing is lost, however far the factor moves the mode.

    log_factor: log g, elementwise on an (N, Q) array.
    mode: (N,) mode of each p.
    mean: (N,) means of the Gaussians.
    variance: (N,) variances of the Gaussians, positive.
    """
    scale = np.sqrt(variance)
    nodes, weights = panel_rule(mode, scale)
    shift = (mode - mean) / scale
    log_p = log_factor(mode[:, None] + scale[:, None] * nodes) - 0.5 * (shift[:, None] + nodes) ** 2
    peak = log_p.max(axis=1)
    density = weights * np.exp(log_p - peak[:, None])
    mass = density.sum(axis=1)
    log_z = np.log(mass) + peak - _LOG_SQRT_2PI
    density /= mass[:, None]
    first = np.einsum("nq,nq->n", density, nodes)
    second = np.einsum("nq,nq->n", density, (nodes - first[:, None]) ** 2)
    return log_z, mode + scale * first, variance * second
