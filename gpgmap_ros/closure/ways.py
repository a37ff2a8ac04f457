"""The ways between submaps: along the odometry of each drive, and through closures."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.stations import Station
from gpgmap_ros.geometry import interpolate

Array = NDArray[np.float64]


def successive(stations: Iterable[Station]) -> Iterator[tuple[Station | None, Station]]:
    """Each submap with the one before it in its drive; None before the first."""
    last: dict[int, Station] = {}
    for station in stations:
        yield last.get(station.drive), station
        last[station.drive] = station


def shortest_ways(start: int, edges: Iterable[tuple[int, int, float]]) -> dict[int, float]:
    """Metres from `start` to each number that edges (a, b, metres) lead to, itself included (Dijkstra, 1959)."""
    neighbours: dict[int, list[tuple[int, float]]] = {start: []}
    for a, b, length in edges:
        neighbours.setdefault(a, []).append((b, length))
        neighbours.setdefault(b, []).append((a, length))
    ways: dict[int, float] = {}
    waiting = [(0.0, start)]
    while waiting:
        way, here = heapq.heappop(waiting)
        if here in ways:
            continue
        ways[here] = way
        for there, length in neighbours[here]:
            if there not in ways:
                heapq.heappush(waiting, (way + length, there))
    return ways


def corrected(
    starts: Sequence[int], corrections: Sequence[Array], stamps: Iterable[int], poses: Iterable[Array]
) -> list[Array]:
    """Poses T_map_x for odometry poses T_odom_x (4, 4) at stamps, given T_map_odom of the submaps of a drive.

    starts: stamps at which the submaps begin, ascending. Between the beginnings of two submaps the correction goes
    over from one to the other; before the first and after the last it stays.
    """
    out = []
    for stamp, T in zip(stamps, poses, strict=True):
        k = max(bisect_right(starts, stamp) - 1, 0)
        if k + 1 == len(starts) or stamp <= starts[k]:
            out.append(corrections[k] @ T)
            continue
        share = float(stamp - starts[k]) / float(starts[k + 1] - starts[k])
        out.append(interpolate(corrections[k] @ T, corrections[k + 1] @ T, share))
    return out
