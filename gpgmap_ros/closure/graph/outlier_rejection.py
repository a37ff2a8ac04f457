"""Which closures are used: those that are credible, that the odometry allows and that agree with each other.

Gates 6 to 8 of acceptance.py; what the robust solution finds (gate 9) is noted here as well.
"""

from __future__ import annotations

from gpgmap_ros.closure.acceptance import consistency_objection, odometry_objection
from gpgmap_ros.closure.graph.drift import Drift
from gpgmap_ros.closure.graph.joint_evidence import JointEvidence, joint_reason
from gpgmap_ros.closure.graph.pairwise_consistency import (
    OdometryPoses,
    PairwiseConsistency,
    odometry_mahalanobis_sq,
)
from gpgmap_ros.closure.types import LoopClosure, Pair


class OutlierRejection:
    """Closures between submaps, tested together: each one that takes part has a vote on the others.

    odometry: where the submaps are by odometry, as far as they are known; accept: probability of what takes part
    objections: why a closure that is credible is not used
    """

    def __init__(self, odometry: OdometryPoses, drift: Drift, accept: float) -> None:
        self.odometry = odometry
        self._joint = JointEvidence(odometry, drift, accept)
        self.objections: dict[Pair, str] = {}
        self._drift = drift
        self._voters: list[Pair] = []
        self._taking_part: set[Pair] = set()
        self._consistency = PairwiseConsistency(odometry, drift)

    def add(self, closure: LoopClosure) -> bool:
        """Let a closure take part, if its registration and the odometry allow; whether it does. A weak one waits."""
        if not (closure.registered or closure.weak):
            return False
        if self.odometry.connected(closure.source, closure.target):
            objection = odometry_objection(odometry_mahalanobis_sq(closure, self.odometry, self._drift))
            if objection:
                if closure.registered:
                    self.objections[closure.pair] = objection
                return False
        if not closure.registered:
            self._joint.wait(closure)
            return False
        self._joint.believe(closure)
        self._vote(closure)
        return True

    def admit(self, submap: int) -> bool:
        """After the closures of a submap: let those that waited take part which others make credible; whether there are
        any."""
        found = self._joint.find_supported(submap)
        for closure in found:
            self._vote(closure)
        return bool(found)

    def reason(self, pair: Pair) -> str:
        """Why a weak closure takes part; empty for others."""
        supported = self._joint.supported.get(pair)
        return joint_reason(supported) if supported else ""

    def takes_part(self, pair: Pair) -> bool:
        """Whether a closure is credible and allowed by the odometry."""
        return pair in self._taking_part

    def _vote(self, closure: LoopClosure) -> None:
        self._voters.append(closure.pair)
        self._taking_part.add(closure.pair)
        self._consistency.add(closure, closure.score)

    def remove(self, pair: Pair) -> bool:
        """Take a closure out; whether it took part. Others stay that it made credible."""
        self._joint.forget(pair)
        if pair not in self._taking_part:
            return False
        self._taking_part.remove(pair)
        self._consistency.remove(self._voters.index(pair))
        self._voters.remove(pair)
        return True

    @property
    def has_supported(self) -> bool:
        """Whether any closure takes part because of others."""
        return bool(self._joint.supported)

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
