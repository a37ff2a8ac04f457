"""What the pose graph remembers of a submap, and of comparing two."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.consistency import Closure
from gpgmap_ros.mapping.submaps import Submap

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Station:
    """A submap as the graph sees it.

    name: in the database; drive: number of the drive it belongs to
    T_odom_submap: (4, 4) by odometry, in the drive's own frame
    driven: metres from the start of the drive to its origin; length: metres driven in it
    radius: metres from its origin to its farthest known cell
    stamps, track: (K,) nanoseconds and (K, 4, 4) the robot's poses T_submap_robot while it was made
    skipped: why no place can be recognised in it, empty where one can
    """

    id: int
    name: str
    drive: int
    T_odom_submap: Array
    first_stamp: int
    driven: float
    length: float
    radius: float
    stamps: NDArray[np.int64] = field(repr=False)
    track: Array = field(repr=False)
    skipped: str = ""


@dataclass(frozen=True)
class Found:
    """A registration of two submaps; `verdict` is its own, `score` breaks ties between sets of closures."""

    closure: Closure
    probability: float
    score: float
    overlap: float
    verdict: bool
    reason: str


def station_of(submap: Submap, before: Station | None) -> Station:
    """A new submap after the one before it in its drive."""
    driven = 0.0
    if before is not None:
        straight = float(np.linalg.norm((submap.T_map_submap - before.T_odom_submap)[:3, 3]))
        driven = before.driven + max(before.length, straight)
    x_min, y_min, x_max, y_max = submap.gpgmap.grid.bounds
    radius = float(np.hypot(max(-x_min, x_max, 0.0), max(-y_min, y_max, 0.0)))
    return Station(
        submap.id,
        str(submap.id),
        submap.session,
        submap.T_map_submap,
        submap.first_stamp,
        driven,
        submap.distance,
        radius,
        submap.track.stamps,
        submap.track.poses,
    )
