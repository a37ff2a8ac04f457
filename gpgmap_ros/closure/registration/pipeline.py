"""The steps of a registration in order: relative pose of two maps, its covariance, and why it is refused if it is.

search -> coarse fit -> refinement -> evidence -> probability -> gates (acceptance.py) -> covariance
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.workers import single_threaded_blas
from gpgmap_ros.closure.acceptance import (
    may_wait,
    pose_objection,
    probability_objection,
    resolution_objection,
    search_objection,
)
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.parallel import in_parallel
from gpgmap_ros.closure.registration.covariance import compute_covariance
from gpgmap_ros.closure.registration.prior import PosePrior, SearchPrior, make_search_prior
from gpgmap_ros.closure.registration.probability import (
    MIN_RIVAL_LOG_ODDS,
    VerifiedPose,
    log_odds,
    logistic,
    ranking_score,
    rival_probability,
)
from gpgmap_ros.closure.registration.refinement import (
    Alignment,
    fit_coarsely,
    is_same_pose,
    refine,
    remove_duplicates,
)
from gpgmap_ros.closure.registration.registration_map import RegistrationMap, make_registration_map
from gpgmap_ros.closure.registration.search import search
from gpgmap_ros.closure.registration.self_similarity import SelfSimilarity
from gpgmap_ros.closure.registration.verification import compute_evidence
from gpgmap_ros.closure.types import NotComparable, Registration
from gpgmap_ros.mapping import GPGMap

MAX_VERIFIED = 4
"""Candidates that are refined to the end and verified."""
MORE_STEPS = 40
"""Of a fit that has not converged at a pose that could be believed: on smooth ground it slides for long."""
MAX_SELF_SIMILARITY = 120.0
"""Nats: where even this much would not change the decision, self-similarity is not measured. Crossing ditches have
75."""
NOTABLE_LOSS = 1.0
"""In log odds: a self-similarity that costs more is named."""


def register(
    source: GPGMap, target: GPGMap, config: ClosureConfig | None = None, prior: PosePrior | None = None
) -> Registration:
    """Pose of the source in the target, T_target_source, and its uncertainty.

    source, target: maps of one resolution in gravity-aligned frames, up to `config.tilt_std`
    config: the default unless given
    prior: where to look; everywhere, at all yaws, unless given
    """
    config = config or ClosureConfig()
    maps = []
    for name, map_ in (("source", source), ("target", target)):
        try:
            maps.append(make_registration_map(map_, config))
        except NotComparable as refusal:
            return make_refusal(f"{name}: {refusal}")
    return register_maps(maps[0], maps[1], config, prior)


def register_maps(
    source: RegistrationMap,
    target: RegistrationMap,
    config: ClosureConfig,
    prior: PosePrior | None = None,
    similarity: SelfSimilarity | None = None,
) -> Registration:
    """`register` for maps that were prepared before; similarity: keeps what was measured on them for the next call."""
    # The matrices are small: threads of BLAS would wait for each other, and cost as much as all else.
    with single_threaded_blas():
        return _register(source, target, config, prior, similarity or SelfSimilarity(config))


def _register(
    source: RegistrationMap,
    target: RegistrationMap,
    config: ClosureConfig,
    prior: PosePrior | None,
    similarity: SelfSimilarity,
) -> Registration:
    objection = resolution_objection(source.resolution, target.resolution)
    if objection:
        return make_refusal(objection)
    expected = make_search_prior(prior, source, target) if prior else None
    candidates = search(source, target, config, expected)
    fit = partial(fit_coarsely, source=source, target=target, config=config)
    fitted = in_parallel(fit, candidates, config.threads)
    promising = [pose for value, pose in sorted(fitted, key=lambda item: -item[0]) if value > 0.0]
    verified = _verify(remove_duplicates(promising)[:MAX_VERIFIED], source, target, config, expected)
    objection = search_objection(len(verified), prior is not None)
    if objection:
        return make_refusal(objection, len(candidates))
    return decide(verified, source, target, config, len(candidates), similarity)


def _verify(
    poses: list[Alignment],
    source: RegistrationMap,
    target: RegistrationMap,
    config: ClosureConfig,
    expected: SearchPrior | None,
) -> list[VerifiedPose]:
    """The poses refined to the end with their evidence, best first, without those that share too little."""

    def verify(pose: Alignment) -> VerifiedPose | None:
        pose = refine(pose, source, target, config)
        found = compute_evidence(pose, source, target, config, expected)
        if found and not found.converged and log_odds(found, config) > MIN_RIVAL_LOG_ODDS:
            pose = refine(pose, source, target, config, steps=MORE_STEPS)
            found = compute_evidence(pose, source, target, config, expected)
        return VerifiedPose(pose, found, log_odds(found, config)) if found else None

    verified = [item for item in in_parallel(verify, poses, config.threads) if item]
    return sorted(verified, key=lambda item: -ranking_score(item.evidence, config))


def decide(
    verified: list[VerifiedPose],
    source: RegistrationMap,
    target: RegistrationMap,
    config: ClosureConfig,
    candidates: int,
    similarity: SelfSimilarity,
) -> Registration:
    """The best pose, its probability against the others, and whether it passes the gates."""
    best, nats = select_converged(verified), 0.0
    others = [item for item in verified[1:] if not is_same_pose(item.alignment, best.alignment)]
    at_worst = logistic(log_odds(best.evidence, config, MAX_SELF_SIMILARITY))
    if best.log_odds > MIN_RIVAL_LOG_ODDS and at_worst < config.accept_probability:
        nats = max(in_parallel(similarity.measure, (source, target), config.threads))
        # of the best alone: ground that repeats itself is no reason to believe less in its rivals
        best = replace(best, log_odds=log_odds(best.evidence, config, nats))
    alone = logistic(best.log_odds)
    rivals = rival_probability(best, others, source, target, config) if alone > 0.0 else 0.0
    probability = 1.0 / (1.0 / alone + rivals) if alone > 0.0 else 0.0
    similar_places = log_odds(best.evidence, config) > best.log_odds + NOTABLE_LOSS
    of_pose = pose_objection(best.evidence, config)
    objection = of_pose or probability_objection(probability, alone, similar_places, config)
    runner_up = others[0] if others else None
    sigma = compute_covariance(best.alignment, source, target, config)
    T = to_metres(best.alignment, source, target)
    covariance = move_covariance(sigma, best.alignment, T, target)
    return Registration(
        T_target_source=T,
        covariance=covariance,
        probability=float(probability),
        score=best.evidence.surplus,
        accepted=not objection,
        reason=objection
        or f"the same ground with probability {probability:.4f}, unique among {candidates} candidates",
        overlap=best.evidence.overlap,
        evidence=best.evidence,
        runner_up=runner_up.evidence if runner_up else None,
        T_runner_up=to_metres(runner_up.alignment, source, target) if runner_up else None,
        self_similarity=nats,
        candidates=candidates,
        weak=bool(objection) and may_wait(of_pose, similar_places, rivals, covariance),
    )


def select_converged(verified: list[VerifiedPose]) -> VerifiedPose:
    """The best pose; of several fits that lead to it, one that converged before its steps ran out."""
    same = [item for item in verified if is_same_pose(item.alignment, verified[0].alignment)]
    return next((item for item in same if item.evidence.converged), verified[0])


def make_refusal(reason: str, candidates: int = 0) -> Registration:
    """A registration that found nothing."""
    infinite = np.diag(np.full(6, np.inf))
    return Registration(np.eye(4), infinite, 0.0, 0.0, False, reason, candidates=candidates)


def to_metres(alignment: Alignment, source: RegistrationMap, target: RegistrationMap) -> Array:
    """T_target_source of an alignment in cells."""
    T = np.eye(4)
    T[:3, :3] = alignment.R
    corner = np.array([*target.origin, target.base])
    T[:3, 3] = alignment.t * target.resolution + corner - alignment.R @ source.middle
    return T


def move_covariance(sigma: Array, alignment: Alignment, T: Array, target: RegistrationMap) -> Array:
    """The covariance moved from the middle of the shared cells to the source frame's origin, and to metres.

    An error (dt, w) at the middle c moves the origin o by dt + w x (o - c).
    """
    h = target.resolution
    centre = alignment.centre * h + np.array([*target.origin, target.base])
    x, y, z = T[:3, 3] - centre
    M = np.diag([h, h, h, 1.0, 1.0, 1.0])
    M[:3, 3:] = [[0.0, z, -y], [-z, 0.0, x], [y, -x, 0.0]]
    return np.asarray(M @ sigma @ M.T)
