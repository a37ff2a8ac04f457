"""The posterior of one window under a rough kernel: statistics in, mean and variance at cells and points out."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.axes import Axis, Grid
from gp_core.grid.markov.detail import (
    Detail,
    DetailAt,
    DetailPrior,
    detail_prior,
    estimate_detail,
    fill_blocks,
    fill_places,
)
from gp_core.grid.markov.evaluation import (
    VALUE_AND_SLOPES,
    at_cells,
    at_points,
    axis_weights,
    excess_pairs,
)
from gp_core.grid.markov.fronts import Fronts
from gp_core.grid.markov.normal_equations import NEIGHBOURS, neighbour
from gp_core.grid.markov.pane import Pane
from gp_core.grid.markov.prior import MarkovPrior
from gp_core.grid.markov.splines import DEGREE, ORDER, PIECES
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.workers import Workers, single_threaded_blas

_MOST: Final = 331
"""Coefficients along an axis that are solved as one: the work grows with their third power."""
_OVERLAP: Final = 36
"""Coefficients that a pane sees beyond those that it answers for."""


@dataclass
class MarkovSurface:
    """Coefficients and layers of a window, brought up to date where the data have changed.

    fronts: the prior, as shared by all windows of a kernel
    grid: the cells
    y, x: the blocks of the window
    right_hand_sides: the heights, and the functions of a trend
    lag: of the variances, see `Pane`
    """

    fronts: Fronts
    grid: Grid
    y: Axis
    x: Axis
    right_hand_sides: int
    workers: Workers
    lag: float = 0.0
    means: Array = field(init=False, repr=False)
    """(1, K, J + 2, I + 2)"""
    covariances: Any = field(init=False, repr=False)
    """(1, J + 2, I + 2, 13) of each coefficient with its neighbours, in float32 as they are found."""

    def __post_init__(self) -> None:
        shape = self.y.count + DEGREE, self.x.count + DEGREE
        self.means = np.zeros((1, self.right_hand_sides, *shape))
        self.covariances = np.empty((1, *shape, NEIGHBOURS), dtype=np.float32)
        self.covariances[:] = _prior_covariances(self.fronts.prior)
        self._changed: Mask = np.zeros((self.y.count, self.x.count), dtype=np.bool_)
        self._panes: list[_Part] | None = None
        self._unresolved = self.fronts.prior.unresolved_at(np.zeros((self.y.count, self.x.count)))
        self._cells_y = _at_axis(self.grid.y, self.y)
        self._cells_x = _at_axis(self.grid.x, self.x)
        self._mean_layers = np.zeros((self.right_hand_sides, VALUE_AND_SLOPES, *self.grid.shape))
        self._variance_layers = np.empty((VALUE_AND_SLOPES, *self.grid.shape))
        self._heights: Array | None = None
        self._stale: Mask = np.ones((self.y.count, self.x.count), dtype=np.bool_)
        """(J, I) blocks whose cells are to be drawn."""
        self._spread: Mask = self._stale.copy()
        """Those of them whose variances are."""

    @property
    def nbytes(self) -> int:
        arrays = self.means, self.covariances, self._mean_layers, self._variance_layers, self._unresolved
        return sum(array.nbytes for array in arrays) + sum(part.pane.nbytes for part in self._panes or [])

    @property
    def fallbacks(self) -> int:
        return sum(part.pane.fallbacks for part in self._panes or [])

    def draw(self, blocks: Mask, s: Statistics, right_hand_sides: list[Array], gain: float) -> None:
        """Take note of the moments (J, I, 3, 3) of the right-hand sides; they are read by `solve`."""
        self._heights = (
            right_hand_sides[0][None] if len(right_hand_sides) == 1 else np.stack(right_hand_sides)
        )

    def mark(self, blocks: Mask, s: Statistics) -> None:
        """Take note that the data of the given blocks (J, I) have changed."""
        self._changed |= blocks

    def inherit(self, old: MarkovSurface, left: Mask, s: Statistics) -> None:
        """Follow an older window; left: (J, I) its blocks whose data are gone. All is solved again."""
        self._changed |= s.weights[..., 0, 0] > 0.0

    def solve(self, s: Statistics, gain: float, prompt: bool = False) -> None:
        """Bring coefficients and layers up to date; if `prompt`, variances that are too large wait for `renew`."""
        if self._changed.any():
            if self._heights is None:
                self._heights = np.zeros((self.right_hand_sides, *s.heights.shape))
            with single_threaded_blas():
                for part in self._parts():
                    means, spread = part.pane.update(
                        self._changed, s, self._heights, gain, self.workers, prompt
                    )
                    part.copy(self.means[0], self.covariances[0])
                    part.mark(means, self._stale)
                    part.mark(spread, self._spread)
            self._join_parts()
            if self.lag == 0.0:
                self._spread |= self._changed
            self._take_unresolved(s, gain)
            self._changed[:] = False
        self.draw_cells()

    def renew(self, s: Statistics, gain: float) -> bool:
        """Solve the variances that prompt solutions have left behind; whether there were any."""
        with single_threaded_blas():
            for part in self._panes or []:
                spread = part.pane.renew(self.workers)
                if spread.any():
                    part.copy(self.means[0], self.covariances[0])
                    part.mark(spread, self._spread)
        self._join_parts()
        renewed = bool(self._spread.any())
        if renewed:
            self._take_unresolved(s, gain)
            self.draw_cells()
        return renewed

    def _join_parts(self) -> None:
        """Make the covariances of coefficients of two panes agree with the variances of both."""
        if self._panes is not None and len(self._panes) > 1:
            for part in self._panes:
                part.join(self.covariances[0])

    def _take_unresolved(self, s: Statistics, gain: float) -> None:
        """What the splines lack in the blocks whose variances were solved; their cells are to be drawn."""
        information = s.weights[self._spread, 0, 0] * (gain / (self.x.spacing * self.y.spacing))
        self._unresolved[:, self._spread] = self.fronts.prior.unresolved_at(information)
        self._stale |= self._spread

    def _parts(self) -> list[_Part]:
        """The panes; made when there are data."""
        if self._panes is None:
            rows, columns = (_cut(axis.count + DEGREE) for axis in (self.y, self.x))
            size = rows[0].size, columns[0].size
            self._panes = [
                _Part(Pane(self.fronts, size, (y.first, x.first), self.right_hand_sides, self.lag), y, x)
                for y in rows
                for x in columns
            ]
        return self._panes

    @property
    def mean_layers(self) -> Array:
        """(K, 3, ny, nx) height, d/dx and d/dy of every right-hand side."""
        return self._mean_layers

    @property
    def variance_layers(self) -> Array:
        """(3, ny, nx) their variances."""
        return self._variance_layers

    def at(self, x: Array, y: Array) -> tuple[Array, Array]:
        """(K, 3, N) means and (3, N) variances of value, d/dx and d/dy at points (N,)."""
        along_y, along_x = _at_axis(y, self.y), _at_axis(x, self.x)
        mean = np.empty((self.right_hand_sides, VALUE_AND_SLOPES, x.size))
        variance = np.empty((VALUE_AND_SLOPES, x.size))
        at_points(
            *along_y,
            *along_x,
            np.zeros_like(along_x[0]),
            along_x[0],
            self.means,
            self.covariances,
            self._unresolved,
            mean,
            variance,
        )
        return mean, variance

    def block_means(self) -> Array:
        """(K, J, I, 3, 3) monomial coefficients of the mean of every right-hand side on every block."""
        n_y, n_x, means = self.y.count, self.x.count, self.means[0]
        out = np.empty((self.right_hand_sides, n_y, n_x, ORDER, ORDER))
        # Axis by axis over whole arrays: four times as fast as a product of small matrices for every block.
        for a, by_y in enumerate(PIECES.T):
            rows = sum(by_y[p] * means[:, p : p + n_y] for p in range(ORDER))
            for b, by_x in enumerate(PIECES.T):
                out[..., a, b] = sum(by_x[q] * rows[..., q : q + n_x] for q in range(ORDER))
        return out

    def estimate_detail(self, s: Statistics, squares: Array) -> Detail | None:
        """Relief below the lattice that the points show, from the squares (J, I) of their residuals; None of none."""
        if self.right_hand_sides > 1:
            return None
        return estimate_detail(s, self.block_means()[0], squares, self._detail_prior)

    def detail_blocks(self, s: Statistics, detail: Detail) -> tuple[Array, Array, Array]:
        """(J, I, 3, 3) monomial coefficients of the mean detail on every block, and of its points the leverages (J, I)
        in it and what it leaves (J, I) of those in the splines, as a share."""
        means = self.block_means()[0]
        out, leverage, pull = np.empty_like(means), np.empty(means.shape[:2]), np.empty(means.shape[:2])
        root = self._detail_prior.root
        fill_blocks(s.weights, s.heights, means, root, detail.ratio, out, leverage, pull)
        return out, leverage, pull

    def detail_at(self, x: Array, y: Array, s: Statistics, detail: Detail) -> DetailAt:
        """How detail changes what the splines say at points (N,)."""
        return DetailAt(*self._detail_at(x, y, s, detail, pulls=True))

    def detail_layers(self, s: Statistics, detail: Detail) -> DetailAt:
        """The same at the cells (ny, nx), without `pull`: there are no points to be left out."""
        x, y = np.meshgrid(self.grid.x, self.grid.y)
        found = self._detail_at(x.ravel(), y.ravel(), s, detail, pulls=False)
        return DetailAt(*found.reshape(-1, *x.shape))

    def _detail_at(self, x: Array, y: Array, s: Statistics, detail: Detail, *, pulls: bool) -> Array:
        (j, v), (i, t) = (_in_block(at, axis) for at, axis in ((y, self.y), (x, self.x)))
        means, prior = self.block_means()[0], self._detail_prior
        cuts = np.linspace(0, x.size, self.workers.count + 1).astype(int)
        parts = [slice(a, b) for a, b in itertools.pairwise(cuts)]
        out = [np.empty((len(DetailAt._fields), part.stop - part.start)) for part in parts]
        self.workers.run(
            fill_places,
            [
                (j[part], v[part], i[part], t[part], s.weights, s.heights, means, self.covariances[0],
                 prior.root, prior.shares, detail.ratio, pulls, values)
                for part, values in zip(parts, out, strict=True)
            ],
        )  # fmt: skip
        return np.concatenate(out, axis=1)

    def detail_unresolved(self, detail: Detail) -> float:
        """Variance of the relief that neither splines nor detail carry."""
        return detail.ratio * max(self.fronts.prior.unresolved - self._detail_prior.variance, 0.0)

    @property
    def _detail_prior(self) -> DetailPrior:
        return detail_prior(self.fronts.prior.kernel, self.fronts.prior.spacing)

    def block_variances(self) -> Array:
        """(J, I) variance in the middle of every block."""
        x, y = np.meshgrid(self.x.middles, self.y.middles)
        return np.asarray(self.at(x.ravel(), y.ravel())[1][0].reshape(x.shape))

    def take(self, coefficients: Array) -> None:
        """Use these coefficients (K, J + 2, I + 2) of the window as means."""
        self.means[0] = coefficients
        self._stale[:] = True
        self._spread[:] = True

    @property
    def unresolved_variance(self) -> Array:
        """(ny, nx) variance of the height, at the cells, of what the splines lack and the data have not taught."""
        height: Array = self._unresolved[0]
        return np.maximum(height[np.ix_(self._cells_y[0], self._cells_x[0])], 0.0)

    @property
    def unresolved_layers(self) -> Array:
        """(3, ny, nx) of the variances at the cells, what the splines lack and the data have not taught."""
        return np.maximum(self._unresolved[:, self._cells_y[0][:, None], self._cells_x[0]], 0.0)

    def draw_cells(self) -> None:
        """Bring the layers up to date with the coefficients."""
        if not self._stale.any():
            return
        block_x = self._cells_x[0]
        strip = np.zeros_like(block_x)
        parts = np.linspace(0, block_x.size, self.workers.count + 1).astype(int)
        self.workers.run(
            at_cells,
            [
                (*self._cells_y, *self._cells_x, strip, block_x, a, b, self._stale, self._spread, self.means,
                 self.covariances, self._unresolved, self._mean_layers, self._variance_layers)
                for a, b in itertools.pairwise(parts)
            ],
        )  # fmt: skip
        self._stale[:] = False
        self._spread[:] = False


@dataclass(frozen=True)
class _Piece:
    """Along an axis: the coefficients of a pane, and those that it answers for, core ... end - 1."""

    first: int
    size: int
    core: int
    end: int


@dataclass(frozen=True)
class _Part:
    pane: Pane
    y: _Piece
    x: _Piece

    def copy(self, means: Array, covariances: Any) -> None:
        """Write what the pane answers for to means (K, J + 2, I + 2) and covariances (J + 2, I + 2, 13)."""
        there = slice(self.y.core, self.y.end), slice(self.x.core, self.x.end)
        here = tuple(slice(piece.core - piece.first, piece.end - piece.first) for piece in (self.y, self.x))
        means[:, *there] = self.pane.means[:, *here]
        covariances[there] = self.pane.covariances[here]

    def join(self, covariances: Any) -> None:
        """Scale the covariances with coefficients that other panes answer for: those have another variance there.

        A pane does not see data far beyond it, so that far from any the variances of two panes differ by some percent.
        With the covariance of one and the variances of both, slopes would have variances of any sign.
        """
        height, width = covariances.shape[:2]
        own = self.pane.covariances
        for dy in range(ORDER):
            for dx in range(0 if dy == 0 else -DEGREE, ORDER):
                # Coefficients whose neighbour is in the window; along the rims of the core it is another pane's.
                y, x = np.ogrid[self.y.core : min(self.y.end, height - dy), self.x.core : self.x.end]
                rim = (y + dy >= self.y.end) | (x + dx < self.x.core) | (x + dx >= self.x.end)
                j, i = np.nonzero(rim & (x + dx >= 0) & (x + dx < width))
                j, i = j + self.y.core, i + self.x.core
                here = own[j + dy - self.y.first, i + dx - self.x.first, 0]
                ratio = np.sqrt(covariances[j + dy, i + dx, 0] / here)
                k = neighbour(dy, dx)
                covariances[j, i, k] = own[j - self.y.first, i - self.x.first, k] * ratio

    def mark(self, solved: Mask, blocks: Mask) -> None:
        """Mark the blocks (J, I) that meet coefficients (n_y, n_x) of the pane which were solved again."""
        rows, columns = blocks.shape
        there = np.zeros((rows + DEGREE, columns + DEGREE), dtype=np.bool_)
        here = slice(self.y.core - self.y.first, self.y.end - self.y.first)
        across = slice(self.x.core - self.x.first, self.x.end - self.x.first)
        there[self.y.core : self.y.end, self.x.core : self.x.end] = solved[here, across]
        for dy in range(ORDER):
            for dx in range(ORDER):
                blocks |= there[dy : dy + rows, dx : dx + columns]


def _cut(count: int) -> list[_Piece]:
    """So many coefficients in pieces of equal size that overlap."""
    pieces = 1 if count <= _MOST else -(-count // (_MOST - 2 * _OVERLAP))
    core = -(-count // pieces)
    size = min(core + 2 * _OVERLAP, count) if pieces > 1 else count
    return [
        _Piece(min(max(start - _OVERLAP, 0), count - size), size, start, min(start + core, count))
        for start in range(0, count, core)
    ]


def _in_block(at: Array, axis: Axis) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Array]:
    """Block (N,) and place in it, -1 to 1, of coordinates; outside the window those of the nearest."""
    block, t = axis.locate(at)
    inside = np.clip(block, 0, axis.count - 1).astype(np.int64)
    return inside, np.where(block < inside, -1.0, np.where(block > inside, 1.0, t))


def _at_axis(at: Array, axis: Axis) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Array, Array]:
    """Block (N,), values and slopes (N, 2, 3) of the splines there, and `excess_pairs`."""
    block, w = axis_weights(at, axis)
    return block, w, excess_pairs(w, axis.spacing)


def _prior_covariances(prior: MarkovPrior) -> Array:
    """(13,) of a coefficient with its neighbours, without data."""
    R_y, R_x = prior.reach
    out = np.empty(NEIGHBOURS)
    for dy in range(ORDER):
        for dx in range(0 if dy == 0 else -DEGREE, ORDER):
            out[neighbour(dy, dx)] = prior.lags[R_y + dy, R_x + dx]
    return out
