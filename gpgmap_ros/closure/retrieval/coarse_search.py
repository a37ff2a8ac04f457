"""One map against many, at all yaws and shifts: the best poses by the likelihood of correlation.py, for less.

Of the eight sums behind rho only C, the product of the slopes, changes from cell to cell of the shifts. In the seven
others (what is shared, its energies and its means) one factor is a weight, which is a disc with some holes: smooth,
with little at high frequencies. They are transformed on a lattice half as fine and read between its points. L is
sensitive where rho is near 1, so that this only proposes poses; of these, few enough for that, the sums are taken
exactly, cell by cell. Several maps go through each transform, so that the calls cost little beside the work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import fft

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gpgmap_ros.closure.registration.correlation import (
    SearchGrid,
    Spectra,
    Spectrum,
    reflection_phase,
)
from gpgmap_ros.closure.registration.registration_map import Field
from gpgmap_ros.closure.registration.search import find_peak_cells

COARSENING = 2.0
"""Spacing of the lattice for the smooth sums, in cells of the search grid."""
BATCH_SIZE = 4
"""Maps that go through one transform: their sums stay in the processor's cache."""
PROPOSALS_PER_POSE = 3
"""Poses that are evaluated exactly, for each one that is asked for."""
NEIGHBOURS = np.array([(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1)])
"""Of a cell of the shifts, and itself first."""
VARIANCE_TOLERANCE = 0.05
"""Part of the variance that the smooth sums may be wrong by: rho is no more certain than that before it is exact."""


@dataclass(frozen=True)
class SourceSpectra:
    """The map that is looked for, on a search grid, at the first half of the yaws; `fields` at all of them.

    sharp: (H, 2, P, P/2 + 1) spectra of w g_x and w g_y; smooth: (H, 4, p, p/2 + 1) of w, w |g|^2, w g_x, w g_y at the
    frequencies that the coarser lattice holds
    fields: (2 H, 4, side, side) what was transformed; area: of the surface
    """

    sharp: Spectrum
    smooth: Spectrum
    fields: Field
    area: float


@dataclass(frozen=True)
class TargetFields:
    """A map in which it is looked for. There are many: their spectra, many times as large, are made when needed.

    fields: (4, side, side) w, w |g|^2, w g_x, w g_y; area: of the surface
    """

    fields: Field
    area: float


def pack_source(prepared: Spectra) -> SourceSpectra:
    grid, spectra = prepared.grid, prepared.rotated
    return SourceSpectra(
        np.ascontiguousarray(spectra[:, 2:4]),
        crop_spectrum(spectra[:, :4], coarse_size(grid)),
        np.ascontiguousarray(prepared.fields(grid.yaws)[:, :4, : grid.side, : grid.side]),
        prepared.surface.area,
    )


def pack_target(prepared: Spectra) -> TargetFields:
    side = prepared.grid.side
    fields = prepared.fields(np.zeros(1))[0, :4, :side, :side]
    return TargetFields(np.ascontiguousarray(fields), prepared.surface.area)


def transform_targets(targets: list[TargetFields], grid: SearchGrid) -> tuple[Spectrum, Spectrum]:
    """(T, 2, 2, P, P/2 + 1) and (T, 2, 4, p, p/2 + 1) as of a source, of each target and of its reflection."""
    fields = np.stack([target.fields for target in targets])
    still = fft.rfft2(fields, s=(grid.size, grid.size), workers=1)
    both = np.stack([still, still * reflection_phase(grid)], axis=1)
    return np.ascontiguousarray(both[:, :, 2:4]), crop_spectrum(both, coarse_size(grid))


def coarse_size(grid: SearchGrid) -> int:
    """Periodic side of the coarser lattice."""
    return int(fft.next_fast_len(int(np.ceil(grid.size / COARSENING)), real=True))


