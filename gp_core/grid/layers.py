"""From modes to cells: the modes at every row and column of cells, and the products that use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numba import njit

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid.axes import Axis
from gp_core.grid.interpolation import slopes, weights
from gp_core.grid.mean_tiles import MeanField
from gp_core.grid.prior import Prior
from gp_core.grid.products import copy_columns, multiply
from gp_core.grid.statistics import Mask
from gp_core.grid.tiles import TileAxis, pair_products
from gp_core.grid.variance_tiles import VarianceField
from gp_core.grid.workers import Workers


@dataclass(frozen=True)
class Line:
    """Rows (or columns) of cells against the tiles of one model.

    starts: (tiles + 1,) first cell of each tile
    values, slopes: (cells, r_1) of the modes of the tile that the cell is in
    """

    starts: np.ndarray[Any, np.dtype[np.int64]]
    values: Array = field(repr=False)
    slopes: Array = field(repr=False)

    @staticmethod
    def of(cells: Array, axis: Axis, tile: TileAxis, first_tile: int, tiles: int) -> Line:
        """cells: (n,) coordinates of the centres, growing."""
        block, t = axis.locate(cells)
        block = np.clip(block, 0, axis.count - 1)
        number = (block + axis.first) // tile.core - first_tile
        inside = block + axis.first - (number + first_tile) * tile.core + tile.halo
        starts = np.searchsorted(number, np.arange(tiles + 1))
        return Line(starts, tile.values(inside, t), tile.slopes(inside, t))


class MeanLayers:
    """Mean and gradient of every right-hand side, from the tiles of a `MeanField`."""

    def __init__(self, tiles: MeanField, cell_y: Array, cell_x: Array) -> None:
        t = tiles.tiling
        self.tiles = tiles
        self.y = Line.of(cell_y, t.y, tiles.model.y, t.first_y, t.shape[0])
        self.x = Line.of(cell_x, t.x, tiles.model.x, t.first_x, t.shape[1])
        # values and slopes beside each other, as the loop multiplies them
        self._across = np.ascontiguousarray(self.x.values.T), np.ascontiguousarray(self.x.slopes.T)
        self.layers = np.zeros((tiles.eta.shape[2], 3, cell_y.size, cell_x.size))

    def draw(self, tiles: Mask, workers: Workers) -> None:
        """Write the cells of the given tiles: (K, 3, ny, nx) value, d/dx, d/dy."""
        y, x = self.y, self.x
        workers.run(
            _mean_cells,
            [
                (
                    columns,
                    y.starts[j : j + 2],
                    x.starts,
                    y.values,
                    y.slopes,
                    *self._across,
                    self.tiles.eta[j],
                    self.layers,
                )
                for j, columns in self.tiles.rows(tiles)
            ],
        )


class VarianceLayers:
    """Variance of value and gradient, from the tiles of a `VarianceField`.

    A tile's modes leave out part of what the splines carry, and the splines leave out part of the prior.
    Neither is learned from the data, so both are added in full: `rest`.
    """

    def __init__(self, tiles: VarianceField, prior: Prior, cell_y: Array, cell_x: Array) -> None:
        t = tiles.tiling
        self.tiles = tiles
        self.y = Line.of(cell_y, t.y, tiles.model.y, t.first_y, t.shape[0])
        self.x = Line.of(cell_x, t.x, tiles.model.x, t.first_x, t.shape[1])
        y_pairs = [pair_products(self.y.values), pair_products(self.y.slopes)]
        x_pairs = [pair_products(self.x.values), pair_products(self.x.slopes)]
        t_y, t_x = t.y.locate(cell_y)[1], t.x.locate(cell_x)[1]
        y_splines = [weights(t_y), slopes(t_y, t.y.spacing)]
        x_splines = [weights(t_x), slopes(t_x, t.x.spacing)]
        self.rest = np.empty((3, cell_y.size, cell_x.size))
        for k, (i_y, i_x) in enumerate(((0, 0), (0, 1), (1, 0))):
            kept = y_pairs[i_y] @ tiles.prior_pairs @ x_pairs[i_x].T
            self.rest[k] = prior.carried(x_splines[i_x], y_splines[i_y]) - kept
        self.rest += np.concatenate([[prior.unresolved], prior.unresolved_gradient])[:, None, None]
        self._y = [np.ascontiguousarray(p, dtype=np.float32) for p in y_pairs]
        self._x = [np.ascontiguousarray(p.T, dtype=np.float32) for p in x_pairs]
        self.prior = prior_variances(prior)
        self.layers = np.empty((3, cell_y.size, cell_x.size))
        self.layers[:] = self.prior[:, None, None]

    def draw(self, tiles: Mask, workers: Workers) -> None:
        """Write the cells of the given tiles: (3, ny, nx) variance of value, d/dx, d/dy."""
        y, x = self.y, self.x
        for j, columns in self.tiles.rows(tiles & self.tiles.empty):
            for i in columns:
                cells = np.s_[:, y.starts[j] : y.starts[j + 1], x.starts[i] : x.starts[i + 1]]
                self.layers[cells] = self.prior[:, None, None]
        workers.run(
            _variance_cells,
            [
                (
                    columns,
                    y.starts[j : j + 2],
                    x.starts,
                    *self._y,
                    *self._x,
                    self.tiles.pairs[j],
                    self.rest,
                    RESOLUTION * self.prior,
                    self.layers,
                )
                for j, columns in self.tiles.rows(tiles & ~self.tiles.empty)
            ],
        )


def prior_variances(prior: Prior) -> Array:
    """(3,) of value, d/dx and d/dy."""
    return np.concatenate([[prior.variance], prior.gradient_variance])


def mean_at(tiles: MeanField, x: Array, y: Array) -> Array:
    """(K, 3, N) value, d/dx and d/dy at points; 0 where no tile reaches."""
    out = np.zeros((tiles.eta.shape[2], 3, x.size))
    number_y, block_y, t_y, reach_y = _nearest(
        y, tiles.tiling.y, tiles.model.y, tiles.tiling.first_y, tiles.tiling.shape[0]
    )
    number_x, block_x, t_x, reach_x = _nearest(
        x, tiles.tiling.x, tiles.model.x, tiles.tiling.first_x, tiles.tiling.shape[1]
    )
    at = np.flatnonzero(reach_y & reach_x)
    for k in np.array_split(at, max(1, at.size // _POINTS)):
        f_y, d_y = tiles.model.y.values(block_y[k], t_y[k]), tiles.model.y.slopes(block_y[k], t_y[k])
        f_x, d_x = tiles.model.x.values(block_x[k], t_x[k]), tiles.model.x.slopes(block_x[k], t_x[k])
        _mean_points(number_y[k], number_x[k], f_y, d_y, f_x, d_x, tiles.eta, k, out)
    return out


def variance_at(tiles: VarianceField, prior: Prior, x: Array, y: Array) -> Array:
    """(3, N) variance of value, d/dx and d/dy at points; the prior's where no tile reaches."""
    out = np.empty((3, x.size))
    out[:] = prior_variances(prior)[:, None]
    number_y, block_y, t_y, reach_y = _nearest(
        y, tiles.tiling.y, tiles.model.y, tiles.tiling.first_y, tiles.tiling.shape[0]
    )
    number_x, block_x, t_x, reach_x = _nearest(
        x, tiles.tiling.x, tiles.model.x, tiles.tiling.first_x, tiles.tiling.shape[1]
    )
    at = np.flatnonzero(reach_y & reach_x)
    at = at[~tiles.empty[number_y[at], number_x[at]]]
    unresolved = np.concatenate([[prior.unresolved], prior.unresolved_gradient])
    for k in np.array_split(at, max(1, at.size // _POINTS)):
        y_splines = [weights(t_y[k]), slopes(t_y[k], tiles.tiling.y.spacing)]
        x_splines = [weights(t_x[k]), slopes(t_x[k], tiles.tiling.x.spacing)]
        y_pairs = [pair_products(f(block_y[k], t_y[k])) for f in (tiles.model.y.values, tiles.model.y.slopes)]
        x_pairs = [pair_products(f(block_x[k], t_x[k])) for f in (tiles.model.x.values, tiles.model.x.slopes)]
        for m, (i_y, i_x) in enumerate(((0, 0), (0, 1), (1, 0))):
            kept = ((y_pairs[i_y] @ tiles.prior_pairs) * x_pairs[i_x]).sum(1)
            out[m, k] = prior.carried_at(x_splines[i_x], y_splines[i_y]) - kept + unresolved[m]
        _variance_points(
            number_y[k], number_x[k], y_pairs[0], y_pairs[1], x_pairs[0], x_pairs[1], tiles.pairs, k, out
        )
        out[:, k] = np.maximum(out[:, k], RESOLUTION * prior_variances(prior)[:, None])
    return out


RESOLUTION: Final = 1e-8
"""Share of the prior variance that float32 can tell from none; smaller variances are raised to it."""
_POINTS: Final = 4096
"""Points whose tables are held at a time."""


def _nearest(at: Array, axis: Axis, tile: TileAxis, first: int, tiles: int) -> tuple[Any, Any, Array, Any]:
    """Tile nearest to each coordinate, block in its domain, position in the block, whether it is inside."""
    block, t = axis.locate(at)
    number = np.clip((block + axis.first) // tile.core - first, 0, tiles - 1)
    inside = block + axis.first - (number + first) * tile.core + tile.halo
    reached = (inside >= 0) & (inside < tile.blocks)
    return number, np.clip(inside, 0, tile.blocks - 1), t, reached


@njit(inline="always")
def _value_and_slopes(F, f_y, d_y, f_x, d_x):  # type: ignore[no-untyped-def]
    """sum over a, b of F_ab f_a(y) f_b(x) at one place, and its derivatives along x and y."""
    value = 0.0
    along_x = 0.0
    along_y = 0.0
    for a in range(F.shape[0]):
        row = 0.0
        slope = 0.0
        for b in range(F.shape[1]):
            row += F[a, b] * f_x[b]
            slope += F[a, b] * d_x[b]
        value += f_y[a] * row
        along_x += f_y[a] * slope
        along_y += d_y[a] * row
    return value, along_x, along_y


@compiled()
def _mean_points(number_y, number_x, f_y, d_y, f_x, d_x, eta, at, out):  # type: ignore[no-untyped-def]
    for n in range(at.size):
        for k in range(out.shape[0]):
            F = eta[number_y[n], number_x[n], k]
            value, along_x, along_y = _value_and_slopes(F, f_y[n], d_y[n], f_x[n], d_x[n])
            out[k, 0, at[n]] = value
            out[k, 1, at[n]] = along_x
            out[k, 2, at[n]] = along_y


@compiled()
def _variance_points(number_y, number_x, f_y, d_y, f_x, d_x, pairs, at, out):  # type: ignore[no-untyped-def]
    for n in range(at.size):
        F = pairs[number_y[n], number_x[n]]
        value, along_x, along_y = _value_and_slopes(F, f_y[n], d_y[n], f_x[n], d_x[n])
        out[0, at[n]] += value
        out[1, at[n]] += along_x
        out[2, at[n]] += along_y


@compiled()
def _mean_cells(columns, y_range, x_starts, y_values, y_slopes, x_values, x_slopes, eta, layers):  # type: ignore[no-untyped-def]
    """value, d/dx and d/dy of sum over a, b of eta_ab e_a(y) e_b(x) at the cells of one row of tiles.

    y_values, y_slopes: (cells, r_y); x_values, x_slopes: (r_x, cells)
    """
    low, high = y_range[0], y_range[1]
    for n in range(columns.size):
        i = columns[n]
        left, right = x_starts[i], x_starts[i + 1]
        if left == right or low == high:
            continue
        X = np.empty((x_values.shape[0], right - left), dtype=np.float64)
        S = np.empty((x_values.shape[0], right - left), dtype=np.float64)
        copy_columns(x_values, left, X)
        copy_columns(x_slopes, left, S)
        along_y = np.empty((high - low, X.shape[0]), dtype=np.float64)
        cells = np.empty((high - low, right - left), dtype=np.float64)
        for k in range(eta.shape[1]):
            for m in range(3):  # value, d/dx, d/dy
                if m != 1:
                    multiply((y_slopes if m == 2 else y_values)[low:high], eta[i, k], along_y)
                multiply(along_y, S if m == 1 else X, cells)
                out = layers[k, m]
                for j in range(high - low):
                    for a in range(right - left):
                        out[low + j, left + a] = cells[j, a]


@compiled()
def _variance_cells(  # type: ignore[no-untyped-def]
    columns, y_range, x_starts, y_values, y_slopes, x_values, x_slopes, pairs, rest, floor, layers
):
    """Variances of value, d/dx and d/dy at the cells of one row of tiles."""
    low, high = y_range[0], y_range[1]
    for n in range(columns.size):
        i = columns[n]
        left, right = x_starts[i], x_starts[i + 1]
        if left == right or low == high:
            continue
        X = np.empty((x_values.shape[0], right - left), dtype=np.float32)
        S = np.empty((x_values.shape[0], right - left), dtype=np.float32)
        copy_columns(x_values, left, X)
        copy_columns(x_slopes, left, S)
        along_y = np.empty((high - low, X.shape[0]), dtype=np.float32)
        cells = np.empty((high - low, right - left), dtype=np.float32)
        for k in range(3):  # value, d/dx, d/dy
            if k != 1:
                multiply((y_slopes if k == 2 else y_values)[low:high], pairs[i], along_y)
            multiply(along_y, S if k == 1 else X, cells)
            least = floor[k]
            known, out = rest[k], layers[k]
            for j in range(high - low):
                for m in range(right - left):
                    out[low + j, left + m] = max(cells[j, m] + known[low + j, left + m], least)
