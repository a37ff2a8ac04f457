"""Posterior means of the modes of every tile, from the moments of its domain.

A Cholesky factor of P is the larger part of the work, and from scan to scan P changes little. So the factor is
kept, and conjugate gradients with it as the preconditioner find the new mean: if information grew by a tenth
everywhere, each step takes the error down by forty. Their natural measure r' P^-1 r is the error's square in
posterior standard deviations, and bounds it at every cell: |phi' e| <= sd sqrt(e' P e). Where they need too many
steps, because the data changed too much, P is factorised anew.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from gp_core.compiled import compiled
from gp_core.grid.axes import Axis
from gp_core.grid.normal_matrix import (
    attempt,
    domain_weights,
    fill_normal_matrix,
    first_moments,
    normal_matrix,
    reduce_rows,
    room_for_products,
    safe_solve,
)
from gp_core.grid.products import copy_columns, multiply
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.symmetric import factorise_measured, pack, padded, product, solve
from gp_core.grid.tiles import HEIGHT_MOMENTS, WEIGHT_MOMENTS, Integers, Single, TileModel
from gp_core.grid.tiling import Images, Job, TileField

_ERROR: Final = 1e-4
"""Posterior standard deviations by which conjugate gradients may miss the mean of a tile, anywhere in it."""
_ROUND_OFF: Final = 1e-8
"""The same as a share of the mean's own size, where that is many deviations."""
_STEPS: Final = 10
"""Steps that cost about as much as a factorisation."""
_MOST_ROUNDING: Final = 1.5e4
"""Root of P_jj P_kk over that of the precision of mode k given those before it, up to which float32 holds a tile. Where
data leave a sum of modes open, as in a hole, what they say of it is a difference of such numbers, and the mean is off
by about 1e-5 times this many standard deviations: by 0.1 if relief is 250 times the noise, by one if it is 950."""
_FAILED: Final = 1e3
"""Multiple of the allowed error at which a new factor counts as failed."""


class _KeptFactors(NamedTuple):
    """The factors of the tiles of a row, for the compiled loops.

    columns: (T,) of the tiles to solve in slot and factored, which are those of the whole row
    slot, factors, factored: of the `MeanField`
    """

    columns: Integers
    slot: Integers
    factors: Single
    factored: Mask


