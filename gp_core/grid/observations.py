"""The observations of a map: points in, sufficient statistics kept, with fading and factors on the noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.ndimage import maximum_filter

from gp_core.arrays import Array, positive
from gp_core.grid.axes import Axis, Grid
from gp_core.grid.blocks import Blocks, blocks_of, statistics_of
from gp_core.grid.local_noise import LocalNoise
from gp_core.grid.moments import MomentOrders
from gp_core.grid.statistics import (
    BAD_VARIANCE,
    CHUNK,
    COUNT,
    NOT_FINITE,
    OUTSIDE,
    Located,
    Mask,
    Statistics,
    locate,
)
from gp_core.grid.workers import Workers

_FADED: Final = 500.0
"""Half-lives after which nothing is left of a point in float64."""
_MOST_APART: Final = 0.5
"""Share of the blocks from which on all are copied."""
_MAX_GAIN: Final = 1e6
"""Gain at which all statistics are divided by it, so that new points never overflow."""


@dataclass(frozen=True)
class Intake:
    """What `update` did with the points it was given.

    used: points taken in
    not_finite: points with NaN or infinity in position, height or variance
    bad_variance: points whose variance is not positive
    outside: points outside the grid
    """

    used: int
    not_finite: int
    bad_variance: int
    outside: int

    @property
    def dropped(self) -> int:
        return self.not_finite + self.bad_variance + self.outside


@dataclass(frozen=True)
class Points:
    """Points with checked shapes; their values are checked when they are sorted into blocks.

    xy: (N, 2) positions
    z: (N,) heights
    variance: (N,) noise variances, or (1,) for all
    """

    xy: Array
    z: Array
    variance: Array

    def __len__(self) -> int:
        return int(self.z.size)

    def part(self, rows: slice) -> Points:
        """Some of the points."""
        variance = self.variance if self.variance.size == 1 else self.variance[rows]
        return Points(self.xy[rows], self.z[rows], variance)


class Observations:
    """Statistics of the points in a window of the lattice of blocks.

    Points that fade are not multiplied by a factor that falls: new points enter with a `gain` that grows, and all
    statistics are too large by it.

    grid: the cells, whose area takes points
    spacing: (h_x, h_y), sides of a block
    orders: of the moments that are kept
    reference: height that is subtracted from all heights
    unresolved: variance added to that of every point: what the lattice does not resolve
    half_life: seconds after which a point counts half; None for ever

    statistics: moments of the points, J x I blocks
    noise: factors on the variances of the points, by block
    changed: (J, I) blocks whose data have changed since `mark_read`
    read_gain: (J, I) gain at which each block was last read
    """

    def __init__(
        self,
        grid: Grid,
        spacing: tuple[float, float],
        orders: MomentOrders,
        reference: float,
        unresolved: float,
        half_life: float | None,
        workers: Workers,
    ) -> None:
        self.grid = grid
        self.unresolved = unresolved
        self.half_life = half_life
        self._spacing = spacing
        self._workers = workers
        self._epoch: float | None = None
        self._now: float | None = None
        x, y = self._axes(grid)
        self.statistics = Statistics(x, y, orders, reference)
        self.noise = LocalNoise(x, y)
        self.changed: Mask
        self.read_gain: Array
        self.mark_unread()

    # -- what is known -----------------------------------------------------------------------------------

    @property
    def count(self) -> float:
        """Points in the window; a fractional number where they fade."""
        return float(self.statistics.totals[..., COUNT].sum()) / self.gain

    @property
    def mean_height(self) -> float | None:
        """Mean of the heights, each point weighted by its precision; None without points."""
        s = self.statistics
        weight = float(s.weights[..., 0, 0].sum())
        return s.reference + float(s.heights[..., 0, 0].sum()) / weight if weight > 0.0 else None

    @property
    def height_range(self) -> tuple[float, float] | None:
        """Mean height of the points of the lowest and of the highest block; None without points."""
        s, some = self.statistics, self.with_data
        if not some.any():
            return None
        means = s.reference + s.heights[..., 0, 0][some] / s.weights[..., 0, 0][some]
        return float(means.min()), float(means.max())

    @property
    def with_data(self) -> Mask:
        """(J, I) blocks that hold points."""
        filled: Mask = self.statistics.weights[..., 0, 0] > 0.0
        return filled

    @property
    def gain(self) -> float:
        """Factor by which all statistics are too large."""
        if self.half_life is None or self._now is None or self._epoch is None:
            return 1.0
        return float(2.0 ** ((self._now - self._epoch) / self.half_life))

    def effective(self) -> Statistics:
        """The statistics with fading applied."""
        s = self.statistics
        if self.gain == 1.0:
            return s
        faded = s.copy_to(s.x, s.y)
        faded.scale(1.0 / self.gain)
        return faded

    def blocks(self) -> Blocks:
        """The statistics with fading applied and the noise variances as they were given."""
        s = self.effective()
        if np.isinf(self.noise.shape) and self.noise.scale == 1.0:
            return blocks_of(s)
        as_given = s.copy_to(s.x, s.y)
        as_given.scale_noise(1.0 / self.noise.factor)
        return blocks_of(as_given)

    # -- points in and out -------------------------------------------------------------------------------

    def add(self, points: Points, stamp: float | None) -> Intake:
        """Add points, in O(N). stamp: their time, where points fade."""
        gain = self._advance(stamp)
        used, refused = 0, np.zeros(3, dtype=np.int64)
        for start in range(0, len(points), CHUNK):
            located = self._locate(points.part(slice(start, start + CHUNK)))
            self.changed |= self.statistics.add_points(
                located, gain, self.unresolved, self._workers, self.noise.factor
            )
            used += len(located.points)
            refused += located.refused
        return _intake(used, refused)

    def require_good(self, points: Points) -> None:
        """ValueError if a point would be refused."""
        refused = self._locate(points).refused
        if refused.sum():
            raise ValueError(
                f"{refused.sum()} of {len(points)} points are bad: {refused[NOT_FINITE]} not finite, "
                f"{refused[BAD_VARIANCE]} with variance <= 0, {refused[OUTSIDE]} outside the grid; nothing was "
                "taken in. Remove them, or use on_bad='drop'"
            )

    def remove(self, points: Points) -> Intake:
        """Subtract points that were added before; ValueError if a block does not hold that much."""
        s = self.statistics
        part = Statistics(s.x, s.y, s.orders, s.reference)
        located = self._locate(points)
        touched = part.add_points(located, 1.0, self.unresolved, self._workers, self.noise.factor)
        have, less = s.totals[..., COUNT], part.totals[..., COUNT]
        W, w = s.weights[..., 0, 0], part.weights[..., 0, 0]
        if (less > have).any() or (w > W * (1.0 + 1e-9)).any():
            raise ValueError("remove: more was to be taken out of a block than it holds; nothing was changed")
        s.add(part, -1.0)
        # What a block without points holds after the subtraction is round-off.
        emptied = touched & (s.totals[..., COUNT] < 0.5)
        for array in s.arrays:
            array[emptied] = 0.0
        self.changed |= touched
        return _intake(len(located.points), located.refused)

    def forget(self, xy: Array) -> None:
        """Empty the blocks that positions (N, 2) are in."""
        s = self.statistics
        column, row = s.x.locate(xy[:, 0])[0], s.y.locate(xy[:, 1])[0]
        inside = (column >= 0) & (column < s.x.count) & (row >= 0) & (row < s.y.count)
        at = row[inside], column[inside]
        for array in s.arrays:
            array[at] = 0.0
        self.changed[at] = True

    def limit_information(self, max_information: float) -> None:
        """Scale down the blocks whose weights sum to more than `max_information`, 1 / m^2."""
        s = self.statistics
        weight = s.weights[..., 0, 0]
        # Blocks that are at the limit already may be above it by round-off.
        limit = positive(max_information, "max_information") * self.gain
        over = np.nonzero(weight > limit * (1.0 + 1e-9))
        if over[0].size:
            factor = limit / weight[over]
            for array in s.arrays:
                array[over] *= factor.reshape(-1, *[1] * (array.ndim - 2))
            self.changed[over] = True

    def add_blocks(self, blocks: Blocks) -> None:
        """Add blocks, as far as they lie in this window; ValueError if their lattice is another."""
        s = self.statistics
        part = statistics_of(blocks, s.x, s.y, s.orders)
        if (self.noise.factor != 1.0).any():
            part.scale_noise(self.noise.factor)
        if self.gain == 1.0 and part.reference == s.reference and not self.with_data.any():
            self.statistics = part  # a window of a large map: adding to nothing costs a tenth of solving it
        else:
            s.add(part, self.gain)
        self.changed |= part.weights[..., 0, 0] > 0.0

    def merge(self, other: Observations) -> None:
        """Add the observations of another window of the same lattice, as far as they lie in this one."""
        if self.half_life is not None and other._now is not None:
            self._advance(other._now)
        s, o = self.statistics, other.statistics
        if self.count == 0.0:
            s.reference = o.reference
        part = o.copy_to(s.x, s.y)
        part.scale_noise(self.noise.factor / other.noise.copy_to(s.x, s.y).factor)
        age = 1.0
        if self.half_life is not None and self._now is not None and other._now is not None:
            age = 2.0 ** (-(self._now - other._now) / self.half_life)
        s.add(part, age * self.gain / other.gain)
        self.changed |= part.weights[..., 0, 0] != 0.0

    def take(self, other: Observations) -> None:
        """Have the observations of another one of the same window, and no others; the noise factors stay.

        Blocks that changed there since it was last read count as changed here; there, they are read then.
        """
        s, o = self.statistics, other.statistics
        changed = other.changed | (self.with_data & ~other.with_data)
        if changed.mean() > _MOST_APART:
            changed[:] = True
        s.take(o, changed, self.noise.factor / other.noise.factor)
        self._epoch, self._now = other._epoch, other._now
        self.changed |= changed
        other.mark_read()

    # -- noise, window and what was read -----------------------------------------------------------------

    def scale_noise(self, factor: float) -> None:
        """Multiply the noise variances of all points by a number."""
        self.statistics.scale_noise(factor)

    def set_noise(self, noise: LocalNoise) -> Array:
        """Weight the points by other noise factors; returns the factor (J, I) by which they changed."""
        change: Array = noise.factor / self.noise.factor
        self.statistics.scale_noise(change)
        self.noise = noise
        self.changed |= self.with_data & (change != 1.0)
        return change

    def measured_noise(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Noise variance (N,) of a point like those measured around (x, y), and the degrees of freedom of it.

        Points of one block may have variances of their own: the harmonic mean of them, times the factor.
        """
        s = self.effective()
        given = LocalNoise(s.x, s.y)
        weight, count = s.weights[..., 0, 0] * self.noise.factor, s.totals[..., COUNT]
        some = weight > 0.0
        if some.any():
            given.scale = float(count[some].sum() / weight[some].sum())
            given.factor[:] = given.scale
            given.factor[some] = count[some] / weight[some]
        factor, degrees = self.noise.at(x, y)
        return factor * given.at(x, y)[0], degrees

    def largest_stated_noise(self, reach: float) -> Array:
        """(J, I) largest noise variance, as given, of the blocks in a square of that half edge, metres; 0 without any.

        Of a block it is the variance of one point that would say as much as each of its points does on average.
        """
        s = self.statistics
        weight = s.weights[..., 0, 0] * self.noise.factor
        own = np.divide(s.totals[..., COUNT], weight, out=np.zeros_like(weight), where=weight > 0.0)
        size = [2 * int(np.ceil(reach / axis.spacing)) + 1 for axis in (s.y, s.x)]
        return np.asarray(maximum_filter(own, size, mode="constant"))

    def move(self, grid: Grid) -> None:
        """Change the window; blocks that both windows cover are kept exactly, others are dropped."""
        x, y = self._axes(grid)
        self.grid = grid
        self.statistics, self.noise = self.statistics.copy_to(x, y), self.noise.copy_to(x, y)
        self.mark_unread()

    def mark_unread(self) -> None:
        """Count every block with points as changed."""
        self.read_gain = np.full(self.statistics.weights.shape[:2], self.gain)
        self.changed = self.with_data

    def mark_read(self) -> None:
        """Count all blocks as known to the solver, at the present gain."""
        self.read_gain[self.changed] = self.gain
        self.changed = np.zeros_like(self.changed)

    def mark_faded(self, factor: float) -> None:
        """Count blocks as changed that have faded by more than `factor` since they were read."""
        if self.half_life is not None:
            self.changed |= self.with_data & (self.gain > factor * self.read_gain)

    def _axes(self, grid: Grid) -> tuple[Axis, Axis]:
        x_min, y_min, x_max, y_max = grid.bounds
        h_x, h_y = self._spacing
        return Axis.covering(x_min, x_max, h_x), Axis.covering(y_min, y_max, h_y)

    def _locate(self, points: Points) -> Located:
        s = self.statistics
        return locate(points.xy, points.z, points.variance, self.grid.bounds, s.x, s.y)

    def _advance(self, stamp: float | None) -> float:
        """Move time on to a stamp; returns the gain of points of that time."""
        if self.half_life is None:
            return 1.0
        if stamp is None:
            raise ValueError("a map with a half-life needs the time of the points: give stamp, in seconds")
        stamp = float(stamp)
        if not np.isfinite(stamp):
            raise ValueError(f"stamp must be finite, got {stamp}")
        if self._epoch is None or self._now is None:
            self._epoch = self._now = stamp
        if stamp > self._now + _FADED * self.half_life:
            self.statistics.scale(0.0)
            self.changed |= True
            self._epoch = self._now = stamp
        self._now = max(self._now, stamp)
        if self.gain > _MAX_GAIN:
            self.statistics.scale(1.0 / self.gain)
            self.read_gain /= self.gain
            self._epoch = self._now
        return float(2.0 ** ((stamp - self._epoch) / self.half_life))


