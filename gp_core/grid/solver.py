"""Solving tiles: moments in, modes' posterior out. Only tiles whose domain has changed are solved again.

The loops are compiled and release the GIL; they run in float32, which a test shows to be enough for the
bounds, because the modes are scaled by their prior: P is graded, and Cholesky is accurate for each scale of a
graded matrix. Where float32 fails (a factorisation that does not exist) the tile is solved in float64 and
with a slower, safer inverse, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numba import njit

from gp_core.arrays import Array
from gp_core.grid.axes import Axis
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.tiles import HEIGHT_MOMENTS, SAFE_ORDER, WEIGHT_MOMENTS, Integers, TileModel
from gp_core.grid.workers import Workers

_BLOCK: Final = 32
"""Rows at a time in the triangular inverse."""


@dataclass(frozen=True)
class Tiling:
    """The tiles of one model that cover a window; tile k owns blocks k core ... (k + 1) core - 1.

    y, x: blocks of the window
    first_y, first_x: number of the first tile along each axis
    shape: (tiles along y, tiles along x)
    """

    y: Axis
    x: Axis
    first_y: int
    first_x: int
    shape: tuple[int, int]

    @staticmethod
    def covering(model: TileModel, y: Axis, x: Axis) -> Tiling:
        first_y, first_x = y.first // model.y.core, x.first // model.x.core
        last_y = (y.first + y.count - 1) // model.y.core
        last_x = (x.first + x.count - 1) // model.x.core
        return Tiling(y, x, first_y, first_x, (last_y - first_y + 1, last_x - first_x + 1))


class TileField:
    """Results of all tiles of one model over a window, kept until their data change.

    model: shared tables
    tiling: where the tiles are
    stale: (tiles_y, tiles_x) tiles whose data have changed since they were solved
    empty: (tiles_y, tiles_x) tiles without data in their domain, for which the prior holds
    fallbacks: tiles that needed the safer way, so far
    """

    def __init__(self, model: TileModel, y: Axis, x: Axis) -> None:
        self.model = model
        self.tiling = Tiling.covering(model, y, x)
        self.stale: Mask = np.zeros(self.tiling.shape, dtype=np.bool_)
        self.empty: Mask = np.ones(self.tiling.shape, dtype=np.bool_)
        self.fallbacks = 0

    def domain(self, j: int, i: int) -> tuple[int, int]:
        """First block (y, x) of a tile's domain, counted from the first block of the window."""
        y, x, t = self.model.y, self.model.x, self.tiling
        return (t.first_y + j) * y.core - y.halo - t.y.first, (t.first_x + i) * x.core - x.halo - t.x.first

    def touched(self, blocks: Mask) -> Mask:
        """(tiles_y, tiles_x) tiles whose domain contains one of the given blocks (J, I) of the window."""
        total = np.zeros((blocks.shape[0] + 1, blocks.shape[1] + 1), dtype=np.int64)
        total[1:, 1:] = blocks.cumsum(0).cumsum(1)
        starts_y, starts_x = (
            np.array([self.domain(j, 0)[0] for j in range(self.tiling.shape[0])]),
            np.array([self.domain(0, i)[1] for i in range(self.tiling.shape[1])]),
        )
        low_y, high_y = (np.clip(starts_y + n, 0, blocks.shape[0]) for n in (0, self.model.y.blocks))
        low_x, high_x = (np.clip(starts_x + n, 0, blocks.shape[1]) for n in (0, self.model.x.blocks))
        inside = (
            total[high_y[:, None], high_x]
            - total[low_y[:, None], high_x]
            - total[high_y[:, None], low_x]
            + total[low_y[:, None], low_x]
        )
        touched: Mask = inside > 0
        return touched

    def mark(self, blocks: Mask, statistics: Statistics) -> None:
        """Remember that the data of the given blocks (J, I) have changed."""
        self.stale |= self.touched(blocks)
        self.find_empty(statistics)

    def find_empty(self, statistics: Statistics) -> None:
        """Note which tiles have no data."""
        self.empty = ~self.touched(statistics.weights[:, :, 0, 0] > 0.0)

    def inherit(self, old: TileField, left: Mask) -> None:
        """Take over the results of tiles that an older window had, too.

        left: (J, I) blocks of the old window whose data are gone: tiles that saw them are stale
        """
        stale = old.stale | old.touched(left)
        new_y, old_y = _common(
            self.tiling.first_y, self.tiling.shape[0], old.tiling.first_y, old.tiling.shape[0]
        )
        new_x, old_x = _common(
            self.tiling.first_x, self.tiling.shape[1], old.tiling.first_x, old.tiling.shape[1]
        )
        self.stale[:] = True
        self.stale[new_y, new_x] = stale[old_y, old_x]
        self.fallbacks = old.fallbacks
        for new, before in zip(self._results(), old._results(), strict=True):
            new[new_y, new_x] = before[old_y, old_x]

    def _results(self) -> list[Any]:
        return []

    def rows(self, tiles: Mask) -> list[tuple[int, Integers]]:
        """The given tiles, by row of tiles."""
        return [(int(j), np.flatnonzero(tiles[j]).astype(np.int32)) for j in np.flatnonzero(tiles.any(1))]


