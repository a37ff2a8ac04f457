"""Weak closures that agree with each other, and with the odometry between their submaps, are together strong.

A closure with too little evidence of its own waits. Its odds o are those of a robot that compares many places with one,
and its evidence has paid for log M poses at which chance might have found it (verification.py). Both are paid once
for a sequence: if one closure of it is right, its neighbours lead to the same place, and at a known pose. With d^2 the
squared Mahalanobis distance of the loop through two closures and the odometry (pairwise_consistency.py),

    log odds of all = log o_1 + sum (1 - s_k) g_k,      g_k = log o_k + log PLACES + w max(log M_k - d_k^2 / 2, 0)

w is what a nat counts in the odds. s_k is the share of the ground of comparison k that another one of the set has
compared already: what the same ground says twice is counted once, and a wrong fit of it agrees with itself. Beside a
closure that is believed anyway, with probability P, no ground is counted twice: the odds of the neighbour are g_k, and
its probability is P / (1 + exp(-g_k)).

All closures of a set agree in pairs. Ground that repeats itself, and poses with rivals, may agree and be wrong by
one furrow: such closures do not wait (acceptance.py, `may_wait`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gpgmap_ros.closure.acceptance import CONSISTENCY_PROBABILITY, NAT, PLACES
from gpgmap_ros.closure.chi_square import quantile
from gpgmap_ros.closure.graph.drift import Drift
from gpgmap_ros.closure.graph.pairwise_consistency import OdometryPoses, loop_mahalanobis_sq
from gpgmap_ros.closure.types import LoopClosure, Pair

NEIGHBOURS = 1.5
"""Sizes of a submap that may be driven between the submaps of two closures of a set."""
AGREE = quantile(CONSISTENCY_PROBABILITY, 6)


def log_odds(closure: LoopClosure) -> float:
    p = min(max(closure.probability, 1e-300), 1.0 - 1e-12)
    return float(np.log(p) - np.log1p(-p))


def largest_gain(closure: LoopClosure) -> float:
    """What a waiting closure can add to a set at most: where that is nothing, it need not wait."""
    return log_odds(closure) + float(np.log(PLACES)) + NAT * max(closure.chance, 0.0)


def gain(closure: LoopClosure, mahalanobis_sq: float) -> float:
    """g of a closure at this squared distance from where another one expects it."""
    return largest_gain(closure) - NAT * min(0.5 * mahalanobis_sq, max(closure.chance, 0.0))


class JointEvidence:
    """Closures that wait, and those of them that others make credible.

    odometry: of the submaps, read when it is needed; accept: probability from which on a set is believed
    supported: probability of the set with which each closure was believed, and the size of that set
    """

    def __init__(self, odometry: OdometryPoses, drift: Drift, accept: float) -> None:
        self._odometry, self._drift, self._accept = odometry, drift, accept
        self._waiting: dict[Pair, LoopClosure] = {}
        self._believed: dict[Pair, LoopClosure] = {}
        self.supported: dict[Pair, tuple[float, int]] = {}

    def wait(self, closure: LoopClosure) -> None:
        """A closure that may be believed with others."""
        if largest_gain(closure) > 0.0:
            self._waiting[closure.pair] = closure

    def believe(self, closure: LoopClosure) -> None:
        """A closure that needs no others."""
        self._believed[closure.pair] = closure

    def forget(self, pair: Pair) -> None:
        self._waiting.pop(pair, None)
        self._believed.pop(pair, None)
        self.supported.pop(pair, None)

    def find_supported(self, submap: int) -> list[LoopClosure]:
        """Those that wait no longer, after the closures of this submap came."""
        waiting = [c for c in self._waiting.values() if self._is_around(c, submap)]
        if not waiting:
            return []
        believed = [c for c in self._believed.values() if self._is_around(c, submap)]
        found = self._beside_believed(waiting, believed)
        found += self._together([c for c in waiting if c.pair not in self.supported])
        for closure in found:
            self._believed[closure.pair] = self._waiting.pop(closure.pair)
        return found

    def _is_around(self, closure: LoopClosure, submap: int) -> bool:
        """Whether the closures of a submap can change what is thought of this one, directly or by one in between."""
        s = self._odometry
        return s.connected(closure.source, submap) and (
            s.path(closure.source, submap) <= 2.0 * NEIGHBOURS * s.size(submap)
        )

    def _beside_believed(
        self, waiting: Sequence[LoopClosure], believed: Sequence[LoopClosure]
    ) -> list[LoopClosure]:
        """Waiting closures beside one that is believed: their probability given that one."""
        out = []
        for closure in waiting:
            chance = 0.0
            for other, d2 in self._neighbours(closure, believed):
                p = self.supported.get(other.pair, (other.probability, 1))[0]
                chance = max(chance, p / (1.0 + np.exp(-gain(closure, d2))))
            if chance >= self._accept:
                self.supported[closure.pair] = (float(chance), 2)
                out.append(closure)
        return out

    def _together(self, waiting: Sequence[LoopClosure]) -> list[LoopClosure]:
        """Sets of waiting closures that agree in pairs and are together credible."""
        out: dict[Pair, LoopClosure] = {}
        for seed in sorted(waiting, key=lambda c: (-c.probability, c.pair)):
            if seed.pair in out:
                continue
            others = [c for c in waiting if c.pair != seed.pair]
            chosen, total = [seed], log_odds(seed)
            near = sorted(self._neighbours(seed, others), key=lambda item: (-gain(*item), item[0].pair))
            for closure, _ in near:
                links = [d2 for _, d2 in self._neighbours(closure, chosen)]
                if len(links) < len(chosen):
                    continue  # it contradicts one of them, or is too far from it
                more = gain(closure, max(links))
                if more > 0.0:
                    total += (1.0 - max(self._shared(closure, other) for other in chosen)) * more
                    chosen.append(closure)
            probability = float(1.0 / (1.0 + np.exp(-total)))
            if len(chosen) > 1 and probability >= self._accept:
                for closure in chosen:
                    self.supported[closure.pair] = (probability, len(chosen))
                    out[closure.pair] = closure
        return list(out.values())

    def _neighbours(
        self, closure: LoopClosure, others: Iterable[LoopClosure]
    ) -> list[tuple[LoopClosure, float]]:
        """Closures between neighbours of both submaps that agree with this one, and d^2 of the loops."""
        near = [other for other in others if self._is_near(closure, other)]
        if not near:
            return []
        distances = loop_mahalanobis_sq(closure, near, self._odometry, self._drift)
        return [(other, float(d2)) for other, d2 in zip(near, distances, strict=True) if d2 < AGREE]

    def _is_near(self, one: LoopClosure, other: LoopClosure) -> bool:
        s = self._odometry
        ends = ((one.source, other.source), (one.target, other.target))
        return all(
            s.connected(a, b) and s.path(a, b) <= NEIGHBOURS * min(s.size(a), s.size(b)) for a, b in ends
        )

    def _shared(self, one: LoopClosure, other: LoopClosure) -> float:
        """Share of the ground of a comparison that another one compares as well: of squares moved by so much."""
        s = self._odometry
        moved = [
            float(np.hypot(*(s.poses[a] - s.poses[b])[:2, 3])) / max(s.size(a), 1e-9)
            for a, b in ((one.source, other.source), (one.target, other.target))
        ]
        return max(1.0 - max(moved), 0.0)


def joint_reason(supported: tuple[float, int]) -> str:
    probability, count = supported
    return (
        f"with {count - 1} of its neighbours, which agree: the same ground with probability {probability:.4f}"
    )


def sequence_of(closures: Sequence[LoopClosure]) -> list[list[LoopClosure]]:
    """The closures in the groups in which they came: those of one submap together."""
    out: list[list[LoopClosure]] = []
    for closure in closures:
        if not out or out[-1][0].b != closure.b:
            out.append([])
        out[-1].append(closure)
    return out