def crop_spectrum(spectra: Spectrum, size: int) -> Spectrum:
    """The part of (..., P, P/2 + 1) that a lattice of this size holds, in its units; without the Nyquist frequency."""
    P = spectra.shape[-2]
    max_frequency = (size - 1) // 2
    out = np.zeros((*spectra.shape[:-2], size, size // 2 + 1), np.complex64)
    out[..., : max_frequency + 1, : max_frequency + 1] = spectra[
        ..., : max_frequency + 1, : max_frequency + 1
    ]
    out[..., -max_frequency:, : max_frequency + 1] = spectra[..., P - max_frequency :, : max_frequency + 1]
    return out


def propose_poses(
    source: SourceSpectra, targets: list[TargetFields], grid: SearchGrid, min_overlap: float
) -> Field:
    """(targets, K, P, P) L of all relief at every yaw and shift, nearly; 0 where too little is shared or rho <= 0."""
    P, p = grid.size, coarse_size(grid)
    sharp_targets, smooth_targets = transform_targets(targets, grid)
    sharp = slope_products(source.sharp, sharp_targets)
    sharp = fft.irfft2(sharp, s=(P, P), workers=1, overwrite_x=True)
    smooth = weight_products(source.smooth, smooth_targets)
    smooth = fft.irfft2(smooth, s=(p, p), workers=1, overwrite_x=True)
    min_shared = np.array(
        [min_shared_weight(source.area, target.area, grid, min_overlap) for target in targets], np.float32
    )
    # The spectra are in units of the search grid, and the coarser lattice divides by its own cells.
    score_interpolated(sharp, smooth, np.float32((p / P) ** 2), min_shared)
    return np.asarray(sharp)


def min_shared_weight(source: float, target: float | Array, grid: SearchGrid, min_overlap: float) -> Array:
    """That must be shared of two maps with these areas, in cells of the search grid."""
    return np.asarray(min_overlap * np.minimum(source, target) / grid.stride**2)


def select_best(
    scores: Field,
    source: SourceSpectra,
    target: TargetFields,
    grid: SearchGrid,
    min_overlap: float,
    count: int,
) -> Array:
    """(at most count, 4) number of the yaw, row, column and exact L of the best poses of `propose_poses`, best first.

    scores: (K, P, P) of one target; they are used up
    """
    found = find_peak_cells(scores, grid, PROPOSALS_PER_POSE * count)
    if not len(found):
        return found
    # The smooth sums may put a peak beside its place: the cells around are evaluated, too.
    cells = add_neighbours(found, grid.size)
    values = compute_exact_likelihoods(
        source.fields,
        target.fields,
        cells,
        grid.size,
        float(min_shared_weight(source.area, target.area, grid, min_overlap)),
    ).reshape(len(found), -1)
    found[:, :3] = cells[np.argmax(values, axis=1) + len(NEIGHBOURS) * np.arange(len(found))]
    found[:, 3] = values.max(axis=1)
    found = found[np.argsort(-found[:, 3], kind="stable")]
    return np.asarray(found[drop_neighbours(found, len(grid.yaws), grid.size, count)])


def add_neighbours(found: Array, size: int) -> NDArray[np.int64]:
    """(9 N, 3) number of the yaw, row and column of each pose (N, 4) and of the shifts around it."""
    cells = np.repeat(found[:, None, :3].astype(np.int64), len(NEIGHBOURS), axis=1)
    cells[:, :, 1:] = (cells[:, :, 1:] + NEIGHBOURS) % size
    return cells.reshape(-1, 3)


@compiled()
def drop_neighbours(found: Array, yaws: int, size: int, count: int) -> NDArray[np.int64]:  # pragma: no cover
    """Which of the poses (N, 4), best first, are no neighbours of a better one: at most count."""
    kept = np.empty(count, np.int64)
    total = 0
    for n in range(len(found)):
        if total == count or found[n, 3] <= 0.0:
            break
        near = False
        for k in range(total):
            m = kept[k]
            turn, dy, dx = (
                abs(found[n, 0] - found[m, 0]),
                abs(found[n, 1] - found[m, 1]),
                abs(found[n, 2] - found[m, 2]),
            )
            near |= min(turn, yaws - turn) <= 1 and min(dy, size - dy) <= 1 and min(dx, size - dx) <= 1
        if not near:
            kept[total] = n
            total += 1
    return kept[:total]


@compiled()
def compute_exact_likelihoods(
    a: Field, b: Field, cells: NDArray[np.int64], size: int, min_shared: float
) -> Array:  # pragma: no cover
    """(N,) L at these yaws, rows and columns (N, 3) of the periodic grid: plain sums over the cells that meet."""
    side = b.shape[-1]
    out = np.zeros(len(cells))
    for pose in range(len(cells)):
        k, dy, dx = cells[pose, 0], cells[pose, 1], cells[pose, 2]
        dy, dx = dy - size if 2 * dy >= size else dy, dx - size if 2 * dx >= size else dx
        n, e_a, e_b, c, a_x, a_y, b_x, b_y = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(max(0, -dy), min(side, side - dy)):
            for j in range(max(0, -dx), min(side, side - dx)):
                w, w_b = a[k, 0, i, j], b[0, i + dy, j + dx]
                if w <= 0.0 or w_b <= 0.0:
                    continue
                x, y, x_b, y_b = a[k, 2, i, j], a[k, 3, i, j], b[2, i + dy, j + dx], b[3, i + dy, j + dx]
                n += w * w_b
                e_a += a[k, 1, i, j] * w_b
                e_b += w * b[1, i + dy, j + dx]
                c += x * x_b + y * y_b
                a_x += x * w_b
                a_y += y * w_b
                b_x += w * x_b
                b_y += w * y_b
        if n < min_shared or n <= 0.0:
            continue
        v_a, v_b = e_a - (a_x**2 + a_y**2) / n, e_b - (b_x**2 + b_y**2) / n
        c -= (a_x * b_x + a_y * b_y) / n
        if c > 0.0 and v_a > 1e-4 * e_a and v_b > 1e-4 * e_b:
            out[pose] = -n * np.log(1.0 - min(c * c / (v_a * v_b), 0.9999))
    return out


@compiled()
def slope_products(a: Spectrum, b: Spectrum) -> Spectrum:  # pragma: no cover
    """(T, 2 H, P, Q) spectra of C, from a (H, 2, P, Q) and b (T, 2, 2, P, Q): the second H yaws half a turn on."""
    H, _, P, Q = a.shape
    out = np.empty((b.shape[0], 2 * H, P, Q), np.complex64)
    for t in range(b.shape[0]):
        for k in range(H):
            for i in range(P):
                for j in range(Q):
                    x, y = a[k, 0, i, j], a[k, 1, i, j]
                    out[t, k, i, j] = np.conj(x) * b[t, 0, 0, i, j] + np.conj(y) * b[t, 0, 1, i, j]
                    out[t, H + k, i, j] = -(x * b[t, 1, 0, i, j] + y * b[t, 1, 1, i, j])
    return out


@compiled()
def weight_products(a: Spectrum, b: Spectrum) -> Spectrum:  # pragma: no cover
    """(T, 2 H, 7, p, q) spectra of N, E_a, E_b and the sums of a_x, a_y, b_x, b_y.

    a: (H, 4, p, q); b: (T, 2, 4, p, q)
    """
    H, _, p, q = a.shape
    out = np.empty((b.shape[0], 2 * H, 7, p, q), np.complex64)
    for t in range(b.shape[0]):
        for k in range(2 * H):
            other = k // H
            sign = np.float32(-1.0 if other else 1.0)
            for i in range(p):
                for j in range(q):
                    w, e, x, y = a[k % H, 0, i, j], a[k % H, 1, i, j], a[k % H, 2, i, j], a[k % H, 3, i, j]
                    if not other:
                        w, e, x, y = np.conj(w), np.conj(e), np.conj(x), np.conj(y)
                    w_b = b[t, other, 0, i, j]
                    out[t, k, 0, i, j] = w * w_b
                    out[t, k, 1, i, j] = e * w_b
                    out[t, k, 2, i, j] = w * b[t, other, 1, i, j]
                    out[t, k, 3, i, j] = sign * x * w_b
                    out[t, k, 4, i, j] = sign * y * w_b
                    out[t, k, 5, i, j] = w * b[t, other, 2, i, j]
                    out[t, k, 6, i, j] = w * b[t, other, 3, i, j]
    return out


@njit(inline="always")
def _bilinear(values, m, i_0, i_1, j_0, j_1, f, g):  # type: ignore[no-untyped-def] # pragma: no cover
    """Of field m, bilinear, at the fractions f and g between the first and the second row and column."""
    one = np.float32(1.0)
    first = (one - g) * values[m, i_0, j_0] + g * values[m, i_0, j_1]
    second = (one - g) * values[m, i_1, j_0] + g * values[m, i_1, j_1]
    return (one - f) * first + f * second


@compiled()
def score_interpolated(
    sharp: Field, smooth: Field, unit: float, min_shared: Field
) -> None:  # pragma: no cover
    """L, with `DOUBT`, in place of C in `sharp` (T, K, P, P); `smooth` (T, K, 7, p, p) is read between its points.

    unit: factor of the smooth sums; min_shared: (T,) that must be shared
    """
    T, K, P, _ = sharp.shape
    p = smooth.shape[-1]
    low, high, share = np.empty(P, np.int64), np.empty(P, np.int64), np.empty(P, np.float32)
    for i in range(P):
        at = i * p / P
        low[i] = int(at)
        high[i] = (low[i] + 1) % p
        share[i] = at - low[i]
    sums = np.empty(7, np.float32)
    one, doubt = np.float32(1.0), np.float32(VARIANCE_TOLERANCE)
    for t in range(T):
        for k in range(K):
            s = smooth[t, k]
            for i in range(P):
                i_0, i_1, f = low[i], high[i], share[i]
                for j in range(P):
                    c = sharp[t, k, i, j]
                    sharp[t, k, i, j] = 0.0
                    j_0, j_1, g = low[j], high[j], share[j]
                    n = unit * _bilinear(s, 0, i_0, i_1, j_0, j_1, f, g)
                    if n < min_shared[t]:
                        continue
                    for m in range(1, 7):
                        sums[m] = unit * _bilinear(s, m, i_0, i_1, j_0, j_1, f, g)
                    e_a, e_b, a_x, a_y, b_x, b_y = sums[1], sums[2], sums[3], sums[4], sums[5], sums[6]
                    v_a = e_a - (a_x * a_x + a_y * a_y) / n
                    v_b = e_b - (b_x * b_x + b_y * b_y) / n
                    c -= (a_x * b_x + a_y * b_y) / n
                    # Sums that are round-off of larger ones say nothing.
                    if c <= 0.0 or v_a <= 1e-4 * e_a or v_b <= 1e-4 * e_b:
                        continue
                    rho2 = min(c * c / (v_a * v_b), one)
                    sharp[t, k, i, j] = -n * np.log(one + doubt - rho2) if rho2 > doubt else np.float32(0.0)