@dataclass
class Images:
    """Moments laid out as images, so that those of a tile are a rectangle.

    first_y, first_x: first block, counted from the window's first one: the images reach past the window
    weights: (7 J', 7 I') float32
    heights: (K, 6 J', 6 I') float64, one per right-hand side
    """

    first_y: int
    first_x: int
    weights: np.ndarray[Any, np.dtype[np.float32]] = field(repr=False)
    heights: Array = field(repr=False)

    @staticmethod
    def covering(fields: list[TileField], right_hand_sides: int) -> Images:
        first_y = min(f.domain(0, 0)[0] for f in fields)
        first_x = min(f.domain(0, 0)[1] for f in fields)
        last_y = max(f.domain(f.tiling.shape[0] - 1, 0)[0] + f.model.y.blocks for f in fields)
        last_x = max(f.domain(0, f.tiling.shape[1] - 1)[1] + f.model.x.blocks for f in fields)
        n_y, n_x = last_y - first_y, last_x - first_x
        return Images(
            first_y,
            first_x,
            np.zeros((WEIGHT_MOMENTS * n_y, WEIGHT_MOMENTS * n_x), dtype=np.float32),
            np.zeros((right_hand_sides, HEIGHT_MOMENTS * n_y, HEIGHT_MOMENTS * n_x)),
        )

    def draw_weights(self, blocks: Mask, statistics: Statistics, gain: float) -> None:
        """Copy the moments of the given blocks (J, I)."""
        _draw(blocks, statistics.weights, gain, -self.first_y, -self.first_x, self.weights, WEIGHT_MOMENTS)

    def draw_heights(self, blocks: Mask, moments: Array, gain: float, k: int) -> None:
        """Copy the moments (J, I, >= 6, >= 6) of right-hand side k of the given blocks."""
        _draw(blocks, moments, gain, -self.first_y, -self.first_x, self.heights[k], HEIGHT_MOMENTS)


def _common(first: int, count: int, old_first: int, old_count: int) -> tuple[slice, slice]:
    """Where the numbers that two ranges share are in each."""
    low, high = max(first, old_first), min(first + count, old_first + old_count)
    high = max(low, high)
    return slice(low - first, high - first), slice(low - old_first, high - old_first)


class MeanField(TileField):
    """Posterior means of the modes: eta (K, tiles_y, tiles_x, r_y, r_x), one per right-hand side."""

    def __init__(self, model: TileModel, y: Axis, x: Axis, right_hand_sides: int) -> None:
        super().__init__(model, y, x)
        self.eta = np.zeros(
            (*self.tiling.shape, right_hand_sides, model.y.modes.shape[1], model.x.modes.shape[1])
        )

    def _results(self) -> list[Any]:
        return [self.eta]

    def solve(self, images: Images, statistics: Statistics, gain: float, workers: Workers) -> Mask:
        """Solve the stale tiles; returns which."""
        solved = self.stale.copy()
        self.eta[solved & self.empty] = 0.0
        todo = self.rows(solved & ~self.empty)
        results = workers.run(self._row, [(j, columns, images, statistics, gain) for j, columns in todo])
        self.fallbacks += sum(results)
        self.stale[:] = False
        return solved

    def _row(self, j: int, columns: Integers, images: Images, statistics: Statistics, gain: float) -> int:
        model, y, x = self.model, self.model.y.tables, self.model.x.tables
        row = self.domain(j, 0)[0] - images.first_y
        starts = (columns - columns[0]).astype(np.int64) * model.x.core
        first = self.domain(0, int(columns[0]))[1] - images.first_x
        eta = np.zeros((columns.size, *self.eta.shape[2:]))
        failed = not _attempt(
            _mean_row,
            images.weights, images.heights, row, first, starts, model.y.blocks, model.x.blocks,
            y.reduce, y.expand, x.reduce, x.expand, model.y.polynomials, model.x.polynomials,
            model.mode_y, model.mode_x, model.pair, model.single_precision, eta,
        )  # fmt: skip
        if not failed:
            self.eta[j, columns] = eta
            return 0
        for i in columns:
            self.eta[j, i] = self._safely(j, int(i), images, statistics, gain)
        return columns.size

    def _safely(self, j: int, i: int, images: Images, statistics: Statistics, gain: float) -> Array:
        model = self.model
        P = normal_matrix(model, _domain_weights(self, j, i, statistics, gain))
        covariance = safe_inverse(P)
        b_y, b_x = self.domain(j, i)
        top, left = HEIGHT_MOMENTS * (b_y - images.first_y), HEIGHT_MOMENTS * (b_x - images.first_x)
        heights = images.heights[
            :, top : top + HEIGHT_MOMENTS * model.y.blocks, left : left + HEIGHT_MOMENTS * model.x.blocks
        ]
        eta = np.zeros(self.eta.shape[2:])
        for k in range(eta.shape[0]):
            b = model.y.safe_polynomials.T @ _first_moments(heights[k]) @ model.x.safe_polynomials
            eta[k, model.mode_y, model.mode_x] = covariance @ b[model.mode_y, model.mode_x]
        return eta


