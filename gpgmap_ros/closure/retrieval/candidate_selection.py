"""Which earlier submaps a new one is compared with: those that it may share ground with, by odometry and closures.

All submaps are considered together, in arrays that grow, so that a new one costs little however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from gp_core.arrays import Array
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.graph.drift import MIN_PATH, Drift
from gpgmap_ros.closure.graph.graph_paths import Edge, shortest_paths
from gpgmap_ros.closure.graph.keyframes import SubmapNode
from gpgmap_ros.closure.registration.prior import PosePrior
from gpgmap_ros.closure.rows import Rows
from gpgmap_ros.geometry import inverse

REACH_STDS = 4.0
"""Submaps are compared unless odometry puts them apart by more than this many standard deviations."""


class CandidateSelection:
    """The submaps in the order in which they came, and how long the paths to them are.

    edges: all paths (a, b, metres) between submaps as they are now; asked for when closures have changed
    """

    def __init__(self, config: ClosureConfig, drift: Drift, edges: Callable[[], Iterable[Edge]]) -> None:
        self._config, self._drift, self._edges = config, drift, edges
        self._row_of: dict[int, int] = {}
        self._ids = Rows(np.zeros(0, dtype=np.int64))
        self._driven, self._radius = Rows(np.zeros(0)), Rows(np.zeros(0))
        self._drive = Rows(np.zeros(0, dtype=np.int64))
        self._paths = Rows(np.zeros(0))
        self._from: int | None = None  # the submap that the paths lead from

    def add(self, node: SubmapNode, before: SubmapNode | None, path: float) -> None:
        """A new submap after the one before it in its drive, `path` metres on."""
        if before is None:
            self._paths = Rows(np.full(len(self._ids), np.inf))  # nothing leads to it yet
            self._from = node.id
        elif before.id == self._from:
            self._paths.values[:] += path  # all paths to it lead through that one
            self._from = node.id
        else:
            self._from = None
        self._paths.append(0.0)
        self._row_of[node.id] = len(self._ids)
        self._ids.append(node.id)
        self._driven.append(node.driven)
        self._radius.append(node.radius)
        self._drive.append(node.drive)

    def invalidate_paths(self) -> None:
        """Closures came or went: paths are computed anew when they are needed."""
        self._from = None

    def select(self, node: SubmapNode, poses: Array) -> dict[int, PosePrior | None]:
        """What the submap that was added last is compared with, and the prior of its pose in each; None: no prior.

        poses: (N, 4, 4) T_map_submap of all submaps, in order
        """
        if self._from != node.id:
            self._find_paths(node.id)
        row = self._row_of[node.id]
        T, ids, radius, driven = poses, self._ids.values, self._radius.values, self._driven.values
        paths = np.maximum(self._paths.values, MIN_PATH)
        joined = np.isfinite(paths)
        offset = np.einsum(
            "nij,ni->nj", T[:, :3, :2], T[row, :3, 3] - T[:, :3, 3]
        )  # along each submap's x and y
        apart = np.hypot(offset[:, 0], offset[:, 1]) - node.radius - radius
        with np.errstate(invalid="ignore"):
            far = apart > REACH_STDS * np.sqrt(self._drift.position_variance(paths))
        near = (self._drive.values == node.drive) & (node.driven - driven < self._min_path(node))
        chosen = ~(joined & (near | far))
        chosen[row] = False
        T_map_source = T[row]
        return {
            int(ids[k]): (
                PosePrior(inverse(T[k]) @ T_map_source, self._drift.covariance(float(paths[k])))
                if joined[k]
                else None
            )
            for k in np.flatnonzero(chosen)
        }

    def _find_paths(self, id: int) -> None:
        paths = np.full(len(self._ids), np.inf)
        for other, metres in shortest_paths(id, self._edges()).items():
            paths[self._row_of[other]] = metres
        self._paths, self._from = Rows(paths), id

    def _min_path(self, node: SubmapNode) -> Array | float:
        """Metres driven since each submap of its drive from which on it is worth comparing them."""
        if self._config.min_path >= 0.0:
            return float(self._config.min_path)
        # a radius reaches to a corner, the path leaves by an edge
        return np.asarray((node.radius + self._radius.values) / np.sqrt(2.0))
