"""Which of thousands of maps may show the ground of one: nearly the highest likelihood in each, by matrix products.

A field of the source at one yaw and shift is a vector over the cells of a target. Its values at all yaws and shifts are
a matrix, and the product with a field of many targets is one of the sums of correlation.py in all of them at once.
Ground is smooth: the fields of all targets lie close to a space of few dimensions, that of their principal components,
and a product there costs a fraction. What it loses is at most the source times the part of the target outside that
space, of which `LOST_ENERGY` says how large it is.

No yaw or shift is left out that could share enough ground with any of the targets. The value of a target is not exact:
it says which of them are worth a search (kept_search.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gp_core.parallel import single_threaded_blas
from gpgmap_ros.closure.parallel import in_parallel
from gpgmap_ros.closure.registration.correlation import SearchGrid
from gpgmap_ros.closure.registration.registration_map import Field
from gpgmap_ros.closure.retrieval.coarse_search import (
    SourceSpectra,
    TargetFields,
    min_shared_weight,
)

LOST_ENERGY = 1e-5
"""Part of the energy of a field that the principal components may miss. The right place is the one where rho is near 1,
and L is sensitive there: with 30 times as much, it falls behind others."""
VARIANCE_TOLERANCE = 1e-3
"""Part of the variance that the sums may be wrong by, as in coarse_search.py."""
BATCH_SIZE = 256
"""Targets of one matrix product."""

Shifts = NDArray[np.int64]


@dataclass(frozen=True)
class ShiftedSource:
    """The source at one yaw and S shifts, in R_w, R_e, R_x and R_y principal components of the targets.

    own: (4 S, R_w) w, w |g|^2, w g_x, w g_y, to be multiplied with w of a target
    energy, x, y: (S, R_e), (S, R_x), (S, R_y) w, to be multiplied with w |g|^2, w g_x, w g_y of a target
    slopes: (S, R_x + R_y) w g_x and w g_y, to be multiplied with those of a target
    """

    own: Field
    energy: Field
    x: Field
    y: Field
    slopes: Field


def screen_targets(
    source: SourceSpectra, targets: list[TargetFields], grid: SearchGrid, min_overlap: float, threads: int
) -> Field:
    """(targets,) L of all relief at the best yaw and shift of each, nearly; 0 where no pose is possible."""
    min_shared = np.array(
        [min_shared_weight(source, target, grid, min_overlap) for target in targets], np.float32
    )
    fields = np.stack([target.fields for target in targets], axis=1)
    seen = fields[0].max(axis=0)
    fields = fields.reshape(4, len(targets), -1)
    reach = grid.size - grid.side

    def shift(at_yaw: Field) -> ShiftedSource:
        shifts = possible_shifts(at_yaw[0], seen, reach, float(min_shared.min()))
        return project_source(shift_fields(at_yaw, shifts), bases)

    with single_threaded_blas():
        bases = in_parallel(lambda rows: principal_components(rows, LOST_ENERGY), fields, threads)
        shifted = in_parallel(shift, source.fields, threads)
        work = partial(highest_likelihoods, shifted, bases)
        batches = [slice(k, k + BATCH_SIZE) for k in range(0, len(targets), BATCH_SIZE)]
        found = in_parallel(lambda some: work(fields[:, some], min_shared[some]), batches, threads)
    return np.concatenate(found)


def principal_components(rows: Field, lost: float) -> Field:
    """(cells, R) orthonormal vectors, the fewest that hold all but this part of the energy of the rows (T, cells).

    Each row counts as much as any other: gentle ground is to be found among mountains.
    """
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    energies, vectors = np.linalg.eigh(rows.T @ rows)
    missed = np.cumsum(energies, dtype=np.float64)
    first = int(np.searchsorted(missed, lost * missed[-1], side="right"))
    return np.ascontiguousarray(vectors[:, min(first, len(energies) - 1) :])


def possible_shifts(weight: Field, seen: Field, reach: int, min_shared: float) -> Shifts:
    """(S, 2) shifts in y and x, of at most `reach` cells, at which enough may be shared.

    weight: (side, side) of the source; seen: (side, side) highest weight of any target
    """
    steps = np.arange(-reach, reach + 1)
    shifts = np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    shared = shift_fields(weight[None], shifts)[0] @ seen.ravel()
    return np.asarray(shifts[shared >= min_shared])


def shift_fields(fields: Field, shifts: Shifts) -> Field:
    """(F, S, cells) the fields (F, side, side) moved by each shift (S, 2); zeros come in."""
    side = fields.shape[-1]
    reach = int(np.abs(shifts).max(initial=0))
    padded = np.pad(fields, ((0, 0), (reach, reach), (reach, reach)))
    windows = sliding_window_view(padded, (side, side), axis=(1, 2))
    moved = windows[:, reach - shifts[:, 0], reach - shifts[:, 1]]
    return np.asarray(moved.reshape(len(fields), len(shifts), -1))


def project_source(fields: Field, bases: list[Field]) -> ShiftedSource:
    """fields: (4, S, cells) of the source at each shift; bases: of w, w |g|^2, w g_x, w g_y of the targets"""
    weight, energy, x, y = bases
    return ShiftedSource(
        fields.reshape(-1, fields.shape[-1]) @ weight,
        fields[0] @ energy,
        fields[0] @ x,
        fields[0] @ y,
        np.hstack([fields[2] @ x, fields[3] @ y]),
    )


def highest_likelihoods(
    source: list[ShiftedSource], bases: list[Field], targets: Field, min_shared: Field
) -> Field:
    """(T,) the highest L of each target over all yaws and shifts, nearly. targets: (4, T, cells); min_shared: (T,)"""
    weight, energy, x, y = (basis.T @ rows.T for basis, rows in zip(bases, targets, strict=True))
    slopes = np.vstack([x, y])
    best = np.zeros(targets.shape[1], np.float32)
    for at in source:
        own = (at.own @ weight).reshape(4, -1, len(best))
        sums = (at.energy @ energy, at.x @ x, at.y @ y, at.slopes @ slopes)
        raise_to_likelihoods(best, own, *sums, min_shared)
    return best


@compiled()
def raise_to_likelihoods(
    best: Field, own: Field, e_b: Field, b_x: Field, b_y: Field, c: Field, min_shared: Field
) -> None:  # pragma: no cover
    """Raise `best` (T,) to the highest L, as of `coarse_search.score_interpolated`, over S shifts.

    own: (4, S, T) N, E_a and the sums of a_x and a_y; e_b, b_x, b_y, c: (S, T) the other sums; min_shared: (T,)
    The inner loop is over the targets, without branches, so that it runs in vectors.
    """
    one, zero, limit = np.float32(1.0), np.float32(0.0), np.float32(1.0 + VARIANCE_TOLERANCE)
    tiny, round_off = np.float32(1e-20), np.float32(1e-4)
    factor, third, fifth = np.float32(32.0), np.float32(1.0 / 3.0), np.float32(1.0 / 5.0)
    for s in range(c.shape[0]):
        for t in range(c.shape[1]):
            n, e_a, a_x, a_y = own[0, s, t], own[1, s, t], own[2, s, t], own[3, s, t]
            share = one / max(n, tiny)
            v_a = e_a - (a_x * a_x + a_y * a_y) * share
            v_b = e_b[s, t] - (b_x[s, t] * b_x[s, t] + b_y[s, t] * b_y[s, t]) * share
            product = c[s, t] - (a_x * b_x[s, t] + a_y * b_y[s, t]) * share
            # Sums that are round-off of larger ones say nothing.
            known = (n >= min_shared[t]) & (product > zero)
            known &= (v_a > round_off * e_a) & (v_b > round_off * e_b[s, t])
            rho2 = min(product * product / max(v_a * v_b, tiny), one)
            # log q = 16 log q^(1/16), and that root is near 1: a short series is enough, and faster than a logarithm
            root = np.sqrt(np.sqrt(np.sqrt(np.sqrt(limit - rho2))))
            z = (one - root) / (one + root)
            value = n * factor * z * (one + z * z * (third + fifth * z * z))
            best[t] = value if known & (value > best[t]) else best[t]
