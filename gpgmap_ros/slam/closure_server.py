"""Serves requests to the loop closures: submaps in, updates of the pose graph and global maps out."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gpgmap_ros.closure import DatabaseError, LoopCloser
from gpgmap_ros.closure.loop_closer import known_covariances
from gpgmap_ros.closure.session.session_log import log_path
from gpgmap_ros.mapping import ArchiveError, GPGMap, SubmapStore
from gpgmap_ros.mapping.stitching import StitchError
from gpgmap_ros.mapping.submaps import submap_mapping
from gpgmap_ros.slam.closure_messages import (
    Add,
    Answer,
    CatchingUp,
    GlobalMap,
    Problem,
    Reject,
    Rejected,
    Request,
    Restored,
    Start,
)
from gpgmap_ros.slam.closure_updates import UpdateBuilder
from gpgmap_ros.slam.global_map import stitch_global_map

FILE = "closures.npz"
"""In the map folder: the graph and all comparisons, so that the next run goes on with them."""
SAME_POSE = 1e-6
"""Metres and radians by which the pose of a stored submap may differ from what the file remembers of it."""


class ClosureServer:
    """Serves one request after another, and calls `answer` with what came of it.

    closer: the pose graph and its closures
    """

    def __init__(self, start: Start, answer: Callable[[Answer], None]) -> None:
        self._config, self._folder, self._before = start.config, start.folder, start.before
        self._answer = answer
        self._held: list[Add] | None = []  # of other robots, until this one has a submap; then None
        self._store = SubmapStore(start.folder / "submaps", start.config) if start.folder else None
        self.closer = self._restore()
        self._updates = UpdateBuilder(self.closer)

    def serve(self, request: Request) -> None:
        began = time.perf_counter()
        if isinstance(request, Add):
            self._add(request, began)
        elif isinstance(request, Reject):
            self._reject(request, began)
        else:
            self._make_global_map(began)

    def catch_up(self) -> None:
        """Say what earlier runs left, compare the submaps that they did not get to, and say what is known then."""
        if self._store is None:
            return
        earlier = [info for info in self._store.infos() if info.id < self._before]
        missing = [info for info in earlier if info.id not in self.closer]
        fitting = [info for info in missing if self._fits(info.grid.resolution)]
        if earlier:
            closures = sum(closure.accepted for closure in self.closer.closures)
            drives = len({info.session for info in earlier})
            self._answer(Restored(len(earlier), drives, closures, len(fitting)))
        if len(fitting) < len(missing):
            self._answer(
                Problem(
                    f"{len(missing) - len(fitting)} submaps of earlier runs are not compared: their cells are not "
                    f"{submap_mapping(self._config).resolution:g} m wide"
                )
            )
        for k, info in enumerate(fitting):
            with contextlib.suppress(ArchiveError):  # a damaged one is left alone, as the store does
                self.closer.add(self._store.load(info.id))
                self._keep()
            self._answer(CatchingUp(len(fitting) - k - 1))
        if self.closer.newest is not None:
            self._answer(self._updates.of_earlier_runs())

    def _restore(self) -> LoopCloser:
        config = self._config.closure
        if self._folder is None or self._store is None:
            return LoopCloser(config)
        path = self._folder / FILE
        if not path.exists() and not log_path(path).exists():
            return LoopCloser(config)
        try:
            closer = LoopCloser.load(path, config, self._map_of)
            self._check_submaps(closer)
            return closer
        except (ArchiveError, DatabaseError) as error:
            kept = [set_aside(file) for file in (path, log_path(path)) if file.exists()]
            self._answer(
                Problem(f"{error}; it is kept as {' and '.join(kept)}, and all submaps are compared again")
            )
            return LoopCloser(config)

    def _check_submaps(self, closer: LoopCloser) -> None:
        """ArchiveError where the submaps in the folder are not those that the file is about."""
        assert self._store is not None
        for info in self._store.infos():
            if info.id not in closer:
                continue
            station = closer.node(info.id)
            same_pose = np.allclose(info.T_map_submap, station.T_odom_submap, atol=SAME_POSE)
            if (info.session, info.first_stamp) != (station.drive, station.first_stamp) or not same_pose:
                raise ArchiveError(
                    f"{FILE}: it is about another submap {info.id} than the one in {self._store.folder}"
                )

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
        if self._held is not None and not request.own:
            self._held.append(request)
            return
        held, self._held = self._held or [], None
        for item in (request, *held):
            self._add_now(item, began)
            began = time.perf_counter()

    def _add_now(self, request: Add, began: float) -> None:
        submap = request.submap
        if submap is None:
            assert self._store is not None
            self._store.include(request.id)
            submap = self._store.load(request.id)
        compared = []
        if submap.id not in self.closer:  # else the folder had it when this process started
            compared = self.closer.add(submap, request.own)
            self._keep()
        self._answer(self._updates.after(compared, began))

    def _reject(self, request: Reject, began: float) -> None:
        try:
            closure = self.closer.reject(request.a, request.b)
        except KeyError as error:
            self._answer(Rejected(request.token, False, str(error.args[0])))
            return
        self._keep()
        self._answer(self._updates.after([], began))
        message = f"the closure between submaps {closure.a} and {closure.b} is out of the graph"
        self._answer(Rejected(request.token, True, message))

    def _make_global_map(self, began: float) -> None:
        gpgmap, problem = None, ""
        try:
            gpgmap = self._stitch_global_map()
        except (StitchError, ArchiveError, OSError) as error:
            problem = str(error)
        self._answer(GlobalMap(gpgmap, problem, time.perf_counter() - began))

    def _stitch_global_map(self) -> GPGMap:
        closer, config = self.closer, self._config
        if self._store is None:
            raise StitchError("no submaps are kept to stitch: set map_folder")
        if closer.newest is None:
            raise StitchError("there is no finished submap yet")
        poses = {id: T for id, T in closer.poses.items() if closer.one_frame(id, closer.newest)}
        return stitch_global_map(
            self._store,
            poses,
            config,
            config.closure.frame,
            config.closure.global_map_cells,
            known_covariances(closer),
        )

    def _keep(self) -> None:
        if self._folder is None:
            return
        try:
            self.closer.keep(self._folder / FILE)
        except OSError as error:
            self._answer(Problem(f"closures could not be written: {error}"))


def set_aside(path: Path) -> str:
    """Rename a file that can't be used; returns its new name."""
    aside = path.with_name(f"{path.name}.damaged")
    os.replace(path, aside)
    return aside.name
