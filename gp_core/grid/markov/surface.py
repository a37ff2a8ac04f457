"""The posterior of one window under a rough kernel: statistics in, mean and variance at cells and points out."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.axes import Axis, Grid
from gp_core.grid.interpolation import ORDER as MOMENT_ORDER
from gp_core.grid.markov.elimination import NEIGHBOURS, neighbour, solve_strip
from gp_core.grid.markov.evaluation import (
    VALUE_AND_SLOPES,
    at_cells,
    at_points,
    axis_weights,
    excess_pairs,
)
from gp_core.grid.markov.holes import find_holes
from gp_core.grid.markov.prior import MarkovPrior
from gp_core.grid.markov.splines import DEGREE, ORDER, PIECES
from gp_core.grid.markov.strips import Strip, StripModel
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.workers import Workers, single_threaded_blas

_SAFETY: Final = 1e-6
"""Share of each group's own precision that is added where a strip could not be factorised."""

_SPARSE: Final = 0.1
"""Share of its blocks with data below which a strip has a wide halo."""


@dataclass
class MarkovSurface:
    """Coefficients and layers of a window, brought up to date where the data have changed.

    model: as shared by all windows of a kernel
    grid: the cells
    y, x: the blocks of the window
    right_hand_sides: the heights, and the functions of a trend
    """

    model: StripModel
    grid: Grid
    y: Axis
    x: Axis
    right_hand_sides: int
    workers: Workers
    means: Array = field(init=False, repr=False)
    """(strips, K, J + 2, core + 2): all coefficients of a strip's blocks, so that no block mixes two strips."""
    covariances: Array = field(init=False, repr=False)
    """(strips, J + 2, core + 2, 13) of each coefficient with its neighbours."""
    stale: Mask = field(init=False, repr=False)
    """(strips,)"""
    fallbacks: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        # Strips lie at multiples of the core in the world, so that a window that moves finds the same ones.
        core = self.model.core
        self._first_strip = self.x.first // core
        strips = (self.x.first + self.x.count - 1) // core - self._first_strip + 1
        self.stale = np.zeros(strips, dtype=bool)
        shape = self.y.count + DEGREE, core + DEGREE
        self.means = np.zeros((strips, self.right_hand_sides, *shape))
        self.covariances = np.empty((strips, *shape, NEIGHBOURS))
        self.covariances[:] = _prior_covariances(self.model.prior)
        self._wide_strips = np.zeros_like(self.stale)
        self._unresolved = self.model.prior.unresolved_at(np.zeros((self.y.count, self.x.count)))
        self._cells_y = _at_axis(self.grid.y, self.y)
        self._cells_x = _at_axis(self.grid.x, self.x)
        self._cell_strips = self._strip_of(self._cells_x[0])
        self._mean_layers = np.zeros((self.right_hand_sides, VALUE_AND_SLOPES, *self.grid.shape))
        self._variance_layers = np.empty((VALUE_AND_SLOPES, *self.grid.shape))
        self._heights: Array | None = None
        self._undrawn = np.ones_like(self.stale)

    @property
    def nbytes(self) -> int:
        arrays = self.means, self.covariances, self._mean_layers, self._variance_layers, self._unresolved
        return sum(array.nbytes for array in arrays)

    def draw(self, blocks: Mask, s: Statistics, right_hand_sides: list[Array], gain: float) -> None:
        """Take note of the moments (J, I, 6, 6) of the right-hand sides; they are read when strips are solved."""
        self._heights = (
            right_hand_sides[0][None] if len(right_hand_sides) == 1 else np.stack(right_hand_sides)
        )

    def mark(self, blocks: Mask, s: Statistics) -> None:
        """Let the strips know that the data of the given blocks have changed."""
        columns = np.flatnonzero(blocks.any(axis=0))
        if columns.size:
            before, self._wide_strips = self._wide_strips, self._choose_wide(s)
            self.stale |= self._seeing(columns, before | self._wide_strips)

    def inherit(self, old: MarkovSurface, left: Mask, s: Statistics) -> None:
        """Take over what an older window had solved. left: (J, I) its blocks whose data are gone."""
        same_rows = (old.y.first, old.y.count) == (self.y.first, self.y.count)
        filled = np.flatnonzero((s.weights[..., 0, 0] > 0.0).any(axis=0))
        self._wide_strips = self._choose_wide(s)
        self.stale = self._seeing(filled, self._wide_strips)
        if not same_rows or old.right_hand_sides != self.right_hand_sides:
            return
        gone = old._seeing(np.flatnonzero(left.any(axis=0)), old._wide_strips)
        for m in range(self.stale.size):
            k = m + self._first_strip - old._first_strip
            if not 0 <= k < old.stale.size or old.stale[k] or gone[k]:
                continue
            if old._wide_strips[k] == self._wide_strips[m]:
                self.means[m], self.covariances[m] = old.means[k], old.covariances[k]
                self.stale[m] = False

    def solve(self, s: Statistics, gain: float) -> None:
        """Bring coefficients and layers up to date."""
        chosen = np.flatnonzero(self.stale)
        if self._heights is None:
            self._heights = np.zeros((self.right_hand_sides, *s.heights.shape))
        with single_threaded_blas():
            self.workers.run(self._solve_strip, [(int(m), s, gain) for m in chosen])
        information = s.weights[..., 0, 0] * (gain / (self.x.spacing * self.y.spacing))
        self._unresolved = self.model.prior.unresolved_at(information)
        self._undrawn |= self.stale
        self.stale = np.zeros_like(self.stale)
        self.draw_cells()

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
            *self._strip_of(along_x[0]),
            self.means,
            self.covariances,
            self._unresolved,
            mean,
            variance,
        )
        return mean, variance

    def block_means(self) -> Array:
        """(K, J, I, 6, 6) monomial coefficients of the mean of every right-hand side on every block."""
        out = np.zeros((self.right_hand_sides, self.y.count, self.x.count, MOMENT_ORDER, MOMENT_ORDER))
        strip, column = self._strip_of(np.arange(self.x.count))
        near = np.lib.stride_tricks.sliding_window_view(self.means, (ORDER, ORDER), axis=(2, 3))
        out[..., :ORDER, :ORDER] = PIECES.T @ near[strip, :, :, column].transpose(1, 2, 0, 3, 4) @ PIECES
        return out

    def block_variances(self) -> Array:
        """(J, I) variance in the middle of every block."""
        x, y = np.meshgrid(self.x.middles, self.y.middles)
        return np.asarray(self.at(x.ravel(), y.ravel())[1][0].reshape(x.shape))

    def _strip(self, m: int) -> Strip:
        wide = self.model.wide
        return wide if wide is not None and self._wide_strips[m] else self.model.narrow

    def _solve_strip(self, m: int, s: Statistics, gain: float) -> None:
        strip = self._strip(m)
        chain = strip.chain
        left = (m + self._first_strip) * self.model.core - self.x.first - strip.halo
        assert self._heights is not None
        for safety in (0.0, _SAFETY):
            solved = solve_strip(
                s.weights, self._heights, gain, left, strip.halo,
                chain.first * (1.0 + safety), chain.arriving * (1.0 + safety), chain.leaving, chain.coupling,
                chain.rows, self.means[m], self.covariances[m],
            )  # fmt: skip
            if solved:
                return
            self.fallbacks += 1
        self.means[m], self.covariances[m] = 0.0, _prior_covariances(self.model.prior)

    def _choose_wide(self, s: Statistics) -> Mask:
        """(strips,) those that see, within the narrow halo, a hole in the data, or hardly any data."""
        with_data = s.weights[..., 0, 0] > 0.0
        narrow = np.zeros_like(self.stale)
        beside_hole = self._seeing(np.flatnonzero(find_holes(with_data).any(axis=0)), narrow)
        filled = np.concatenate([[0], np.cumsum(with_data.sum(0))])
        first, last = self._columns(narrow)
        first, last = np.clip(first, 0, self.x.count), np.clip(last + 1, 0, self.x.count)
        room = np.maximum(last - first, 1) * self.y.count
        return np.asarray(beside_hole | (filled[last] - filled[first] < _SPARSE * room), dtype=bool)

    def _seeing(self, columns: np.ndarray[Any, np.dtype[np.intp]], wide: Mask) -> Mask:
        """(strips,) those whose blocks include one of the given columns of blocks.

        wide: (strips,) whether to count the blocks of the wide halo
        """
        left, right = self._columns(wide)
        return np.asarray(
            np.searchsorted(columns, left) < np.searchsorted(columns, right, side="right"), dtype=bool
        )

    def _columns(self, wide: Mask) -> tuple[Any, Any]:
        """(strips,), (strips,) first and last column of blocks whose coefficients all lie in the strip."""
        narrow = self.model.narrow
        halo = np.where(wide, (self.model.wide or narrow).halo, narrow.halo)
        left = (np.arange(self.stale.size) + self._first_strip) * self.model.core - self.x.first - halo
        return left, left + self.model.core + 2 * halo - ORDER

    def _strip_of(self, block: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[Any, Any]:
        """Strip that answers for each column of blocks, and the column of its first coefficient there."""
        strip, column = np.divmod(block + self.x.first, self.model.core)
        return strip - self._first_strip, column

    def take(self, coefficients: Array) -> None:
        """Use these coefficients (K, J + 2, I + 2) of the window as means."""
        columns = np.arange(self.model.core + DEGREE) - self.x.first
        for m in range(self.stale.size):
            at = np.clip(columns + (m + self._first_strip) * self.model.core, 0, coefficients.shape[2] - 1)
            self.means[m] = coefficients[:, :, at]
        self._undrawn[:] = True

    @property
    def unresolved_variance(self) -> Array:
        """(ny, nx) variance of the height, at the cells, of what the splines lack and the data have not taught."""
        height: Array = self._unresolved[0]
        return np.maximum(height[np.ix_(self._cells_y[0], self._cells_x[0])], 0.0)

    def draw_cells(self) -> None:
        """Bring the layers up to date with the coefficients."""
        strips = np.flatnonzero(self._undrawn)
        if not strips.size:
            return
        cells = np.flatnonzero(self._undrawn[self._cell_strips[0]])
        if cells.size:
            first, last = int(cells[0]), int(cells[-1]) + 1
            parts = np.linspace(first, last, self.workers.count + 1).astype(int)
            self.workers.run(
                at_cells,
                [
                    (*self._cells_y, *self._cells_x, *self._cell_strips, a, b, self.means, self.covariances,
                     self._unresolved, self._mean_layers, self._variance_layers)
                    for a, b in itertools.pairwise(parts)
                ],
            )  # fmt: skip
        self._undrawn[:] = False


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
