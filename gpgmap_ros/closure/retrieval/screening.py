"""Which of thousands of maps may show the ground of one: nearly the highest likelihood in each, by matrix products.

A field of the source at one yaw and shift is a vector over the cells of a target. Its values at all yaws and shifts are
a matrix, and the product with a field of many targets is one of the sums of correlation.py in all of them at once. Two
things make them cheap:

- Half a turn reverses the order of the cells. So every field is the sum of an even and an odd part, which reversal
  leaves or negates, each with half as many numbers. Where the products of the parts are P and Q, that of the fields is
  P + Q, and P - Q at the opposite yaw and shift: two poses for the price of one.
- Ground is smooth: the fields of all targets lie close to a space of few dimensions, that of their principal
  components. What is lost is at most the source times the part of the target outside that space, of which
  `LOST_ENERGY` says how large it is.

No yaw or shift is left out that could share enough ground with any of the targets. The value of a target is not exact:
it says which of them are worth a search (kept_search.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
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
and L is sensitive there: with 300 times as much, it falls behind others."""
VARIANCE_TOLERANCE = 1e-3
"""Part of the variance that the sums may be wrong by, as in coarse_search.py."""
BATCH_SIZE = 512
"""Targets of one matrix product."""

Shifts = NDArray[np.int64]
Parts = tuple[Field, Field]
"""Even and odd part of something."""


@dataclass(frozen=True)
class ShiftedSource:
    """One part of the source at one yaw and S shifts, in R_w, R_e, R_x and R_y principal components of the targets.

    own: (4 S, R_w) w, w |g|^2, w g_x, w g_y, to be multiplied with w of a target
    energy, x, y: (S, R_e), (S, R_x), (S, R_y) w, to be multiplied with w |g|^2, w g_x, w g_y of a target
    slopes: (S, R_x + R_y) w g_x and w g_y, to be multiplied with those of a target
    """

    own: Field
    energy: Field
    x: Field
    y: Field
    slopes: Field


