"""A submap's statistics as a few weighted points per block: what can be turned, moved and tilted, and fused again.

The moments of a block (gp_core.grid.statistics) can't be turned onto another lattice: which part of them would fall
into which block is not known. Nine points per block say almost the same, and can. With m the submap's own posterior
mean, a polynomial on the block:

- positions and weights: in the principal axes of the positions, the product of two Gaussian quadratures of three nodes,
  each from the moments of order 0 to 5 along its axis. Weights are positive, nodes lie among the points, and mean,
  covariance and the moments along both axes are kept.
- heights: m at the node, plus the polynomial of degree 2 that keeps the moments of the residuals z - m up to order 2.

Only deviations from m pass through the approximation. They are about as large as the noise, however rough the terrain,
and so the error of a map that is made of these points is a small fraction of its standard deviation: 0.05 to 0.1 of it
(rms) on terrain drawn from the prior.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from gp_core.grid import Blocks
from gpgmap_ros.arrays import Array

SURFACE_DEGREE = 4
"""Of the mean on a block: its products with the positions' moments, up to degree 2, are then in the statistics."""
NODES = 3
"""Of the quadrature along each axis."""
ORDERS = 2 * NODES
"""Moments along an axis that decide its nodes: of order 0 to 5."""
MIN_SPREAD = 1e-5
"""Variance of the positions, in half blocks squared, below which they count as one."""
MIN_SHARE = 1e-3
"""Nodes with less of a block's weight are left out."""
RIDGE = 1e-3
"""Of the fit of the residuals: where a few points can't determine it, it stays small."""


@dataclass(frozen=True)
class PseudoPoints:
    """xyz: (N, 3) in the frame of the submap; variance: (N,) of the heights, as small as the many points they stand for
    make it."""

    xyz: NDArray[np.floating]
    variance: NDArray[np.floating]

    def __len__(self) -> int:
        return len(self.variance)


def condense(blocks: Blocks, surface: Array) -> PseudoPoints:
    """The points that stand for the statistics of the blocks.

    surface: (K, Q, Q) posterior mean less `blocks.reference`, sum over a and b of surface[a, b] t^a s^b on each block;
        Q - 1 is at most `SURFACE_DEGREE`
    """
    total = blocks.weights[:, 0, 0]
    centre = blocks.weights[:, [0, 1], [1, 0]] / total[:, None]  # s, t
    to_centre = shift_matrices(centre)
    moments = central(blocks.weights[:, :ORDERS, :ORDERS] / total[:, None, None], to_centre)
    axes, spread, single = principal_axes(moments)
    node, share = quadrature(along_axes(moments, axes, spread, single))
    i, j = np.divmod(np.arange(NODES * NODES), NODES)
    u = np.stack([node[:, 0, i], node[:, 1, j]], axis=-1) * ~single[:, None, :]  # (K, 9, 2)
    share = share[:, 0, i] * share[:, 1, j]
    st = centre[:, None, :] + (u * spread[:, None, :]) @ axes.transpose(0, 2, 1)
    residual = fit_residuals(
        central(residual_moments(blocks, surface), to_centre[:, :, :3, :3]), axes, spread, single, u, share
    )
    z = polynomial(surface, st) + residual + blocks.reference
    xy = (blocks.index[:, None, ::-1] + 0.5 * (st + 1.0)) * blocks.spacing
    kept = share > MIN_SHARE
    share = np.where(kept, share, 0.0)
    weight = total[:, None] * share / share.sum(axis=1, keepdims=True)
    return PseudoPoints(np.concatenate([xy, z[..., None]], axis=-1)[kept], 1.0 / weight[kept])


def residual_moments(blocks: Blocks, surface: Array) -> Array:
    """(K, 3, 3) moments of z - m, over the block's weight: exact, because m is a polynomial."""
    Q = surface.shape[1]
    out = blocks.heights[:, :3, :3].copy()
    for i in range(Q):
        for j in range(Q):
            out -= surface[:, i, j, None, None] * blocks.weights[:, i : i + 3, j : j + 3]
    return out / blocks.weights[:, :1, :1]


def shift_matrices(centre: Array) -> Array:
    """(K, 2, 6, 6) that take moments about 0 to moments about the centre, along s and t."""
    out = np.zeros((*centre.shape, ORDERS, ORDERS))
    power = powers(-centre, ORDERS)
    for p in range(ORDERS):
        for q in range(p + 1):
            out[..., p, q] = comb(p, q) * power[p - q]
    return out


def central(moments: Array, to_centre: Array) -> Array:
    """Moments [t, s] about the centre."""
    return to_centre[:, 1] @ moments @ to_centre[:, 0].transpose(0, 2, 1)