class VarianceField(TileField):
    """Posterior covariances of the modes, summed into pairs (tiles_y, tiles_x, p_y, p_x), float32."""

    def __init__(self, model: TileModel, y: Axis, x: Axis) -> None:
        super().__init__(model, y, x)
        self.prior_pairs = model.pair_covariance()
        self.pairs = np.empty((*self.tiling.shape, *self.prior_pairs.shape), dtype=np.float32)
        self.pairs[:] = self.prior_pairs

    def _results(self) -> list[Any]:
        return [self.pairs]

    def solve(self, images: Images, statistics: Statistics, gain: float, workers: Workers) -> Mask:
        """Solve the stale tiles; returns which."""
        solved = self.stale.copy()
        self.pairs[solved & self.empty] = self.prior_pairs
        todo = self.rows(solved & ~self.empty)
        results = workers.run(self._row, [(j, columns, images, statistics, gain) for j, columns in todo])
        self.fallbacks += sum(results)
        self.stale[:] = False
        return solved

    def _row(self, j: int, columns: Integers, images: Images, statistics: Statistics, gain: float) -> int:
        model, y, x = self.model, self.model.y.tables, self.model.x.tables
        row = self.domain(j, 0)[0] - images.first_y
        starts = (columns - columns[0]).astype(np.int64) * model.x.core
        first = self.domain(0, int(columns[0]))[1] - images.first_x
        pairs = np.zeros((columns.size, self.prior_pairs.size), dtype=np.float32)
        failed = not _attempt(
            _variance_row,
            images.weights, row, first, starts, model.y.blocks, model.x.blocks,
            y.reduce, y.expand, x.reduce, x.expand, model.pair, model.single_precision, pairs,
        )  # fmt: skip
        if not failed:
            self.pairs[j, columns] = pairs.reshape(-1, *self.prior_pairs.shape)
            return 0
        for i in columns:
            P = normal_matrix(model, _domain_weights(self, j, int(i), statistics, gain))
            out = np.zeros(self.prior_pairs.size)
            np.add.at(out, model.pair.ravel(), safe_inverse(P).ravel())
            self.pairs[j, i] = out.reshape(self.prior_pairs.shape)
        return columns.size


def _attempt(function: Any, *arguments: Any) -> bool:
    """Run a compiled loop; False if a factorisation did not exist, or overflowed."""
    try:
        function(*arguments)
    except np.linalg.LinAlgError:
        return False
    return bool(np.isfinite(arguments[-1]).all())


def _domain_weights(tile: TileField, j: int, i: int, statistics: Statistics, gain: float) -> Array:
    """(7 J, 7 I) the moments of a tile's domain in float64."""
    first_y, first_x = tile.domain(j, i)
    n_y, n_x = tile.model.y.blocks, tile.model.x.blocks
    out = np.zeros((n_y, WEIGHT_MOMENTS, n_x, WEIGHT_MOMENTS))
    rows, columns = statistics.weights.shape[:2]
    low_y, high_y = max(first_y, 0), min(first_y + n_y, rows)
    low_x, high_x = max(first_x, 0), min(first_x + n_x, columns)
    if low_y < high_y and low_x < high_x:
        part = statistics.weights[low_y:high_y, low_x:high_x, :WEIGHT_MOMENTS, :WEIGHT_MOMENTS]
        out[low_y - first_y : high_y - first_y, :, low_x - first_x : high_x - first_x] = part.transpose(
            0, 2, 1, 3
        )
    return gain * out.reshape(n_y * WEIGHT_MOMENTS, n_x * WEIGHT_MOMENTS)


