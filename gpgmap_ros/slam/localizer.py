"""Where is the robot in a saved map? Submaps in, also partial ones; pose, covariance and status out.

    localizer = session.localizer()
    localizer.observe(submap, driven)               # as a submap grows, and when it ends
    state = localizer.state                         # status (searching, tracking or lost), reason, probability
    state.locate(T_odom_robot, driven)              # PoseBelief in the map, None where it is not known

Without a guess, each submap is looked for in the whole map; what is found are hypotheses (hypotheses.py), until one is
certain enough. Then it is looked for where odometry puts it, and everywhere again when it is not recognised there. The
map is never changed.

Submaps are compared as rigid pieces, but the odometry has bent them: where all of one fits best, the end at which the
robot stands does not. So the ground around the robot is compared once more, by itself, before the robot's pose is said.
That of the map is bent as well: a submap that has just begun is too large to be compared with it as one piece, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from gpgmap_ros.closure import Drift, PosePrior, Registration
from gpgmap_ros.closure.acceptance import pose_objection
from gpgmap_ros.closure.chi_square import quantile
from gpgmap_ros.closure.retrieval.database import ClosureDatabase
from gpgmap_ros.closure.types import NotComparable, SubmapKey
from gpgmap_ros.config import ClosureConfig, LocalizationConfig
from gpgmap_ros.geometry import Array, inverse
from gpgmap_ros.mapping.submaps import Submap, crop_to_disc
from gpgmap_ros.slam.footprints import Footprints, footprint_of
from gpgmap_ros.slam.hypotheses import Hypothesis, log_odds_of, probabilities
from gpgmap_ros.slam.pose_belief import PoseBelief, average_beliefs

SEARCHING, TRACKING, LOST = "searching", "tracking", "lost"
MAX_HYPOTHESES = 5
MIN_WAY = 0.1
"""Metres: no odometry is believed to be better than after so short a way."""
LOCAL_TARGETS = 3
"""Submaps of the map that a hypothesis is compared with."""
SAME_POSE = quantile(0.9999, 6)
"""Squared Mahalanobis distance within which two poses are one hypothesis."""
MIN_LOG_ODDS = -3.0
"""Of a registration that begins a hypothesis."""
CONFIRMATIONS = 2
"""Observations, each of more ground than the one before, that must agree before a pose is believed: what fits by chance
does not fit any more when more is seen."""
EXPECTED_SHARE = 0.5
"""Of the smaller map, from which on a submap should be recognised."""
NEARLY = 3.0
"""Difference of log odds within which several registrations measure a pose together."""
REACH_STDS = 4.0
AROUND = 0.35
"""Of a submap's radius: that of the ground around the robot that is compared by itself."""
MIN_AROUND = 0.5
"""Probability of a registration of that ground from which on it is used: which place it is, is known already."""
INITIAL_LOG_ODDS = float(np.log(9.0))
"""Of an initial pose: a person is right nine times in ten, which no registration has to agree with."""


@dataclass(frozen=True, eq=False)
class Piece:
    """The submap that is being made: its frame in the odometry, and metres driven where it began.

    radius: of its ground; 0 where none has been seen, and only an initial pose was given there
    drift_variance: as of a Submap
    """

    key: tuple[int, int]
    T_odom_submap: Array
    driven: float
    radius: float
    drift_variance: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Anchor:
    """A pose of the robot that is known: belief in the map, T_odom_robot by odometry, after so many metres."""

    belief: PoseBelief
    T_odom_robot: Array
    driven: float

    def locate(self, T_odom_frame: Array, added: Array) -> PoseBelief:
        """A frame of the odometry in the map. added: (6, 6) what the way there adds"""
        return self.belief.move(inverse(self.T_odom_robot) @ T_odom_frame, added)


@dataclass(frozen=True, eq=False)
class LocalizationState:
    """What is known of the robot's pose in the map.

    status: searching, tracking or lost; reason: why, in one sentence; probability: of the best hypothesis
    anchor: where it was recognised last, None unless tracking
    """

    status: str
    reason: str
    probability: float = 0.0
    anchor: Anchor | None = None
    drift: Drift = field(default_factory=Drift, repr=False)

    def locate(self, T_odom_robot: Array, driven: float) -> PoseBelief | None:
        """The robot's pose in the map, by odometry from the last fix; None unless tracking."""
        if self.anchor is None:
            return None
        way = max(driven - self.anchor.driven, MIN_WAY)
        return self.anchor.locate(T_odom_robot, self.drift.covariance(way))

    @property
    def T_map_odom(self) -> Array | None:  # noqa: N802
        """(4, 4) what takes the odometry to the map; None unless tracking."""
        anchor = self.anchor
        return None if anchor is None else np.asarray(anchor.belief.T @ inverse(anchor.T_odom_robot))


