"""Which registered closures are used: those that the odometry allows and that agree with each other.

Gates 6 and 7 of acceptance.py; what the robust solution finds (gate 8) is noted here as well.
"""

from __future__ import annotations

from gpgmap_ros.closure.acceptance import consistency_objection, odometry_objection
from gpgmap_ros.closure.graph.drift import Drift
from gpgmap_ros.closure.graph.pairwise_consistency import (
    OdometryPoses,
    PairwiseConsistency,
    odometry_mahalanobis_sq,
)
from gpgmap_ros.closure.types import LoopClosure, Pair


class OutlierRejection:
    """Closures between submaps, tested together: each one that takes part has a vote on the others.

    odometry: where the submaps are by odometry, as far as they are known
    objections: why a closure that its registration accepted is not used
    """

    def __init__(self, odometry: OdometryPoses, drift: Drift) -> None:
        self.odometry = odometry
        self.objections: dict[Pair, str] = {}
        self._drift = drift
        self._voters: list[Pair] = []
        self._consistency = PairwiseConsistency(odometry, drift)

    def add(self, closure: LoopClosure) -> bool:
        """Let a closure take part, if its registration and the odometry allow; whether it does."""
        if not closure.registered:
            return False
        if self.odometry.connected(closure.source, closure.target):
            objection = odometry_objection(odometry_mahalanobis_sq(closure, self.odometry, self._drift))
            if objection:
                self.objections[closure.pair] = objection
                return False
        self._voters.append(closure.pair)
        self._consistency.add(closure, closure.score)
        return True

    def remove(self, pair: Pair) -> bool:
        """Take a closure out; whether it took part."""
        if pair not in self._voters:
            return False
        self._consistency.remove(self._voters.index(pair))
        self._voters.remove(pair)
        return True

    def select(self) -> list[Pair]:
        """The largest set of closures that agree in pairs; what contradicts it is noted as an objection."""
        consistent = self._consistency.largest_set()
        for k, pair in enumerate(self._voters):
            conflicts = [self._voters[other] for other in self._consistency.conflicts(k, consistent)]
            objection = consistency_objection(conflicts, len(consistent))
            if objection:
                self.objections[pair] = objection
            else:
                self.objections.pop(pair, None)
        return [self._voters[k] for k in consistent]
