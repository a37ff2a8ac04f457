"""The records of the loop closure. Submaps have one kind of id throughout: the int of `Submap.id`.

    register(source, target) -> Registration        two maps, no ids
    LoopClosure.from_registration(a, b, found)      the one record of a closure, from candidate to pose graph

A LoopClosure is an edge of the pose graph as it is (PoseEdge); what the gates of acceptance.py decide about it is
written into `accepted` and `reason` of a copy, and nothing else changes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

from gp_core.arrays import Array

Pair = tuple[int, int]
"""Ids of the two submaps of a closure, the target's first."""
SubmapKey = int | str
"""Key of a submap in a ClosureDatabase: a LoopCloser uses the submap's id, other users any name."""


def list_pairs(pairs: Iterable[Pair], max_names: int = 20) -> str:
    """Which closures there are, in words."""
    names = [f"{a}-{b}" for a, b in pairs]
    if not names:
        return "there are none"
    more = f" and {len(names) - max_names} more" if len(names) > max_names else ""
    return f"there are {', '.join(names[:max_names])}{more}"


class NotComparable(ValueError):
    """A map, or a pair of maps, in which no place can be recognised: why."""


@dataclass(frozen=True)
class Evidence:
    """Residual statistics of one pose of two maps.

    overlap: shared part of the smaller map, by weight; cells: shared cells that were compared
    coherence, detail_coherence: rho of all relief and of detail; independent, detail_independent: n of both
    likelihood: L of the band, or of all octaves, that says more, in nats; surplus: L - log M of that
    height_scale, slope_scale: lambda_z, lambda_g; ratio: lambda_g / lambda_z; white: n_z;
        of heights without what drift inside the maps explains
    noise_share: part of the slopes' variance that is noise
    height_rms, slope_rms: of the residuals, weighted; heights in cells
    tilt: roll and pitch together, degrees; converged: whether the refinement did
    mahalanobis_sq: squared Mahalanobis distance of x, y and yaw from the prior, 0 without one
    bend: drift inside the maps that the heights ask for, over what `closure.drift_*` state
    height_change: root mean square of the slowly varying height difference, cells
    """

    overlap: float
    cells: int
    coherence: float
    detail_coherence: float
    independent: float
    detail_independent: float
    likelihood: float
    surplus: float
    height_scale: float
    slope_scale: float
    ratio: float
    white: float
    noise_share: float
    height_rms: float
    slope_rms: float
    tilt: float
    converged: bool
    mahalanobis_sq: float = 0.0
    bend: float = 0.0
    height_change: float = 0.0


@dataclass(frozen=True)
class Registration:
    """The pose of the source's frame in the target's, and what is known about it.

    T_target_source: (4, 4) rigid, determinant +1; the identity where nothing was found
    covariance: (6, 6) over (x, y, z, roll, pitch, yaw), metres and radians: errors of the position and, about the
        target's axes, of the orientation of the source's frame, as in nav_msgs/Odometry; infinite if nothing was found
    probability: that this pose is right; score: its likelihood ratio against the best of unrelated poses, nats
    accepted: whether it passed the gates of a registration; reason: why, in one sentence
    overlap: shared part of the smaller map
    evidence: residual statistics of this pose, None where nothing was found; runner_up: of the next best distinct pose
    T_runner_up: the pose of the runner-up; candidates: poses that the search proposed
    self_similarity: nats that a wrong pose reaches beyond chance on this ground, 0 where that was not measured
    weak: refused for lack of evidence alone: others that agree with it may make it credible (graph/joint_evidence.py)
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
    self_similarity: float = 0.0
    weak: bool = False

    @property
    def repetition(self) -> float:
        """Deprecated name of `self_similarity`."""
        warnings.warn(
            "Registration.repetition is deprecated and will be removed in version 0.3: use self_similarity",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.self_similarity


class PoseEdge(Protocol):
    """What the pose graph needs of an edge between two submaps: a measured relative pose.

    T_target_source: (4, 4); covariance: (6, 6) as of a Registration
    """

    @property
    def source(self) -> int: ...
    @property
    def target(self) -> int: ...
    @property
    def T_target_source(self) -> Array: ...  # noqa: N802
    @property
    def covariance(self) -> Array: ...


@dataclass(frozen=True)
class PoseConstraint:
    """The plainest PoseEdge: odometry between two submaps, or a closure that comes from elsewhere."""

    source: int
    target: int
    T_target_source: Array
    covariance: Array


@dataclass(frozen=True)
class LoopClosure:
    """A comparison of two submaps, and what was decided about it.

    a, b: ids of the earlier and the later submap, which are the target and the source of the registration
    T_a_b: (4, 4) pose of b's frame in a's; covariance: (6, 6) over (x, y, z, roll, pitch, yaw) as in nav_msgs/Odometry,
        metres and radians along a's axes; infinite where no pose was found
    probability: that the pose is right; overlap: shared part of the smaller map
    accepted: it is in the pose graph now; reason: why, or why not, in one sentence
    score: likelihood ratio in nats, by which ties between sets of closures are decided
    registered: the registration accepted it, whatever odometry and other closures say
    weak: refused for lack of evidence alone; chance: nats that the best of unrelated poses reaches, log M
    """

    a: int
    b: int
    T_a_b: Array
    covariance: Array
    probability: float
    overlap: float
    accepted: bool
    reason: str
    score: float = 0.0
    registered: bool = False
    weak: bool = False
    chance: float = 0.0

    @classmethod
    def from_registration(cls, a: int, b: int, found: Registration) -> LoopClosure:
        """The closure between submaps a and b, as the registration of b in a found it."""
        evidence = found.evidence
        return cls(
            a, b, found.T_target_source, found.covariance, found.probability, found.overlap,
            found.accepted, found.reason, found.score, found.accepted, found.weak,
            evidence.likelihood - evidence.surplus if evidence else 0.0,
        )  # fmt: skip

    pair = property(attrgetter("a", "b"), doc="Ids of both submaps.")
    source = property(attrgetter("b"))
    target = property(attrgetter("a"))
    T_target_source = property(attrgetter("T_a_b"))
