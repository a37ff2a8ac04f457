"""Which closures are believed: those that odometry allows, and that agree with the others."""

from __future__ import annotations

import numpy as np

from gpgmap_ros.closure.chi_square import quantile
from gpgmap_ros.closure.consistency import Agreement, Drift, Stations, odometry_distance
from gpgmap_ros.closure.stations import Found

Pair = tuple[int, int]

AGAINST_ODOMETRY = quantile(0.9999, 6)
"""Squared Mahalanobis distance from the odometry beyond which a closure is not believed."""


class Verdicts:
    """Closures between submaps (a, b), judged together: each that is heard has a vote on the others.

    odometry: where the submaps are by odometry, as far as they are known
    objections: what speaks against a closure that its own registration accepted
    """

    def __init__(self, odometry: Stations, drift: Drift) -> None:
        self.odometry = odometry
        self.objections: dict[Pair, str] = {}
        self._drift = drift
        self._votes: list[Pair] = []
        self._agreement = Agreement(odometry, drift)

    def hear(self, pair: Pair, found: Found) -> bool:
        """Let a closure take part in the decision, if its registration and the odometry allow; whether it does."""
        if not found.verdict:
            return False
        closure = found.closure
        if self.odometry.connected(closure.source, closure.target):
            distance = odometry_distance(closure, self.odometry, self._drift)
            if distance > AGAINST_ODOMETRY:
                self.objections[pair] = (
                    f"contradicts the odometry: {np.sqrt(distance):.1f} standard deviations of its drift away"
                )
                return False
        self._votes.append(pair)
        self._agreement.add(closure, found.score)
        return True

    def withdraw(self, pair: Pair) -> bool:
        """Take back a closure's vote; whether it had one."""
        if pair not in self._votes:
            return False
        self._agreement.remove(self._votes.index(pair))
        self._votes.remove(pair)
        return True

    def agreed(self) -> list[Pair]:
        """The closures that agree with each other; what the others contradict is noted as an objection."""
        agreeing = self._agreement.largest()
        for k, pair in enumerate(self._votes):
            disputed = self._agreement.disputed_by(k, agreeing)
            if disputed:
                a, b = self._votes[disputed[0]]
                self.objections[pair] = (
                    f"contradicts {len(disputed)} of {len(agreeing)} other closures, {a} - {b} for one"
                )
            else:
                self.objections.pop(pair, None)
        return [self._votes[k] for k in agreeing]
