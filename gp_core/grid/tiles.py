"""The posterior on overlapping tiles: each sees the blocks of its own core and of a halo around it.

On the domain of a tile the prior is compressed to its leading modes. Along each axis these are the modes e_a
of the one-dimensional prior covariance that matter most for the core (a window weighs the halo less); in the
plane, the products e_a(y) e_b(x) with the largest variance, r of them. With coefficients eta and prior
covariance C_0 of eta (the identity, if the kernel is separable),

    P = C_0^-1 + A,   A = sum over points phi phi' / r,   eta | z ~ N(P^-1 b, P^-1).

Products make A cheap: A[(a, b), (c, d)] depends on the pairs (a, c) and (b, d) only, and on the points only
through moments of e_a e_c times e_b e_d. So with the table G[(a, c), moment of block], A = G M G', two small
matrix products per tile; the same trick backwards gives the variance at every cell from P^-1.

All tiles share one set of tables, because the prior is stationary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy.linalg import eigh, toeplitz

from gp_core.arrays import Array
from gp_core.grid.axes import Axis
from gp_core.grid.interpolation import DEGREE, ORDER, PIECES, _unit_weights, slopes, weights
from gp_core.grid.prior import Prior

REDUCED: Final = 3
"""Degree to which a mode is reduced on each block when A is formed: moments up to 6 instead of 10."""
PAIR_MOMENTS: Final = 2 * REDUCED + 1


@dataclass(frozen=True)
class TileAxis:
    """Modes of a tile along one axis.

    core, halo: blocks
    modes: (n, r_1) spline coefficients of the modes, n = core + 2 halo + 5
    variance: (r_1,) prior variance of each mode's coefficient
    polynomials: (core + 2 halo, 6, r_1) monomial coefficients of the modes on each block
    pairs: (p, blocks * 7) moments' weights in the product of modes a <= c
    """

    core: int
    halo: int
    modes: Array = field(repr=False)
    variance: Array = field(repr=False)
    polynomials: Array = field(repr=False)
    pairs: Array = field(repr=False)

    @property
    def blocks(self) -> int:
        return self.core + 2 * self.halo

    def values(self, block: Array, t: Array) -> Array:
        """(N, r_1) values of the modes at positions t in blocks counted from the start of the domain."""
        out: Array = np.einsum("nk,nkr->nr", weights(t), self.modes[block[:, None] + np.arange(ORDER)])
        return out

    def slopes(self, block: Array, t: Array, spacing: float) -> Array:
        """(N, r_1) derivatives of the modes, likewise."""
        out: Array = np.einsum(
            "nk,nkr->nr", slopes(t, spacing), self.modes[block[:, None] + np.arange(ORDER)]
        )
        return out


def _spline_gram(window: Array) -> Array:
    """(n, n) integrals of window * beta_i beta_j over the blocks; the window is constant on each."""
    nodes, mass = np.polynomial.legendre.leggauss(ORDER)
    beta = _unit_weights((nodes + 1.0) / 2.0)
    block = (beta * mass[:, None] / 2.0).T @ beta
    n = window.size + DEGREE
    gram = np.zeros((n, n))
    for i, w in enumerate(window):
        gram[i : i + ORDER, i : i + ORDER] += w * block
    return gram


def axis_modes(covariance: Array, core: int, halo: int, window_blocks: float) -> tuple[Array, Array]:
    """Modes of the prior along one axis, the most important first.

    covariance: (n,) of the coefficients by lag
    window_blocks: width of the Gaussian by which the halo's importance falls off
    returns modes (n, n) with c = modes xi, xi ~ N(0, I), and their mean squares in the window (n,)
    """
    blocks = np.arange(core + 2 * halo)
    outside = np.maximum(0.0, np.maximum(halo - 0.5 - blocks, blocks - (core + halo - 0.5)))
    window = np.exp(-((outside / window_blocks) ** 2)) + 1e-4
    gram = _spline_gram(window) / window.sum()
    scale, basis = eigh(toeplitz(covariance))
    root = basis * np.sqrt(np.maximum(scale, 1e-15 * scale[-1]))
    importance, rotation = eigh(root.T @ gram @ root)
    return (root @ rotation)[:, ::-1], np.maximum(importance[::-1], 0.0)


def reduced_polynomials(polynomials: Array) -> Array:
    """(blocks, REDUCED + 1, r_1): the best approximation of lower degree on each block, in L2."""
    to_monomials = np.zeros((ORDER, ORDER))
    for k in range(ORDER):
        to_monomials[: k + 1, k] = np.polynomial.legendre.leg2poly(np.eye(ORDER)[k])
    legendre = np.linalg.solve(to_monomials, polynomials)
    reduced: Array = to_monomials[: REDUCED + 1, : REDUCED + 1] @ legendre[:, : REDUCED + 1]
    return reduced


def make_axis(modes: Array, variance: Array, core: int, halo: int) -> TileAxis:
    """Tables of an axis for the modes kept, (n, r_1)."""
    blocks = core + 2 * halo
    polynomials = np.stack([PIECES.T @ modes[i : i + ORDER] for i in range(blocks)])
    low = reduced_polynomials(polynomials)
    first, second = np.triu_indices(modes.shape[1])
    pairs = np.zeros((first.size, blocks, PAIR_MOMENTS))
    for a in range(REDUCED + 1):
        for b in range(REDUCED + 1):
            pairs[:, :, a + b] += (low[:, a][:, first] * low[:, b][:, second]).T
    return TileAxis(core, halo, modes, variance, polynomials, pairs.reshape(first.size, -1))


@dataclass(frozen=True)
class TileModel:
    """What all tiles of a map share.

    prior: on the coefficients
    x, y: the axes
    mode_y, mode_x: (r,) index of each product mode along each axis
    prior_covariance, prior_precision: (r, r) C_0 and its inverse
    pair_y, pair_x: (r, r) index of the pair of modes along each axis
    """

    prior: Prior
    x: TileAxis
    y: TileAxis
    mode_y: Array = field(repr=False)
    mode_x: Array = field(repr=False)
    prior_covariance: Array = field(repr=False)
    prior_precision: Array = field(repr=False)
    pair_y: Array = field(repr=False)
    pair_x: Array = field(repr=False)

    @property
    def rank(self) -> int:
        return int(self.mode_y.size)

    def posterior(self, weights: Array, heights: Array) -> tuple[Array, Array]:
        """eta (r,) and P^-1 (r, r) from the moments of the tile's domain.

        weights: (blocks_y, blocks_x, 11, 11)
        heights: (blocks_y, blocks_x, 6, 6)
        """
        n_y, n_x = self.y.blocks, self.x.blocks
        m = weights[:, :, :PAIR_MOMENTS, :PAIR_MOMENTS].transpose(0, 2, 1, 3)
        A = self.y.pairs @ m.reshape(n_y * PAIR_MOMENTS, n_x * PAIR_MOMENTS) @ self.x.pairs.T
        P = A[self.pair_y, self.pair_x] + self.prior_precision
        covariance = np.linalg.inv(P)
        poly_y = self.y.polynomials.reshape(n_y * ORDER, -1)
        poly_x = self.x.polynomials.reshape(n_x * ORDER, -1)
        b = poly_y.T @ heights.transpose(0, 2, 1, 3).reshape(n_y * ORDER, n_x * ORDER) @ poly_x
        return covariance @ b[self.mode_y, self.mode_x], covariance


def make_tile_model(prior: Prior, core: float, halo: float, window: float, cutoff: float) -> TileModel:
    """Tables for tiles of the given size.

    core, halo, window: in correlation lengths
    cutoff: modes whose share of the prior variance in the window is smaller are left out
    """
    size = []
    for axis in (0, 1):
        q = prior.correlation_length[axis] / prior.spacing[axis]
        core_blocks, halo_blocks = max(1, round(core * q)), max(2, round(halo * q))
        n = core_blocks + 2 * halo_blocks + DEGREE
        lag = (prior.along_x(n), prior.along_y(n))[axis] / np.sqrt(prior.along_x(1)[0])
        modes, importance = axis_modes(lag, core_blocks, halo_blocks, window * q)
        size.append((core_blocks, halo_blocks, modes, importance))
    importance = size[1][3][:, None] * size[0][3] / prior.variance
    mode_y, mode_x = np.nonzero(importance > cutoff)
    x = make_axis(size[0][2][:, : mode_x.max() + 1], np.ones(mode_x.max() + 1), size[0][0], size[0][1])
    y = make_axis(size[1][2][:, : mode_y.max() + 1], np.ones(mode_y.max() + 1), size[1][0], size[1][1])
    if prior.separable:
        prior_covariance = np.eye(mode_y.size)
    else:
        prior_covariance = _projected_covariance(prior, size[1][2], size[0][2], mode_y, mode_x)
    return TileModel(
        prior,
        x,
        y,
        mode_y,
        mode_x,
        prior_covariance,
        np.linalg.inv(prior_covariance),
        _pair_index(y.modes.shape[1])[mode_y[:, None], mode_y],
        _pair_index(x.modes.shape[1])[mode_x[:, None], mode_x],
    )


def _pair_index(r: int) -> Array:
    index = np.zeros((r, r), dtype=np.int64)
    a, c = np.triu_indices(r)
    index[a, c] = index[c, a] = np.arange(a.size)
    return index


def _projected_covariance(prior: Prior, all_y: Array, all_x: Array, mode_y: Array, mode_x: Array) -> Array:
    """C_0 = T K T', with T the rows of the inverse of the modes that are kept."""
    T_y = np.linalg.inv(all_y)[: mode_y.max() + 1]
    T_x = np.linalg.inv(all_x)[: mode_x.max() + 1]
    n_y, n_x = all_y.shape[0], all_x.shape[0]
    R_y, R_x = (n // 2 for n in prior.lags.shape)
    full = np.zeros((2 * n_y - 1, 2 * n_x - 1))
    k_y, k_x = min(n_y - 1, R_y), min(n_x - 1, R_x)
    full[n_y - 1 - k_y : n_y + k_y, n_x - 1 - k_x : n_x + k_x] = prior.lags[
        R_y - k_y : R_y + k_y + 1, R_x - k_x : R_x + k_x + 1
    ]
    # sum over j, j' of T_y[a, j] T_y[c, j'] full[j' - j]: first collect by lag, then contract the lags.
    lag_y = np.arange(n_y)[None, :] - np.arange(n_y)[:, None] + n_y - 1
    lag_x = np.arange(n_x)[None, :] - np.arange(n_x)[:, None] + n_x - 1
    D_y = np.zeros((T_y.shape[0], T_y.shape[0], 2 * n_y - 1))
    D_x = np.zeros((T_x.shape[0], T_x.shape[0], 2 * n_x - 1))
    for lag in range(2 * n_y - 1):
        j, k = np.nonzero(lag_y == lag)
        D_y[:, :, lag] = T_y[:, j] @ T_y[:, k].T
    for lag in range(2 * n_x - 1):
        j, k = np.nonzero(lag_x == lag)
        D_x[:, :, lag] = T_x[:, j] @ T_x[:, k].T
    r_y, r_x = T_y.shape[0], T_x.shape[0]
    four = (D_y.reshape(r_y * r_y, -1) @ full @ D_x.reshape(r_x * r_x, -1).T).reshape(r_y, r_y, r_x, r_x)
    C = four[mode_y[:, None], mode_y[None, :], mode_x[:, None], mode_x[None, :]]
    return 0.5 * (C + C.T)


def tile_count(axis: Axis, core: int) -> int:
    """Tiles that cover an axis."""
    return -(-axis.count // core)
