"""Probability that a pose is right: from its evidence alone, from the ground's self-similarity, and from its rivals.

**Of one pose.** A logistic function of log ratio, surplus, log n_z and log 1/s, each up to where more says no more,
its constants chosen once, on training draws.

**Uniqueness.** Only one pose can be right. A rival, a distinct pose that might be believed on its own, is dismissed
only if it fits worse than the best pose by more than chance: on ground that repeats itself both fit down to the noise,
and which of them has the higher L is decided by noise and by how much they happen to share. The slopes are split into
octaves, which are nearly independent, each with its own rho and n (the smaller of both poses'). Of what is left, 1 -
rho^2, each pose's estimate has the relative variance 2 / n, so that

    D = sum over octaves of n/2 log((1 - rho_i^2) / (1 - rho_1^2)),      z = D / sqrt(sum of n)

is a standard normal variable where both fit equally well. With the odds o_1 of the best pose alone and p_i = o_i / (1 +
o_i) of each rival,

    P = 1 / (1 + 1 / o_1 + sum p_i 2 Q(z_i)),      Q(z): that a standard normal variable exceeds z.

Places that share their large forms alone, two flat valley floors, are told apart by the finer octaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from gp_core.arrays import Array
from gpgmap_ros.closure.acceptance import NAT, compares_scales
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.octaves import correlate_octaves
from gpgmap_ros.closure.registration.overlay import crop, overlay_maps
from gpgmap_ros.closure.registration.refinement import Alignment
from gpgmap_ros.closure.registration.registration_map import RegistrationMap
from gpgmap_ros.closure.registration.verification import (
    MAX_CELLS,
    select_fields,
    trust_weights,
)
from gpgmap_ros.closure.types import Evidence

INTERCEPT, WEIGHTS = -8.3, np.array([4.6, NAT, 0.29, 3.6, 1.2])
"""Of the logistic function of `terms`, from ground that repeats itself and pairs that noise makes hard (--calibrate of
benchmark/closure_pairs.py), for a robot that compares `acceptance.PLACES` pairs of different places for one of the
same."""
MIN_RATIO, MAX_RATIO, MAX_WHITE_CELLS, MIN_NOISE = 0.1, 1.22, 300.0, 0.01
"""Where more of a term says no more."""
WRONG_SURPLUS, MAX_SURPLUS = 25.0, 100.0
"""Nats: up to the first a wrong pose may come, beyond it a nat counts less, beyond the second not at all."""
REFERENCE_CELLS, REFERENCE_NOISE = 50.0, 0.1
"""Where the terms of n_z and of noise change their signs."""
MIN_RIVAL_LOG_ODDS = -3.0
"""Log odds from which on a pose counts as a rival: below, it is wrong in 95 of 100 cases whatever the others are."""


@dataclass(frozen=True)
class VerifiedPose:
    """A pose that was refined to the end, its evidence, and its log odds if it were the only one."""

    alignment: Alignment
    evidence: Evidence
    log_odds: float


def terms(found: Evidence, config: ClosureConfig, self_similarity: float = 0.0) -> Array:
    """(5,) what the probability depends on: log ratio, surplus in two parts, log n_z, log 1/s, each within its limits.

    self_similarity: nats that a wrong pose reaches beyond chance on this ground
    """
    ratio = np.log(min(max(found.ratio, MIN_RATIO), MAX_RATIO)) if compares_scales(config) else 0.0
    surplus = min(found.surplus - self_similarity, MAX_SURPLUS)
    more = max(surplus - WRONG_SURPLUS, 0.0)
    white = np.log(min(max(found.white, 1.0), MAX_WHITE_CELLS) / REFERENCE_CELLS)
    noise = np.log(REFERENCE_NOISE / max(found.noise_share, MIN_NOISE))
    return np.array([ratio, surplus - more, more, white, noise])


def log_odds(found: Evidence, config: ClosureConfig, self_similarity: float = 0.0) -> float:
    """log of P(right) / P(wrong) of one pose, before others are considered."""
    return float(INTERCEPT + WEIGHTS @ terms(found, config, self_similarity))


def ranking_score(found: Evidence, config: ClosureConfig) -> float:
    """By which the best of several poses is chosen: here more evidence always counts for more."""
    return log_odds(found, config) + float(WEIGHTS[2]) * max(found.surplus - MAX_SURPLUS, 0.0)


def compute_octaves(
    alignment: Alignment,
    found: Evidence,
    source: RegistrationMap,
    target: RegistrationMap,
    config: ClosureConfig,
) -> Array:
    """(OCTAVES + 1, 2) rho and n of the slopes coarser than `detail_cells`, of each octave below, and of the rest."""
    stride = 2 if alignment.shared > MAX_CELLS else 1
    over = overlay_maps(alignment, source, target, config, stride)
    over = crop(over, over.weight > 0.0)
    w = trust_weights(over, found.slope_scale)
    return correlate_octaves(w, *select_fields(over, config), config.detail_cells / stride)[0]


def compare_fits(rival: Array, best: Array) -> float:
    """z: how much worse a rival fits than the best pose, in standard deviations of what chance does.

    rival, best: (OCTAVES + 1, 2) of `compute_octaves`
    """
    left = [np.log1p(-np.minimum(np.maximum(pose[:, 0], 0.0) ** 2, 1.0 - 1e-6)) for pose in (rival, best)]
    n = np.minimum(rival[:, 1], best[:, 1])
    return float(np.sum(0.5 * n * (left[0] - left[1])) / np.sqrt(max(n.sum(), 1.0)))


def rival_probability(
    best: VerifiedPose,
    others: list[VerifiedPose],
    source: RegistrationMap,
    target: RegistrationMap,
    config: ClosureConfig,
) -> float:
    """Sum over the rivals of their own probabilities, each as far as it fits as well as the best pose."""
    rivals = [item for item in others if item.log_odds > MIN_RIVAL_LOG_ODDS]
    if not rivals:
        return 0.0
    first = compute_octaves(best.alignment, best.evidence, source, target, config)
    total = 0.0
    for rival in rivals:
        z = compare_fits(compute_octaves(rival.alignment, rival.evidence, source, target, config), first)
        total += logistic(rival.log_odds) * 2.0 * float(ndtr(-z))
    return total


def logistic(log_odds: float) -> float:
    return float(1.0 / (1.0 + np.exp(np.clip(-log_odds, -700.0, 700.0))))