class MeanField(TileField):
    """Posterior means of the modes: eta (tiles_y, tiles_x, K, r_y, r_x), one per right-hand side.

    factors: (slots, r (r + 1) / 2) float32, rows of the factors U, P = U' U, when it was last factorised;
        (slots, 0) if they are not to be kept
    slot: (tiles_y, tiles_x) row of `factors` that is a tile's, -1 for none yet: a window that moves need not copy them.
        A tile gets one when it is solved for the second time: many a map is solved once
    again: (tiles_y, tiles_x) whether a tile has been solved before
    factored: (tiles_y, tiles_x) whether there is a factor in it
    """

    def __init__(
        self, model: TileModel, y: Axis, x: Axis, right_hand_sides: int, *, keep_factors: bool = False
    ) -> None:
        super().__init__(model, y, x)
        self.eta = np.zeros(
            (*self.tiling.shape, right_hand_sides, model.y.modes.shape[1], model.x.modes.shape[1])
        )
        size = model.rank * (model.rank + 1) // 2 if keep_factors else 0
        # The same grid elsewhere may touch one tile more along each axis.
        slots = (self.tiling.shape[0] + 1) * (self.tiling.shape[1] + 1)
        self.factors = np.zeros((slots, size), dtype=np.float32)
        self.slot: Integers = np.full(self.tiling.shape, -1, dtype=np.int32)
        self.again: Mask = np.zeros(self.tiling.shape, dtype=np.bool_)
        self.factored: Mask = np.zeros(self.tiling.shape, dtype=np.bool_)

    @property
    def nbytes(self) -> int:
        """Memory of the results; slots without a factor are not counted."""
        return self.eta.nbytes + int(self.factored.sum()) * self.factors.shape[1] * self.factors.itemsize

    def _results(self) -> list[Any]:
        return [self.eta, self.slot, self.again, self.factored]

    def inherit(self, old: TileField, left: Mask) -> None:
        super().inherit(old, left)
        if isinstance(old, MeanField):
            self.factors = old.factors

    def jobs(self, images: Images, statistics: Statistics, gain: float) -> list[Job]:
        todo = self.stale & ~self.empty
        if self.factors.shape[1]:
            new = todo & self.again & (self.slot < 0)
            free = np.setdiff1d(np.arange(self.factors.shape[0]), self.slot)
            self.slot[new] = free[: np.count_nonzero(new)]
        self.again |= todo
        return super().jobs(images, statistics, gain)

    def _forget(self, tiles: Mask) -> None:
        self.eta[tiles] = 0.0
        self.factored[tiles] = False

    def _attempt(self, j: int, columns: Integers, images: Images) -> Mask:
        model = self.model
        place = self.row_in(images, j, columns)
        kept = _KeptFactors(columns, self.slot[j], self.factors, self.factored[j])
        eta = self.eta[j, columns]
        solved = attempt(
            _mean_row,
            images.weights,
            images.heights,
            place,
            model.normal_tables,
            model.mode_tables,
            kept,
            eta,
        )
        self.eta[j, columns[solved]] = eta[solved]
        return solved

    def _solve_safely(self, j: int, i: int, images: Images, statistics: Statistics, gain: float) -> None:
        model = self.model
        P = normal_matrix(model, domain_weights(self, j, i, statistics, gain))
        b_y, b_x = self.domain(j, i)
        top, left = HEIGHT_MOMENTS * (b_y - images.first_y), HEIGHT_MOMENTS * (b_x - images.first_x)
        heights = images.heights[
            :, top : top + HEIGHT_MOMENTS * model.y.blocks, left : left + HEIGHT_MOMENTS * model.x.blocks
        ]
        eta = np.zeros(self.eta.shape[2:])
        sides = [model.y.safe_polynomials.T @ first_moments(h) @ model.x.safe_polynomials for h in heights]
        found = safe_solve(P, np.stack([b[model.mode_y, model.mode_x] for b in sides], axis=1))
        eta[:, model.mode_y, model.mode_x] = found.T
        self.eta[j, i], self.factored[j, i] = eta, False


