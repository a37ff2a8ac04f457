"""Nodes and closures for the tests of the graph: submaps along a straight line, one every ten metres."""

from __future__ import annotations

import numpy as np

from gpgmap_ros.closure import LoopClosure
from gpgmap_ros.closure.graph.keyframes import SubmapNode

STEP = 10.0
SIGMA = np.diag([0.05**2] * 3 + [0.005**2] * 3)


def shifted(x: float, y: float = 0.0) -> np.ndarray:
    T = np.eye(4)
    T[:2, 3] = x, y
    return T


def node(id: int, drive: int = 1, place: int | None = None) -> SubmapNode:
    """place: number of the step at which it is, its id unless given"""
    at = STEP * (id if place is None else place)
    stamps = np.array([id * 1000, id * 1000 + 500])
    track = np.array([np.eye(4), shifted(5.0)])
    return SubmapNode(id, drive, shifted(at), id * 1000, at, STEP, 12.0, stamps, track)


def closure(a: int, b: int, off: float = 0.0, score: float = 1.0, registered: bool = True) -> LoopClosure:
    """The pose by odometry, off sideways by so many metres."""
    T = shifted(STEP * (b - a), off)
    return LoopClosure(a, b, T, SIGMA, 0.99, 0.5, registered, "it fits", score, registered)
