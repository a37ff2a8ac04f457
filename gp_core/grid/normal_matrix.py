"""P = C_0^-1 + A of a tile: fast in float32 for the compiled loops, safe in float64 where those fail."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy.linalg import cho_solve

from gp_core import blas
from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid.products import copy_columns, multiply
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.symmetric import LANES
from gp_core.grid.tiles import HEIGHT_MOMENTS, SAFE_ORDER, WEIGHT_MOMENTS, TileModel
from gp_core.grid.tiling import TileField


def attempt(function: Any, *arguments: Any) -> Mask:
    """Run a compiled loop; for each row of its last argument, whether all numbers in it are finite."""
    function(*arguments)
    out = arguments[-1]
    finite: Mask = np.isfinite(out.reshape(len(out), -1)).all(axis=1)
    return finite


def domain_weights(tile: TileField, j: int, i: int, statistics: Statistics, gain: float) -> Array:
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
    P = information(model, weights)
    if model.single_precision.size:
        P += model.precision
    else:
        P[np.diag_indices(len(P))] += 1.0
    return P


def information(model: TileModel, weights: Array) -> Array:
    """A (r, r) in float64 from the moments (7 J, 7 I) of a domain; what lies beyond the data costs nothing."""
    rows, columns = (_extent(np.asarray(weights.any(axis=axis))) for axis in (1, 0))
    products: Array = model.y.safe_pairs[:, rows] @ weights[rows, columns] @ model.x.safe_pairs[:, columns].T
    by_mode: Array = np.take(products, model.pair)
    return by_mode


def _extent(used: Mask) -> slice:
    """From the first to the last that is used."""
    at = np.flatnonzero(used)
    return slice(int(at[0]), int(at[-1]) + 1) if at.size else slice(0, 0)


def first_moments(heights: Array) -> Array:
    """(4 J, 4 I) the low moments out of an image (6 J, 6 I)."""
    n_y, n_x = (n // HEIGHT_MOMENTS for n in heights.shape)
    blocks = heights.reshape(n_y, HEIGHT_MOMENTS, n_x, HEIGHT_MOMENTS)[:, :SAFE_ORDER, :, :SAFE_ORDER]
    return blocks.reshape(n_y * SAFE_ORDER, n_x * SAFE_ORDER)


def safe_inverse(P: Array) -> Array:
    """P^-1 in float64 by Cholesky; where round-off made P indefinite, by eigenvalues raised to its level."""
    L = np.array(P.T, order="F")
    if blas.factorise(L) == 0:
        blas.invert_triangle(L)
        blas.multiply_triangle(L)
        inverse = np.tril(L) + np.tril(L, -1).T
        if np.isfinite(inverse).all():
            return np.asarray(inverse)
    # P is graded by what the data say of each mode: eigenvalues, unlike the factor, depend on the scale of its rows.
    scale = np.sqrt(np.abs(np.diagonal(P)))
    value, vector = np.linalg.eigh(P / scale / scale[:, None])
    value = np.maximum(value, 1e-13 * value[-1])
    half = vector / np.sqrt(value) / scale[:, None]
    return np.asarray(half @ half.T)


def safe_solve(P: Array, b: Array) -> Array:
    """P^-1 b for b (r, K), as `safe_inverse` has it: by the factor alone where there is one."""
    L = np.array(P.T, order="F")
    if blas.factorise(L) == 0:
        x: Array = cho_solve((L, True), b, check_finite=False)
        if np.isfinite(x).all():
            return x
    return np.asarray(safe_inverse(P) @ b)


@compiled()
def reduce_rows(weights, reduce_y, place):  # type: ignore[no-untyped-def]
    """V_y' M for a `TileRow`. reduce_y: V_y' (rho, 7 J)"""
    rows = np.empty((reduce_y.shape[1], place.span * WEIGHT_MOMENTS), dtype=np.float32)
    copy_columns(weights[place.row * WEIGHT_MOMENTS :], place.first * WEIGHT_MOMENTS, rows)
    B = np.empty((reduce_y.shape[0], rows.shape[1]), dtype=np.float32)
    multiply(reduce_y, rows, B)
    return B


@njit(inline="always")
def room_for_products(tables):  # type: ignore[no-untyped-def]
    """(p_y, p_x) for `fill_normal_matrix`."""
    y, x = tables.y, tables.x
    return np.empty((y.even.shape[0] + y.odd.shape[0], x.even.shape[1] + x.odd.shape[1]), dtype=np.float32)


@compiled()
def fill_normal_matrix(B, column, tables, products, P):  # type: ignore[no-untyped-def]
    """Upper triangle of P = C_0^-1 + A, as in symmetric.py, from B = V_y' M, whose columns start at the given one.

    tables: `NormalTables`
    products: (p_y, p_x) room for G_y M G_x'
    """
    reduce_x, even_x, odd_x = tables.x
    even_y, odd_y = tables.y.even, tables.y.odd
    pair, precision = tables.pair, tables.precision
    part = np.empty((B.shape[0], reduce_x.shape[0]), dtype=np.float32)
    copy_columns(B, column, part)
    C = np.empty((B.shape[0], reduce_x.shape[1]), dtype=np.float32)
    multiply(part, reduce_x, C)
    D = np.empty((C.shape[0], products.shape[1]), dtype=np.float32)
    for odd in range(2):
        along = odd_x if odd else even_x
        half = np.empty((C.shape[0], along.shape[0]), dtype=np.float32)
        copy_columns(C, even_x.shape[0] if odd else 0, half)
        mapped = np.empty((C.shape[0], along.shape[1]), dtype=np.float32)
        multiply(half, along, mapped)
        left = even_x.shape[1] if odd else 0
        for i in range(mapped.shape[0]):
            for j in range(mapped.shape[1]):
                D[i, left + j] = mapped[i, j]
    multiply(even_y, D[: even_y.shape[1]], products[: even_y.shape[0]])
    multiply(odd_y, D[even_y.shape[1] :], products[even_y.shape[0] :])
    flat = products.ravel()
    r = pair.shape[0]
    for i in range(r):
        left = i - i % LANES
        row, index = P[i, left:r], pair[i, left:]
        for j in range(index.size):
            row[j] = flat[index[j]]
        if precision.size == 0:
            row[i - left] += np.float32(1.0)
        else:
            prior = precision[i, left:]
            for j in range(index.size):
                row[j] += prior[j]