def normal_matrix(model: TileModel, weights: Array) -> Array:
    """P (r, r) in float64 from the moments (7 J, 7 I) of a domain."""
    P: Array = information(model, weights) + model.precision
    return P


def information(model: TileModel, weights: Array) -> Array:
    """A (r, r) in float64 from the moments (7 J, 7 I) of a domain."""
    products: Array = model.y.safe_pairs @ weights @ model.x.safe_pairs.T
    return products.ravel()[model.pair]


def _first_moments(heights: Array) -> Array:
    """(4 J, 4 I) the low moments out of an image (6 J, 6 I)."""
    n_y, n_x = (n // HEIGHT_MOMENTS for n in heights.shape)
    blocks = heights.reshape(n_y, HEIGHT_MOMENTS, n_x, HEIGHT_MOMENTS)[:, :SAFE_ORDER, :, :SAFE_ORDER]
    return blocks.reshape(n_y * SAFE_ORDER, n_x * SAFE_ORDER)


def safe_inverse(P: Array) -> Array:
    """P^-1 by eigenvalues, those that round-off made negative raised to its level: the prior bounds them."""
    scale = np.sqrt(np.abs(np.diagonal(P)))
    value, vector = np.linalg.eigh(P / scale / scale[:, None])
    value = np.maximum(value, 1e-13 * value[-1])
    half = vector / np.sqrt(value) / scale[:, None]
    inverse: Array = half @ half.T
    return inverse


@njit(cache=True, nogil=True)
def _draw(blocks, moments, gain, shift_y, shift_x, image, size):  # type: ignore[no-untyped-def]
    """Copy moments of blocks into an image."""
    for j in range(blocks.shape[0]):
        for i in range(blocks.shape[1]):
            if blocks[j, i]:
                for a in range(size):
                    for b in range(size):
                        image[(j + shift_y) * size + a, (i + shift_x) * size + b] = gain * moments[j, i, a, b]


@njit(cache=True, nogil=True)
def _normal_matrix(B, column, columns, reduce_x, expand_y, expand_x, pair, precision, P):  # type: ignore[no-untyped-def]
    """Lower triangle of P = C_0^-1 + A from B = V_y' M, whose columns start at the given one.

    precision: C_0^-1 (r, r) in float32, or (0, 0) for the identity
    """
    C = np.dot(np.ascontiguousarray(B[:, column : column + columns]), reduce_x)
    products = np.dot(expand_y, np.dot(C, expand_x.T)).ravel()
    one = P.dtype.type(1.0)
    if precision.size == 0:
        for i in range(P.shape[0]):
            for j in range(i + 1):
                P[i, j] = products[pair[i, j]]
            P[i, i] += one
    else:
        for i in range(P.shape[0]):
            for j in range(i + 1):
                P[i, j] = products[pair[i, j]] + precision[i, j]


@njit(cache=True, nogil=True)
def _triangular_inverse(L):  # type: ignore[no-untyped-def]
    """L^-1 of a lower triangular matrix, by blocks of rows."""
    n = L.shape[0]
    X = np.zeros((n, n), dtype=L.dtype)
    for k0 in range(0, n, _BLOCK):
        k1 = min(k0 + _BLOCK, n)
        inner = np.zeros((k1 - k0, k1 - k0), dtype=L.dtype)
        for i in range(k1 - k0):
            for k in range(i):
                factor = L[k0 + i, k0 + k]
                for j in range(k + 1):
                    inner[i, j] -= factor * inner[k, j]
            pivot = L[k0 + i, k0 + i]
            for j in range(i):
                inner[i, j] /= pivot
            inner[i, i] = 1.0 / pivot
        if k0 > 0:
            X[k0:k1] = -np.dot(inner, np.dot(np.ascontiguousarray(L[k0:k1, :k0]), X[:k0]))
        X[k0:k1, k0:k1] = inner
    return X


@njit(cache=True, nogil=True)
def _mean_row(  # type: ignore[no-untyped-def]
    weights, heights, row, first, starts, blocks_y, blocks_x,
    reduce_y, expand_y, reduce_x, expand_x, polynomials_y, polynomials_x,
    mode_y, mode_x, pair, precision, eta,
):  # fmt: skip
    """Posterior means of the modes of tiles in one row of tiles.

    row, first: block at which the domains start, and the first of them along x, in the images
    starts: (T,) further blocks along x to each tile's domain
    eta: (T, K, r_y, r_x), filled
    """
    r = mode_y.size
    span = starts[-1] + blocks_x
    rows = np.ascontiguousarray(
        weights[row * WEIGHT_MOMENTS : (row + blocks_y) * WEIGHT_MOMENTS,
                first * WEIGHT_MOMENTS : (first + span) * WEIGHT_MOMENTS]
    )  # fmt: skip
    B = np.dot(reduce_y.T, rows)
    P = np.zeros((r, r), dtype=weights.dtype)
    b = np.zeros(r)
    for k in range(starts.size):
        _normal_matrix(
            B,
            starts[k] * WEIGHT_MOMENTS,
            blocks_x * WEIGHT_MOMENTS,
            reduce_x,
            expand_y,
            expand_x,
            pair,
            precision,
            P,
        )
        L = np.linalg.cholesky(P)
        for m in range(heights.shape[0]):
            left = (first + starts[k]) * HEIGHT_MOMENTS
            part = np.ascontiguousarray(
                heights[m, row * HEIGHT_MOMENTS : (row + blocks_y) * HEIGHT_MOMENTS,
                        left : left + blocks_x * HEIGHT_MOMENTS]
            )  # fmt: skip
            projected = np.dot(np.dot(polynomials_y.T, part), polynomials_x)
            for i in range(r):
                b[i] = projected[mode_y[i], mode_x[i]]
            x = _solve(L, b).astype(np.float64)
            # One step of iterative refinement takes out the rounding of the factorisation.
            x += _solve(L, _residual(P, x, b))
            for i in range(r):
                eta[k, m, mode_y[i], mode_x[i]] = x[i]


@njit(cache=True, nogil=True, fastmath=True)
def _solve(L, b):  # type: ignore[no-untyped-def]
    """(L L')^-1 b in the precision of L."""
    n = b.size
    x = b.astype(L.dtype)
    for i in range(n):
        row = L[i]
        value = L.dtype.type(0.0)
        for j in range(i):
            value += row[j] * x[j]
        x[i] = (x[i] - value) / row[i]
    for i in range(n - 1, -1, -1):
        row = L[i]
        value = x[i] / row[i]
        x[i] = value
        for j in range(i):
            x[j] -= row[j] * value
    return x


@njit(cache=True, nogil=True, fastmath=True)
def _residual(P, x, b):  # type: ignore[no-untyped-def]
    """b - P x for a symmetric matrix given by its lower triangle, accumulated in float64."""
    out = b.copy()
    for i in range(x.size):
        row = P[i]
        scale = x[i]
        value = row[i] * scale
        for j in range(i):
            value += row[j] * x[j]
            out[j] -= row[j] * scale
        out[i] -= value
    return out


@njit(cache=True, nogil=True)
def _variance_row(  # type: ignore[no-untyped-def]
    weights, row, first, starts, blocks_y, blocks_x,
    reduce_y, expand_y, reduce_x, expand_x, pair, precision, pairs,
):  # fmt: skip
    """Posterior covariances of the modes of tiles in one row of tiles, summed into pairs (T, p_y p_x)."""
    r = pair.shape[0]
    span = starts[-1] + blocks_x
    rows = np.ascontiguousarray(
        weights[row * WEIGHT_MOMENTS : (row + blocks_y) * WEIGHT_MOMENTS,
                first * WEIGHT_MOMENTS : (first + span) * WEIGHT_MOMENTS]
    )  # fmt: skip
    B = np.dot(reduce_y.T, rows)
    P = np.zeros((r, r), dtype=weights.dtype)
    half = r // 2
    for k in range(starts.size):
        _normal_matrix(
            B,
            starts[k] * WEIGHT_MOMENTS,
            blocks_x * WEIGHT_MOMENTS,
            reduce_x,
            expand_y,
            expand_x,
            pair,
            precision,
            P,
        )
        X = _triangular_inverse(np.ascontiguousarray(np.linalg.cholesky(P)))
        # The upper rows of L^-1 have no entries right of the middle.
        low = X[half:]
        covariance = np.dot(low.T, low)
        top = np.ascontiguousarray(X[:half, :half])
        covariance[:half, :half] += np.dot(top.T, top)
        out = pairs[k]
        for i in range(r):
            out[pair[i, i]] += covariance[i, i]
            for j in range(i):
                out[pair[i, j]] += covariance[i, j] + covariance[i, j]
