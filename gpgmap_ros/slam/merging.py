"""Runs of several days or robots in one frame: their submaps are compared with each other, and one graph is solved.

    merged = merge(["monday", "tuesday", "robot_b"])
    merged.members          # the sessions that share ground, with the new numbers of their submaps
    merged.apart            # those that share none: nothing is said about where they are
    merged.closer.poses     # of all submaps of the members, in the frame of the first one

The runs are only read. Comparisons that they have made themselves are kept and not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

import numpy as np

from gpgmap_ros.closure import LoopCloser
from gpgmap_ros.closure.acceptance import REJECTED_BY_REQUEST
from gpgmap_ros.geometry import Array
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.slam.hypotheses import PRIOR_ODDS, log_odds_of
from gpgmap_ros.slam.session import Session, SessionError
from gpgmap_ros.slam.trajectory import Trajectory


@dataclass(frozen=True, eq=False)
class Member:
    """A session in a merge. name: of its folder; ids: new numbers of its submaps by their old ones"""

    name: str
    session: Session = field(repr=False)
    ids: dict[int, int] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Merged:
    """What came of a merge.

    closer: the submaps of the members, their closures and their poses; apart: the sessions that share no ground with
    them; notes: what was decided, in sentences
    """

    closer: LoopCloser = field(repr=False)
    members: tuple[Member, ...]
    apart: tuple[Member, ...]
    notes: tuple[str, ...] = ()

    def load(self, member: Member, old: int) -> Submap:
        """A submap of a member with its new number and drive."""
        submap, id = member.session.submaps.load(old), member.ids[old]
        gpgmap = replace(submap.gpgmap, frame_id=f"submap_{id}")
        return replace(submap, id=id, session=self.closer.node(id).drive, gpgmap=gpgmap)

    def trajectory(self, member: Member, corrected: bool = True) -> Trajectory:
        """Where the robot of a member was, wherever its submaps recorded that, in the order of time.

        corrected: in the frame of the merge; else by odometry, each drive in its own frame
        """
        stamps, poses = [np.zeros(0, dtype=np.int64)], [np.zeros((0, 4, 4))]
        for id in member.ids.values():
            node = self.closer.node(id)
            track = node.T_odom_submap @ node.track
            if corrected and len(track):
                track = np.array(self.closer.correct(node.stamps, track, node.drive)).reshape(-1, 4, 4)
            stamps.append(node.stamps)
            poses.append(track)
        times = np.concatenate(stamps)
        order = np.argsort(times, kind="stable")
        return Trajectory(times[order], np.concatenate(poses)[order])


def merge(runs: Sequence[Path | str | Session], progress: Callable[[int, int], None] | None = None) -> Merged:
    """Bring runs into one frame. SessionError where one can't be read, or no two of them share ground.

    progress: told how many submaps of how many have been compared
    """
    sessions = [run if isinstance(run, Session) else Session.load(run) for run in runs]
    check_sessions(sessions)
    closer = LoopCloser(sessions[0].closer.config)
    members: list[Member] = []
    notes: list[str] = []
    total = sum(len(session.closer.nodes) for session in sessions[1:])
    done = 0
    for session, name in zip(sessions, names_of(sessions), strict=True):
        ids = closer.merge(session.closer)
        member = Member(name, session, ids)
        for old, new in ids.items() if members else ():
            if not closer.node(new).skipped:
                closer.compare(new, session.submaps.load(old).gpgmap)
            done += 1
            if progress is not None:
                progress(done, total)
        members.append(member)
        notes.extend(reject_lone_closures(closer, members))
    together = largest_group(closer, members)
    if len(together) < 2:
        names = ", ".join(member.name for member in members)
        text = f"no two of the runs share ground that could be recognised: {names}"
        raise SessionError(text + best_comparison(closer, members, notes))
    apart = tuple(member for member in members if member not in together)
    if apart:
        closer = keep_members(closer, together)
    return Merged(closer, tuple(together), apart, tuple(notes))


def check_sessions(sessions: Sequence[Session]) -> None:
    """SessionError where they can't be merged."""
    if len(sessions) < 2:
        raise SessionError("a merge needs two runs or more")
    first = sessions[0]
    for a, b in combinations(sessions, 2):
        if a.path.resolve() == b.path.resolve():
            raise SessionError(f"{a.path} is named twice")
    for other in sessions[1:]:
        if abs(np.log(other.resolution / first.resolution)) > 1e-3:
            raise SessionError(
                f"the submaps of {first.path} have cells of {first.resolution:g} m, those of {other.path} of"
                f" {other.resolution:g} m: make both with the same submap.resolution"
            )


