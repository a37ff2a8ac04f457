"""Posterior covariances of the modes of every tile, from the moments of its domain."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gp_core.compiled import compiled
from gp_core.grid.axes import Axis
from gp_core.grid.normal_matrix import (
    attempt,
    domain_weights,
    fill_normal_matrix,
    normal_matrix,
    reduce_rows,
    room_for_products,
    safe_inverse,
)
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.symmetric import factorise_measured, invert, padded
from gp_core.grid.tiles import WEIGHT_MOMENTS, Integers, TileModel
from gp_core.grid.tiling import Images, TileField

_MOST_CANCELLED: Final = 1e3
"""Precision of a mode over that given the modes before it, up to which float32 holds a tile: beyond it, variances in
holes are off by more than a twentieth, though the factorisation succeeds."""


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

    def _attempt(self, j: int, columns: Integers, images: Images) -> Mask:
        pairs = np.zeros((columns.size, self.prior_pairs.size), dtype=np.float32)
        place = self.row_in(images, j, columns)
        solved = attempt(_variance_row, images.weights, place, self.model.normal_tables, pairs)
        self.pairs[j, columns[solved]] = pairs[solved].reshape(-1, *self.prior_pairs.shape)
        return solved

    def _solve_safely(self, j: int, i: int, images: Images, statistics: Statistics, gain: float) -> None:
        P = normal_matrix(self.model, domain_weights(self, j, i, statistics, gain))
        out = np.bincount(self.model.pair.ravel(), safe_inverse(P).ravel(), minlength=self.prior_pairs.size)
        self.pairs[j, i] = out.reshape(self.prior_pairs.shape)


@compiled(fastmath={"contract"})  # as `invert`, which becomes part of it
def _variance_row(weights, place, tables, pairs):  # type: ignore[no-untyped-def]
    """Posterior covariances of the modes of a `TileRow`, summed into pairs (T, p_y p_x); NaN on failure."""
    pair = tables.pair
    r = pair.shape[0]
    B = reduce_rows(weights, tables.y.reduce, place)
    size = padded(r)
    P = np.empty((r, size), dtype=np.float32)
    P[:] = np.float32(0.0)
    room = np.empty((r, size), dtype=np.float32)
    covariance = np.empty((r, size), dtype=np.float32)
    products = room_for_products(tables)
    diagonal = np.empty(r, dtype=np.float32)
    for k in range(place.starts.size):
        fill_normal_matrix(B, place.starts[k] * WEIGHT_MOMENTS, tables, products, P)
        out = pairs[k]
        if not factorise_measured(P, diagonal)[1] <= _MOST_CANCELLED:
            out[:] = np.nan
            continue
        invert(P, room, covariance)
        for i in range(r):
            out[pair[i, i]] += covariance[i, i]
            for j in range(i):
                out[pair[i, j]] += covariance[i, j] + covariance[i, j]
