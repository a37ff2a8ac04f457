"""Updates of the pose graph: only what is new, or everything where earlier poses have moved."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure import LoopCloser, LoopClosure
from gpgmap_ros.closure.track import thinned
from gpgmap_ros.geometry import Array
from gpgmap_ros.slam.closure_messages import Update
from gpgmap_ros.slam.graph_view import MAX_TRACK


class UpdateBuilder:
    """Remembers what was told. The cost of an update without a new closure does not grow with the number of submaps."""

    def __init__(self, closer: LoopCloser) -> None:
        self._closer = closer
        self._told: set[tuple[int, int]] = set()
        self._revision, self._newest = -1, -1

    def of_earlier_runs(self) -> Update:
        """All that is known when this run begins; closures of earlier runs are no news."""
        self._told = {(c.a, c.b) for c in self._closer.closures if c.accepted}
        return self._whole([], time.perf_counter(), earlier=True)

    def after(self, compared: list[LoopClosure], began: float) -> Update:
        """After a submap came or a closure went. began: when that was, by time.perf_counter."""
        if self._follows():
            return self._addition(compared, began)
        return self._whole(compared, began)

    def _follows(self) -> bool:
        """Is one submap new, of the drive that was told of, and everything else as it was told?"""
        closer = self._closer
        if closer.revision != self._revision or closer.newest is None or self._newest not in closer:
            return False
        drive = closer.node(closer.newest).drive
        return closer.newest != self._newest and closer.node(self._newest).drive == drive

    def _whole(self, compared: list[LoopClosure], began: float, earlier: bool = False) -> Update:
        closer = self._closer
        assert closer.newest is not None
        poses = {id: T for id, T in closer.poses.items() if closer.one_frame(id, closer.newest)}
        closures = closer.closures
        # the registration's own refusals are told once, with the submap; the others may change their mind
        believed = [c for c in closures if c.accepted or c.registered]
        news = [c for c in closures if c.accepted and (c.a, c.b) not in self._told]
        self._told |= {(c.a, c.b) for c in news}
        stamps, recorded = closer.recorded()
        count = len(stamps)
        stamps, recorded = thinned(stamps, recorded, MAX_TRACK)
        track = np.array(closer.correct(stamps, recorded))
        return self._update(compared, began, news, poses, believed, stamps, track, count, True, earlier)

    def _addition(self, compared: list[LoopClosure], began: float) -> Update:
        closer = self._closer
        assert closer.newest is not None
        node, T = closer.node(closer.newest), closer.pose(closer.newest)
        # were one of them believed, earlier poses would have moved
        believed = [c for c in compared if c.accepted or c.registered]
        return self._update(
            compared, began, [], {node.id: T}, believed, node.stamps, T @ node.track, 0, False, False
        )  # fmt: skip

    def _update(
        self,
        compared: list[LoopClosure],
        began: float,
        news: list[LoopClosure],
        poses: dict[int, Array],
        believed: list[LoopClosure],
        stamps: NDArray[np.int64],
        track: Array,
        recorded: int,
        complete: bool,
        earlier: bool,
    ) -> Update:
        closer = self._closer
        assert closer.newest is not None
        self._revision, self._newest = closer.revision, closer.newest
        return Update(
            complete=complete,
            earlier=earlier,
            compared=compared,
            news=news,
            newest=closer.newest,
            ids=np.array(list(poses), dtype=np.int64),
            poses=np.array(list(poses.values())).reshape(-1, 4, 4),
            pairs=np.array([(c.a, c.b) for c in believed], dtype=np.int64).reshape(-1, 2),
            accepted=np.array([c.accepted for c in believed], dtype=bool),
            stamps=stamps,
            track=track.reshape(-1, 4, 4),
            recorded=recorded,
            T_map_odom=closer.T_map_odom,
            located=closer.in_map(closer.newest),
            count=closer.comparisons,
            skipped=closer.skipped_count,
            seconds=time.perf_counter() - began,
            problem=closer.solver_error,
        )
