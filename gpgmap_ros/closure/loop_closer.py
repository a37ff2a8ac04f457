"""Finished submaps in, corrected poses out: finds closures, keeps those that agree, and solves the pose graph.

    closer = LoopCloser(config.closure)
    for submap in submaps:                  # in the order in which they were finished
        for closure in closer.add(submap):  # what it was compared with, and what came of it
            print(closure.a, closure.b, closure.accepted, closure.reason)
    closer.poses[submap.id], closer.T_map_odom, closer.correct(stamps, poses)

The gates that a closure passes are in acceptance.py. Which closures pass is decided anew whenever one comes or goes, so
that a wrong one that came first is outvoted later, and `reject` repairs the graph. Several drives (yesterday's, another
robot's) may be in one closer; they are in one frame as soon as a closure joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gp_core.arrays import Array
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.graph.closure_graph import ClosureGraph
from gpgmap_ros.closure.graph.keyframes import SubmapNode, consecutive_nodes, make_node
from gpgmap_ros.closure.graph.lie import inverses
from gpgmap_ros.closure.graph.problem import SolverMissing
from gpgmap_ros.closure.graph.trajectory_correction import correct_trajectory
from gpgmap_ros.closure.registration.prior import PosePrior
from gpgmap_ros.closure.retrieval.candidate_selection import CandidateSelection
from gpgmap_ros.closure.retrieval.database import ClosureDatabase
from gpgmap_ros.closure.session.session_file import SavedSession, read_session, write_session
from gpgmap_ros.closure.session.session_log import SessionLog
from gpgmap_ros.closure.types import LoopClosure, NotComparable, Pair, SubmapKey, list_pairs
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.storage.atomic import write_text


def known_covariances(closer: LoopCloser) -> dict[int, Array] | None:
    """The covariances of the poses; None where nothing can be said about them."""
    try:
        return closer.covariances()
    except (SolverMissing, ValueError):
        return None


class LoopCloser:
    """Closes loops over submaps as they are finished. For one thread at a time.

    config: section `closure` of the configuration; the default unless given
    database: the submaps in which places are looked for, by their ids
    skipped_count: length of `skipped`
    """

    def __init__(self, config: ClosureConfig | None = None) -> None:
        self.config = config or ClosureConfig()
        self.database = ClosureDatabase(self.config)
        self.skipped_count = 0
        self._graph = ClosureGraph(self.config)
        self._newest: int | None = None
        self._log: SessionLog | None = None
        self._rebuild()

    # ------------------------------------------------ submaps in

    def add(self, submap: Submap, own: bool = True) -> list[LoopClosure]:
        """Take in a finished submap; returns all that it was compared with, accepted ones first.

        own: of the robot whose drive `newest`, `T_map_odom` and `trajectory` are about; else of another one.
        Submaps come in the order in which they were made. Where no place can be recognised in one (flat, too small) it
        only takes part in the odometry, and `skipped` says why. ValueError for an id that is known already.
        """
        graph = self._graph
        if submap.id in graph.nodes:
            raise ValueError(f"submap {submap.id} has been added already")
        node = make_node(submap, graph.last_node(submap.session))
        before = graph.add_node(node)
        if own or self._newest is None:
            self._newest = node.id
        self._candidates.add(node, before, graph.path_between(before, node))
        try:
            closures = self._register(node, submap.gpgmap, self._candidates.select(node, graph.poses))
            self.database.add(node.id, submap.gpgmap)
        except NotComparable as refusal:
            graph.nodes[node.id] = replace(node, skipped=str(refusal))
            self.skipped_count += 1
            return []
        return sorted(self._decide(closures), key=lambda c: (not c.accepted, -c.probability))

    def _register(
        self, node: SubmapNode, gpgmap: GPGMap, candidates: Mapping[int, PosePrior | None]
    ) -> list[LoopClosure]:
        """A submap registered with the most similar candidates, each with what odometry expects, if anything."""
        others = [self._graph.nodes[id] for id in candidates]
        found = self.database.closures(
            gpgmap,
            self.config.matches,
            priors={id: prior for id, prior in candidates.items() if prior is not None},
            among=list(candidates),
            # verticals of two drives are independent, one drive has one
            tilts={
                other.id: float(np.hypot(node.tilt_std, other.tilt_std))
                for other in others
                if other.drive != node.drive
            },
        )
        return [LoopClosure.from_registration(int(id), node.id, result) for id, result in found]

    def _decide(self, closures: list[LoopClosure]) -> list[LoopClosure]:
        """New comparisons, with what is decided about them."""
        if self._graph.add_closures(closures):
            self._candidates.invalidate_paths()
        return [self._graph.decision(closure.pair) for closure in closures]

    def compare(self, id: int, gpgmap: GPGMap) -> list[LoopClosure]:
        """Compare a submap that is here already with those of other drives, after `merge`; all that came of it.

        gpgmap: its map. Pairs that were compared before are passed over.
        """
        graph = self._graph
        node = graph.nodes[id]
        known = {other for pair in graph.closures for other in pair if id in pair}
        candidates = {
            other: prior
            for other, prior in self._candidates.select(node, graph.poses).items()
            if graph.nodes[other].drive != node.drive and other not in known
        }
        decisions = self._decide(self._register(node, gpgmap, candidates))
        self._log = None  # the next `keep` writes everything: these are not of a new submap
        return decisions

    def reject(self, a: int, b: int) -> LoopClosure:
        """Take a closure out for good: the graph is solved without it. KeyError, with those that there are, where there
        is none between a and b."""
        closures = self._graph.closures
        pair = (a, b) if (a, b) in closures else (b, a)
        if pair not in closures or not self._graph.is_credible(pair):
            there = list_pairs(pair for pair in closures if self._graph.is_credible(pair))
            why = f" (they were compared: {closures[pair].reason})" if pair in closures else ""
            raise KeyError(f"there is no closure between submaps {a} and {b}{why}; {there}")
        if self._graph.reject(pair):
            self._candidates.invalidate_paths()
        return self._graph.decision(pair)

    # ------------------------------------------------ what is known

    @property
    def closures(self) -> list[LoopClosure]:
        """All comparisons so far, with what is decided about them now."""
        return [self._graph.decision(pair) for pair in self._graph.closures]

    @property
    def comparisons(self) -> int:
        """Number of comparisons so far."""
        return len(self._graph.closures)

    @property
    def solver_error(self) -> str:
        """Why poses are not corrected although there are closures; empty where they are."""
        return self._graph.solver_error

    @property
    def revision(self) -> int:
        """Grows when poses of earlier submaps, or decisions about earlier closures, may have changed."""
        return self._graph.revision

    def __contains__(self, id: int) -> bool:
        """Has the submap of this id been added?"""
        return id in self._graph.nodes

    @property
    def nodes(self) -> list[SubmapNode]:
        """What is remembered of each submap, in order."""
        return list(self._graph.nodes.values())

    def node(self, id: int) -> SubmapNode:
        """What is remembered of one submap."""
        return self._graph.nodes[id]

    @property
    def poses(self) -> dict[int, Array]:
        """T_map_submap (4, 4), corrected, by id. The frame is where the odometry of the first drive began; drives
        that are not joined to it (`in_map`) stand in their own odometry's frame."""
        return dict(zip(self._graph.nodes, self._graph.poses.copy(), strict=True))

    def pose(self, id: int) -> Array:
        """(4, 4) T_map_submap of one submap."""
        return self._graph.pose(id).copy()

    def covariances(self) -> dict[int, Array]:
        """(6, 6) of each of `poses`, by id, over (x, y, z, roll, pitch, yaw) along the map's axes, relative to the
        submap that holds its drive in place. Computed anew at each call; SolverMissing where there is no solver."""
        return self._graph.covariances() if self._graph.nodes else {}

    @property
    def skipped(self) -> dict[int, str]:
        """Submaps in which no place can be recognised, and why."""
        return {id: node.skipped for id, node in self._graph.nodes.items() if node.skipped}

    @property
    def newest(self) -> int | None:
        """Id of the submap that was added last."""
        return self._newest

    def in_map(self, id: int) -> bool:
        """Is the drive of this submap joined to the first drive, so that its pose is in the map's frame?"""
        return self.one_frame(id, next(iter(self._graph.nodes)))

    def one_frame(self, a: int, b: int) -> bool:
        """Are the poses of two submaps in one frame: of one drive, or of drives that closures join?"""
        return self._graph.anchor(a) == self._graph.anchor(b)

    # ------------------------------------------------ the corrected trajectory

    @property
    def T_map_odom(self) -> Array:  # noqa: N802
        """(4, 4) what corrects the newest drive's odometry now: the correction of the newest submap."""
        return np.eye(4) if self.newest is None else self.correction(self.newest)

    def correction(self, id: int) -> Array:
        """(4, 4) T_map_odom at one submap: takes its pose by odometry to the corrected one."""
        return self._graph.correction(id)

    @property
    def trajectory(self) -> list[tuple[int, Array]]:
        """(stamp, T_map_robot) of the newest drive, corrected, wherever the submaps recorded the robot's pose."""
        stamps, poses = self.recorded()
        return list(zip(stamps.tolist(), self.correct(stamps, poses), strict=True))

    def recorded(self) -> tuple[NDArray[np.int64], Array]:
        """(K,) stamps and (K, 4, 4) poses T_odom_robot of the newest drive, as the submaps recorded them."""
        nodes = self._drive(None)
        stamps = [np.zeros(0, dtype=np.int64), *(node.stamps for node in nodes)]
        poses = [np.zeros((0, 4, 4)), *(node.T_odom_submap @ node.track for node in nodes)]
        return np.concatenate(stamps), np.concatenate(poses)

    def correct(
        self,
        stamps: Sequence[int] | NDArray[np.int64],
        poses: Sequence[Array] | Array,
        drive: int | None = None,
    ) -> list[Array]:
        """Corrected poses T_map_x for odometry poses T_odom_x (4, 4) of a drive at stamps in nanoseconds.

        drive: `Submap.session` of its submaps; the newest drive unless given. Without a submap nothing is corrected.

        Between the middles of two submaps the correction takes the course that is likeliest by the drift of the
        odometry; before the first and after the last it is constant.
        """
        nodes = self._drive(drive)
        if not nodes:
            return [np.array(T) for T in poses]
        odometry = np.stack([node.T_odom_submap for node in nodes])
        corrections = self._graph.poses_of(nodes) @ inverses(odometry)
        return list(correct_trajectory(nodes, corrections, self._graph.drift, stamps, poses))

    def _drive(self, drive: int | None) -> list[SubmapNode]:
        """Submaps of a drive; None: of the newest."""
        nodes = self._graph.nodes
        if drive is None:
            if self._newest is None:
                return []
            drive = nodes[self._newest].drive
        return [nodes[id] for id in self._graph.drives.get(drive, ())]

    # ------------------------------------------------ files

    def save(self, path: Path | str, surfaces: bool = True) -> None:
        """Write everything to `path`, and the submaps' maps to the same name with the suffix .db.

        surfaces: leave these maps out where the submaps themselves are kept: `load` can make them again. OSError or
        DatabaseError where the disk refuses; the old files are then whole.
        """
        path, graph = Path(path), self._graph
        if surfaces:
            # first: a graph never names maps that are not there
            self.database.save(path.with_suffix(".db"))
        write_session(path, self.nodes, graph.closures, list(graph.rejected), surfaces)
        self._log = SessionLog.begin(path, len(graph.nodes), len(graph.rejected)) if not surfaces else None

    def keep(self, path: Path | str) -> None:
        """Write what came since the last time, as `save` without surfaces would: the cost does not grow with the drive.

        It is appended to a log beside `path`, and the log is merged into the file whenever it has become as large as
        that (session/session_log.py). OSError where the disk refuses; what was written before stays whole.
        """
        path, log, graph = Path(path), self._log, self._graph
        if log is None or log.path != path:
            self.save(path, surfaces=False)
            return
        self._log = None  # until it has been written
        new = list(islice(graph.nodes.values(), log.nodes, None))
        closures = [{pair: graph.closures[pair] for pair in graph.by_submap.get(node.id, ())} for node in new]
        rejected = list(islice(graph.rejected, log.rejections, None))
        if log.append(list(zip(new, closures, strict=True)), rejected):
            self._log = log
        else:
            self.save(path, surfaces=False)

    @classmethod
    def load(
        cls,
        path: Path | str,
        config: ClosureConfig | None = None,
        maps: Callable[[int], GPGMap] | None = None,
    ) -> LoopCloser:
        """Go on where `save` stopped: submaps that are added now are compared with all of those.

        maps: gives the map of a submap by its id, for a file without surfaces; a submap whose map it can't give
        (ValueError, OSError) is not compared any more. ArchiveError or DatabaseError where a file is damaged.
        What `keep` appended is read as well.
        """
        path, closer = Path(path), cls(config)
        saved, log = SessionLog.read(path, read_session(path))
        if saved.surfaces:
            closer.database = ClosureDatabase.load(path.with_suffix(".db"), closer.config)
            known: dict[SubmapKey, SubmapKey] = {
                name: id for id, name in saved.names.items() if name in closer.database
            }
            closer.database.rename(known)
        closer._restore(saved, maps)
        closer._log = None if saved.surfaces else log
        return closer

    @classmethod
    def from_submaps(
        cls,
        submaps: Iterable[Submap],
        closures: Iterable[LoopClosure],
        config: ClosureConfig | None = None,
        rejected: Iterable[Pair] = (),
    ) -> LoopCloser:
        """A closer with submaps whose closures are known: nothing is compared. Submaps come in their order."""
        closer, maps = cls(config), {}
        last: dict[int, SubmapNode] = {}
        nodes: list[SubmapNode] = []
        for submap in submaps:
            last[submap.session] = make_node(submap, last.get(submap.session))
            nodes.append(last[submap.session])
            maps[submap.id] = submap.gpgmap
        found = {closure.pair: closure for closure in closures}
        closer._restore(SavedSession(nodes, found, list(rejected), False, {}), maps.__getitem__)
        return closer

    def _restore(self, saved: SavedSession, maps: Callable[[int], GPGMap] | None) -> None:
        for node in saved.nodes:
            if not saved.surfaces and not node.skipped:
                node = self._add_map(node, maps)
            self._graph.insert_node(node)
            self.skipped_count += bool(node.skipped)
            self._newest = node.id
        self._graph.insert_closures(saved.closures.values())
        self._graph.rejected = dict.fromkeys(saved.rejected)
        self._rebuild()

    def _add_map(self, node: SubmapNode, maps: Callable[[int], GPGMap] | None) -> SubmapNode:
        """Put the map of a submap into the database again; the node says why where that is not possible."""
        if maps is None:
            return replace(node, skipped="its map was not kept with the closures")
        try:
            self.database.add(node.id, maps(node.id))
        except (ValueError, OSError) as error:
            return replace(node, skipped=str(error))
        return node

    def merge(self, other: LoopCloser) -> dict[int, int]:
        """Take over the submaps and closures of another robot or session, joined to ours or not.

        Returns their new ids by their old ones. Submaps that are added later are compared with them; the drive
        that `T_map_odom` and `trajectory` are about stays ours. NotComparable for cells of another size.
        """
        ours, theirs = self._graph, other._graph
        offset = 1 + max(ours.nodes, default=-1)
        ids = {id: id + offset for id in theirs.nodes}
        self.database.merge(other.database, names=dict(ids.items()))
        drives: dict[int, int] = {}
        for node in theirs.nodes.values():
            if node.drive not in drives:
                taken = ours.drives.keys() | set(drives.values())
                drives[node.drive] = next(free for free in count(node.drive) if free not in taken)
            ours.insert_node(replace(node, id=ids[node.id], drive=drives[node.drive]))
            self.skipped_count += bool(node.skipped)
        ours.insert_closures(replace(c, a=ids[c.a], b=ids[c.b]) for c in theirs.closures.values())
        ours.rejected |= dict.fromkeys((ids[a], ids[b]) for a, b in theirs.rejected)
        self._log = None  # the next `keep` writes everything
        if self._newest is None and other.newest is not None:
            self._newest = ids[other.newest]
        self._rebuild()
        return ids

    def write_g2o(self, path: Path | str) -> None:
        """Write the graph as it is solved now (corrected poses, odometry, accepted closures) for other programs."""
        write_text(Path(path), self._graph.g2o())

    def _rebuild(self) -> None:
        """Decide about all closures together, solve, and begin the selection of candidates anew."""
        self._candidates = CandidateSelection(self.config, self._graph.drift, self._graph.path_edges)
        for before, node in consecutive_nodes(self._graph.nodes.values()):
            self._candidates.add(node, before, self._graph.path_between(before, node))
        self._graph.rebuild()
        self._candidates.invalidate_paths()