def principal_axes(moments: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Axes (K, 2, 2) of the positions, columns in (s, t); their standard deviations (K, 2); whether there is none."""
    C = np.empty((len(moments), 2, 2))
    C[:, 0, 0], C[:, 1, 1] = moments[:, 0, 2], moments[:, 2, 0]
    C[:, 0, 1] = C[:, 1, 0] = moments[:, 1, 1]
    variance, axes = np.linalg.eigh(C)
    single = variance < MIN_SPREAD
    return axes, np.sqrt(np.where(single, 1.0, variance)), single


def along_axes(moments: Array, axes: Array, spread: Array, single: NDArray[np.bool_]) -> Array:
    """(K, 2, 6) moments of the standardised positions along each axis."""
    out = np.zeros((len(moments), 2, ORDERS))
    s, t = (powers(axes[:, k] / spread, ORDERS) for k in (0, 1))
    for p in range(ORDERS):
        for q in range(p + 1):
            out[:, :, p] += comb(p, q) * s[q] * t[p - q] * moments[:, p - q, q][:, None]
    out[single] = [1.0, 0.0, 1.0, 0.0, 3.0, 0.0]
    return out


def quadrature(m: Array) -> tuple[Array, Array]:
    """Nodes and shares (K, 2, 3) of the Gaussian quadratures with moments 1, 0, 1, m_3, m_4, m_5 (K, 2, 6).

    Nodes are the eigenvalues and shares the squared first entries of the eigenvectors of the measure's Jacobi matrix
    (Golub and Welsch, 1969), which has the diagonal 0, m_3, a_2 and beside it 1 and sqrt(b_2), with
    b_2 = m_4 - m_3^2 - 1 and a_2 = (m_5 - 2 m_3 m_4 + m_3^3) / b_2. Two positions have b_2 = 0 and need two nodes.
    """
    b_2 = np.maximum(m[..., 4] - m[..., 3] ** 2 - 1.0, 0.0)
    thin = b_2 < MIN_SHARE
    a_2 = (m[..., 5] - 2.0 * m[..., 3] * m[..., 4] + m[..., 3] ** 3) / np.where(thin, 1.0, b_2)
    J = np.zeros((*m.shape[:2], NODES, NODES))
    J[..., 1, 1] = m[..., 3]
    J[..., 2, 2] = np.where(thin, 0.0, a_2)
    J[..., 0, 1] = J[..., 1, 0] = 1.0
    J[..., 1, 2] = J[..., 2, 1] = np.where(thin, 0.0, np.sqrt(b_2))
    nodes, vectors = np.linalg.eigh(J)
    return nodes, vectors[..., 0, :] ** 2


def fit_residuals(
    moments: Array, axes: Array, spread: Array, single: NDArray[np.bool_], u: Array, share: Array
) -> Array:
    """(K, 9) residuals at the nodes u that have the given moments (K, 3, 3) about the centre, up to order 2."""
    A = axes.transpose(0, 2, 1) * (~single / spread)[:, :, None]  # u = A (s, t)
    first = np.einsum("kij,kj->ki", A, moments[:, [0, 1], [1, 0]])
    second = np.empty((len(moments), 2, 2))
    second[:, 0, 0], second[:, 1, 1] = moments[:, 0, 2], moments[:, 2, 0]
    second[:, 0, 1] = second[:, 1, 0] = moments[:, 1, 1]
    second = A @ second @ A.transpose(0, 2, 1)
    wanted = np.stack(
        [moments[:, 0, 0], first[:, 0], first[:, 1], second[:, 0, 0], second[:, 0, 1], second[:, 1, 1]],
        axis=-1,
    )
    x, y = u[..., 0], u[..., 1]
    basis = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=-1)
    gram = (basis * share[..., None]).transpose(0, 2, 1) @ basis + RIDGE * np.eye(basis.shape[-1])
    return (basis @ np.linalg.solve(gram, wanted[..., None]))[..., 0]


def polynomial(coefficients: Array, st: Array) -> Array:
    """(K, N) values at (K, N, 2) positions s, t, by Horner's rule along both."""
    s, t = st[..., 0], st[..., 1]
    out = np.zeros_like(s)
    for a in reversed(range(coefficients.shape[1])):
        row = np.zeros_like(s)
        for b in reversed(range(coefficients.shape[2])):
            row = row * s + coefficients[:, a, b, None]
        out = out * t + row
    return out


def powers(x: Array, count: int) -> list[Array]:
    """x^0, x^1, ... (a power of an array is many times slower than a product)."""
    out = [np.ones_like(x)]
    for _ in range(count - 1):
        out.append(out[-1] * x)
    return out
