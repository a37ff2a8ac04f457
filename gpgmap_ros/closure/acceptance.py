"""When a closure is refused, and why: every gate, in the order in which a closure meets them.

1. the map           each of the two maps can be recognised at all                          NotComparable
2. the pair          both have cells of one size
3. the search        a pose was found at which they share enough ground
4. the pose          its residuals are those of one place                                   Registration.accepted
5. the probability   it is probable enough, and no other pose fits as well
6. the odometry      it does not contradict the odometry between the two submaps            LoopClosure.accepted
7. the closures      it agrees with the largest set of closures that agree in pairs
8. the graph         the robust solution of the pose graph does not pull it apart
9. the user          nobody has rejected it

Gates 1 to 5 are passed once, by `register`. Gates 6 to 9 are passed anew whenever a closure comes or goes: a wrong one
that came first is outvoted later. What fails at gate 5 for lack of evidence alone waits; it passes when neighbouring
closures that agree with it are probable enough together (graph/joint_evidence.py). A gate is a function that returns
the reason for a refusal in one sentence, or an empty text; what it judges is computed in registration/ and graph/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.chi_square import quantile
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.types import Evidence, Pair

MIN_SPREAD = 0.5
"""Variance of the slopes over that of their errors, below which a map is flat. Rough kernels state errors of slopes as
large as the slopes: 1.2 to 1.9 on relief, 0.1 on level ground; smooth ones have 2,000 and 2."""
OVERLAP_FACTOR, CLEAR_OVERLAP_FACTOR = 0.6, 0.3
"""Of `min_overlap`, from which on poses are looked for: weighed cell by cell, a right one may share less than it seemed
to, and less still where what is shared is clear. What little ground can tell is in the probability."""
MIN_RATIO, CLEAR_SURPLUS = 0.4, 40.0
"""Of lambda_g to lambda_z, where the slopes agree by less than so many nats: snow changes heights more than slopes."""
PLACES = 40.0
"""Pairs of different places to one of the same, in the population for which a probability is stated."""
NAT = 0.37
"""Log odds of a nat that the slopes agree beyond chance."""
MAX_RIVALS = 0.05
"""Probability that a weak pose may lose to rivals, and still wait for others that agree with it."""
MAX_DETAIL_SLOPE = 0.7
"""Of a map of ground, as a gradient: 35 degrees, at which soil comes to rest. Measured on ground: 0.02 to 0.18."""
NATS_PER_NOISE = 20.0
"""Surplus that is asked for, per part of noise: 7 nats where there is nothing but noise, whose share is then about 0.35
(half of the sum of two noises, by the scale of Student's t), next to nothing on clear relief."""
TILT_LIMIT = 3.7
"""In standard deviations of the prior: 99.9 % of two-dimensional Gaussian errors are smaller."""
PRIOR_LIMIT = quantile(0.9999, 3)
"""Squared Mahalanobis distance from the prior within which a refined pose may end."""
ODOMETRY_LIMIT = quantile(0.9999, 6)
"""Squared Mahalanobis distance from the odometry beyond which a closure is refused."""
CONSISTENCY_PROBABILITY = 0.999
"""Of the chi-square test of two closures and the odometry between their ends."""
OUTLIER_LIMIT = quantile(0.999, 6)
"""Squared whitened error in the robust solution beyond which a closure is an outlier."""
REJECTED_BY_REQUEST = "rejected by request"


# ------------------------------------------------ 1. the map


def layer_objection(layers: Mapping[str, NDArray[Any]], needed: Sequence[str], shape: tuple[int, int]) -> str:
    """layers: of the map, by name; shape: of its grid"""
    missing = [name for name in needed if name not in layers]
    if missing:
        return f"the map has no layer {', '.join(missing)}"
    if any(layer.shape != shape for layer in layers.values()):
        return f"the layers do not have the shape of the grid, {shape}"
    return ""


def coverage_objection(known: NDArray[np.bool_]) -> str:
    """known: (rows, columns) cells at which every layer is finite"""
    return "" if known.any() else "the map is empty: no cell is known"


def size_objection(trusted: NDArray[np.bool_], config: ClosureConfig) -> str:
    """trusted: (rows, columns) the well observed cells"""
    count = int(trusted.sum())
    if count < config.min_cells:
        return f"the map is too small: {count} well observed cells, {config.min_cells} are needed"
    rows, columns = np.nonzero(trusted)
    if np.ptp(rows) < 4 or np.ptp(columns) < 4:
        return "the map is too narrow: fewer than five rows or columns of cells"
    return ""


def relief_objection(slope_variance: float, error_variance: float) -> str:
    """slope_variance: of both components together; error_variance: median of one component's own"""
    if slope_variance <= max(MIN_SPREAD * 2.0 * error_variance, 1e-10):
        return "the map is flat: its slopes hardly differ by more than their own uncertainty"
    return ""


def canopy_objection(detail: float) -> str:
    """detail: median slope that changes from cell to cell (registration/canopy.py)"""
    if not detail > MAX_DETAIL_SLOPE:
        return ""
    angle = np.degrees(np.arctan(detail))
    return (
        f"the map is no ground: its slopes change by {angle:.0f} deg within a few cells, as those of tree crowns do;"
        " use filter.lowest_surface"
    )


# ------------------------------------------------ 2. the pair


def same_resolution(a: float, b: float) -> bool:
    return not abs(np.log(a / b)) > 1e-3


def resolution_objection(source: float, target: float) -> str:
    if same_resolution(source, target):
        return ""
    return (
        f"the maps have different resolutions, {source:g} m and {target:g} m: make both with the same cells"
    )


# ------------------------------------------------ 3. the search


def search_objection(verified: int, prior: bool) -> str:
    """verified: poses that were refined and share enough ground; prior: the search was limited by one"""
    if verified:
        return ""
    return f"no pose was found{' within the prior' if prior else ''} at which the maps share enough ground"


# ------------------------------------------------ 4. the pose


def pose_objection(found: Evidence, config: ClosureConfig) -> str:
    clear = found.surplus >= CLEAR_SURPLUS
    needed = (CLEAR_OVERLAP_FACTOR if clear else OVERLAP_FACTOR) * config.min_overlap
    if found.overlap < needed:
        return f"too little overlap: {found.overlap:.1%} of the smaller map, {needed:.1%} is needed"
    if not found.converged:
        return "the refinement did not converge: the surfaces do not lie on each other"
    if compares_scales(config) and found.ratio < MIN_RATIO and not clear:
        return f"the heights disagree {1.0 / found.ratio:.1f} times more than the slopes: different forms"
    if found.surplus <= NATS_PER_NOISE * found.noise_share:
        return "no better than chance: the best of as many unrelated poses would fit as well"
    if found.tilt > TILT_LIMIT * config.tilt_std:
        return f"the maps fit only if one is tilted by {found.tilt:.1f} deg: their frames are gravity-aligned"
    if found.mahalanobis_sq > PRIOR_LIMIT:
        return f"{np.sqrt(found.mahalanobis_sq):.1f} standard deviations away from where the prior expects it"
    return ""


def compares_scales(config: ClosureConfig) -> bool:
    """Whether lambda_z and lambda_g can be compared: they need slopes, and variances that give both their units."""
    return config.use_gradient and config.use_variance


# ------------------------------------------------ 5. the probability


def probability_objection(
    probability: float, without_rivals: float, similar_places: bool, config: ClosureConfig
) -> str:
    """without_rivals: the probability if no other pose is considered; similar_places: the ground's self-similarity has
    cost a notable part of it"""
    if not probability < config.accept_probability:
        return ""
    if without_rivals >= config.accept_probability:
        return "not unique: another pose fits almost as well"
    reason = f"too little evidence: probability {probability:.3g}, {config.accept_probability:g} is needed"
    return f"{reason}; different places of this ground are alike" if similar_places else reason


def may_wait(objection: str, similar_places: bool, rivals: float, covariance: NDArray[np.float64]) -> bool:
    """Whether a pose that is not probable enough may become so with others: nothing but evidence is missing.

    objection: of the pose; rivals: probability that another one is right. Where ground repeats itself, neighbours agree
    at wrong poses too.
    """
    return (
        not objection and not similar_places and rivals < MAX_RIVALS and bool(np.isfinite(covariance).all())
    )


# ------------------------------------------------ 6. the odometry


def odometry_objection(mahalanobis_sq: float) -> str:
    """mahalanobis_sq: of the closure from the odometry between its ends; asked only where odometry connects them"""
    if not mahalanobis_sq > ODOMETRY_LIMIT:
        return ""
    return f"contradicts the odometry: {np.sqrt(mahalanobis_sq):.1f} standard deviations of its drift away"


# ------------------------------------------------ 7. the other closures


def consistency_objection(conflicts: Sequence[Pair], consistent: int) -> str:
    """conflicts: those of the largest consistent set that it does not agree with; consistent: size of that set"""
    if not conflicts:
        return ""
    a, b = conflicts[0]
    return f"contradicts {len(conflicts)} of {consistent} other closures, {a} - {b} for one"


# ------------------------------------------------ 8. the graph


def graph_objection(mahalanobis_sq: float) -> str:
    """mahalanobis_sq: whitened error of the closure in the robust solution"""
    if not mahalanobis_sq > OUTLIER_LIMIT:
        return ""
    error = np.sqrt(mahalanobis_sq)
    return f"the other closures and the odometry pull it apart by {error:.1f} standard deviations"
