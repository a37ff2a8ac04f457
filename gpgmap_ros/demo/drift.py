"""Odometry that drifts: wheels that slip and a gyroscope with a bias, over an accelerometer that knows gravity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.demo.drive import Frame
from gpgmap_ros.geometry import Array


@dataclass(frozen=True)
class Drift:
    """Errors of the odometry, each in proportion to the distance driven; roll and pitch are free of drift.

    yaw: radians per metre; scale: share of each step; climb: metres of height per metre
    """

    yaw: float = 0.0035
    scale: float = 0.012
    climb: float = 0.004


def add_drift(frames: Iterable[Frame], drift: Drift) -> Iterator[Frame]:
    """The frames with the poses that a drifting odometry reports; the first pose is exact."""
    before: Array | None = None
    position, yaw = np.zeros(3), 0.0
    for frame in frames:
        true = frame.T_odom_base
        if before is None:
            position = true[:3, 3].copy()
        else:
            step = true[:3, 3] - before
            length = float(np.linalg.norm(step))
            position = position + (1.0 + drift.scale) * (turn(yaw) @ step)
            position[2] += drift.climb * length
            yaw += drift.yaw * length
        before = true[:3, 3]
        T = np.eye(4)
        T[:3, :3] = turn(yaw) @ true[:3, :3]
        T[:3, 3] = position
        yield replace(frame, T_odom_base=T)


def turn(yaw: float) -> Array:
    """(3, 3) rotation about the vertical."""
    return np.asarray(Rotation.from_euler("Z", yaw).as_matrix())
