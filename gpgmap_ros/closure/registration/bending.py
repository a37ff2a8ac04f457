"""Are two maps bent, and by how much? What the patterns that drift leaves in the residuals (deformation.py) tell.

The noise of the patterns is what the autocovariance of the other residuals implies, times an excess kappa that is
larger than 1 on real ground (forms err as a whole where a sensor does not see them well) and not known beforehand. With
s_k the sizes of the patterns over their noise, and scores y_k,

    p(y | tau) = int prod_k N(y_k; 0, kappa + tau^2 s_k^2) p(kappa) dkappa,     log kappa normal

Patterns err together, with the model that they come from, so that k of them count as `INDEPENDENT` k: a drift that
happens to leave little in them is not known to be small. `closure.drift_*` say how turns compare with shifts, and what
to expect; the residuals decide between three cases:

- **straight:** tau = 0 in the plane and in height;
- **drift:** odometry has bent the maps, by tau in the plane and nearly the same in height, both from one odometry;
- **change:** heights alone differ slowly, as under snow or in another season. That says nothing about x, y and yaw.

The covariance of the pose has each case by its probability. Where the shared ground lies at the end of a long way the
patterns are small and tell little: then what is expected of odometry remains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.special import logsumexp

from gp_core.arrays import Array

USUAL_CHANGE, CHANGE_SPREAD = 0.4, 1.4
"""tau of slow changes of height, in units of drift in height: median, standard deviation of its logarithm."""
USUAL_EXCESS, EXCESS_SPREAD = 3.0, 0.5
"""kappa, its median and the standard deviation of its logarithm."""
INDEPENDENT = 0.7
"""Independent scores to a pattern: all come from one model of what was seen when, and err together."""
AMPLITUDES = np.exp(np.linspace(np.log(1e-2), np.log(4.0), 30))
"""tau, standard deviations of drift over the stated ones."""
DEVIATIONS = np.linspace(-2.5, 2.5, 9)
"""Of log kappa, in its standard deviations."""


@dataclass(frozen=True)
class Expectation:
    """What is expected before the residuals are seen.

    shares: of the maps that are straight, bent by drift, and changed in height
    usual, spread: median of tau in the plane and the standard deviation of its logarithm
    ratio: that of the logarithm of tau in height over tau in the plane
    """

    shares: tuple[float, float, float]
    usual: float
    spread: float
    ratio: float


DRIVEN = Expectation((0.08, 0.82, 0.10), 0.25, 0.5, 0.3)
"""Of maps with a way: hardly any odometry is without drift, who states a drift leaves some room, and a pose that is
stated too well costs more than one that is stated too badly."""
WITHOUT_WAY = Expectation((0.998, 0.002, 0.0), 0.4, 1.4, 1.4)
"""Of others, which anything may have bent."""


@dataclass(frozen=True)
class Bending:
    """What patterns say.

    straight, drift, change: probabilities of the three cases
    level_sq, upright_sq: E[tau^2] in the plane and in height if drift has bent the maps
    changed_sq: that in height if heights alone have changed
    """

    straight: float
    drift: float
    change: float
    level_sq: float
    upright_sq: float
    changed_sq: float


def amplitude_likelihoods(scores: Array, noise: Array, spread: Array) -> Array:
    """log p(scores | tau) for tau = 0 and each of `AMPLITUDES`, up to a constant.

    scores: (k,) of the patterns; noise: (k, k) covariance of their errors; spread: (k, k) of bending at tau = 1
    """
    sizes_sq, vectors = eigh(spread, noise + 1e-12 * np.trace(noise) * np.eye(len(noise)))
    sizes_sq = np.maximum(sizes_sq, 0.0)
    squared = (vectors.T @ scores) ** 2
    excess = USUAL_EXCESS * np.exp(EXCESS_SPREAD * DEVIATIONS)
    log_excess = log_normalised(-0.5 * DEVIATIONS**2)
    tau = np.concatenate([[0.0], AMPLITUDES])
    variance = excess[:, None] + (tau**2)[:, None, None] * sizes_sq  # (tau, kappa, k)
    of_scores = -0.5 * np.sum(np.log(variance) + squared / variance, axis=2)
    return np.asarray(logsumexp(log_excess + INDEPENDENT * of_scores, axis=1))


def weigh_cases(level: Array, upright: Array, driven: bool) -> Bending:
    """level, upright: `amplitude_likelihoods` of turns and shifts in the plane, and of shifts in height.

    driven: whether both maps know the way on which they were made
    """
    prior = DRIVEN if driven else WITHOUT_WAY
    log_tau = np.log(AMPLITUDES)
    usual = log_normalised(-0.5 * ((log_tau - np.log(prior.usual)) / prior.spread) ** 2)
    ratio = -0.5 * ((log_tau[None, :] - log_tau[:, None]) / prior.ratio) ** 2
    ratio -= logsumexp(ratio, axis=1, keepdims=True)
    drift = usual[:, None] + ratio + level[1:, None] + upright[None, 1:]
    change = log_normalised(-0.5 * ((log_tau - np.log(USUAL_CHANGE)) / CHANGE_SPREAD) ** 2) + upright[1:]
    of_drift, of_change = logsumexp(drift), logsumexp(change)
    with np.errstate(divide="ignore"):
        shares = np.log(prior.shares)
    evidence = shares + np.array([level[0] + upright[0], of_drift, level[0] + of_change])
    straight, bent, changed = np.exp(evidence - logsumexp(evidence))
    posterior = np.exp(drift - of_drift)
    squared = AMPLITUDES**2
    return Bending(
        float(straight),
        float(bent),
        float(changed),
        level_sq=float(posterior.sum(axis=1) @ squared),
        upright_sq=float(posterior.sum(axis=0) @ squared),
        changed_sq=float(np.exp(change - of_change) @ squared),
    )


def log_normalised(log_weights: Array) -> Array:
    return np.asarray(log_weights - logsumexp(log_weights))
