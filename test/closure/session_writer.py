"""Submaps for a session, and a process that keeps one after the other: a module, so that a new process finds it."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from gpgmap_ros.closure import ClosureConfig, LoopCloser, LoopClosure
from gpgmap_ros.mapping import GPGMap, gpgmap_from_points
from gpgmap_ros.mapping.submaps import Submap, Track

CONFIG = ClosureConfig(threads=1, min_path=1e6)


def hills() -> GPGMap:
    rng = np.random.default_rng(0)
    xy = rng.uniform(-8.0, 8.0, (2000, 2))
    return gpgmap_from_points(np.column_stack([xy, np.sin(xy[:, 0] / 2.0) + np.cos(xy[:, 1] / 4.0)]), 1.0)


def shifted(x: float) -> np.ndarray:
    T = np.eye(4)
    T[0, 3] = x
    return T


def submap_of(number: int, ground: GPGMap) -> Submap:
    stamps = number * 1000 + np.arange(40, dtype=np.int64)
    track = Track(stamps, np.array([shifted(0.1 * k) for k in range(40)]))
    return Submap(
        number, 5, shifted(4.0 * number), ground, number * 1000, number * 1000 + 900, 4.0, "x", track
    )


def write_submaps(path: Path, announcements: Connection) -> None:
    """Go on with a session for ever, and announce each submap when it is kept with what it was compared with."""
    ground = hills()
    closer = LoopCloser.load(path, CONFIG, lambda _: ground) if path.exists() else LoopCloser(CONFIG)
    while True:
        number = len(closer.nodes)
        closer.add(submap_of(number, ground))
        if number:
            why = f"refused {number}"
            closure = LoopClosure(
                number - 1, number, shifted(4.0), np.eye(6), 0.1, 0.5, False, why, float(number)
            )
            closer._graph.insert_closures([closure])
        closer.keep(path)
        announcements.send(number)
