"""Hypotheses of where a robot is in a saved map, and the evidence for each: Bayes' rule over submaps.

A registration gives the odds of one pose for a robot that compares `1 / PRIOR_ODDS` pairs of different places for one
of the same. Divided by these prior odds it is a likelihood ratio, and those of independent ground multiply:

    odds of a hypothesis = odds of its first registration x product of the ratios of later submaps

Ground counts once, on both sides. While a submap grows, its newest registration replaces the one before, because that
saw the same points; of the next submap, the log of its ratio counts by the part of its ground that is new. A submap of
the map that has spoken for a hypothesis before does not make it more certain than its own odds do, now or then: what
makes it look like another place, a valley that is the same along its floor, does so again further on. It may make up
for what the hypothesis has lost since. A registration that is rather wrong than right speaks for nothing: it was looked
for where the hypothesis is, and ground that is alike along a valley or a slope is nearly right there.

A hypothesis that expects to share ground with a submap of the map, and is not confirmed there, loses `MISS`. Against
all of them stands that the robot is nowhere in the map, with odds of 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpgmap_ros.slam.pose_belief import PoseBelief

PRIOR_ODDS = 1.0 / 40.0
"""That the probability of a registration assumes (closure/registration/probability.py)."""
PRIOR_LOG_ODDS = float(np.log(PRIOR_ODDS))
MISS = float(np.log(0.2))
"""Log of the probability that the right pose is not recognised where half of the ground is shared: four in five are."""
MAX_LOG_ODDS = float(np.log(999.0))
"""No history makes a hypothesis more certain: what is seen now must be able to refute it."""

MIN_FIX = float(np.log(99.0))
"""Log likelihood ratio from which on a registration corrects the pose of a hypothesis that expected it."""


def log_odds_of(probability: float) -> float:
    p = min(max(probability, 1e-9), 1.0 - 1e-9)
    return float(np.log(p / (1.0 - p)))


@dataclass(eq=False)
class Hypothesis:
    """A supposed pose of the submap that is being made.

    before: where earlier submaps put it; None for a hypothesis that began in this one
    belief: with what this submap says, too
    settled: log odds from earlier submaps; evidence: what the newest registration of this one adds
    best: the highest log odds at the end of an earlier submap
    seen: observations that confirmed it; targets: submaps of the map in which it was recognised last, the best first
    spoken: submaps of the map in which earlier submaps were recognised
    origin: what it came from, for people
    """

    before: PoseBelief | None
    belief: PoseBelief
    settled: float = 0.0
    evidence: float = 0.0
    best: float = -np.inf
    seen: int = 0
    targets: tuple[int, ...] = ()
    spoken: frozenset[int] = frozenset()
    origin: str = "the map"

    @property
    def log_odds(self) -> float:
        return min(self.settled, MAX_LOG_ODDS) + self.evidence

    def confirm(self, measured: PoseBelief, chances: dict[int, float], new_ground: float) -> bool:
        """Registrations of this submap agree; whether they are certain enough to measure the pose with.

        chances: submap of the map -> probability of its registration
        new_ground: part of the submap that earlier ones did not show
        """
        self.seen += 1
        self.targets = tuple(sorted(chances, key=lambda target: -chances[target]))
        highest = log_odds_of(chances[self.targets[0]])
        if self.before is None:
            self.belief, self.evidence = measured, highest
            return True
        self.evidence = max(self._evidence_of(target, p, new_ground) for target, p in chances.items())
        trusted = highest - PRIOR_LOG_ODDS >= MIN_FIX
        self.belief = self.before.fuse(measured) if trusted else self.before
        return trusted

    def _evidence_of(self, target: int, probability: float, new_ground: float) -> float:
        """What a registration in one submap of the map adds to the log odds."""
        own = log_odds_of(probability)
        ratio = new_ground * (own - PRIOR_LOG_ODDS)
        if own < 0.0:
            return min(ratio, 0.0)
        if target not in self.spoken:
            return ratio
        return min(ratio, max(self.best, own) - min(self.settled, MAX_LOG_ODDS))

    def miss(self, new_ground: float) -> None:
        """It should have been recognised and was not."""
        if self.before is None:
            self.evidence += MISS
        else:
            self.belief, self.evidence = self.before, new_ground * MISS

    def settle(self, belief: PoseBelief) -> None:
        """Another submap begins: its pose is believed to be this one now."""
        self.settled, self.evidence = min(self.log_odds, MAX_LOG_ODDS), 0.0
        self.best = max(self.best, self.settled)
        self.spoken |= {*self.targets}
        self.before = self.belief = belief


def probabilities(hypotheses: list[Hypothesis]) -> list[float]:
    """Of each hypothesis; what is left is that the robot is nowhere in the map."""
    odds = np.exp(np.clip([item.log_odds for item in hypotheses], -700.0, 700.0))
    return list(np.asarray(odds / (1.0 + odds.sum())).tolist())
