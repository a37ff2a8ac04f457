"""Shortest paths between submaps, along the odometry of each drive and through closures."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

Edge = tuple[int, int, float]
"""Two submaps and the metres between them."""


def shortest_paths(start: int, edges: Iterable[Edge]) -> dict[int, float]:
    """Metres from `start` to each submap that edges (a, b, metres) lead to, itself included (Dijkstra, 1959)."""
    neighbours: dict[int, list[tuple[int, float]]] = {start: []}
    for a, b, length in edges:
        neighbours.setdefault(a, []).append((b, length))
        neighbours.setdefault(b, []).append((a, length))
    distances: dict[int, float] = {}
    waiting = [(0.0, start)]
    while waiting:
        distance, here = heapq.heappop(waiting)
        if here in distances:
            continue
        distances[here] = distance
        for there, length in neighbours[here]:
            if there not in distances:
                heapq.heappush(waiting, (distance + length, there))
    return distances