def names_of(sessions: Sequence[Session]) -> list[str]:
    """The names of their folders, with a number where two are alike."""
    names: list[str] = []
    for session in sessions:
        base = session.path.resolve().name
        name, number = base, 2
        while name in names:
            name, number = f"{base} ({number})", number + 1
        names.append(name)
    return names


def reject_lone_closures(closer: LoopCloser, members: Sequence[Member]) -> list[str]:
    """Take out closures that would join the newest run to another all alone, without being certain; what they are.

    No other closure agrees with a single one. Its probability holds for a robot that compares forty pairs of different
    places for one of the same; two runs that may share nothing were compared in more pairs, and each is one more chance
    to be wrong.
    """
    *others, newest = members
    notes = []
    for other in others:
        sides = [set(newest.ids.values()), set(other.ids.values())]
        between = [c for c in closer.closures if any(c.a in a and c.b in b for a, b in (sides, sides[::-1]))]
        accepted = [closure for closure in between if closure.accepted]
        if len(accepted) != 1:
            continue
        (lone,) = accepted
        chance = lone_probability(lone.probability, len(between))
        if chance < closer.config.accept_probability:
            closer.reject(lone.a, lone.b)
            notes.append(
                f"one closure between {other.name} and {newest.name} is not used: it stands alone among {len(between)}"
                f" comparisons, with probability {chance:.3f}, {closer.config.accept_probability:g} is needed"
            )
    return notes


def lone_probability(probability: float, comparisons: int) -> float:
    """Probability of the only closure among so many comparisons of two runs."""
    odds = log_odds_of(probability) - float(np.log(PRIOR_ODDS * max(comparisons, 1.0 / PRIOR_ODDS)))
    return float(1.0 / (1.0 + np.exp(-odds)))


def largest_group(closer: LoopCloser, members: Sequence[Member]) -> list[Member]:
    """The members in one frame that have the most submaps together."""
    groups: list[list[Member]] = []
    for member in members:
        some = anchor_of(member)
        group = next((g for g in groups if closer.one_frame(anchor_of(g[0]), some)), None)
        if group is None:
            groups.append(group := [])
        group.append(member)
    return max(groups, key=lambda group: sum(len(member.ids) for member in group))


def anchor_of(member: Member) -> int:
    """A submap that is in the frame of the member's own map."""
    return member.ids[min(member.session.ids)]


def best_comparison(closer: LoopCloser, members: Sequence[Member], notes: Sequence[str]) -> str:
    """What came nearest to joining two runs, to be added to a sentence; empty where nothing was compared."""
    if notes:
        return f"; {notes[0]}"
    owner = {new: (member.name, old) for member in members for old, new in member.ids.items()}
    between = [item for item in closer.closures if owner[item.a][0] != owner[item.b][0]]
    if not between:
        return ""
    best = max(between, key=lambda item: item.probability)
    (a, number_a), (b, number_b) = owner[best.a], owner[best.b]
    return f"; nearest came submap {number_a} of {a} and {number_b} of {b}: {best.reason}"


def keep_members(closer: LoopCloser, members: Sequence[Member]) -> LoopCloser:
    """The same closer with the submaps of these members alone."""
    kept = {new for member in members for new in member.ids.values()}
    closures = [item for item in closer.closures if item.a in kept and item.b in kept]
    rejected = [item.pair for item in closures if item.reason == REJECTED_BY_REQUEST]

    def submaps_of(member: Member) -> list[Submap]:
        return [
            replace(member.session.submaps.load(old), id=new, session=closer.node(new).drive)
            for old, new in member.ids.items()
        ]

    submaps = (submap for member in members for submap in submaps_of(member))
    return LoopCloser.from_submaps(submaps, closures, closer.config, rejected)


def frame_poses(merged: Merged) -> dict[int, Array]:
    """T_map_submap of the submaps that are in the frame of the merge."""
    anchor = anchor_of(merged.members[0])
    return {id: T for id, T in merged.closer.poses.items() if merged.closer.one_frame(id, anchor)}