def _intake(used: int, refused: Any) -> Intake:
    return Intake(used, int(refused[NOT_FINITE]), int(refused[BAD_VARIANCE]), int(refused[OUTSIDE]))


def as_positions(xy: Any) -> Array:
    """xy as finite positions (N, 2)."""
    points: Array = np.ascontiguousarray(xy, dtype=np.float64)
    if points.size == 0:
        points = points.reshape(0, 2)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"xy must be positions of shape (N, 2), got {points.shape}")
    if not np.isfinite(points).all():
        raise ValueError("xy contains NaN or infinity: remove these points")
    return points


def as_points(xy: Any, z: Any, variance: Any) -> Points:
    """Points from positions (N, 2), heights (N,) and variances, a number or (N,); their shapes are checked."""
    xy = np.ascontiguousarray(xy, dtype=np.float64)
    z = np.ascontiguousarray(z, dtype=np.float64)
    if xy.size == 0 and z.size == 0:
        xy, z = xy.reshape(0, 2), z.reshape(0)
    if xy.ndim != 2 or xy.shape[1] != 2:
        raise ValueError(f"xy must be positions of shape (N, 2), got {xy.shape}")
    if z.shape != (xy.shape[0],):
        raise ValueError(f"z must have shape ({xy.shape[0]},) to match xy, got {z.shape}")
    r = np.asarray(variance, dtype=np.float64)
    if r.ndim > 0 and r.shape != z.shape:
        raise ValueError(f"variance must be a number or have shape {z.shape}, got {r.shape}")
    return Points(xy, z, np.ascontiguousarray(r.reshape(-1)))
