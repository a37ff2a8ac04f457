"""The sensor's motion within one scan, from a pose source; and the noise of a scan whose motion is not known.

Poses come some ten times a second and are interpolated, so a turn that begins or ends within a scan is smeared. Where
there is a gyroscope, it gives the rotation within the scan, and the poses the rest: the way, and the pose at the stamp.

Where the motion is not known, a point measured t seconds after the stamp is off by t (v + w x a), with the twist (v, w)
of the sensor and the beam a. The twist is that of the way from the cloud before, or that of an unknown robot; as an
error of the cloud's pose its covariance is

    mean of t^2 over the points, times (v, w) (v, w)'.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.geometry import Array, inverse
from gpgmap_ros.sensing.cloud import Cloud
from gpgmap_ros.sensing.deskewing import Motion
from gpgmap_ros.sensing.pose_source import PoseSource
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

KNOTS: Final = 5
"""Poses within a scan: a robot's twist hardly changes in 25 ms."""
SCAN_DURATION: Final = 0.1
"""Seconds that a scan takes at most, where its points have no times: most LiDARs spin at 10 Hz or faster."""
UNKNOWN_SPEED: Final = 2.0
"""Standard deviation, m/s along each axis, of a sensor about whose motion nothing is known."""
UNKNOWN_TURN_RATE: Final = 1.0
"""The same of its turning, rad/s."""
MAX_AGE: Final = 2.0
"""Seconds after which the cloud before says nothing about the motion now."""


def scan_motion(cloud: Cloud, source: PoseSource) -> Motion | None:
    """The motion while a cloud was taken; None where its points have no times.

    TransformUnavailable where a pose within the scan is not known (yet), or samples of the IMU are about to come.
    """
    if cloud.times is None or not np.isfinite(cloud.times).any():
        return None
    times = scan_knots(cloud.times)
    if len(times) < 2:
        return None
    stamps = [cloud.stamp + round(seconds * NANOSECONDS) for seconds in times]
    poses = source.motion(cloud.frame_id, stamps)
    source.wait_for_imu(cloud, stamps[-1])
    moved = inverse(poses[int(np.searchsorted(times, 0.0))]) @ poses
    turns = source.imu.turns(cloud.frame_id, cloud.stamp, stamps)
    if turns is not None:
        moved[:, :3, :3] = turns
    return Motion(times, moved)


def scan_knots(times: Array) -> Array:
    """(K,) times within a scan, growing, 0 among them, at which its motion is asked for; one where it takes no time.

    times: (N,) of the points after the stamp, some of them finite
    """
    first, last = min(float(np.nanmin(times)), 0.0), max(float(np.nanmax(times)), 0.0)
    return np.unique(np.append(np.linspace(first, last, KNOTS), 0.0))


def assumed_times(seconds: float) -> Array:
    """(N,) of the points of a scan whose time field cannot be used. seconds: since the cloud before, 0 for the first"""
    return np.linspace(0.0, min(seconds, SCAN_DURATION) if seconds > 0.0 else SCAN_DURATION, 2 * KNOTS)


def skew_covariance(times: Array, seconds: float, before: Array | None, now: Array) -> Array:
    """(6, 6) of the pose of a scan that is not deskewed: x, y, z and rotations about x, y, z, in the map's axes.

    times: (N,) of the points after the stamp; before, now: T_map_sensor of the cloud before and of this one, `seconds`
    apart; None where there is none of the same drive
    """
    known = times[np.isfinite(times)]
    mean_square = float(np.mean(known**2)) if len(known) else 0.0
    if before is None or not 0.0 < seconds <= MAX_AGE:
        return mean_square * np.diag([UNKNOWN_SPEED**2] * 3 + [UNKNOWN_TURN_RATE**2] * 3)
    turn = Rotation.from_matrix(now[:3, :3] @ before[:3, :3].T).as_rotvec()
    twist = np.append(now[:3, 3] - before[:3, 3], turn) / seconds
    return np.asarray(mean_square * np.outer(twist, twist))
