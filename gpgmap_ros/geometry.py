"""Rigid transforms as 4 x 4 matrices. `T_a_b` takes coordinates in frame b to frame a."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation

from gpgmap_ros.arrays import Array as Array


def transform_from(translation: ArrayLike, quaternion_xyzw: ArrayLike) -> Array:
    """T from a translation and a quaternion, which need not be normalised but must be finite and not zero."""
    translation = np.asarray(translation, dtype=np.float64)
    quaternion = np.asarray(quaternion_xyzw, dtype=np.float64)
    if not np.all(np.isfinite(translation)):
        raise ValueError(f"the translation {translation.tolist()} is not finite")
    norm = float(np.linalg.norm(quaternion))
    if not np.isfinite(norm) or norm < 1e-6:
        raise ValueError(f"the quaternion {quaternion.tolist()} is not a rotation")
    T = np.eye(4)
    T[:3, :3] = Rotation.from_quat(quaternion / norm).as_matrix()
    T[:3, 3] = translation
    return T


def quaternion_of(T: Array) -> Array:
    """Quaternion (x, y, z, w), w >= 0.

    From 4 q_i q_j, which sums and differences of the matrix's elements give, divided by the largest component: in plain
    numbers, because every transform on /tf comes through here and SciPy's objects cost thirty times as much.
    """
    (a, b, c), (d, e, f), (g, h, i) = T[:3, :3].tolist()
    products = (
        (1.0 + a - e - i, b + d, c + g, h - f),
        (b + d, 1.0 - a + e - i, f + h, c - g),
        (c + g, f + h, 1.0 - a - e + i, d - b),
        (h - f, c - g, d - b, 1.0 + a + e + i),
    )
    largest = max(range(4), key=lambda row: products[row][row])
    quaternion = np.array(products[largest])
    norm = np.linalg.norm(quaternion)
    return np.asarray(quaternion / (norm if quaternion[3] >= 0.0 else -norm))


def inverse(T_a_b: Array) -> Array:
    """T_b_a. Exact for rigid transforms, unlike a general matrix inverse."""
    T = np.eye(4)
    T[:3, :3] = T_a_b[:3, :3].T
    T[:3, 3] = -T_a_b[:3, :3].T @ T_a_b[:3, 3]
    return T


def interpolate(T0: Array, T1: Array, share: float) -> Array:
    """The transform a share of the way from T0 to T1: straight in translation, constant turning in rotation."""
    turn = Rotation.from_matrix(T0[:3, :3].T @ T1[:3, :3]).as_rotvec()
    T = np.eye(4)
    T[:3, :3] = T0[:3, :3] @ Rotation.from_rotvec(share * turn).as_matrix()
    T[:3, 3] = (1.0 - share) * T0[:3, 3] + share * T1[:3, 3]
    return T


def apply(T_a_b: Array, points_b: NDArray[np.floating]) -> Array:
    """Points (N, 3) in frame b, taken to frame a, in float64."""
    return points_b @ T_a_b[:3, :3].T + T_a_b[:3, 3]
