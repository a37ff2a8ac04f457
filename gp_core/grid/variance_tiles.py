"""Posterior covariances of the modes of every tile, from the moments of its domain."""

from __future__ import annotations

from typing import Any

import numpy as np

from gp_core.compiled import compiled
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
from gp_core.grid.symmetric import factorise, invert, padded
from gp_core.grid.tiles import WEIGHT_MOMENTS, Integers, TileModel
from gp_core.grid.tiling import Images, TileField


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
        model, y, x = self.model, self.model.y.tables.along_y, self.model.x.tables.along_x
        row = self.domain(j, 0)[0] - images.first_y
        starts = (columns - columns[0]).astype(np.int64) * model.x.core
        first = self.domain(0, int(columns[0]))[1] - images.first_x
        pairs = np.zeros((columns.size, self.prior_pairs.size), dtype=np.float32)
        solved = attempt(
            _variance_row,
            images.weights, row, first, starts, model.x.blocks, *y, *x, model.pair, model.single_precision, pairs,
        )  # fmt: skip
        if solved:
            self.pairs[j, columns] = pairs.reshape(-1, *self.prior_pairs.shape)
        return solved

    def _solve_safely(self, j: int, i: int, images: Images, statistics: Statistics, gain: float) -> None:
        P = normal_matrix(self.model, domain_weights(self, j, i, statistics, gain))
        out = np.zeros(self.prior_pairs.size)
        np.add.at(out, self.model.pair.ravel(), safe_inverse(P).ravel())
        self.pairs[j, i] = out.reshape(self.prior_pairs.shape)


@compiled()
def _variance_row(  # type: ignore[no-untyped-def]
    weights, row, first, starts, blocks_x, reduce_y, even_y, odd_y, reduce_x, even_x, odd_x,
    pair, precision, pairs,
):  # fmt: skip
    """Posterior covariances of the modes of tiles of one row, summed into pairs (T, p_y p_x); NaN on failure."""
    r = pair.shape[0]
    B = reduced_rows(weights, reduce_y, row, first, starts[-1] + blocks_x)
    size = padded(r)
    P = np.empty((r, size), dtype=np.float32)
    P[:] = np.float32(0.0)
    room = np.empty((r, size), dtype=np.float32)
    covariance = np.empty((r, size), dtype=np.float32)
    products = np.empty(
        (even_y.shape[0] + odd_y.shape[0], even_x.shape[1] + odd_x.shape[1]), dtype=np.float32
    )
    for k in range(starts.size):
        fill_normal_matrix(
            B, starts[k] * WEIGHT_MOMENTS, reduce_x, even_y, odd_y, even_x, odd_x, pair, precision, products, P,
        )  # fmt: skip
        out = pairs[k]
        if not factorise(P):
            out[:] = np.nan
            continue
        invert(P, room, covariance)
        for i in range(r):
            out[pair[i, i]] += covariance[i, i]
            for j in range(i):
                out[pair[i, j]] += covariance[i, j] + covariance[i, j]
