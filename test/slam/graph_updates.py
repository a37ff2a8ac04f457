"""Updates of a pose graph made by hand: submaps along a line, one every ten metres."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpgmap_ros.slam.closure_messages import Update


def shifted(x: float) -> np.ndarray:
    T = np.eye(4)
    T[0, 3] = x
    return T


def update_of(ids: list[int], pairs: list[tuple[int, int]], complete: bool, **changes: object) -> Update:
    """An update that names these submaps and closures, each submap with two poses of the robot."""
    stamps = np.array([1000 * id + part for id in ids for part in (0, 500)], dtype=np.int64)
    made = Update(
        complete=complete,
        earlier=False,
        compared=[],
        news=[],
        newest=ids[-1],
        ids=np.array(ids, dtype=np.int64),
        poses=np.array([shifted(10.0 * id) for id in ids]),
        pairs=np.array(pairs, dtype=np.int64).reshape(-1, 2),
        accepted=np.ones(len(pairs), dtype=bool),
        stamps=stamps,
        track=np.array([shifted(stamp / 100.0) for stamp in stamps]),
        recorded=len(stamps),
        T_map_odom=np.eye(4),
        located=True,
        count=len(pairs),
        skipped=0,
        seconds=0.0,
        problem="",
    )
    return replace(made, **changes)
