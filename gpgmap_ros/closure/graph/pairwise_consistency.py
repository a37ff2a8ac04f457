"""Pairwise consistency of closures: a wrong one may look right alone, but two wrong ones seldom agree.

Two closures and the odometry between their ends form a loop that must come back to where it began:

    E = T_a1_b1  T_b1_b2  T_a2_b2^-1  T_a1_a2^-1  = identity,     d^2 = e' S^-1 e ~ chi-square(6),

with e the error of E and S the sum of the covariances around the loop. The largest set in which every two agree is kept
(Mangelson et al., 2018), found greedily and the same way every time. Closures whose ends no odometry connects (they
join other drives) form no such loop and are taken to agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gp_core.arrays import Array
from gpgmap_ros.closure.acceptance import CONSISTENCY_PROBABILITY
from gpgmap_ros.closure.chi_square import quantile
from gpgmap_ros.closure.graph.drift import Drift
from gpgmap_ros.closure.types import PoseEdge
from gpgmap_ros.geometry import inverse


@dataclass(frozen=True)
class OdometryPoses:
    """Poses of the submaps by odometry. Only poses of one drive are in one frame.

    poses: T_odom_submap (4, 4); distances: metres until each submap, as of `ClosureGraph.paths`
    drives: number of the drive of each (left out: there is one drive)
    sizes: metres from edge to edge of each submap (left out: nothing)
    """

    poses: dict[int, Array]
    distances: dict[int, float]
    drives: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, float] = field(default_factory=dict)

    def size(self, id: int) -> float:
        return self.sizes.get(id, 0.0)

    def connected(self, a: int, b: int) -> bool:
        """Does odometry lead from one to the other?"""
        return self.drives.get(a, 0) == self.drives.get(b, 0)

    def path(self, a: int, b: int) -> float:
        """Metres driven from one to the other."""
        return abs(self.distances[a] - self.distances[b])


class PairwiseConsistency:
    """Closures, and which of them agree with each other: kept up to date as they come and go.

    odometry: read when a closure is added; drift: of the odometry
    probability: of the chi-square test of a pair
    """

    def __init__(
        self,
        odometry: OdometryPoses,
        drift: Drift | None = None,
        probability: float = CONSISTENCY_PROBABILITY,
    ) -> None:
        self._odometry, self._drift = odometry, drift or Drift()
        self._limit = quantile(probability, 6)
        self._closures: list[PoseEdge] = []
        self._weights: list[float] = []
        self._agree = np.zeros((0, 0), dtype=bool)

    def __len__(self) -> int:
        return len(self._closures)

    def add(self, closure: PoseEdge, weight: float = 0.0) -> None:
        """weight: what speaks for it, should two sets of the same size contradict each other"""
        row = self._agrees(closure)
        grown = np.ones((len(self) + 1,) * 2, dtype=bool)
        grown[:-1, :-1], grown[-1, :-1], grown[:-1, -1] = self._agree, row, row
        self._agree = grown
        self._closures.append(closure)
        self._weights.append(weight)

    def remove(self, index: int) -> None:
        del self._closures[index], self._weights[index]
        self._agree = np.delete(np.delete(self._agree, index, 0), index, 1)

    def largest_set(self) -> list[int]:
        """Indices, ascending, of the largest set that agrees in pairs; of two as large, the one of more weight."""
        agree, weights = self._agree, np.array(self._weights)
        friends = agree.sum(1)
        best: tuple[int, float, list[int]] = (0, 0.0, [])
        # From each closure, the one with most friends first, add what agrees with all so far.
        for start in np.argsort(-friends, kind="stable"):
            if friends[start] < best[0]:
                break  # nor can any that follow have a larger set
            chosen = grow_set(int(start), agree, weights)
            size, weight = len(chosen), float(weights[chosen].sum())
            if (size, weight) > best[:2]:
                best = size, weight, chosen
            if size == len(weights):
                break
        return sorted(best[2])

    def conflicts(self, index: int, others: Sequence[int]) -> list[int]:
        """Those of `others` that a closure does not agree with."""
        chosen = np.asarray(others, dtype=np.intp)
        return [int(other) for other in chosen[~self._agree[index, chosen]]]

    def _agrees(self, a: PoseEdge) -> NDArray[np.bool_]:
        """Which of those so far a new closure agrees with."""
        s = self._odometry
        out = np.ones(len(self), dtype=bool)
        compared = [
            k
            for k, b in enumerate(self._closures)
            if s.connected(a.source, b.source) and s.connected(a.target, b.target)
        ]
        if compared:
            others = [self._closures[k] for k in compared]
            out[compared] = loop_mahalanobis_sq(a, others, s, self._drift) < self._limit
        return out


def grow_set(start: int, agree: NDArray[np.bool_], weights: Array) -> list[int]:
    """A set in which all agree: from `start`, always the one that leaves most others possible."""
    chosen, allowed = [start], agree[start].copy()
    allowed[start] = False
    while allowed.any():
        candidates = np.flatnonzero(allowed)
        friends = agree[np.ix_(candidates, candidates)].sum(1)
        if friends.min() == len(candidates):  # all of them agree: no need to pick one by one
            return [*chosen, *candidates.tolist()]
        pick = int(candidates[np.lexsort((candidates, -weights[candidates], -friends))[0]])
        chosen.append(pick)
        allowed &= agree[pick]
        allowed[pick] = False
    return chosen


def find_consistent(
    closures: Sequence[PoseEdge],
    poses: Mapping[int, Array],
    distances: Mapping[int, float],
    drift: Drift | None = None,
    probability: float = CONSISTENCY_PROBABILITY,
) -> list[int]:
    """Indices of the largest set of closures that agree in pairs, ascending, on one drive.

    poses: T_map_submap (4, 4) by odometry; distances: metres driven until each submap; drift: of the odometry
    probability: of the chi-square test of a pair
    """
    consistency = PairwiseConsistency(OdometryPoses(dict(poses), dict(distances)), drift, probability)
    for closure in closures:
        consistency.add(closure)
    return consistency.largest_set()


def loop_mahalanobis_sq(
    a: PoseEdge, others: Sequence[PoseEdge], odometry: OdometryPoses, drift: Drift
) -> Array:
    """(M,) d^2 of the loops through a closure, each of M others, and the odometry between their ends."""
    poses = odometry.poses
    T_sources = inverse(poses[a.source]) @ np.stack([poses[b.source] for b in others])
    T_targets = inverse(poses[a.target]) @ np.stack([poses[b.target] for b in others])
    # Two ways from a's target to b's source: through a and along the sources, along the targets and through b.
    one = a.T_target_source @ T_sources
    other = T_targets @ np.stack([b.T_target_source for b in others])
    along_sources = np.stack([drift.covariance(odometry.path(a.source, b.source)) for b in others])
    along_targets = np.stack([drift.covariance(odometry.path(a.target, b.target)) for b in others])
    S = shift_covariance(a.covariance, one[:, :3, 3] - a.T_target_source[:3, 3])
    S = S + rotate_covariance(along_sources, a.T_target_source)
    S = S + shift_covariance(along_targets, other[:, :3, 3] - T_targets[:, :3, 3])
    S = S + rotate_covariance(np.stack([b.covariance for b in others]), T_targets)
    return pose_mahalanobis_sq(one, other, S)


def odometry_mahalanobis_sq(closure: PoseEdge, odometry: OdometryPoses, drift: Drift) -> float:
    """d^2 of the loop through one closure and the odometry between its ends."""
    T = inverse(odometry.poses[closure.target]) @ odometry.poses[closure.source]
    S = closure.covariance + drift.covariance(odometry.path(closure.source, closure.target))
    return float(pose_mahalanobis_sq(closure.T_target_source, T, S))


def pose_mahalanobis_sq(one: Array, other: Array, covariance: Array) -> Array:
    """(...,) squared Mahalanobis distance of two poses (..., 4, 4)."""
    turn = one[..., :3, :3] @ np.swapaxes(other[..., :3, :3], -1, -2)
    e = np.concatenate([one[..., :3, 3] - other[..., :3, 3], rotation_vector(turn)], axis=-1)
    return np.asarray(np.sum(e * np.linalg.solve(covariance, e[..., None])[..., 0], axis=-1))


def shift_covariance(covariance: Array, lever: Array) -> Array:
    """Covariance (..., 6, 6) of a point at `lever` (..., 3) from the one it was given for, along the same axes."""
    x, y, z = np.moveaxis(lever, -1, 0)
    M = np.broadcast_to(np.eye(6), (*np.shape(x), 6, 6)).copy()
    M[..., 0, 4], M[..., 0, 5] = z, -y
    M[..., 1, 3], M[..., 1, 5] = -z, x
    M[..., 2, 3], M[..., 2, 4] = y, -x
    return M @ covariance @ np.swapaxes(M, -1, -2)


def rotate_covariance(covariance: Array, T: Array) -> Array:
    """Covariance (..., 6, 6) along the axes into which T (..., 4, 4) turns."""
    M = np.zeros((*T.shape[:-2], 6, 6))
    M[..., :3, :3] = M[..., 3:, 3:] = T[..., :3, :3]
    return M @ covariance @ np.swapaxes(M, -1, -2)


def rotation_vector(R: Array) -> Array:
    return np.asarray(Rotation.from_matrix(R).as_rotvec())
