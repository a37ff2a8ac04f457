"""Sufficient statistics: all that a map keeps of its points.

A point (x, y) with height z and noise variance r lies in one block, at (s, t) in [-1, 1]^2. The block keeps

    weights[a, b] = sum  t^a s^b / r                 a, b = 0 ... 6, or 4
    heights[a, b] = sum  t^a s^b (z - z_0) / r       a, b = 0 ... 5, or 2
    totals        = sum  (z - z_0)^2 / r,   number of points,   sum log r

as the splines of the lattice are quintic or quadratic. From these W' R^-1 z follows exactly. So does W' R^-1 W for
quadratic splines; for quintic ones it does to a millionth, for functions as smooth on a block as the kernel makes
them. Statistics on the same lattice add, subtract and scale, so that order, batching and merging
do not matter beyond round-off, and forgetting is a factor.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid.axes import Axis
from gp_core.grid.interpolation import MOMENTS, ORDER
from gp_core.grid.moments import MomentOrders
from gp_core.grid.workers import Workers

SQUARES, COUNT, LOG_VARIANCE = 0, 1, 2
"""Columns of `totals`."""
NOT_FINITE, BAD_VARIANCE, OUTSIDE = 0, 1, 2
"""Entries of `Located.refused`."""
CHUNK: Final = 131072
"""Points sorted at a time, so that the sorted copy stays in cache."""
_LANES: Final = 8
"""Moments along x, padded so that a row of them fills whole vector registers."""
_AT_ONCE: Final = 8
"""Points added per pass over the sums of a block."""

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass
class Statistics:
    """Moments of the points in each of the J x I blocks of a window of the lattice.

    x, y: the axes
    orders: of the moments, n and m
    reference: z_0, subtracted from every height before it is added up, so that centimetres survive at 5,000 m
    weights: (J, I, n, n)
    heights: (J, I, m, m)
    totals: (J, I, 3)
    """

    x: Axis
    y: Axis
    orders: MomentOrders
    reference: float = 0.0
    weights: Array = field(init=False, repr=False)
    heights: Array = field(init=False, repr=False)
    totals: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        shape = (self.y.count, self.x.count)
        n, m = self.orders
        self.weights = np.zeros((*shape, n, n))
        self.heights = np.zeros((*shape, m, m))
        self.totals = np.zeros((*shape, 3))

    @property
    def arrays(self) -> tuple[Array, Array, Array]:
        return self.weights, self.heights, self.totals

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def add_points(
        self, located: Located, gain: float, floor: float, workers: Workers, factor: Array | None = None
    ) -> Mask:
        """Add points that `locate` has sorted; returns the blocks (J, I) that changed.

        gain: factor on every weight (newer points count more when older ones are to fade)
        floor: variance added to every point's own
        factor: (J, I) on the variances of the points of a block; None for 1
        """
        factor = np.ones(self.weights.shape[:2]) if factor is None else factor
        count = located.starts[-1]
        cuts = [
            int(np.searchsorted(located.starts, count * k // workers.count)) for k in range(workers.count + 1)
        ]
        cuts[0], cuts[-1] = 0, located.starts.size - 1
        weighting = _Weighting(float(gain), float(floor), factor.reshape(-1), float(self.reference))
        sums = _Sums(*(array.reshape(-1, *array.shape[2:]) for array in self.arrays))
        workers.run(
            _accumulate,
            [(first, last, located, weighting, _LANES, sums) for first, last in itertools.pairwise(cuts)],
        )
        changed: Mask = (np.diff(located.starts) > 0).reshape(self.y.count, self.x.count)
        return changed

    def add(self, other: Statistics, gain: float = 1.0) -> None:
        """Add (gain = 1) or subtract (gain = -1) statistics of the same window."""
        shift = other.reference - self.reference
        weights, heights, totals = other.weights, other.heights, other.totals
        if shift != 0.0:
            # z - z_0 grows by the shift: its square by 2 shift (z - z_0) + shift^2.
            totals = totals.copy()
            totals[..., SQUARES] += 2.0 * shift * heights[..., 0, 0] + shift**2 * weights[..., 0, 0]
            m = self.orders.heights
            heights = heights + shift * weights[..., :m, :m]
        self.weights += gain * weights
        self.heights += gain * heights
        self.totals += gain * totals

    def take(self, other: Statistics, blocks: Mask, noise_factor: Array) -> None:
        """Replace the given blocks (J, I) by those of the same window of `other`, with the variances of their points
        multiplied by a factor (J, I)."""
        self.reference = other.reference
        # Most live maps change everywhere from one solution to the next: then one pass over the memory will do.
        at: Any = slice(None) if blocks.all() else blocks
        factor = noise_factor[at]
        weight = 1.0 / factor[..., None, None]
        if isinstance(at, slice):
            np.multiply(other.weights, weight, out=self.weights)
            np.multiply(other.heights, weight, out=self.heights)
        else:
            self.weights[at] = other.weights[at] * weight
            self.heights[at] = other.heights[at] * weight
        totals = other.totals[at].copy()
        _scale_totals(totals, factor)
        self.totals[at] = totals

    def scale(self, factor: float) -> None:
        """Multiply the weight of every point by `factor`."""
        for array in self.arrays:
            array *= factor

    def scale_noise(self, factor: Array | float) -> None:
        """Multiply the variance of every point by `factor`; a number, or (J, I) by block."""
        factor = np.broadcast_to(factor, self.weights.shape[:2])
        self.weights /= factor[..., None, None]
        self.heights /= factor[..., None, None]
        _scale_totals(self.totals, factor)

    def copy_to(self, x: Axis, y: Axis) -> Statistics:
        """The statistics of another window: what both cover is kept, the rest is empty."""
        out = replace(self, x=x, y=y)
        (to_x, from_x), (to_y, from_y) = overlap(x, self.x), overlap(y, self.y)
        for new, old in zip(out.arrays, self.arrays, strict=True):
            new[to_y, to_x] = old[from_y, from_x]
        return out


def _scale_totals(totals: Array, factor: Array) -> None:
    """Multiply the variances of the points behind totals (..., 3) by a factor (...), in place."""
    totals[..., SQUARES] /= factor
    totals[..., LOG_VARIANCE] += totals[..., COUNT] * np.log(factor)


def overlap(new: Axis, old: Axis) -> tuple[slice, slice]:
    """Slices of the common blocks, in the new and in the old window."""
    first, last = max(new.first, old.first), min(new.first + new.count, old.first + old.count)
    last = max(first, last)
    return slice(first - new.first, last - new.first), slice(first - old.first, last - old.first)


class Located(NamedTuple):
    """Points sorted by block.

    points: (N, 4) position s and t in the block, height, variance
    starts: (J I + 1,) where the points of each block begin
    refused: (3,) points refused as NOT_FINITE, BAD_VARIANCE, OUTSIDE
    common: whether all have the same variance
    """

    points: Array
    starts: np.ndarray[Any, np.dtype[np.int64]]
    refused: np.ndarray[Any, np.dtype[np.int64]]
    common: bool


class _Weighting(NamedTuple):
    """How points are weighted: 1 / r = gain / ((variance + floor) factor), heights above the reference.

    factor: (J I,) by block
    """

    gain: float
    floor: float
    factor: Array
    reference: float


class _Sums(NamedTuple):
    """Moments to add to: (J I, n, n), (J I, m, m), (J I, 3), at most of order 7 and 6."""

    weights: Array
    heights: Array
    totals: Array


class _BlockFrame(NamedTuple):
    """Where the blocks of a window are: blocks per metre, first block and number of blocks along x and y."""

    per_x: float
    per_y: float
    first_x: int
    first_y: int
    n_x: int
    n_y: int


def locate(
    xy: Array, z: Array, variance: Array, bounds: tuple[float, float, float, float], x: Axis, y: Axis
) -> Located:
    """Check points and sort them by block.

    xy, z: (N, 2) and (N,)
    variance: (N,), or (1,) for all
    bounds: (x_min, y_min, x_max, y_max) of the area that takes points
    """
    block = np.empty(z.size, dtype=np.int32)
    starts = np.zeros(x.count * y.count + 1, dtype=np.int64)
    refused = np.zeros(3, dtype=np.int64)
    frame = _BlockFrame(1.0 / x.spacing, 1.0 / y.spacing, x.first, y.first, x.count, y.count)
    _find_blocks(xy, z, variance, bounds, frame, block, starts, refused)
    np.cumsum(starts, out=starts)
    points = np.empty((int(starts[-1]), 4))
    _sort(xy, z, variance, frame, block, starts[:-1].copy(), points)
    return Located(points, starts, refused, variance.size == 1)


@compiled()
def _find_blocks(xy, z, variance, bounds, frame, block, counts, refused):  # type: ignore[no-untyped-def]
    """Block of each point, -1 if it is refused; points of block k in counts[k + 1]; refused points by reason."""
    x_min, y_min, x_max, y_max = bounds
    per_x, per_y, first_x, first_y, n_x, n_y = frame
    common = variance.size == 1
    for n in range(z.size):
        x = xy[n, 0]
        y = xy[n, 1]
        r = variance[0] if common else variance[n]
        # Comparisons with NaN are false, and inf - inf is NaN: one branch lets all good points through.
        if (
            x >= x_min
            and x < x_max
            and y >= y_min
            and y < y_max
            and z[n] - z[n] == 0.0
            and r > 0.0
            and r < np.inf
        ):
            # Rounding at the far edge may point one past the last block.
            i = min(max(int(np.floor(x * per_x)) - first_x, 0), n_x - 1)
            j = min(max(int(np.floor(y * per_y)) - first_y, 0), n_y - 1)
            block[n] = j * n_x + i
            counts[j * n_x + i + 1] += 1
        else:
            block[n] = -1
            if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z[n]) and np.isfinite(r)):
                refused[0] += 1
            elif not r > 0.0:
                refused[1] += 1
            else:
                refused[2] += 1


@compiled()
def _sort(xy, z, variance, frame, block, fill, points):  # type: ignore[no-untyped-def]
    """Counting sort by block; within a block the points keep their order, so that the sums are repeatable."""
    common = variance.size == 1
    per_x, per_y = frame.per_x, frame.per_y
    for n in range(z.size):
        k = block[n]
        if k >= 0:
            u = xy[n, 0] * per_x
            v = xy[n, 1] * per_y
            to = fill[k]
            fill[k] = to + 1
            points[to, 0] = 2.0 * (u - np.floor(u)) - 1.0
            points[to, 1] = 2.0 * (v - np.floor(v)) - 1.0
            points[to, 2] = z[n]
            points[to, 3] = variance[0] if common else variance[n]


@compiled(fastmath={"contract"})
def _accumulate(first, last, located, weighting, lanes, sums_by_block):  # type: ignore[no-untyped-def]
    """Add the points of blocks first ... last - 1 to their moments, eight points per pass over a block.

    lanes: moments along x, padded; as an argument and not a constant it stays a loop, which vectorises: a
        constant is unrolled into scalar code, three times slower
    """
    points, starts, _, common = located
    gain, floor, factor, reference = weighting
    n_w, n_h = sums_by_block.weights.shape[1], sums_by_block.heights.shape[1]
    rows = n_w + n_h
    skipped = MOMENTS - n_w
    X = np.zeros((_AT_ONCE, lanes))
    Y = np.zeros((_AT_ONCE, MOMENTS + ORDER))
    sums = np.empty((rows, lanes))
    x0, x1, x2, x3, x4, x5, x6, x7 = X[0], X[1], X[2], X[3], X[4], X[5], X[6], X[7]
    for k in range(first, last):
        start = starts[k]
        stop = starts[k + 1]
        if start == stop:
            continue
        sums[:] = 0.0
        squares = 0.0
        r = (points[start, 3] + floor) * factor[k]
        w = gain / r
        logs = (stop - start) * np.log(r) if common else 0.0
        for n in range(start, stop, _AT_ONCE):
            for m in range(_AT_ONCE):
                s = 0.0
                t = 0.0
                z = 0.0
                if n + m < stop:
                    s = points[n + m, 0]
                    t = points[n + m, 1]
                    z = points[n + m, 2] - reference
                    if not common:
                        r = (points[n + m, 3] + floor) * factor[k]
                        w = gain / r
                        logs += np.log(r)
                    squares += w * z * z
                _powers(s, t, w if n + m < stop else 0.0, z, X[m], Y[m])
            if stop - n > _AT_ONCE // 2:
                for a in range(rows):
                    p = a if a < n_w else a + skipped
                    y0, y1, y2, y3 = Y[0, p], Y[1, p], Y[2, p], Y[3, p]
                    y4, y5, y6, y7 = Y[4, p], Y[5, p], Y[6, p], Y[7, p]
                    row = sums[a]
                    for b in range(lanes):
                        # One after the other onto the row: each is one fused operation.
                        row[b] = (
                            row[b] + y0 * x0[b] + y1 * x1[b] + y2 * x2[b] + y3 * x3[b]
                            + y4 * x4[b] + y5 * x5[b] + y6 * x6[b] + y7 * x7[b]
                        )  # fmt: skip
            else:
                for a in range(rows):
                    p = a if a < n_w else a + skipped
                    y0, y1, y2, y3 = Y[0, p], Y[1, p], Y[2, p], Y[3, p]
                    row = sums[a]
                    for b in range(lanes):
                        row[b] = row[b] + y0 * x0[b] + y1 * x1[b] + y2 * x2[b] + y3 * x3[b]
        _add_moments(sums, k, sums_by_block)
        totals = sums_by_block.totals
        totals[k, 0] += squares
        totals[k, 1] += gain * (stop - start)
        totals[k, 2] += gain * logs


@njit(inline="always")
def _add_moments(sums, k, sums_by_block):  # type: ignore[no-untyped-def]
    """Add the sums (n + m, lanes) of some points of block k to its moments of weights and heights."""
    weights, heights = sums_by_block.weights, sums_by_block.heights
    n_w, n_h = weights.shape[1], heights.shape[1]
    for a in range(n_w):
        for b in range(n_w):
            weights[k, a, b] += sums[a, b]
    for a in range(n_h):
        for b in range(n_h):
            heights[k, a, b] += sums[n_w + a, b]


@njit(inline="always")
def _powers(s, t, w, z, x, y):  # type: ignore[no-untyped-def]
    """s^b (7,), and w t^a, w t^a z (7 + 6,), whichever are wanted: few multiplications deep, so that they overlap."""
    s2 = s * s
    s3 = s2 * s
    x[0] = 1.0
    x[1] = s
    x[2] = s2
    x[3] = s3
    x[4] = s2 * s2
    x[5] = s2 * s3
    x[6] = s3 * s3
    t2 = t * t
    t3 = t2 * t
    w3 = w * t3
    y[0] = w
    y[1] = w * t
    y[2] = w * t2
    y[3] = w3
    y[4] = w3 * t
    y[5] = w3 * t2
    y[6] = w3 * t3
    for a in range(ORDER):
        y[MOMENTS + a] = y[a] * z
