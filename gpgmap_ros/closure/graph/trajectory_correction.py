"""Poses of the robot by odometry, corrected by what the pose graph says about the submaps around them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.transform import Rotation

from gp_core.arrays import Array


def correct_trajectory(
    starts: ArrayLike, corrections: ArrayLike, stamps: ArrayLike, poses: ArrayLike
) -> Array:
    """(K, 4, 4) poses T_map_x for odometry poses T_odom_x (K, 4, 4) at stamps (K,).

    starts: (N,) stamps at which the submaps of a drive begin, ascending; corrections: (N, 4, 4) T_map_odom of each.
    Between the beginnings of two submaps the correction goes over from one to the other; before the first and after the
    last it stays.
    """
    begin, when = np.asarray(starts, dtype=np.int64), np.asarray(stamps, dtype=np.int64)
    T_map_odom = np.asarray(corrections, dtype=np.float64).reshape(-1, 4, 4)
    T_odom_x = np.asarray(poses, dtype=np.float64).reshape(-1, 4, 4)
    before = np.maximum(np.searchsorted(begin, when, side="right") - 1, 0)
    after = np.minimum(before + 1, len(begin) - 1)
    length = np.maximum(begin[after] - begin[before], 1)
    share = np.where(after > before, np.clip((when - begin[before]) / length, 0.0, 1.0), 0.0)
    one, other = T_map_odom[before] @ T_odom_x, T_map_odom[after] @ T_odom_x
    out = one.copy()
    between = share > 0.0
    if between.any():
        R = one[between, :3, :3]
        turn = Rotation.from_matrix(np.swapaxes(R, 1, 2) @ other[between, :3, :3]).as_rotvec()
        part = share[between, None]
        out[between, :3, :3] = R @ Rotation.from_rotvec(part * turn).as_matrix()
        out[between, :3, 3] = (1.0 - part) * one[between, :3, 3] + part * other[between, :3, 3]
    return out