@dataclass(frozen=True, eq=False)
class Measurement:
    """A registration with one of the map's submaps, as a pose in the map."""

    target: int
    belief: PoseBelief
    probability: float


class Localizer:
    """Follows one robot in one map. For one thread at a time.

    database: the submaps of the map; poses: T_map_submap by their ids; footprints: where their ground is
    status: searching, tracking or lost; reason: why, in one sentence; probability: of the present pose
    fixes: observations that placed the robot in the map; first_fix: metres driven until the first of this drive
    """

    def __init__(
        self,
        database: ClosureDatabase,
        poses: dict[int, Array],
        footprints: Footprints,
        closure: ClosureConfig,
        config: LocalizationConfig,
    ) -> None:
        self._database, self._poses, self._footprints = database, poses, footprints
        self._cover: list[SubmapKey] = list(footprints.cover())
        self._closure, self._config, self._drift = closure, config, Drift.from_config(closure)
        self.fixes = 0
        self.begin_drive("no submap has been compared yet")

    def begin_drive(self, reason: str) -> None:
        """Forget the pose: the odometry begins anew, and the robot may be anywhere."""
        self.status, self.reason, self.probability = SEARCHING, reason, 0.0
        self.first_fix: float | None = None
        self._hypotheses: list[Hypothesis] = []
        self._track: Hypothesis | None = None
        self._anchor: Anchor | None = None  # of the track
        self._piece: Piece | None = None
        self._new_ground = 1.0
        self._started: float | None = None
        self._missing = False  # the map was not recognised at the last observation
        self._recognised = 0.0  # metres driven when the map was last recognised, or could not be

    # ------------------------------------------------ what comes in

    def observe(self, submap: Submap, driven: float) -> None:
        """Compare a submap with the map. driven: metres of odometry until its last cloud."""
        self._started = driven - submap.distance if self._started is None else self._started
        self._follow(submap, driven - submap.distance)
        try:
            found = self._search(submap) if self._track is None or self._missing else []
            found += self._look_around(submap, {item.target for item in found})
        except NotComparable as refusal:
            self._recognised = driven  # nothing could be recognised
            self.reason = f"no place can be recognised here: {refusal}"
            return
        expected = {id(item): self._is_expected(item, submap) for item in self._hypotheses}
        confirmed = self._weigh(found, expected)
        self._decide(submap, driven, confirmed, expected)

    def set_prior(self, T_map_robot: Array, covariance: Array, T_odom_robot: Array, driven: float) -> None:
        """Somebody says where the robot is: it is looked for there first, and everywhere if it is not there.

        covariance: (6, 6) of T_map_robot
        """
        if self._piece is None:
            self._piece = Piece((0, 0), T_odom_robot, driven, 0.0)
        back = inverse(T_odom_robot) @ self._piece.T_odom_submap
        way = max(driven - self._piece.driven, MIN_WAY)
        belief = PoseBelief(T_map_robot, covariance).move(back, self._drift.covariance(way))
        self._hypotheses.insert(0, Hypothesis(belief, belief, INITIAL_LOG_ODDS, origin="the initial pose"))
        if self.status != TRACKING:
            self.reason = "an initial pose was given: it waits for a submap that confirms it"

    @property
    def state(self) -> LocalizationState:
        """What is known now, to be read while the next submap is compared."""
        anchor = self._anchor if self.status == TRACKING else None
        return LocalizationState(self.status, self.reason, self.probability, anchor, self._drift)

    # ------------------------------------------------ hypotheses

    def _follow(self, submap: Submap, driven: float) -> None:
        """Move the hypotheses to the frame of the submap, if another one has begun."""
        key = (submap.session, submap.first_stamp)
        before, radius = self._piece, footprint_of(submap.gpgmap.grid.bounds)[1]
        self._piece = Piece(key, submap.T_map_submap, driven, radius, submap.drift_variance)
        if before is None or before.key == key:
            return
        T = inverse(before.T_odom_submap) @ submap.T_map_submap
        way = self._drift.equivalent_path(max(driven - before.driven, MIN_WAY), before.drift_variance)
        added = self._drift.covariance(way)
        for item in self._hypotheses:
            if item is self._track and self._anchor is not None:
                # no less is added, though the way is shorter: the submap that is looked for there will bend, too
                item.settle(self._anchor.locate(submap.T_map_submap, added))
            else:
                item.settle(item.belief.move(T, added))
        away = float(np.linalg.norm(T[:2, 3]))
        self._new_ground = float(np.clip(away / (before.radius + radius), 0.1, 1.0)) if before.radius else 1.0

    def _is_expected(self, item: Hypothesis, submap: Submap) -> bool:
        """Whether the hypothesis, if it is right, should be recognised in the map now."""
        spread = 2.0 * item.belief.position_std
        shares = self._footprints.shares(item.belief.T, submap.gpgmap.grid.bounds, spread)
        return bool((shares >= EXPECTED_SHARE).any())

    def _look_around(self, submap: Submap, compared: set[int]) -> list[Measurement]:
        """Registrations where the hypotheses expect them.

        One that began in this submap only says with which submaps to compare, and not where to look: it would confirm
        itself. compared: submaps in which all poses were tried already
        """
        found: list[Measurement] = []
        others = [item for item in self._hypotheses if item is not self._track]
        followed = [] if self._track is None else [self._track]
        for item in [*followed, *others][:MAX_HYPOTHESES]:
            priors: dict[SubmapKey, PosePrior] = {}
            if item.before is None:
                near = [target for target in item.targets if target not in compared]
                compared.update(near)
            else:
                spread = REACH_STDS * item.before.position_std
                near = self._footprints.nearest(
                    item.before.T, submap.gpgmap.grid.bounds, spread, LOCAL_TARGETS
                )
                priors = self._priors(item.before, near)
            if near:
                results = self._database.closures(submap.gpgmap, len(near), priors=priors, among=near)
                found.extend(self._measurements(results))
        return found

    def _priors(self, belief: PoseBelief, targets: Iterable[int]) -> dict[SubmapKey, PosePrior]:
        """What a belief of the submap's frame says of its pose in these submaps of the map."""
        local = {target: belief.in_frame(self._poses[target]) for target in targets}
        return {target: PosePrior(item.T, item.covariance) for target, item in local.items()}

    def _search(self, submap: Submap) -> list[Measurement]:
        """Registrations anywhere in the map: the time depends on its ground, not on how often that was mapped."""
        results = self._database.closures(submap.gpgmap, self._closure.matches, among=self._cover)
        return self._measurements(results)

    def _measurements(self, results: list[tuple[SubmapKey, Registration]]) -> list[Measurement]:
        out = []
        for key, result in results:
            if result.evidence is None or pose_objection(result.evidence, self._closure):
                continue
            target = int(key)
            T_map_target = self._poses[target]
            belief = PoseBelief(result.T_target_source, result.covariance).in_frame(inverse(T_map_target))
            out.append(Measurement(target, belief, result.probability))
        return out

    def _weigh(self, found: list[Measurement], expected: dict[int, bool]) -> set[int]:
        """Give each hypothesis the registrations that agree with it, and begin one with each that agrees with none.

        expected: by identity, whether a hypothesis should be recognised. Returns the identities of those that were.
        """
        groups: dict[int, list[Measurement]] = {}
        items = {id(item): item for item in self._hypotheses}
        for measurement in sorted(found, key=lambda m: -m.probability):
            item = self._matching(measurement, items.values())
            if item is None:
                if log_odds_of(measurement.probability) < MIN_LOG_ODDS:
                    continue
                item = Hypothesis(None, measurement.belief)
                items[id(item)] = item
            groups.setdefault(id(item), []).append(measurement)
        confirmed = set()
        for key, item in items.items():
            if key in groups:
                group = groups[key]
                least = log_odds_of(group[0].probability) - NEARLY
                good = [m.belief for m in group if log_odds_of(m.probability) > least]
                chances: dict[int, float] = {}
                for measurement in group:  # the most probable first
                    chances.setdefault(measurement.target, measurement.probability)
                if item.confirm(average_beliefs(good), chances, self._new_ground):
                    confirmed.add(key)
            elif expected.get(key, False):
                item.miss(self._new_ground)
        ranked = sorted(items.values(), key=lambda item: -item.log_odds)
        kept = [item for item in ranked if item.log_odds > 2.0 * MIN_LOG_ODDS][: 2 * MAX_HYPOTHESES]
        if self._track is not None and self._track not in kept:
            kept.append(self._track)
        self._hypotheses = kept
        return confirmed

    def _matching(self, measurement: Measurement, items: Iterable[Hypothesis]) -> Hypothesis | None:
        """The hypothesis that says the same, the nearest of several.

        Submaps of the map that overlap may disagree by the drift of the odometry from one to the other.
        """
        bend = self._drift.covariance(max(self._piece.radius if self._piece else 0.0, MIN_WAY))
        tolerant = PoseBelief(measurement.belief.T, measurement.belief.covariance + bend)
        near = [(tolerant.mahalanobis_sq(item.before or item.belief), item) for item in items]
        distance, item = min(near, key=lambda pair: pair[0], default=(np.inf, None))
        return item if distance <= SAME_POSE else None

    # ------------------------------------------------ the decision

    def _decide(self, submap: Submap, driven: float, confirmed: set[int], expected: dict[int, bool]) -> None:
        chances = probabilities(self._hypotheses)
        ranked = sorted(zip(chances, range(len(chances)), strict=True), reverse=True)
        best = self._hypotheses[ranked[0][1]] if ranked else None
        self.probability = ranked[0][0] if ranked else 0.0
        certain = (
            best is not None
            and self.probability >= self._config.probability
            and best.seen >= CONFIRMATIONS
            and id(best) in confirmed
        )
        track = self._track
        self._missing = track is not None and id(track) not in confirmed
        if certain and best is not None:
            self._fix(best, submap, driven)
        elif track is not None and self.status == TRACKING:
            if not self._missing:
                self._anchor = self._place_robot(track, submap, driven)
            self._go_on(track, driven, expected.get(id(track), False))
        else:
            self._explain_search(best)

    def _fix(self, best: Hypothesis, submap: Submap, driven: float) -> None:
        place = f"in submap {best.targets[0]} of the map, probability {self.probability:.4f}"
        moved = self._track is not None and best is not self._track
        self._track, self.status = best, TRACKING
        self.fixes += 1
        self.first_fix = driven - (self._started or 0.0) if self.first_fix is None else self.first_fix
        self._recognised = driven
        self._anchor = self._place_robot(best, submap, driven)
        self.reason = f"recognised {place}"
        if moved:
            self.reason = f"found again {place}: elsewhere than odometry said"

    def _place_robot(self, item: Hypothesis, submap: Submap, driven: float) -> Anchor:
        """The robot where the hypothesis puts the submap, and where the ground around it lies if that agrees."""
        T_submap_robot = submap.track.poses[-1] if len(submap.track.poses) else np.eye(4)
        bend = self._drift.covariance(max(submap.distance / 2.0, MIN_WAY))
        belief = item.belief.move(T_submap_robot, bend)
        around = self._measure_around(submap, T_submap_robot, belief)
        if around is not None and belief.mahalanobis_sq(around) <= SAME_POSE:
            belief = average_beliefs([around, belief])  # they have seen the same ground
        return Anchor(belief, submap.T_map_submap @ T_submap_robot, driven)

    def _measure_around(self, submap: Submap, T_submap_robot: Array, belief: PoseBelief) -> PoseBelief | None:
        """The robot's pose by the ground around it alone; None where too little is there.

        belief: where the robot is by all of the submap
        """
        radius = AROUND * footprint_of(submap.gpgmap.grid.bounds)[1]
        x, y = T_submap_robot[:2, 3]
        part = crop_to_disc(submap.gpgmap, float(x), float(y), radius)
        if part is None:
            return None
        expected = belief.move(inverse(T_submap_robot))
        near = self._footprints.nearest(expected.T, part.grid.bounds, 0.0, LOCAL_TARGETS)
        try:
            results = self._database.closures(
                part, len(near), priors=self._priors(expected, near), among=near
            )
        except NotComparable:
            return None
        good = [item.belief for item in self._measurements(results) if item.probability >= MIN_AROUND]
        return average_beliefs(good).move(T_submap_robot) if good else None

    def _go_on(self, track: Hypothesis, driven: float, expected: bool) -> None:
        """By odometry alone: as long as the map need not be recognised, or has not been missed for too long."""
        if not expected:
            self._recognised = driven
            self.reason = (
                f"outside the map: by odometry, {track.belief.position_std:.1f} m standard deviation"
            )
            return
        missed = driven - self._recognised
        if missed < self._config.lost_after:
            self.reason = f"the map was not recognised for {missed:.0f} m: by odometry"
            return
        self.status = LOST
        self.reason = (
            f"the map was not recognised for {missed:.0f} m where it should be: searching everywhere"
        )
        self._track = self._anchor = None
        self._hypotheses = [item for item in self._hypotheses if item is not track]

    def _explain_search(self, best: Hypothesis | None) -> None:
        if best is None:
            text = "no part of the map fits what was seen so far"
        else:
            text = (
                f"the most probable place has probability {self.probability:.3f},"
                f" {self._config.probability:g} is needed, seen {best.seen} times, {CONFIRMATIONS} are needed"
            )
        self.reason = text
