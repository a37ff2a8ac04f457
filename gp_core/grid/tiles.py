"""The prior on a tile: what all tiles of a map share.

A tile owns a core of blocks and sees the blocks of a halo around it as well. On this domain the prior is
compressed to its leading modes. Along each axis these are the combinations e_a of splines that carry most of
the prior variance, where the halo counts less the farther out it is; in the plane, the products
e_a(y) e_b(x) with the largest variance, r of them. With coefficients eta ~ N(0, C_0), where C_0 = I for a
separable kernel,

    P = C_0^-1 + A,   A = sum over points phi phi' / r,   eta | z ~ N(P^-1 b, P^-1).

Products make A cheap. A[(a, b), (c, d)] depends on the pairs (a, c) and (b, d) only, and on the points only
through the moments of their blocks. With G[(a, c), (block, moment)] the coefficients of e_a e_c,

    A[(a, b), (c, d)] = (G_y M G_x')[(a, c), (b, d)],

and since products of smooth modes are smooth, G = U V' with a small inner dimension: four thin matrix
products per tile. Modes are even or odd about the middle of the domain in turns, and so are their products: U falls
into two blocks, which halves the work. The same step backwards gives the variance at every cell from P^-1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.linalg import eigh, toeplitz

from gp_core.arrays import Array
from gp_core.grid.interpolation import (
    DEGREE,
    MOMENTS,
    ORDER,
    PAIR_DEGREE,
    PIECES,
    slopes,
    spline_gram,
    weights,
)
from gp_core.grid.tile_prior import INFORMATION, TilePrior

SAFE_DEGREE: Final = PAIR_DEGREE // 2
"""Degree to which a mode is reduced on each block in the safe tables, whose A can't be indefinite."""
SAFE_ORDER: Final = SAFE_DEGREE + 1
HEIGHT_MOMENTS: Final = ORDER
WEIGHT_MOMENTS: Final = MOMENTS

Single = np.ndarray[Any, np.dtype[np.float32]]
Integers = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True)
class TileSize:
    """How far tiles reach and how finely they resolve.

    core: side of the part that a tile answers for, in correlation lengths (`TilePrior.scale`)
    halo: width of the surroundings that it sees, likewise
    window: distance over which the halo's importance falls off, likewise
    cutoff: modes with a smaller share of the prior variance are left out, at the usual density of information
    max_modes: modes that are kept at most
    """

    core: float
    halo: float
    window: float
    cutoff: float
    max_modes: int = 800


class AxisTables(NamedTuple):
    """G = U V' of one axis in float32, for the compiled loops.

    reduce: (blocks * 7, rho) V, the columns of even products first
    even, odd: (p_even, rho_even) and (p_odd, rho_odd), the blocks of U
    """

    reduce: Single
    even: Single
    odd: Single


class NormalTables(NamedTuple):
    """What P = C_0^-1 + A of a tile is made with in the compiled loops.

    y: of the rows, V transposed; x: of the columns, U transposed; all row-major
    pair, precision: of the `TileModel`; precision in float32, or (0, 0) for the identity
    """

    y: AxisTables
    x: AxisTables
    pair: Any
    precision: Single


class ModeTables(NamedTuple):
    """Modes of a tile, for the compiled loops; fields of `TileModel` and of its axes."""

    projection_y: Array
    polynomials_x: Array
    mode_y: Integers
    mode_x: Integers


@dataclass(frozen=True)
class TileAxis:
    """Modes of a tile along one axis.

    core, halo: blocks
    spacing: h
    modes: (n, r_1) spline coefficients of the modes, n = core + 2 halo + 5
    polynomials: (blocks * 6, r_1) monomial coefficients of the modes on each block
    safe_polynomials: (blocks * 4, r_1) likewise, reduced to `SAFE_DEGREE`
    tables: of G to six digits
    safe_pairs: (p, blocks * 7) G in float64, of modes reduced to `SAFE_DEGREE`: a little less accurate, but
        A = sum phi phi' for some phi, so that no data can make it indefinite
    """

    core: int
    halo: int
    spacing: float
    modes: Array = field(repr=False)
    polynomials: Array = field(repr=False)
    safe_polynomials: Array = field(repr=False)
    tables: AxisTables = field(repr=False)
    safe_pairs: Array = field(repr=False)

    @property
    def blocks(self) -> int:
        return self.core + 2 * self.halo

    @cached_property
    def projection(self) -> Array:
        """(r_1, blocks * 6) `polynomials` transposed, row-major: projects moments on the modes."""
        return np.ascontiguousarray(self.polynomials.T)

    @property
    def pairs(self) -> int:
        r = int(self.modes.shape[1])
        return r * (r + 1) // 2

    def values(self, block: Integers, t: Array) -> Array:
        """(N, r_1) values of the modes at positions t in blocks counted from the start of the domain."""
        return _combine(weights(t), self.modes, block)

    def slopes(self, block: Integers, t: Array) -> Array:
        """(N, r_1) derivatives of the modes, likewise."""
        return _combine(slopes(t, self.spacing), self.modes, block)


