"""Finished submaps in, corrected poses out: finds closures, keeps those that agree, and solves the pose graph.

    closer = LoopCloser(config.closure)
    for submap in submaps:                  # in the order in which they were finished
        for closure in closer.add(submap):  # what it was compared with, and what came of it
            print(closure.a, closure.b, closure.accepted, closure.reason)
    closer.poses[submap.id], closer.T_map_odom, closer.correct(stamps, poses)

A closure goes through four gates: the registration's own verdict, the odometry between its ends, agreement with the
other closures, and the robust solution. Which closures pass is decided anew whenever one comes or goes, so that a
wrong one that came first is outvoted later, and `reject` mends the graph. Several drives (yesterday's, another robot's)
may be in one closer; they are in one frame as soon as a closure joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.candidates import LEAST_PATH, Candidates, Edge
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.consistency import Closure, Drift, Stations
from gpgmap_ros.closure.database import ClosureDatabase
from gpgmap_ros.closure.graph.lie import inverses
from gpgmap_ros.closure.graph.problem import NotDetermined
from gpgmap_ros.closure.pose_graph import PoseGraph, SolverMissing, g2o_text
from gpgmap_ros.closure.session_file import read_session, write_session
from gpgmap_ros.closure.session_log import SessionLog
from gpgmap_ros.closure.stations import Found, Station, station_of
from gpgmap_ros.closure.surface import NotComparable
from gpgmap_ros.closure.verdicts import Verdicts
from gpgmap_ros.closure.ways import corrected, successive
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.storage.atomic import write_text

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LoopClosure:
    """What came of comparing two submaps.

    a, b: numbers of the earlier and the later submap
    T_a_b: (4, 4) pose of b's frame in a's; covariance: (6, 6) over (x, y, z, roll, pitch, yaw) as in nav_msgs/Odometry,
        metres and radians along a's axes; infinite where no pose was found
    probability: that the pose is right; overlap: shared part of the smaller map
    accepted: it is in the pose graph now; reason: why, or why not, in one sentence
    """

    a: int
    b: int
    T_a_b: Array
    covariance: Array
    probability: float
    overlap: float
    accepted: bool
    reason: str


def listed(pairs: Iterable[tuple[int, int]], most: int = 20) -> str:
    """Which closures there are, in words."""
    names = [f"{a}-{b}" for a, b in pairs]
    if not names:
        return "there are none"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"there are {', '.join(names[:most])}{more}"


def known_covariances(closer: LoopCloser) -> dict[int, Array] | None:
    """The covariances of the poses; None where nothing can be said about them."""
    try:
        return closer.covariances()
    except (SolverMissing, ValueError):
        return None


class LoopCloser:
    """Closes loops over submaps as they are finished. For one thread at a time.

    config: section `closure` of the configuration; the default unless told
    database: the submaps in which places are looked for
    solver_error: why poses are not corrected although there are closures; empty where they are
    skipped_count: length of `skipped`
    revision: grows when poses of earlier submaps, or what is thought of earlier closures, may have changed
    """

    def __init__(self, config: ClosureConfig | None = None) -> None:
        self.config = config or ClosureConfig()
        self.database = ClosureDatabase(self.config)
        self.solver_error = ""
        self.revision = 0
        self.skipped_count = 0
        self._drift = Drift.of(self.config)
        self._stations: dict[int, Station] = {}
        self._drives: dict[int, list[int]] = {}  # submaps of each drive
        self._found: dict[tuple[int, int], Found] = {}
        self._compared: dict[int, list[tuple[int, int]]] = {}  # pairs by the submap that brought them
        self._rejected: dict[tuple[int, int], None] = {}  # in order
        self._anchors: dict[int, int] = {}
        self._newest: int | None = None
        self._log: SessionLog | None = None
        self._judge_anew()

    # ------------------------------------------------ submaps in

    def add(self, submap: Submap) -> list[LoopClosure]:
        """Take in a finished submap; returns all that it was compared with, accepted ones first.

        Submaps come in the order in which they were made. Where no place can be recognised in one (flat, too small) it
        only takes part in the odometry, and `skipped` says why. ValueError for a number that is known already.
        """
        if submap.id in self._stations:
            raise ValueError(f"submap {submap.id} has been added already")
        drive = self._drives.get(submap.session)
        before = self._stations[drive[-1]] if drive else None
        station = station_of(submap, before)
        self._place(station, before)
        candidates = self._candidates.of(station)
        names = {self._stations[id].name: id for id in candidates}
        priors = {self._stations[id].name: prior for id, prior in candidates.items() if prior is not None}
        try:
            found = self.database.closures(
                submap.gpgmap, self.config.matches, priors=priors, among=list(names)
            )
            self.database.add(station.name, submap.gpgmap)
        except NotComparable as refusal:
            self._stations[station.id] = replace(station, skipped=str(refusal))
            self.skipped_count += 1
            return []
        pairs = self._compared[station.id] = [(names[name], station.id) for name, _ in found]
        for pair, (_, registration) in zip(pairs, found, strict=True):
            closure = Closure(
                str(pair[1]), str(pair[0]), registration.T_target_source, registration.covariance
            )
            self._found[pair] = Found(
                closure,
                registration.probability,
                registration.score,
                registration.overlap,
                registration.accepted,
                registration.reason,
            )
        votes = [self._verdicts.hear(pair, self._found[pair]) for pair in pairs]
        if any(votes):
            self._solve(self._verdicts.agreed())
        return sorted((self._closure(pair) for pair in pairs), key=lambda c: (not c.accepted, -c.probability))

    def reject(self, a: int, b: int) -> LoopClosure:
        """Take a closure out for good: the graph is solved without it. KeyError, with those that there are, where there
        is none between a and b."""
        pair = (a, b) if (a, b) in self._found else (b, a)
        if pair not in self._found or not self._found[pair].verdict:
            there = listed(pair for pair, found in self._found.items() if found.verdict)
            why = f" (they were compared: {self._found[pair].reason})" if pair in self._found else ""
            raise KeyError(f"there is no closure between submaps {a} and {b}{why}; {there}")
        self._rejected[pair] = None
        self.revision += 1
        if self._verdicts.withdraw(pair):
            self._solve(self._verdicts.agreed())
        return self._closure(pair)

    # ------------------------------------------------ what is known

    @property
    def closures(self) -> list[LoopClosure]:
        """All comparisons so far, with what is thought of them now."""
        return [self._closure(pair) for pair in self._found]

    @property
    def comparisons(self) -> int:
        """How many there were so far."""
        return len(self._found)

    def __contains__(self, id: int) -> bool:
        """Has the submap of this number been added?"""
        return id in self._stations

    @property
    def stations(self) -> list[Station]:
        """What is remembered of each submap, in order."""
        return list(self._stations.values())

    def station(self, id: int) -> Station:
        """What is remembered of one submap."""
        return self._stations[id]

    def registered(self, a: int, b: int) -> bool:
        """Did the registration of two submaps stand its own test, whatever the odometry and other closures say?"""
        return self._found[a, b].verdict

    @property
    def poses(self) -> dict[int, Array]:
        """T_map_submap (4, 4), corrected, by number. The frame is where the odometry of the first drive began; drives
        that are not joined to it (`in_map`) stand in their own odometry's frame."""
        return dict(zip(self._stations, self._candidates.poses.copy(), strict=True))

    def pose(self, id: int) -> Array:
        """(4, 4) T_map_submap of one submap."""
        return self._candidates.pose(id).copy()

    def covariances(self) -> dict[int, Array]:
        """(6, 6) of each of `poses`, by number, over (x, y, z, roll, pitch, yaw) along the map's axes, relative to the
        submap that holds its drive in place. Computed anew at each call; SolverMissing where there is no solver."""
        if not self._stations:
            return {}
        graph = self._believed_graph()
        found = graph.covariances({str(id): T for id, T in self.poses.items()})
        return {int(name): covariance for name, covariance in found.items()}

    @property
    def skipped(self) -> dict[int, str]:
        """Submaps in which no place can be recognised, and why."""
        return {id: station.skipped for id, station in self._stations.items() if station.skipped}

    @property
    def newest(self) -> int | None:
        """Number of the submap that was added last."""
        return self._newest

    def in_map(self, id: int) -> bool:
        """Is the drive of this submap joined to the first drive, so that its pose is in the map's frame?"""
        return self.one_frame(id, next(iter(self._stations)))

    def one_frame(self, a: int, b: int) -> bool:
        """Are the poses of two submaps in one frame: of one drive, or of drives that closures join?"""
        return self._anchors[a] == self._anchors[b]

    @property
    def T_map_odom(self) -> Array:  # noqa: N802
        """(4, 4) what corrects the newest drive's odometry now: the correction of the newest submap."""
        return np.eye(4) if self.newest is None else self.correction(self.newest)

    def correction(self, id: int) -> Array:
        """(4, 4) T_map_odom at one submap: takes its pose by odometry to the corrected one."""
        return self._candidates.pose(id) @ inverse(self._stations[id].T_odom_submap)

    @property
    def trajectory(self) -> list[tuple[int, Array]]:
        """(stamp, T_map_robot) of the newest drive, corrected, wherever the submaps recorded the robot's pose."""
        stamps, poses = self.recorded()
        return list(zip(stamps.tolist(), self.correct(stamps, poses), strict=True))

    def recorded(self) -> tuple[NDArray[np.int64], Array]:
        """(K,) stamps and (K, 4, 4) poses T_odom_robot of the newest drive, as the submaps recorded them."""
        stations = self._newest_drive()
        stamps = [np.zeros(0, dtype=np.int64), *(station.stamps for station in stations)]
        poses = [np.zeros((0, 4, 4)), *(station.T_odom_submap @ station.track for station in stations)]
        return np.concatenate(stamps), np.concatenate(poses)

    def correct(
        self,
        stamps: Sequence[int] | NDArray[np.int64],
        poses: Sequence[Array] | Array,
        drive: int | None = None,
    ) -> list[Array]:
        """Corrected poses T_map_x for odometry poses T_odom_x (4, 4) of a drive at stamps in nanoseconds.

        drive: `Submap.session` of its submaps; the newest drive unless given. Without a submap nothing is corrected.

        Between the beginnings of two submaps the correction goes over from one to the other; before the first and after
        the last it stays.
        """
        stations = self._newest_drive() if drive is None else self._drive(drive)
        if not stations:
            return [np.array(T) for T in poses]
        rows = [self._candidates.row_of[station.id] for station in stations]
        odometry = np.stack([station.T_odom_submap for station in stations])
        corrections = self._candidates.poses[rows] @ inverses(odometry)
        return list(corrected([station.first_stamp for station in stations], corrections, stamps, poses))

    # ------------------------------------------------ files

    def save(self, path: Path | str, surfaces: bool = True) -> None:
        """Write everything to `path`, and the submaps' surfaces to the same name with the suffix .db.

        surfaces: leave them out where the submaps themselves are kept: `load` can make them again. OSError or
        DatabaseError where the disk refuses; the old files are then whole.
        """
        path = Path(path)
        if surfaces:
            self.database.save(
                path.with_suffix(".db")
            )  # first: a graph never names surfaces that are not there
        write_session(path, self.stations, self._found, list(self._rejected), surfaces)
        self._log = SessionLog.begin(path, len(self._stations), len(self._rejected)) if not surfaces else None

    def keep(self, path: Path | str) -> None:
        """Write what came since the last time, as `save` without surfaces would: the cost does not grow with the drive.

        It is appended to a log beside `path`, and the log is merged into the file whenever it has become as large as
        that (session_log.py). OSError where the disk refuses; what was written before stays whole.
        """
        path, log = Path(path), self._log
        if log is None or log.path != path:
            self.save(path, surfaces=False)
            return
        self._log = None  # until it has been written
        new = list(islice(self._stations.values(), log.stations, None))
        found = [{pair: self._found[pair] for pair in self._compared.get(s.id, ())} for s in new]
        rejected = list(islice(self._rejected, log.rejections, None))
        if log.append(list(zip(new, found, strict=True)), rejected):
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

        maps: gives the map of a submap by its number, for a file without surfaces; a submap whose map it can't give
        (ValueError, OSError) is not compared any more. ArchiveError or DatabaseError where a file is damaged.
        What `keep` appended is read as well.
        """
        path, closer = Path(path), cls(config)
        saved, log = SessionLog.read(path, read_session(path))
        if saved.surfaces:
            closer.database = ClosureDatabase.load(path.with_suffix(".db"), closer.config)
        known = {station.name for station in saved.stations}
        for name in [name for name in closer.database if name not in known]:
            closer.database.remove(name)
        for station in saved.stations:
            if not saved.surfaces and not station.skipped:
                station = closer._with_surface(station, maps)
            closer._remember(station)
        closer._found, closer._rejected = dict(saved.found), dict.fromkeys(saved.rejected)
        for pair in closer._found:
            closer._compared.setdefault(pair[1], []).append(pair)
        closer._log = None if saved.surfaces else log
        closer._judge_anew()
        return closer

    def merge(self, other: LoopCloser) -> dict[int, int]:
        """Take over the submaps and closures of another robot or session, joined to ours or not.

        Returns their new numbers by their old ones. Submaps that are added later are compared with them; the drive
        that `T_map_odom` and `trajectory` are about stays ours. NotComparable for cells of another size.
        """
        offset = 1 + max(self._stations, default=-1)
        prefix = f"from_{offset}/"
        self.database.merge(other.database, prefix)
        numbers = {id: id + offset for id in other._stations}
        taken = {station.drive for station in self._stations.values()}
        drives: dict[int, int] = {}
        for station in other._stations.values():
            if station.drive not in drives:
                free = min(taken, default=0) - 1 if station.drive in taken else station.drive
                drives[station.drive] = free
                taken.add(free)
            renamed = replace(
                station,
                id=numbers[station.id],
                name=prefix + station.name,
                drive=drives[station.drive],
            )
            self._stations[renamed.id] = renamed
            self._drives.setdefault(renamed.drive, []).append(renamed.id)
            self.skipped_count += bool(renamed.skipped)
        for (a, b), found in other._found.items():
            pair = numbers[a], numbers[b]
            ends = replace(found.closure, target=str(pair[0]), source=str(pair[1]))
            self._found[pair] = replace(found, closure=ends)
            self._compared.setdefault(pair[1], []).append(pair)
        self._rejected |= dict.fromkeys((numbers[a], numbers[b]) for a, b in other._rejected)
        self._log = None  # the next `keep` writes everything
        if self._newest is None and other.newest is not None:
            self._newest = numbers[other.newest]
        self._judge_anew()
        return numbers

    def write_g2o(self, path: Path | str) -> None:
        """Write the graph as it is solved now (corrected poses, odometry, accepted closures) for other programs."""
        path = Path(path)
        graph = self._believed_graph()
        edges = [*graph.odometry, *graph.closures.values()]
        poses = {str(id): T for id, T in self.poses.items()}
        text = g2o_text(poses, edges, sorted({str(anchor) for anchor in self._anchors.values()}, key=int))
        write_text(path, text)

    # ------------------------------------------------ which closures are believed

    def _judge_anew(self) -> None:
        """Judge all closures together, and solve."""
        odometry = Stations(
            {str(id): s.T_odom_submap for id, s in self._stations.items()},
            {str(id): s.driven for id, s in self._stations.items()},
            {str(id): s.drive for id, s in self._stations.items()},
        )
        self._candidates = Candidates(self.config, self._drift, self._ways)
        self._graph = PoseGraph(self.config.solver)
        for before, station in successive(self._stations.values()):
            self._candidates.add(station, station.T_odom_submap, before)
            self._join(station, before)
        self._verdicts = Verdicts(odometry, self._drift)
        for pair, found in self._found.items():
            if pair not in self._rejected:
                self._verdicts.hear(pair, found)
        self._solve(self._verdicts.agreed())

    def _solve(self, pairs: list[tuple[int, int]]) -> None:
        """Corrected poses; closures that the robust solution lets go are taken out, and it is solved without them."""
        self.solver_error = ""
        self.revision += 1
        if not self._stations:
            return
        graph = self._graph
        numbers = dict(
            zip(graph.replace_closures(self._found[pair].closure for pair in pairs), pairs, strict=True)
        )
        try:
            solution = graph.solve() if pairs else None
            while solution is not None and solution.outliers:
                for number in solution.outliers:
                    error = np.sqrt(solution.closure_errors[number])
                    self._verdicts.objections[numbers[number]] = (
                        f"the other closures and the odometry pull it apart by {error:.1f} standard deviations"
                    )
                    graph.reject(number)
                solution = graph.solve() if graph.closures else None
        except (SolverMissing, NotDetermined) as error:
            self.solver_error = str(error).splitlines()[0]
            solution = None
        poses = solution.poses if solution is not None else graph.start
        self._candidates.moved(np.array([poses[str(id)] for id in self._stations]).reshape(-1, 4, 4))
        self._anchors = {int(name): int(anchor) for name, anchor in graph.anchors.items()}

    def _believed_graph(self) -> PoseGraph:
        """The graph with the closures that are believed now."""
        believed = [found.closure for pair, found in self._found.items() if self._accepted(pair)]
        self._graph.replace_closures(believed)
        return self._graph

    def _join(self, station: Station, before: Station | None) -> None:
        """Put a submap into the graph."""
        if before is None:
            self._graph.add_drive(str(station.id), station.T_odom_submap)
        else:
            T = inverse(before.T_odom_submap) @ station.T_odom_submap
            covariance = self._drift.covariance(max(station.driven - before.driven, LEAST_PATH))
            self._graph.add_odometry(str(before.id), str(station.id), T, covariance)

    def _closure(self, pair: tuple[int, int]) -> LoopClosure:
        found = self._found[pair]
        reason = found.reason
        if pair in self._rejected:
            reason = "rejected by request"
        elif found.verdict:
            reason = self._verdicts.objections.get(pair, reason)
        return LoopClosure(
            *pair,
            found.closure.T_target_source,
            found.closure.covariance,
            found.probability,
            found.overlap,
            self._accepted(pair),
            reason,
        )

    def _accepted(self, pair: tuple[int, int]) -> bool:
        believed = pair not in self._rejected and pair not in self._verdicts.objections
        return self._found[pair].verdict and believed

    # ------------------------------------------------ where submaps are, before they are compared

    def _remember(self, station: Station) -> None:
        self._stations[station.id] = station
        self._drives.setdefault(station.drive, []).append(station.id)
        self.skipped_count += bool(station.skipped)
        self._newest = station.id

    def _place(self, station: Station, before: Station | None) -> None:
        """The pose of a new submap until a closure says more: odometry from the corrected one before it."""
        correction = np.eye(4) if before is None else self.correction(before.id)
        self._remember(station)
        self._candidates.add(station, correction @ station.T_odom_submap, before)
        self._join(station, before)
        self._anchors[station.id] = station.id if before is None else self._anchors[before.id]
        odometry, name = self._verdicts.odometry, str(station.id)
        odometry.poses[name] = station.T_odom_submap
        odometry.distances[name] = station.driven
        odometry.drives[name] = station.drive

    def _ways(self) -> Iterator[Edge]:
        """Metres of way between submaps, along odometry and accepted closures.

        A closure counts as the way after which odometry would be as uncertain.
        """
        for before, station in successive(self._stations.values()):
            if before is not None:
                yield before.id, station.id, station.driven - before.driven
        for pair in self._found:
            if self._accepted(pair):
                variance = float(np.linalg.eigvalsh(self._found[pair].closure.covariance[:3, :3])[-1])
                yield (*pair, variance / self._drift.position_std**2)

    def _newest_drive(self) -> list[Station]:
        """Submaps of the drive that the newest is of."""
        if self._newest is None:
            return []
        return self._drive(self._stations[self._newest].drive)

    def _drive(self, drive: int) -> list[Station]:
        return [self._stations[id] for id in self._drives.get(drive, ())]

    def _with_surface(self, station: Station, maps: Callable[[int], GPGMap] | None) -> Station:
        """Put the surface of a submap into the database again; the station says why where that is not possible."""
        if maps is None:
            return replace(station, skipped="its map was not kept with the closures")
        try:
            self.database.add(station.name, maps(station.id))
        except (ValueError, OSError) as error:
            return replace(station, skipped=str(error))
        return station
