"""Which earlier submaps a new one is compared with: those that it may share ground with, by odometry and closures.

All submaps are looked at together, in arrays that grow, so that a new one costs next to nothing however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.consistency import Drift
from gpgmap_ros.closure.prior import PosePrior
from gpgmap_ros.closure.rows import Rows
from gpgmap_ros.closure.stations import Station
from gpgmap_ros.closure.ways import shortest_ways
from gpgmap_ros.geometry import inverse

Array = NDArray[np.float64]
Edge = tuple[int, int, float]

REACH_STDS = 4.0
"""Submaps are compared unless odometry puts them apart by more than this many standard deviations."""
LEAST_PATH = 0.1
"""Metres: no odometry is believed to be better than after so short a way."""


class Candidates:
    """The submaps in the order in which they came, where they are, and how far the ways to them are.

    edges: all ways (a, b, metres) between submaps as they are now; asked for when closures have changed
    """

    def __init__(self, config: ClosureConfig, drift: Drift, edges: Callable[[], Iterable[Edge]]) -> None:
        self._config, self._drift, self._edges = config, drift, edges
        self.row_of: dict[int, int] = {}
        self._ids = Rows(np.zeros(0, dtype=np.int64))
        self._poses = Rows(np.zeros((0, 4, 4)))
        self._driven, self._radius = Rows(np.zeros(0)), Rows(np.zeros(0))
        self._drive = Rows(np.zeros(0, dtype=np.int64))
        self._ways = Rows(np.zeros(0))
        self._from: int | None = None  # the submap that the ways lead from

    def add(self, station: Station, T_map_submap: Array, before: Station | None) -> None:
        """A new submap after the one before it in its drive."""
        if before is None:
            self._ways = Rows(np.full(len(self._ids), np.inf))  # nothing leads to it yet
            self._from = station.id
        elif before.id == self._from:
            self._ways.values[:] += station.driven - before.driven  # all ways to it lead through that one
            self._from = station.id
        else:
            self._from = None
        self._ways.append(0.0)
        self.row_of[station.id] = len(self._ids)
        self._ids.append(station.id)
        self._poses.append(T_map_submap)
        self._driven.append(station.driven)
        self._radius.append(station.radius)
        self._drive.append(station.drive)

    def moved(self, poses: Array) -> None:
        """Closures came or went: new poses (N, 4, 4), and other ways."""
        self._poses = Rows(poses)
        self._from = None

    @property
    def ids(self) -> NDArray[np.int64]:
        """(N,) numbers of the submaps."""
        return self._ids.values

    @property
    def poses(self) -> Array:
        """(N, 4, 4) T_map_submap."""
        return self._poses.values

    def pose(self, id: int) -> Array:
        return self._poses.values[self.row_of[id]]

    def of(self, station: Station) -> dict[int, PosePrior | None]:
        """What the submap that was added last is compared with; what is known of its pose in each, None: nothing."""
        if self._from != station.id:
            self._find_ways(station.id)
        row = self.row_of[station.id]
        T, ways = self._poses.values, np.maximum(self._ways.values, LEAST_PATH)
        joined = np.isfinite(self._ways.values)
        offset = np.einsum(
            "nij,ni->nj", T[:, :3, :2], T[row, :3, 3] - T[:, :3, 3]
        )  # along each submap's x and y
        apart = np.hypot(offset[:, 0], offset[:, 1]) - station.radius - self._radius.values
        with np.errstate(invalid="ignore"):
            far = apart > REACH_STDS * np.sqrt(self._drift.position_variance(ways))
        between = station.driven - self._driven.values
        near = (self._drive.values == station.drive) & (between < self._least_way(station))
        chosen = ~(joined & (near | far))
        chosen[row] = False
        T_map_source = T[row]
        return {
            int(self._ids.values[k]): (
                PosePrior(inverse(T[k]) @ T_map_source, self._drift.covariance(float(ways[k])))
                if joined[k]
                else None
            )
            for k in np.flatnonzero(chosen)
        }

    def _find_ways(self, id: int) -> None:
        ways = np.full(len(self._ids), np.inf)
        for other, way in shortest_ways(id, self._edges()).items():
            ways[self.row_of[other]] = way
        self._ways, self._from = Rows(ways), id

    def _least_way(self, station: Station) -> Array | float:
        """Metres of way to each submap of its drive from which on it is worth comparing them."""
        if self._config.min_path >= 0.0:
            return self._config.min_path
        # a radius reaches to a corner, the way leaves by an edge
        return (station.radius + self._radius.values) / np.sqrt(2.0)