class ScreeningIndex:
    """Targets in principal components of their fields. They are the same for every query: made once.

    targets: on one search grid; threads: as of a ClosureConfig
    """

    def __init__(self, targets: list[TargetFields], threads: int) -> None:
        fields = np.stack([target.fields for target in targets], axis=1)
        seen = fields[0].max(axis=0)
        # a shift stands for its opposite at the opposite yaw, too
        self._seen = np.maximum(seen, seen[::-1, ::-1])
        self._areas = np.array([target.area for target in targets])
        self._threads = threads
        parts = split_parts(fields.reshape(4, len(targets), -1))

        def project(some: slice) -> tuple[list[Field], list[Field]]:
            even, odd = (
                project_targets([basis[k] for basis in self._bases], parts[k][:, some]) for k in (0, 1)
            )
            return even, odd

        with single_threaded_blas():
            self._bases = in_parallel(
                lambda pair: principal_components(pair, LOST_ENERGY), zip(*parts, strict=True), threads
            )
            self._batches = [slice(k, k + BATCH_SIZE) for k in range(0, len(targets), BATCH_SIZE)]
            self._projected = in_parallel(project, self._batches, threads)

    def screen(self, source: SourceSpectra, grid: SearchGrid, min_overlap: float) -> Field:
        """(targets,) L of all relief at the best yaw and shift of each, nearly; 0 where no pose is possible."""
        min_shared = min_shared_weight(source.area, self._areas, grid, min_overlap).astype(np.float32)
        reach, bases = grid.size - grid.side, self._bases

        def shift(at_yaw: Field) -> tuple[ShiftedSource, ShiftedSource]:
            shifts = possible_shifts(at_yaw[0], self._seen, reach, float(min_shared.min()))
            even, odd = split_parts(shift_fields(at_yaw, shifts))
            return project_source(even, [e for e, _ in bases]), project_source(odd, [o for _, o in bases])

        with single_threaded_blas():
            shifted = in_parallel(shift, source.fields[: len(grid.yaws) // 2], self._threads)

            def work(batch: int) -> Field:
                return highest_likelihoods(shifted, *self._projected[batch], min_shared[self._batches[batch]])

            found = in_parallel(work, range(len(self._batches)), self._threads)
        return np.concatenate(found)


def split_parts(fields: Field) -> Parts:
    """The even and the odd part of fields (..., n) under reversal of their cells: (..., (n + 1) // 2), (..., n // 2).

    Together they are the field in another orthonormal basis, so that products are sums of those of the parts.
    """
    half = fields.shape[-1] // 2
    first, last = fields[..., :half], fields[..., ::-1][..., :half]
    scale = np.float32(np.sqrt(0.5))
    middle = fields[..., half : fields.shape[-1] - half]  # its own opposite, where there is one
    return np.concatenate([(first + last) * scale, middle], axis=-1), (first - last) * scale


def principal_components(parts: Parts, lost: float) -> Parts:
    """(cells, R) orthonormal vectors of each part, the fewest that hold all but this part of the energy of rows.

    parts: of the rows, (T, cells) each. Each row counts as much as any other: gentle ground is to be found among
    mountains.
    """
    norms = np.sqrt(sum(np.einsum("tc,tc->t", part, part) for part in parts))
    scale = 1.0 / np.maximum(norms, np.finfo(np.float32).tiny)
    found = []
    for part in parts:
        rows = part * scale[:, None]
        found.append(np.linalg.eigh(rows.T @ rows))
    energies = np.sort(np.concatenate([values for values, _ in found]).astype(np.float64))
    missed = np.cumsum(energies)
    first = int(np.searchsorted(missed, lost * missed[-1], side="right"))
    least = energies[min(first, len(energies) - 1)]
    even, odd = (np.ascontiguousarray(vectors[:, values >= least]) for values, vectors in found)
    return even, odd


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
    """fields: (4, S, cells) a part of the source at each shift; bases: of w, w |g|^2, w g_x, w g_y of the targets"""
    weight, energy, x, y = bases
    return ShiftedSource(
        fields.reshape(-1, fields.shape[-1]) @ weight,
        fields[0] @ energy,
        fields[0] @ x,
        fields[0] @ y,
        np.hstack([fields[2] @ x, fields[3] @ y]),
    )


def highest_likelihoods(
    source: list[tuple[ShiftedSource, ShiftedSource]], even: list[Field], odd: list[Field], min_shared: Field
) -> Field:
    """(T,) the highest L of each target over all yaws and shifts, nearly.

    even, odd: the targets, as of `project_targets`; min_shared: (T,)
    """
    best = np.zeros(len(min_shared), np.float32)
    for at in source:
        raise_to_likelihoods(best, multiply(at[0], even), multiply(at[1], odd), min_shared)
    return best


def project_targets(bases: list[Field], rows: Field) -> list[Field]:
    """(R, T) each: w, w |g|^2, w g_x, w g_y of a part (4, T, cells), and the last two above each other."""
    weight, energy, x, y = (basis.T @ row.T for basis, row in zip(bases, rows, strict=True))
    return [weight, energy, x, y, np.vstack([x, y])]


def multiply(at: ShiftedSource, targets: list[Field]) -> Field:
    """(8, S, T) N, E_a, the sums of a_x and a_y, E_b, the sums of b_x and b_y, and C of one part."""
    weight, *others = targets
    S, T = len(at.energy), weight.shape[1]
    out = np.empty((8, S, T), np.float32)
    np.matmul(at.own, weight, out=out[:4].reshape(4 * S, T))
    for k, (own, other) in enumerate(zip((at.energy, at.x, at.y, at.slopes), others, strict=True), start=4):
        np.matmul(own, other, out=out[k])
    return out


@njit(inline="always")
def _likelihood(n, e_a, a_x, a_y, e_b, b_x, b_y, c, sign, min_shared):  # type: ignore[no-untyped-def] # pragma: no cover
    """L, as of `coarse_search.score_interpolated`, from the eight sums; 0 where no pose is possible. No branches."""
    one, zero, limit = np.float32(1.0), np.float32(0.0), np.float32(1.0 + VARIANCE_TOLERANCE)
    tiny, round_off = np.float32(1e-20), np.float32(1e-4)
    factor, third, fifth = np.float32(32.0), np.float32(1.0 / 3.0), np.float32(1.0 / 5.0)
    share = one / max(n, tiny)
    v_a = e_a - (a_x * a_x + a_y * a_y) * share
    v_b = e_b - (b_x * b_x + b_y * b_y) * share
    product = sign * (c - (a_x * b_x + a_y * b_y) * share)
    # Sums that are round-off of larger ones say nothing.
    known = (n >= min_shared) & (product > zero) & (v_a > round_off * e_a) & (v_b > round_off * e_b)
    rho2 = min(product * product / max(v_a * v_b, tiny), one)
    # log q = 16 log q^(1/16), and that root is near 1: a short series is enough, and faster than a logarithm
    root = np.sqrt(np.sqrt(np.sqrt(np.sqrt(limit - rho2))))
    z = (one - root) / (one + root)
    value = n * factor * z * (one + z * z * (third + fifth * z * z))
    return value if known else zero


@compiled()
def raise_to_likelihoods(best: Field, p: Field, q: Field, min_shared: Field) -> None:  # pragma: no cover
    """Raise `best` (T,) to the highest L over S shifts, and over their opposites half a turn on.

    p, q: (8, S, T) sums of the even and of the odd part, as of `multiply`; min_shared: (T,)
    Half a turn on, slopes change sign besides, and with them their products. The inner loop is over the targets, so
    that it runs in vectors.
    """
    plus, minus = np.float32(1.0), np.float32(-1.0)
    for s in range(p.shape[1]):
        for t in range(p.shape[2]):
            one = _likelihood(
                p[0, s, t] + q[0, s, t], p[1, s, t] + q[1, s, t], p[2, s, t] + q[2, s, t],
                p[3, s, t] + q[3, s, t], p[4, s, t] + q[4, s, t], p[5, s, t] + q[5, s, t],
                p[6, s, t] + q[6, s, t], p[7, s, t] + q[7, s, t], plus, min_shared[t],
            )  # fmt: skip
            other = _likelihood(
                p[0, s, t] - q[0, s, t], p[1, s, t] - q[1, s, t], p[2, s, t] - q[2, s, t],
                p[3, s, t] - q[3, s, t], p[4, s, t] - q[4, s, t], p[5, s, t] - q[5, s, t],
                p[6, s, t] - q[6, s, t], p[7, s, t] - q[7, s, t], minus, min_shared[t],
            )  # fmt: skip
            best[t] = max(best[t], max(one, other))