def _combine(spline: Array, modes: Array, block: Integers) -> Array:
    out: Array = np.einsum("nk,nkr->nr", spline, modes[block[:, None] + np.arange(ORDER)])
    return out


def _pairs(r: int) -> tuple[Any, Any]:
    """Numbers a <= c of the modes of each pair: first those whose product is even, a + c even."""
    a, c = np.triu_indices(r)
    order = np.argsort((a + c) % 2, kind="stable")
    return a[order], c[order]


def pair_products(values: Array) -> Array:
    """(N, p) products e_a e_c of the columns of values (N, r_1)."""
    first, second = _pairs(values.shape[1])
    return values[:, first] * values[:, second]


def _axis_modes(covariance: Array, core: int, halo: int, window_blocks: float) -> tuple[Array, Array]:
    """Modes of the prior along one axis, even and odd in turns, the most important of both first.

    covariance: (n,) of the coefficients by lag
    window_blocks: distance over which the halo's importance falls off
    returns modes (n, n) with c = modes xi, xi ~ N(0, I), and their mean squares in the window (n,)
    """
    blocks = np.arange(core + 2 * halo)
    outside = np.maximum(0.0, np.maximum(halo - 0.5 - blocks, blocks - (core + halo - 0.5)))
    window = np.exp(-((outside / window_blocks) ** 2)) + 1e-4
    gram = spline_gram(window) / window.sum()
    n = covariance.size
    modes, importance = np.empty((n, n)), np.empty(n)
    for sign, places in ((1.0, slice(0, n, 2)), (-1.0, slice(1, n, 2))):
        # Prior and window are the same from both ends: neither mixes even and odd.
        half = np.eye(n)[:, : (n + 1) // 2 if sign > 0 else n // 2]
        symmetric = half + sign * half[::-1]
        symmetric /= np.linalg.norm(symmetric, axis=0)
        scale, basis = eigh(symmetric.T @ toeplitz(covariance) @ symmetric)
        root = symmetric @ (basis * np.sqrt(np.maximum(scale, 1e-15 * scale[-1])))
        share, rotation = eigh(root.T @ gram @ root)
        modes[:, places] = (root @ rotation)[:, ::-1]
        importance[places] = np.maximum(share[::-1], 0.0)
    return modes, importance


def lower_degree(polynomials: Array, degree: int) -> Array:
    """(..., degree + 1, M): the best approximation in L2 on [-1, 1] of polynomials (..., n, M)."""
    n = polynomials.shape[-2]
    to_monomials = np.zeros((n, n))
    for k in range(n):
        to_monomials[: k + 1, k] = np.polynomial.legendre.leg2poly(np.eye(n)[k])
    legendre = np.linalg.solve(to_monomials, polynomials)
    keep = slice(0, degree + 1)
    reduced: Array = to_monomials[keep, keep] @ legendre[..., keep, :]
    return reduced


def _pair_polynomials(polynomials: Array) -> Array:
    """(blocks, 2 n - 1, p) coefficients of the products of modes (blocks, n, r_1)."""
    first, second = _pairs(polynomials.shape[2])
    n = polynomials.shape[1]
    products = np.zeros((polynomials.shape[0], 2 * n - 1, first.size))
    for a in range(n):
        for b in range(n):
            products[:, a + b] += polynomials[:, a][:, first] * polynomials[:, b][:, second]
    return products


def _compress(products: Array, modes: int, tolerance: float) -> AxisTables:
    """Tables from products of so many modes (blocks, 7, p): their leading singular vectors, by the Gram matrix."""
    G = products.reshape(-1, products.shape[2])
    even = int(np.count_nonzero(sum(_pairs(modes)) % 2 == 0))
    parts = [(part, *eigh(part.T @ part)) for part in (G[:, :even], G[:, even:]) if part.shape[1]]
    largest = max(square[-1] for _, square, _ in parts)
    U = [vectors[:, square > tolerance**2 * largest] for _, square, vectors in parts]
    reduce = np.concatenate([part @ u for (part, _, _), u in zip(parts, U, strict=True)], axis=1)
    U += [np.zeros((0, 0))] * (2 - len(U))
    return AxisTables(*(np.ascontiguousarray(table, dtype=np.float32) for table in (reduce, *U)))


def _make_axis(modes: Array, core: int, halo: int, spacing: float) -> TileAxis:
    """Tables of an axis for the modes kept, (n, r_1)."""
    blocks = core + 2 * halo
    polynomials = np.stack([PIECES.T @ modes[i : i + ORDER] for i in range(blocks)])
    safe = lower_degree(polynomials, SAFE_DEGREE)
    return TileAxis(
        core,
        halo,
        spacing,
        modes,
        polynomials.reshape(blocks * ORDER, -1),
        safe.reshape(blocks * SAFE_ORDER, -1),
        _compress(lower_degree(_pair_polynomials(polynomials), PAIR_DEGREE), modes.shape[1], 1e-6),
        np.ascontiguousarray(
            _pair_polynomials(safe).reshape(-1, modes.shape[1] * (modes.shape[1] + 1) // 2).T
        ),
    )


@dataclass(frozen=True)
class TileModel:
    """What all tiles of a map share.

    size: as asked for
    x, y: the axes
    mode_y, mode_x: (r,) index of each product mode along each axis
    covariance, precision: (r, r) C_0 and its inverse
    pair: (r, r) uint32 index (a, c) p_x + (b, d) of each entry of A in the product of the pairs: compiled loops need
        not ask whether it is negative
    projection_y, projection_x: (r_1, n) T, with eta = T c: C_0 = T K T'
    """

    size: TileSize
    x: TileAxis
    y: TileAxis
    mode_y: Integers = field(repr=False)
    mode_x: Integers = field(repr=False)
    covariance: Array = field(repr=False)
    precision: Array = field(repr=False)
    pair: Any = field(repr=False)
    projection_y: Array = field(repr=False)
    projection_x: Array = field(repr=False)

    @property
    def rank(self) -> int:
        return int(self.mode_y.size)

    @cached_property
    def single_precision(self) -> Single:
        """C_0^-1 in float32, empty if it is the identity."""
        if np.array_equal(self.precision, np.eye(self.rank)):
            return np.zeros((0, 0), dtype=np.float32)
        return self.precision.astype(np.float32)

    @cached_property
    def normal_tables(self) -> NormalTables:
        y, x = self.y.tables, self.x.tables
        return NormalTables(
            AxisTables(np.ascontiguousarray(y.reduce.T), y.even, y.odd),
            AxisTables(x.reduce, np.ascontiguousarray(x.even.T), np.ascontiguousarray(x.odd.T)),
            self.pair,
            self.single_precision,
        )

    @cached_property
    def mode_tables(self) -> ModeTables:
        return ModeTables(self.y.projection, self.x.polynomials, self.mode_y, self.mode_x)

    def pair_covariance(self) -> Array:
        """(p_y, p_x) with C_0 summed into pairs: the prior's counterpart of a tile's `pairs`."""
        out = np.zeros(self.y.pairs * self.x.pairs)
        np.add.at(out, self.pair.ravel(), self.covariance.ravel())
        return out.reshape(self.y.pairs, self.x.pairs)


Blocks = tuple[tuple[int, int], tuple[int, int]]
"""Blocks of core and halo, along x and along y."""


def tile_blocks(prior: TilePrior, size: TileSize) -> Blocks:
    """The given size in blocks."""
    q = [prior.scale[axis] / prior.spacing[axis] for axis in (0, 1)]
    x, y = ((max(1, round(size.core * k)), max(2, math.ceil(size.halo * k - 0.1))) for k in q)
    return x, y


def make_tile_model(prior: TilePrior, size: TileSize, blocks: Blocks | None = None) -> TileModel:
    """Tables for tiles of the given size.

    blocks: core and halo in blocks, to hold them fixed while the kernel varies
    """
    blocks = blocks or tile_blocks(prior, size)
    axes: list[tuple[int, int, Array, Array]] = []
    for axis in (0, 1):
        q = prior.scale[axis] / prior.spacing[axis]
        core, halo = blocks[axis]
        n = core + 2 * halo + DEGREE
        lags = (prior.along_x(n), prior.along_y(n))[axis] / np.sqrt(prior.along_x(1)[0])
        if (
            axis == 1
            and prior.spacing[0] == prior.spacing[1]
            and np.allclose(lags, prior.along_x(n) / lags[0])
        ):
            axes.append(axes[0])
        else:
            axes.append((core, halo, *_axis_modes(lags, core, halo, size.window * q)))
    (core_x, halo_x, all_x, share_x), (core_y, halo_y, all_y, share_y) = axes
    share = share_y[:, None] * share_x / prior.variance
    cutoff = size.cutoff * INFORMATION / prior.information
    largest = np.sort(share, axis=None)[::-1][: size.max_modes + 1]
    mode_y, mode_x = np.nonzero(
        share > max(cutoff, largest[size.max_modes] if largest.size > size.max_modes else 0.0)
    )
    r_y, r_x = int(mode_y.max()) + 1, int(mode_x.max()) + 1
    projection_y: Array = np.asarray(np.linalg.inv(all_y)[:r_y], dtype=np.float64)
    projection_x: Array = np.asarray(np.linalg.inv(all_x)[:r_x], dtype=np.float64)
    if prior.separable:
        covariance = precision = np.eye(mode_y.size)
    else:
        covariance = _project_covariance(prior, projection_y, projection_x, mode_y, mode_x)
        inverse = np.linalg.inv(covariance)
        precision = np.asarray(0.5 * (inverse + inverse.T), dtype=np.float64)
    pair_y, pair_x = _pair_index(r_y), _pair_index(r_x)
    pair = pair_y[mode_y[:, None], mode_y] * (r_x * (r_x + 1) // 2) + pair_x[mode_x[:, None], mode_x]
    x = _make_axis(all_x[:, :r_x], core_x, halo_x, prior.spacing[0])
    alike = all_x is all_y and r_x == r_y
    return TileModel(
        size,
        x,
        x if alike else _make_axis(all_y[:, :r_y], core_y, halo_y, prior.spacing[1]),
        mode_y.astype(np.int32),
        mode_x.astype(np.int32),
        covariance,
        precision,
        pair.astype(np.uint32),
        projection_y,
        projection_x,
    )


def _pair_index(r: int) -> Integers:
    """(r, r) number of the unordered pair {a, c}."""
    index = np.zeros((r, r), dtype=np.int32)
    a, c = _pairs(r)
    index[a, c] = index[c, a] = np.arange(a.size)
    return index


def _project_covariance(prior: TilePrior, T_y: Array, T_x: Array, mode_y: Any, mode_x: Any) -> Array:
    """C_0 = T K T'. K depends on differences of indices: collect T T' by difference, then contract."""
    (r_y, n_y), (r_x, n_x) = T_y.shape, T_x.shape
    full = (_sum_by_lag(T_y) @ prior.lags_within(n_y, n_x) @ _sum_by_lag(T_x).T).reshape(r_y, r_y, r_x, r_x)
    C = full[mode_y[:, None], mode_y[None, :], mode_x[:, None], mode_x[None, :]]
    symmetric: Array = 0.5 * (C + C.T)
    return symmetric


def lag_weights(model: TileModel, G: Array) -> Array:
    """(2 n_y - 1, 2 n_x - 1) w with sum over lags of w dK = sum of G dC_0, for a change dK of the prior."""
    (r_y, _), (r_x, _) = model.projection_y.shape, model.projection_x.shape
    full = np.zeros((r_y, r_y, r_x, r_x))
    m_y, m_x = model.mode_y, model.mode_x
    full[m_y[:, None], m_y[None, :], m_x[:, None], m_x[None, :]] = G
    D_y, D_x = _sum_by_lag(model.projection_y), _sum_by_lag(model.projection_x)
    return D_y.T @ full.reshape(r_y * r_y, r_x * r_x) @ D_x


def _sum_by_lag(T: Array) -> Array:
    """(r r, 2 n - 1) with sum over k - j = d of T[a, j] T[c, k], d from 1 - n to n - 1."""
    r, n = T.shape
    out = np.zeros((r, r, 2 * n - 1))
    for d in range(n):
        out[:, :, n - 1 + d] = T[:, : n - d] @ T[:, d:].T
        out[:, :, n - 1 - d] = out[:, :, n - 1 + d].T
    return out.reshape(r * r, -1)
