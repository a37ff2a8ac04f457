"""The process of the loop closures from inside (process.py starts it): requests in, answers out."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from gpgmap_ros.closure.database import DatabaseError
from gpgmap_ros.closure.requests import (
    Add,
    Answer,
    Done,
    GlobalMap,
    Problem,
    Reject,
    Rejected,
    Request,
    Start,
    Update,
)
from gpgmap_ros.closure.session import LoopCloser, LoopClosure, known_covariances
from gpgmap_ros.closure.warm_up import warm_up
from gpgmap_ros.mapping import ArchiveError, GPGMap, SubmapStore
from gpgmap_ros.mapping.stitching import Stitcher, StitchError, stitch
from gpgmap_ros.mapping.submaps import submap_mapping
from gpgmap_ros.memory import keep_flat

T = TypeVar("T")

NICENESS = 10
"""How far the process stands back behind others."""
MOST_TRACK = 4000
"""Poses of the corrected trajectory in an answer: a longer one is thinned."""
FILE = "closures.npz"
"""In the map folder: the graph and all comparisons, so that the next run goes on with them."""


class Closing:
    """What the child does with each request."""

    def __init__(self, start: Start, answer: Callable[[Answer], None]) -> None:
        self._config, self._folder, self._before = start.config, start.folder, start.before
        self._answer = answer
        self._store = SubmapStore(start.folder / "submaps", start.config) if start.folder else None
        self._closer = self._restored()
        self._told: set[tuple[int, int]] = set()

    def serve(self, request: Request) -> None:
        began = time.perf_counter()
        if isinstance(request, Add):
            self._add(request, began)
        elif isinstance(request, Reject):
            self._reject(request, began)
        else:
            self._make_global_map(began)

    def catch_up(self) -> None:
        """Take in the submaps that an earlier run stored but did not compare."""
        if self._store is None:
            return
        other = 0
        for info in self._store.infos():
            if info.id >= self._before or info.id in self._closer.poses:
                continue
            if not self._fits(info.grid.resolution):
                other += 1
                continue
            with contextlib.suppress(ArchiveError):  # a damaged one is left alone, as the store does
                self._closer.add(self._store.load(info.id))
        if other:
            self._answer(
                Problem(
                    f"{other} submaps of earlier runs are not compared: their cells are not "
                    f"{submap_mapping(self._config).resolution:g} m wide"
                )
            )
        if self._closer.newest is not None:
            self._save()
        self._told = {(c.a, c.b) for c in self._closer.closures if c.accepted}

    def _restored(self) -> LoopCloser:
        config = self._config.closure
        if self._folder is None or self._store is None or not (self._folder / FILE).exists():
            return LoopCloser(config)
        path = self._folder / FILE
        try:
            return LoopCloser.load(path, config, self._map_of)
        except (ArchiveError, DatabaseError) as error:
            aside = path.with_name(f"{path.name}.damaged")
            os.replace(path, aside)
            self._answer(Problem(f"{error}; it is kept as {aside.name}, and all submaps are compared again"))
            return LoopCloser(config)

    def _map_of(self, id: int) -> GPGMap:
        """The map of a stored submap, if it can be compared with those of this run."""
        assert self._store is not None
        gpgmap = self._store.load(id).gpgmap
        if not self._fits(gpgmap.grid.resolution):
            raise ArchiveError(f"submap {id} has cells of {gpgmap.grid.resolution:g} m")
        return gpgmap

    def _fits(self, resolution: float) -> bool:
        return math.isclose(resolution, submap_mapping(self._config).resolution, rel_tol=1e-3)

    def _add(self, request: Add, began: float) -> None:
        submap = request.submap
        if submap is None:
            assert self._store is not None
            self._store.include(request.id)
            submap = self._store.load(request.id)
        compared = []
        if submap.id not in self._closer.poses:  # else the folder had it when this process started
            compared = self._closer.add(submap)
            self._save()
        self._answer(self._update(compared, began))

    def _reject(self, request: Reject, began: float) -> None:
        try:
            closure = self._closer.reject(request.a, request.b)
        except KeyError as error:
            self._answer(Rejected(request.token, False, str(error.args[0])))
            return
        self._save()
        self._answer(self._update([], began))
        message = f"the closure between submaps {closure.a} and {closure.b} is out of the graph"
        self._answer(Rejected(request.token, True, message))

    def _make_global_map(self, began: float) -> None:
        gpgmap, problem = None, ""
        try:
            gpgmap = self._stitched()
        except (StitchError, ArchiveError, OSError) as error:
            problem = str(error)
        self._answer(GlobalMap(gpgmap, problem, time.perf_counter() - began))

    def _stitched(self) -> GPGMap:
        closer, config = self._closer, self._config
        if self._store is None:
            raise StitchError("no submaps are kept to stitch: set map_folder")
        if closer.newest is None:
            raise StitchError("there is no finished submap yet")
        poses = {id: T for id, T in closer.poses.items() if closer.one_frame(id, closer.newest)}
        frame, fine = config.closure.frame, config.mapping.resolution
        covariances = known_covariances(closer)
        rows, columns = Stitcher(self._store, poses, config, frame).grid.shape
        most = config.closure.global_map_cells
        coarser = max(1, math.ceil(math.sqrt(rows * columns / most)))
        return stitch(self._store, poses, config, frame, coarser * fine, 2 * most, covariances)

    def _update(self, compared: list[LoopClosure], began: float) -> Update:
        closer = self._closer
        assert closer.newest is not None
        poses = {id: T for id, T in closer.poses.items() if closer.one_frame(id, closer.newest)}
        closures = closer.closures
        # the registration's own refusals are told once, with the submap; the others may change their mind
        believed = [c for c in closures if c.a in poses and (c.accepted or closer.registered(c.a, c.b))]
        news = [c for c in closures if c.accepted and (c.a, c.b) not in self._told]
        self._told |= {(c.a, c.b) for c in news}
        trajectory = thinned(closer.trajectory, MOST_TRACK)
        return Update(
            compared=compared,
            news=news,
            newest=closer.newest,
            ids=np.array(list(poses), dtype=np.int64),
            poses=np.array(list(poses.values())).reshape(-1, 4, 4),
            pairs=np.array([(c.a, c.b) for c in believed], dtype=np.int64).reshape(-1, 2),
            accepted=np.array([c.accepted for c in believed], dtype=bool),
            stamps=np.array([stamp for stamp, _ in trajectory], dtype=np.int64),
            track=np.array([T for _, T in trajectory]).reshape(-1, 4, 4),
            T_map_odom=closer.T_map_odom,
            located=closer.in_map(closer.newest),
            count=len(closures),
            skipped=len(closer.skipped),
            seconds=time.perf_counter() - began,
            problem=closer.solver_error,
        )

    def _save(self) -> None:
        if self._folder is None:
            return
        try:
            self._closer.save(self._folder / FILE, surfaces=False)
        except OSError as error:
            self._answer(Problem(f"closures could not be written: {error}"))


def thinned(items: list[T], most: int) -> list[T]:
    """At most so many of the items, evenly spread; the first and the last are always among them."""
    if len(items) <= most:
        return items
    return [items[round(k * (len(items) - 1) / (most - 1))] for k in range(most)]


def main() -> int:
    """The child: requests from standard input until it ends, answers to standard output."""
    # Ctrl-C reaches all processes of a terminal: the node decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    keep_flat()
    # What a library prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def answer(message: Answer | Done) -> None:
        pickle.dump(message, answers)
        answers.flush()

    try:
        closing = Closing(pickle.load(sys.stdin.buffer), answer)
        warm_up()  # with the defaults: under other limits its small maps may not be comparable
        closing.catch_up()
        while True:
            request = pickle.load(sys.stdin.buffer)
            try:
                closing.serve(request)
            except Exception as error:  # the next submap may do better
                where = "".join(traceback.format_exception(error))
                answer(Problem(f"{type(request).__name__} failed: please report this\n{where}"))
            answer(Done())
    except (EOFError, BrokenPipeError):
        return 0


if __name__ == "__main__":
    sys.exit(main())