@compiled()
def _mean_row(weights, heights, place, tables, modes, kept, eta):  # type: ignore[no-untyped-def]
    """Posterior means of the modes of the tiles of a `TileRow`; NaN where the factorisation failed.

    eta: (T, K, r_y, r_x), on entry the means so far
    """
    mode_y, mode_x = modes.mode_y, modes.mode_x
    starts, slot, columns, factored = place.starts, kept.slot, kept.columns, kept.factored
    r, count, r_y = mode_y.size, heights.shape[0], modes.projection_y.shape[0]
    B = reduce_rows(weights, tables.y.reduce, place)
    projected = np.empty((count * r_y, place.span * HEIGHT_MOMENTS), dtype=np.float64)
    rows = np.empty((modes.projection_y.shape[1], place.span * HEIGHT_MOMENTS), dtype=np.float64)
    for m in range(count):
        copy_columns(heights[m, place.row * HEIGHT_MOMENTS :], place.first * HEIGHT_MOMENTS, rows)
        multiply(modes.projection_y, rows, projected[m * r_y : (m + 1) * r_y])
    P = np.empty((r, padded(r)), dtype=np.float32)
    P[:] = np.float32(0.0)
    U = np.empty((r, padded(r)), dtype=np.float32)
    products = room_for_products(tables)
    part = np.empty((projected.shape[0], modes.polynomials_x.shape[0]), dtype=np.float64)
    moments = np.empty((projected.shape[0], modes.polynomials_x.shape[1]), dtype=np.float64)
    b = np.empty((count, r), dtype=np.float64)
    x = np.empty((count, r), dtype=np.float64)
    room = np.empty((3, r), dtype=np.float64)
    step = np.empty((1, r), dtype=np.float32)[0]
    own = np.empty((1, r * (r + 1) // 2), dtype=np.float32)[0]
    for k in range(starts.size):
        fill_normal_matrix(B, starts[k] * WEIGHT_MOMENTS, tables, products, P)
        copy_columns(projected, starts[k] * HEIGHT_MOMENTS, part)
        multiply(part, modes.polynomials_x, moments)
        for m in range(count):
            for i in range(r):
                b[m, i] = moments[m * r_y + mode_y[i], mode_x[i]]
                x[m, i] = eta[k, m, mode_y[i], mode_x[i]]
        keep = slot[columns[k]] >= 0
        factor = kept.factors[slot[columns[k]]] if keep else own
        done = keep and factored[columns[k]]
        if done:
            for m in range(count):
                done = done and _improve(P, factor, b[m], x[m], done, room, step) <= 1.0
        if not done:
            factored[columns[k]] = _solve_anew(P, U, factor, b, x, done, room, step) and keep
        for m in range(count):
            for i in range(r):
                eta[k, m, mode_y[i], mode_x[i]] = x[m, i]


@njit(inline="always")
def _solve_anew(P, U, factor, b, x, hasty, room, step):  # type: ignore[no-untyped-def]
    """Factorise P, pack it into `factor`, and x = P^-1 b; x is NaN, and the result False, if that is not possible.

    hasty: False, as a variable: a constant would have `_improve` compiled once more
    """
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            U[i, j] = P[i, j]
    largest, cancelled = factorise_measured(U, step)
    usable = largest * cancelled <= _MOST_ROUNDING * _MOST_ROUNDING
    if usable:
        pack(U, factor)
    for m in range(b.shape[0]):
        x[m] = 0.0
        if not (usable and _improve(P, factor, b[m], x[m], hasty, room, step) <= _FAILED):
            x[m] = np.nan
    return usable


@compiled(fastmath={"reassoc", "contract"})
def _improve(P, factor, b, x, hasty, room, step):  # type: ignore[no-untyped-def]
    """Improve x as a solution of P x = b in place, by conjugate gradients; returns its error over the allowed one.

    P: upper triangle; factor: of a matrix like P, packed
    hasty: whether to give up early where many steps would be needed
    room: (3, n) float64 and step: (n,) in the precision of the factor, for the vectors on the way
    """
    n = b.size
    image, residual, direction = room[0], room[1], room[2]
    product(P, x, image)
    for i in range(n):
        residual[i] = b[i] - image[i]
    # The preconditioned residual (U' U)^-1 residual, in the precision of the factor; its square in float64.
    square = _precondition(factor, residual, step)
    begin = square
    for i in range(n):
        direction[i] = step[i]
    size = 0.0
    for i in range(n):
        size += b[i] * x[i]
    allowed = max(_ERROR**2, _ROUND_OFF**2 * abs(size))
    for k in range(_STEPS):
        if not square > allowed:
            break
        if hasty and k >= 2:
            # At the rate so far, are the steps that are left enough?
            rate = (np.log(begin) - np.log(square)) / k
            if rate * (_STEPS - k) < np.log(square) - np.log(allowed):
                break
        product(P, direction, image)
        length = 0.0
        for i in range(n):
            length += direction[i] * image[i]
        length = square / length
        size = 0.0
        for i in range(n):
            x[i] += length * direction[i]
            residual[i] -= length * image[i]
            size += b[i] * x[i]
        allowed = max(_ERROR**2, _ROUND_OFF**2 * abs(size))
        before = square
        square = _precondition(factor, residual, step)
        for i in range(n):
            direction[i] = step[i] + square / before * direction[i]
    return np.sqrt(abs(square) / allowed)


@njit(inline="always")
def _precondition(factor, residual, step):  # type: ignore[no-untyped-def]
    """step = (U' U)^-1 residual, in the precision of the factor; its product with the residual in float64."""
    for i in range(step.size):
        step[i] = residual[i]
    solve(factor, step)
    square = 0.0
    for i in range(residual.size):
        square += residual[i] * step[i]
    return square
