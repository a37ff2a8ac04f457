"""Mean and variance at cells and points from the modes of the tiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid.axes import Axis
from gp_core.grid.interpolation import slopes, weights
from gp_core.grid.mean_tiles import MeanField
from gp_core.grid.products import copy_columns, multiply
from gp_core.grid.statistics import Mask
from gp_core.grid.tile_prior import TilePrior
from gp_core.grid.tiles import TileAxis, pair_products
from gp_core.grid.tiling import TileField
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


class CellTables(NamedTuple):
    """Modes, or products of modes, at the cells, for the compiled loops.

    y_range: (2,) first cell of a row of tiles and of the next one; x_starts: (tiles + 1,) first cell of each tile
    y_values, y_slopes: (cells, n_y); x_values, x_slopes: (n_x, cells)
    """

    y_range: Any
    x_starts: Any
    y_values: Any
    y_slopes: Any
    x_values: Any
    x_slopes: Any


class PointTables(NamedTuple):
    """Tiles (N,) of points and the modes, or products of modes, there (N, n): values f and slopes d.

    at: (N,) number of each point in the result
    """

    at: Any
    number_y: Any
    number_x: Any
    f_y: Array
    d_y: Array
    f_x: Array
    d_x: Array


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
                    CellTables(y.starts[j : j + 2], x.starts, y.values, y.slopes, *self._across),
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

    def __init__(self, tiles: VarianceField, prior: TilePrior, cell_y: Array, cell_x: Array) -> None:
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
            self.rest[k] = prior.resolved_variance(x_splines[i_x], y_splines[i_y]) - kept
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
                    CellTables(y.starts[j : j + 2], x.starts, *self._y, *self._x),
                    self.tiles.pairs[j],
                    self.rest,
                    RESOLUTION * self.prior,
                    self.layers,
                )
                for j, columns in self.tiles.rows(tiles & ~self.tiles.empty)
            ],
        )


def prior_variances(prior: TilePrior) -> Array:
    """(3,) of value, d/dx and d/dy."""
    return np.concatenate([[prior.variance], prior.gradient_variance])


def mean_at(tiles: MeanField, x: Array, y: Array) -> Array:
    """(K, 3, N) value, d/dx and d/dy at points; 0 where no tile reaches."""
    out = np.zeros((tiles.eta.shape[2], 3, x.size))
    along_y, along_x, at = _nearest_tiles(tiles, x, y)
    model_y, model_x = tiles.model.y, tiles.model.x
    for k in np.array_split(at, max(1, at.size // _POINTS)):
        in_y, in_x = (along_y.block[k], along_y.t[k]), (along_x.block[k], along_x.t[k])
        modes = model_y.values(*in_y), model_y.slopes(*in_y), model_x.values(*in_x), model_x.slopes(*in_x)
        _mean_points(PointTables(k, along_y.tile[k], along_x.tile[k], *modes), tiles.eta, out)
    return out


def variance_at(tiles: VarianceField, prior: TilePrior, x: Array, y: Array) -> Array:
    """(3, N) variance of value, d/dx and d/dy at points; the prior's where no tile reaches."""
    out = np.empty((3, x.size))
    out[:] = prior_variances(prior)[:, None]
    along_y, along_x, at = _nearest_tiles(tiles, x, y)
    at = at[~tiles.empty[along_y.tile[at], along_x.tile[at]]]
    model_y, model_x = tiles.model.y, tiles.model.x
    unresolved = np.concatenate([[prior.unresolved], prior.unresolved_gradient])
    for k in np.array_split(at, max(1, at.size // _POINTS)):
        in_y, in_x = (along_y.block[k], along_y.t[k]), (along_x.block[k], along_x.t[k])
        y_splines = [weights(in_y[1]), slopes(in_y[1], tiles.tiling.y.spacing)]
        x_splines = [weights(in_x[1]), slopes(in_x[1], tiles.tiling.x.spacing)]
        y_pairs = [pair_products(f(*in_y)) for f in (model_y.values, model_y.slopes)]
        x_pairs = [pair_products(f(*in_x)) for f in (model_x.values, model_x.slopes)]
        for m, (i_y, i_x) in enumerate(((0, 0), (0, 1), (1, 0))):
            kept = ((y_pairs[i_y] @ tiles.prior_pairs) * x_pairs[i_x]).sum(1)
            out[m, k] = prior.resolved_variance_at(x_splines[i_x], y_splines[i_y]) - kept + unresolved[m]
        _variance_points(
            PointTables(k, along_y.tile[k], along_x.tile[k], *y_pairs, *x_pairs), tiles.pairs, out
        )
        out[:, k] = np.maximum(out[:, k], RESOLUTION * prior_variances(prior)[:, None])
    return out


RESOLUTION: Final = 1e-8
"""Share of the prior variance that float32 can tell from none; smaller variances are raised to it."""
_POINTS: Final = 4096
"""Points whose tables are held at a time."""


class _Nearest(NamedTuple):
    """Tile nearest to each coordinate (N,), block in its domain, position in the block, whether it is inside."""

    tile: Any
    block: Any
    t: Array
    inside: Any


def _nearest_tiles(tiles: TileField, x: Array, y: Array) -> tuple[_Nearest, _Nearest, Any]:
    """The tiles nearest to points along y and along x, and the numbers of the points that lie in their domains."""
    t = tiles.tiling
    along_y = _nearest(y, t.y, tiles.model.y, t.first_y, t.shape[0])
    along_x = _nearest(x, t.x, tiles.model.x, t.first_x, t.shape[1])
    return along_y, along_x, np.flatnonzero(along_y.inside & along_x.inside)


def _nearest(at: Array, axis: Axis, tile: TileAxis, first: int, tiles: int) -> _Nearest:
    block, t = axis.locate(at)
    number = np.clip((block + axis.first) // tile.core - first, 0, tiles - 1)
    inside = block + axis.first - (number + first) * tile.core + tile.halo
    reached = (inside >= 0) & (inside < tile.blocks)
    return _Nearest(number, np.clip(inside, 0, tile.blocks - 1), t, reached)


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
def _mean_points(points, eta, out):  # type: ignore[no-untyped-def]
    at, number_y, number_x, f_y, d_y, f_x, d_x = points
    for n in range(at.size):
        for k in range(out.shape[0]):
            F = eta[number_y[n], number_x[n], k]
            value, along_x, along_y = _value_and_slopes(F, f_y[n], d_y[n], f_x[n], d_x[n])
            out[k, 0, at[n]] = value
            out[k, 1, at[n]] = along_x
            out[k, 2, at[n]] = along_y


@compiled()
def _variance_points(points, pairs, out):  # type: ignore[no-untyped-def]
    at, number_y, number_x, f_y, d_y, f_x, d_x = points
    for n in range(at.size):
        F = pairs[number_y[n], number_x[n]]
        value, along_x, along_y = _value_and_slopes(F, f_y[n], d_y[n], f_x[n], d_x[n])
        out[0, at[n]] += value
        out[1, at[n]] += along_x
        out[2, at[n]] += along_y


@njit(inline="always")
def _multiply_modes(tables, low, high, m, F, X, S, along_y, cells):  # type: ignore[no-untyped-def]
    """cells = E_y F E_x' for the value (m = 0), d/dx (1) and d/dy (2), in this order: d/dx uses the product of 0.

    X, S: values and slopes along x of the cells of a tile; along_y: room for the product with E_y
    """
    if m != 1:
        multiply((tables.y_slopes if m == 2 else tables.y_values)[low:high], F, along_y)
    multiply(along_y, S if m == 1 else X, cells)


@compiled()
def _mean_cells(columns, tables, eta, layers):  # type: ignore[no-untyped-def]
    """value, d/dx and d/dy of sum over a, b of eta_ab e_a(y) e_b(x) at the cells of one row of tiles."""
    low, high = tables.y_range[0], tables.y_range[1]
    n_x = tables.x_values.shape[0]
    for n in range(columns.size):
        i = columns[n]
        left, right = tables.x_starts[i], tables.x_starts[i + 1]
        if left == right or low == high:
            continue
        X = np.empty((n_x, right - left), dtype=np.float64)
        S = np.empty((n_x, right - left), dtype=np.float64)
        copy_columns(tables.x_values, left, X)
        copy_columns(tables.x_slopes, left, S)
        along_y = np.empty((high - low, n_x), dtype=np.float64)
        cells = np.empty((high - low, right - left), dtype=np.float64)
        for k in range(eta.shape[1]):
            for m in range(3):
                _multiply_modes(tables, low, high, m, eta[i, k], X, S, along_y, cells)
                out = layers[k, m]
                for j in range(high - low):
                    for a in range(right - left):
                        out[low + j, left + a] = cells[j, a]


@compiled()
def _variance_cells(columns, tables, pairs, rest, floor, layers):  # type: ignore[no-untyped-def]
    """Variances of value, d/dx and d/dy at the cells of one row of tiles."""
    low, high = tables.y_range[0], tables.y_range[1]
    n_x = tables.x_values.shape[0]
    for n in range(columns.size):
        i = columns[n]
        left, right = tables.x_starts[i], tables.x_starts[i + 1]
        if left == right or low == high:
            continue
        X = np.empty((n_x, right - left), dtype=np.float32)
        S = np.empty((n_x, right - left), dtype=np.float32)
        copy_columns(tables.x_values, left, X)
        copy_columns(tables.x_slopes, left, S)
        along_y = np.empty((high - low, n_x), dtype=np.float32)
        cells = np.empty((high - low, right - left), dtype=np.float32)
        for m in range(3):
            _multiply_modes(tables, low, high, m, pairs[i], X, S, along_y, cells)
            lowest = floor[m]
            known, out = rest[m], layers[m]
            for j in range(high - low):
                for a in range(right - left):
                    out[low + j, left + a] = max(cells[j, a] + known[low + j, left + a], lowest)
