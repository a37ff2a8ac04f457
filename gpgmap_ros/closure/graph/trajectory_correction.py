"""Poses of the robot by odometry, corrected by what the pose graph says about the submaps around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from gp_core.arrays import Array
from gpgmap_ros.closure.graph.drift import Drift
from gpgmap_ros.closure.graph.keyframes import SubmapNode
from gpgmap_ros.closure.graph.odometry_chain import OdometryChain


def correct_trajectory(
    nodes: Sequence[SubmapNode], corrections: ArrayLike, drift: Drift, stamps: ArrayLike, poses: ArrayLike
) -> Array:
    """(K, 4, 4) poses T_map_x for odometry poses T_odom_x (K, 4, 4) at stamps (K,).

    nodes: the submaps of a drive, in order; corrections: (N, 4, 4) T_map_odom of each; drift: of the odometry
    Between the middles of two submaps the correction takes its likeliest course (odometry_chain.py); before the first
    and after the last it stays.
    """
    when = np.asarray(stamps, dtype=np.int64).reshape(-1)
    T_map_odom = np.asarray(corrections, dtype=np.float64).reshape(-1, 4, 4)
    T_odom_x = np.asarray(poses, dtype=np.float64).reshape(-1, 4, 4)
    return np.asarray(OdometryChain.of(nodes).interpolate(T_map_odom, when, drift) @ T_odom_x)
