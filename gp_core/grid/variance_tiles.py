"""Posterior covariances of the modes of every tile, from the moments of its domain."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from gp_core.grid.axes import Axis
from gp_core.grid.normal_matrix import (
    attempt,
    domain_weights,
    fill_normal_matrix,
    normal_matrix,
    reduced_rows,
    safe_inverse,
)
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.tiles import WEIGHT_MOMENTS, Integers, TileModel
from gp_core.grid.tiling import Images, TileField

_BLOCK: Final = 32
"""Rows at a time in the triangular inverse."""


class VarianceField(TileField):
    """Posterior covariances of the modes, summed into pairs (tiles_y, tiles_x, p_y, p_x), float32."""

    def __init__(self, model: TileModel, y: Axis, x: Axis) -> None:
        super().__init__(model, y, x)
        self.prior_pairs = model.pair_covariance()
        self.pairs = np.empty((*self.tiling.shape, *self.prior_pairs.shape), dtype=np.float32)
        self.pairs[:] = self.prior_pairs

    def _results(self) -> list[Any]:
        return [self.pairs]

    def _forget(self, tiles: Mask) -> None:
        self.pairs[tiles] = self.prior_pairs

    def _attempt(self, j: int, columns: Integers, images: Images) -> bool:
        model, y, x = self.model, self.model.y.tables, self.model.x.tables
        row = self.domain(j, 0)[0] - images.first_y
        starts = (columns - columns[0]).astype(np.int64) * model.x.core
        first = self.domain(0, int(columns[0]))[1] - images.first_x
        pairs = np.zeros((columns.size, self.prior_pairs.size), dtype=np.float32)
        solved = attempt(
            _variance_row,
            images.weights, row, first, starts, model.y.blocks, model.x.blocks,
            y.reduce, y.expand, x.reduce, x.expand, model.pair, model.single_precision, pairs,
        )  # fmt: skip
        if solved:
            self.pairs[j, columns] = pairs.reshape(-1, *self.prior_pairs.shape)
        return solved

    def _solve_safely(self, j: int, i: int, images: Images, statistics: Statistics, gain: float) -> None:
        P = normal_matrix(self.model, domain_weights(self, j, i, statistics, gain))
        out = np.zeros(self.prior_pairs.size)
        np.add.at(out, self.model.pair.ravel(), safe_inverse(P).ravel())
        self.pairs[j, i] = out.reshape(self.prior_pairs.shape)


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
def _variance_row(  # type: ignore[no-untyped-def]
    weights, row, first, starts, blocks_y, blocks_x,
    reduce_y, expand_y, reduce_x, expand_x, pair, precision, pairs,
):  # fmt: skip
    """Posterior covariances of the modes of tiles in one row of tiles, summed into pairs (T, p_y p_x)."""
    r = pair.shape[0]
    B = reduced_rows(weights, reduce_y, row, blocks_y, first, starts[-1] + blocks_x)
    P = np.zeros((r, r), dtype=weights.dtype)
    half = r // 2
    for k in range(starts.size):
        fill_normal_matrix(
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
