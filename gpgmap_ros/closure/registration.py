"""Two maps in; out comes how they lie to each other, how sure that is, and why it was refused if it was."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from gp_core.grid.workers import single_threaded_blas
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.covariance import covariance_of
from gpgmap_ros.closure.overlay import rough_fit
from gpgmap_ros.closure.parallel import in_parallel
from gpgmap_ros.closure.prior import PosePrior, expectation_of
from gpgmap_ros.closure.refinement import Alignment, refine
from gpgmap_ros.closure.repetition import repetition
from gpgmap_ros.closure.search import search, turn
from gpgmap_ros.closure.surface import NotComparable, Surface, surface_of
from gpgmap_ros.closure.verification import (
    RIVAL,
    Evidence,
    evidence,
    log_odds,
    objection,
    octaves,
    standing,
    worse_by,
)
from gpgmap_ros.mapping import GPGMap

Array = NDArray[np.float64]

FINALISTS = 4
"""Candidates that are refined to the end and verified."""
MOST_REPETITION = 25.0
"""Nats: where even this much would not change the verdict, repetition is not measured. Crossing ditches have 17."""
NOTABLE = 1.0
"""In log odds: a repetition that costs more is named."""
SAME_CELLS, SAME_YAW = 3.0, np.deg2rad(5.0)
"""Refined poses closer than this are one pose."""


@dataclass(frozen=True)
class Verified:
    """A pose that was refined to the end, and what speaks for it."""

    alignment: Alignment
    evidence: Evidence
    log_odds: float


@dataclass(frozen=True)
class Registration:
    """The pose of the source's frame in the target's, and what is known about it.

    T_target_source: (4, 4) rigid, determinant +1; the identity where nothing was found
    covariance: (6, 6) over (x, y, z, roll, pitch, yaw), metres and radians: errors of the position and, about the
        target's axes, of the orientation of the source's frame, as in nav_msgs/Odometry; infinite if nothing was found
    probability: that this pose is right; score: its likelihood ratio against the best of unrelated poses, nats
    accepted: whether to believe it; reason: why, in one sentence
    overlap: shared part of the smaller map
    evidence: residual statistics of this pose, None where nothing was found; runner_up: of the next best distinct pose
    T_runner_up: the pose of the runner-up; candidates: poses that the search proposed
    repetition: nats that a wrong pose reaches beyond chance on this ground, 0 where that was not asked
    """

    T_target_source: Array
    covariance: Array
    probability: float
    score: float
    accepted: bool
    reason: str
    overlap: float = 0.0
    evidence: Evidence | None = None
    runner_up: Evidence | None = None
    T_runner_up: Array | None = field(default=None, repr=False)
    candidates: int = 0
    repetition: float = 0.0


def register(
    source: GPGMap, target: GPGMap, config: ClosureConfig | None = None, prior: PosePrior | None = None
) -> Registration:
    """Where the source lies in the target: T_target_source and its uncertainty.

    source, target: maps of one resolution in gravity-aligned frames, up to `config.tilt_std`
    config: ClosureConfig, the default unless told
    prior: where to look; everywhere, at all yaws, unless told
    """
    config = config or ClosureConfig()
    surfaces = []
    for name, map_ in (("source", source), ("target", target)):
        try:
            surfaces.append(surface_of(map_, config))
        except NotComparable as refusal:
            return refused(f"{name}: {refusal}")
    return register_surfaces(surfaces[0], surfaces[1], config, prior)


def register_surfaces(
    source: Surface, target: Surface, config: ClosureConfig, prior: PosePrior | None = None
) -> Registration:
    """`register` for maps that were made ready before."""
    # The matrices are small: threads of BLAS would wait for each other, and cost as much as all else.
    with single_threaded_blas():
        return _registered(source, target, config, prior)


def _registered(
    source: Surface, target: Surface, config: ClosureConfig, prior: PosePrior | None
) -> Registration:
    if abs(np.log(source.resolution / target.resolution)) > 1e-3:
        return refused(
            f"the maps have different resolutions, {source.resolution:g} m and {target.resolution:g} m: "
            "make both with the same cells"
        )
    expected = expectation_of(prior, source, target) if prior else None
    found = search(source, target, config, expected)

    def verify(pose: Alignment) -> Verified | None:
        pose = refine(pose, source, target, config)
        found_evidence = evidence(pose, source, target, config, expected)
        return Verified(pose, found_evidence, log_odds(found_evidence, config)) if found_evidence else None

    rough = in_parallel(lambda candidate: rough_fit(candidate, source, target, config), found, config.threads)
    promising = [pose for value, pose in sorted(rough, key=lambda item: -item[0]) if value > 0.0]
    finalists = in_parallel(verify, distinct(promising)[:FINALISTS], config.threads)
    verified = [finalist for finalist in finalists if finalist]
    if not verified:
        where = " within the prior" if prior else ""
        return refused(f"no pose was found{where} at which the maps share enough ground", len(found))
    verified.sort(key=lambda item: -standing(item.evidence, config))
    return judged(verified, source, target, config, len(found))


def distinct(poses: list[Alignment]) -> list[Alignment]:
    """The poses without those that are the same as one before them."""
    kept: list[Alignment] = []
    for pose in poses:
        if not any(same_pose(pose, other) for other in kept):
            kept.append(pose)
    return kept


def same_pose(a: Alignment, b: Alignment) -> bool:
    # where one of them puts the middle of what they share
    there = b.R @ (a.R.T @ (a.centre - a.t)) + b.t
    return bool(turn(a.yaw - b.yaw) < SAME_YAW and np.hypot(*(there - a.centre)[:2]) < SAME_CELLS)


def judged(
    verified: list[Verified], source: Surface, target: Surface, config: ClosureConfig, candidates: int
) -> Registration:
    """The best pose, its probability against the others, and the verdict."""
    best, repeats = settled(verified), 0.0
    others = [item for item in verified[1:] if not same_pose(item.alignment, best.alignment)]
    at_worst = logistic(log_odds(best.evidence, config, MOST_REPETITION))
    if best.log_odds > RIVAL and at_worst < config.accept_probability:
        repeats = max(in_parallel(lambda side: repetition(side, config), (source, target), config.threads))
        # of the best alone: ground that repeats itself is no reason to believe less in its rivals
        best = replace(best, log_odds=log_odds(best.evidence, config, repeats))
    alone = logistic(best.log_odds)
    probability = 1.0 / (1.0 / alone + doubt(best, others, source, target, config)) if alone > 0.0 else 0.0
    reason = objection(best.evidence, config)
    if not reason and probability < config.accept_probability:
        if alone >= config.accept_probability:
            reason = "not unique: another pose fits almost as well"
        else:
            reason = (
                f"too little evidence: probability {probability:.3g}, {config.accept_probability:g} is needed"
            )
            if log_odds(best.evidence, config) > best.log_odds + NOTABLE:
                reason += "; different places of this ground are alike"
    accepted = not reason
    runner_up = others[0] if others else None
    sigma = covariance_of(best.alignment, source, target, config)
    T = in_metres(best.alignment, source, target)
    return Registration(
        T_target_source=T,
        covariance=at_source_frame(sigma, best.alignment, T, target),
        probability=float(probability),
        score=best.evidence.surplus,
        accepted=accepted,
        reason=reason
        or f"the same ground with probability {probability:.4f}, unique among {candidates} candidates",
        overlap=best.evidence.overlap,
        evidence=best.evidence,
        runner_up=runner_up.evidence if runner_up else None,
        T_runner_up=in_metres(runner_up.alignment, source, target) if runner_up else None,
        repetition=repeats,
        candidates=candidates,
    )


def settled(verified: list[Verified]) -> Verified:
    """The best pose; of several fits that lead to it, one that came to rest before its steps ran out."""
    same = [item for item in verified if same_pose(item.alignment, verified[0].alignment)]
    return next((item for item in same if item.evidence.converged), verified[0])


def doubt(
    best: Verified, others: list[Verified], source: Surface, target: Surface, config: ClosureConfig
) -> float:
    """How probable rivals are beside the best pose: those that might be believed, as far as they fit as well."""
    rivals = [item for item in others if item.log_odds > RIVAL]
    if not rivals:
        return 0.0
    first = octaves(best.alignment, best.evidence, source, target, config)
    total = 0.0
    for rival in rivals:
        z = worse_by(octaves(rival.alignment, rival.evidence, source, target, config), first)
        total += logistic(rival.log_odds) * 2.0 * float(ndtr(-z))
    return total


def logistic(log_odds: float) -> float:
    return float(1.0 / (1.0 + np.exp(np.clip(-log_odds, -700.0, 700.0))))


def refused(reason: str, candidates: int = 0) -> Registration:
    """A registration that found nothing."""
    nowhere = np.diag(np.full(6, np.inf))
    return Registration(np.eye(4), nowhere, 0.0, 0.0, False, reason, candidates=candidates)


def in_metres(alignment: Alignment, source: Surface, target: Surface) -> Array:
    """T_target_source of an alignment in cells."""
    T = np.eye(4)
    T[:3, :3] = alignment.R
    corner = np.array([*target.origin, target.base])
    T[:3, 3] = alignment.t * target.resolution + corner - alignment.R @ source.middle
    return T


def at_source_frame(sigma: Array, alignment: Alignment, T: Array, target: Surface) -> Array:
    """The covariance moved from the middle of the shared cells to the source frame's origin, and to metres.

    An error (dt, w) at the middle c moves the origin o by dt + w x (o - c).
    """
    h = target.resolution
    centre = alignment.centre * h + np.array([*target.origin, target.base])
    x, y, z = T[:3, 3] - centre
    M = np.diag([h, h, h, 1.0, 1.0, 1.0])
    M[:3, 3:] = [[0.0, z, -y], [-z, 0.0, x], [y, -x, 0.0]]
    return M @ sigma @ M.T
