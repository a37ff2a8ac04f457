"""SE(3) in batches. Tangent vectors are (w, v): rotation first, then translation, along the moved frame's own axes.

Exp(w, v) = [exp([w]), V(w) v; 0, 1]        T (+) xi = T Exp(xi)        T_1 (-) T_0 = Log(T_0^-1 T_1)
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from gp_core.arrays import Array

SMALL = 0.03
"""Radians below which coefficients come from their series: the closed forms cancel there."""


def compose(T_a_b: Array, T_b_c: Array) -> Array:
    """T_a_c (N, 4, 4)."""
    return np.asarray(T_a_b @ T_b_c)


def inverses(T: Array) -> Array:
    """(N, 4, 4) inverses of rigid transforms."""
    out = np.zeros_like(T)
    R = np.swapaxes(T[:, :3, :3], 1, 2)
    out[:, :3, :3] = R
    out[:, :3, 3] = -np.einsum("nij,nj->ni", R, T[:, :3, 3])
    out[:, 3, 3] = 1.0
    return out


def hat(w: Array) -> Array:
    """(N, 3, 3) with hat(w) x = w cross x."""
    out = np.zeros((len(w), 3, 3))
    out[:, 0, 1], out[:, 0, 2], out[:, 1, 2] = -w[:, 2], w[:, 1], -w[:, 0]
    out[:, 1, 0], out[:, 2, 0], out[:, 2, 1] = w[:, 2], -w[:, 1], w[:, 0]
    return out


def exp(xi: Array) -> Array:
    """(N, 4, 4) of tangent vectors (N, 6)."""
    w, v = xi[:, :3], xi[:, 3:]
    angle = np.linalg.norm(w, axis=1)
    square = angle**2
    small = angle < SMALL
    safe = np.where(small, 1.0, angle)
    # V = I + b [w] + c [w]^2
    b = np.where(small, 1 / 2 - square / 24 + square**2 / 720, (1.0 - np.cos(safe)) / safe**2)
    c = np.where(small, 1 / 6 - square / 120 + square**2 / 5040, (safe - np.sin(safe)) / safe**3)
    W = hat(w)
    V = np.eye(3) + b[:, None, None] * W + c[:, None, None] * (W @ W)
    out = np.zeros((len(xi), 4, 4))
    out[:, :3, :3] = Rotation.from_rotvec(w).as_matrix()
    out[:, :3, 3] = np.einsum("nij,nj->ni", V, v)
    out[:, 3, 3] = 1.0
    return out


def log(T: Array) -> Array:
    """Tangent vectors (N, 6) of transforms (N, 4, 4)."""
    w = np.asarray(Rotation.from_matrix(T[:, :3, :3]).as_rotvec()).reshape(-1, 3)
    angle = np.linalg.norm(w, axis=1)
    square = angle**2
    small = angle < SMALL
    safe = np.where(small, 1.0, angle)
    # V^-1 = I - [w] / 2 + c [w]^2; half / tan(half) stays finite up to an angle of pi
    half = 0.5 * safe
    closed = (1.0 - half / np.tan(half)) / safe**2
    c = np.where(small, 1 / 12 + square / 720 + square**2 / 30240, closed)
    W = hat(w)
    V_inverse = np.eye(3) - 0.5 * W + c[:, None, None] * (W @ W)
    return np.concatenate([w, np.einsum("nij,nj->ni", V_inverse, T[:, :3, 3])], axis=1)


def adjoint(T: Array) -> Array:
    """(N, 6, 6) with T Exp(xi) = Exp(adjoint(T) xi) T."""
    out = np.zeros((len(T), 6, 6))
    R = T[:, :3, :3]
    out[:, :3, :3] = out[:, 3:, 3:] = R
    out[:, 3:, :3] = hat(T[:, :3, 3]) @ R
    return out


def log_derivative(xi: Array) -> Array:
    """(N, 6, 6) derivative of Log(Exp(xi) Exp(d)) by d at 0: the inverse of the right Jacobian.

    I + ad/2 + a ad^2 + b ad^4: the series of Bernoulli numbers, closed because ad has the eigenvalues 0, +-i |w| only
    (Selig, 2004, Geometric fundamentals of robotics).
    """
    w = xi[:, :3]
    angle = np.linalg.norm(w, axis=1)
    square = angle**2
    small = angle < SMALL
    safe = np.where(small, 1.0, angle)
    turn = 4.0 * safe * (np.cos(safe) - 1.0)
    a = np.where(
        small,
        1 / 12 - square**2 / 30240 - square**3 / 604800,
        2.0 / safe**2 + (safe + 3.0 * np.sin(safe)) / turn,
    )
    b = np.where(
        small,
        -1 / 720 - square / 15120 - square**2 / 403200,
        1.0 / safe**4 + (safe + np.sin(safe)) / (turn * safe**2),
    )
    ad = np.zeros((len(xi), 6, 6))
    ad[:, :3, :3] = ad[:, 3:, 3:] = hat(w)
    ad[:, 3:, :3] = hat(xi[:, 3:])
    ad2 = ad @ ad
    return np.asarray(np.eye(6) + 0.5 * ad + a[:, None, None] * ad2 + b[:, None, None] * (ad2 @ ad2))
