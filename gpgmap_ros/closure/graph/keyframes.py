"""The nodes of the pose graph: what is remembered of a submap once its map is in the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gp_core.arrays import Array
from gpgmap_ros.mapping.submaps import Submap


@dataclass(frozen=True)
class SubmapNode:
    """A submap as the graph sees it.

    drive: number of the drive it belongs to
    T_odom_submap: (4, 4) by odometry, in the drive's own frame
    driven: metres from the start of the drive to its origin; length: metres driven in it
    radius: metres from its origin to its farthest known cell
    stamps, track: (K,) nanoseconds and (K, 4, 4) the robot's poses T_submap_robot while it was made
    skipped: why no place can be recognised in it, empty where one can
    tilt_std: radians by which the vertical of its drive may be off; 0 where that is not known
    drift_variance: of position (m^2) and rotation (rad^2), as the odometry states them for the way in it; 0 where it
        states none
    """

    id: int
    drive: int
    T_odom_submap: Array
    first_stamp: int
    driven: float
    length: float
    radius: float
    stamps: NDArray[np.int64] = field(repr=False)
    track: Array = field(repr=False)
    skipped: str = ""
    tilt_std: float = 0.0
    drift_variance: tuple[float, float] = (0.0, 0.0)

    @property
    def size(self) -> float:
        """Metres from edge to edge, of a square that reaches as far."""
        return float(np.sqrt(2.0)) * self.radius


def make_node(submap: Submap, before: SubmapNode | None) -> SubmapNode:
    """The node of a new submap after the one before it in its drive."""
    driven = 0.0
    if before is not None:
        straight = float(np.linalg.norm((submap.T_map_submap - before.T_odom_submap)[:3, 3]))
        driven = before.driven + max(before.length, straight)
    x_min, y_min, x_max, y_max = submap.gpgmap.grid.bounds
    radius = float(np.hypot(max(-x_min, x_max, 0.0), max(-y_min, y_max, 0.0)))
    return SubmapNode(
        submap.id,
        submap.session,
        submap.T_map_submap,
        submap.first_stamp,
        driven,
        submap.distance,
        radius,
        submap.track.stamps,
        submap.track.poses,
        tilt_std=submap.tilt_std,
        drift_variance=submap.drift_variance,
    )


def consecutive_nodes(nodes: Iterable[SubmapNode]) -> Iterator[tuple[SubmapNode | None, SubmapNode]]:
    """Each node with the one before it in its drive; None before the first."""
    last: dict[int, SubmapNode] = {}
    for node in nodes:
        yield last.get(node.drive), node
        last[node.drive] = node
