"""Log marginal likelihood of the points, from their statistics."""

from __future__ import annotations

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.interpolation import DEGREE, ORDER, PIECES
from gp_core.grid.prior import Prior
from gp_core.grid.statistics import COUNT, LOG_VARIANCE, SQUARES, Statistics


def normal_equations(statistics: Statistics) -> tuple[Array, Array]:
    """A = W' R^-1 W (n, n) and b = W' R^-1 z (n,) over all coefficients, dense."""
    n_y, n_x = statistics.y.count + DEGREE, statistics.x.count + DEGREE
    A = np.zeros((n_y, n_x, n_y, n_x))
    b = np.zeros((n_y, n_x))
    powers = np.arange(ORDER)
    degree = powers[:, None] + powers
    for j in range(statistics.y.count):
        for i in range(statistics.x.count):
            if statistics.weights[j, i, 0, 0] == 0.0:
                continue
            hankel = statistics.weights[j, i][degree[:, :, None, None], degree[None, None]]
            block = np.einsum("ka,lb,abcd,ic,jd->kilj", PIECES, PIECES, hankel, PIECES, PIECES, optimize=True)
            A[j : j + ORDER, i : i + ORDER, j : j + ORDER, i : i + ORDER] += block
            b[j : j + ORDER, i : i + ORDER] += PIECES @ statistics.heights[j, i] @ PIECES.T
    return A.reshape(n_y * n_x, n_y * n_x), b.ravel()


def dense_log_likelihood(prior: Prior, statistics: Statistics) -> float:
    """-1/2 [z' R^-1 z - b' (K^-1 + A)^-1 b + log |I + K A| + log |R| + N log 2 pi]."""
    A, b = normal_equations(statistics)
    n_y, n_x = statistics.y.count + DEGREE, statistics.x.count + DEGREE
    R_y, R_x = (n // 2 for n in prior.lags.shape)
    j, i = np.arange(n_y), np.arange(n_x)
    d_y, d_x = j[:, None] - j, i[:, None] - i
    near_y, near_x = np.abs(d_y) <= R_y, np.abs(d_x) <= R_x
    K = prior.lags[
        np.clip(d_y + R_y, 0, 2 * R_y)[:, None, :, None], np.clip(d_x + R_x, 0, 2 * R_x)[None, :, None, :]
    ]
    K = (K * near_y[:, None, :, None] * near_x[None, :, None, :]).reshape(n_y * n_x, n_y * n_x)
    value, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(value, 0.0))
    P = root.T @ A @ root + np.eye(n_y * n_x)
    L = np.linalg.cholesky(P)
    half = np.linalg.solve(L, root.T @ b)
    totals = statistics.totals.sum((0, 1))
    return -0.5 * float(
        totals[SQUARES]
        - half @ half
        + 2.0 * np.log(np.diagonal(L)).sum()
        + totals[LOG_VARIANCE]
        + totals[COUNT] * np.log(2.0 * np.pi)
    )
