"""The data of a map: points in, statistics kept. `GridGP` makes the posterior from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gp_core.arrays import Array, positive
from gp_core.grid.axes import Axis, Grid
from gp_core.grid.blocks import Blocks, blocks_of, statistics_of
from gp_core.grid.local_noise import LocalNoise
from gp_core.grid.markov.prior import MarkovPrior
from gp_core.grid.prior import Prior
from gp_core.grid.statistics import (
    BAD_VARIANCE,
    CHUNK,
    COUNT,
    NOT_FINITE,
    OUTSIDE,
    Mask,
    Statistics,
    locate,
)
from gp_core.grid.trend import Trend
from gp_core.grid.workers import Workers

OnBad = Literal["drop", "raise"]


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


class GridData:
    """What a map remembers of its points, and how it takes them in. Not used by itself: `GridGP` is one.

    noise_variance, half_life, on_bad, mean: as in `GridGP`
    """

    noise_variance: float
    half_life: float | None
    on_bad: OnBad
    mean: float | Trend
    _grid: Grid
    _prior: Prior | MarkovPrior
    _workers: Workers
    _statistics: Statistics
    _noise: LocalNoise
    _changed: Mask
    _drawn_gain: Array
    _epoch: float | None
    _now: float | None

    @property
    def grid(self) -> Grid:
        """The cells."""
        return self._grid

    @property
    def count(self) -> float:
        """Points in the map; a fractional number where they fade."""
        return float(self._statistics.totals[..., COUNT].sum()) / self._gain

    @property
    def mean_height(self) -> float | None:
        """Mean of the heights, each point weighted by its precision; None without points."""
        s = self._statistics
        weight = float(s.weights[..., 0, 0].sum())
        return s.reference + float(s.heights[..., 0, 0].sum()) / weight if weight > 0.0 else None

    def update(self, xy: Any, z: Any, variance: Any = None, stamp: float | None = None) -> Intake:
        """Take in points, in O(N); the posterior is solved when it is asked for.

        xy: (N, 2) positions
        z: (N,) heights
        variance: (N,) or a number; noise variance of each height, `noise_variance` unless given
        stamp: time of the points in seconds, for a map with a half-life
        """
        xy, z, r = self._checked(xy, z, variance)
        if self.on_bad == "raise":
            self._require_good(xy, z, r)
        if self.count == 0.0 and isinstance(self.mean, str):
            good = np.isfinite(z)
            self._statistics.reference = float(np.median(z[good])) if good.any() else 0.0
        gain = self._gain_at(stamp)
        used, tally = 0, np.zeros(3, dtype=np.int64)
        s = self._statistics
        for start in range(0, z.size, CHUNK):
            part = slice(start, start + CHUNK)
            located = locate(xy[part], z[part], r if r.size == 1 else r[part], self.grid.bounds, s.x, s.y)
            self._changed |= s.take(located, gain, self._prior.unresolved, self._workers, self._noise.factor)
            used += len(located.points)
            tally += located.tally
        return Intake(used, int(tally[NOT_FINITE]), int(tally[BAD_VARIANCE]), int(tally[OUTSIDE]))

    def remove(self, xy: Any, z: Any, variance: Any = None) -> Intake:
        """Take out points that were taken in before, given exactly as then; not in a map with a half-life.

        Refused if a block does not hold that much: then other points, or other variances, were given.
        """
        if self.half_life is not None:
            raise ValueError("points fade in a map with a half-life: they can't be taken out exactly")
        xy, z, r = self._checked(xy, z, variance)
        s = self._statistics
        part = Statistics(s.x, s.y, s.reference)
        located = locate(xy, z, r, self.grid.bounds, s.x, s.y)
        touched = part.take(located, 1.0, self._prior.unresolved, self._workers, self._noise.factor)
        have, less = s.totals[..., COUNT], part.totals[..., COUNT]
        W, w = s.weights[..., 0, 0], part.weights[..., 0, 0]
        if (less > have).any() or (w > W * (1.0 + 1e-9)).any():
            raise ValueError("remove: more was to be taken out of a block than it holds; nothing was changed")
        s.add(part, -1.0)
        # What a block without points holds after the subtraction is round-off.
        emptied = touched & (s.totals[..., COUNT] < 0.5)
        for array in s.arrays:
            array[emptied] = 0.0
        self._changed |= touched
        tally = located.tally
        return Intake(
            len(located.points), int(tally[NOT_FINITE]), int(tally[BAD_VARIANCE]), int(tally[OUTSIDE])
        )

    def forget(self, xy: Any) -> None:
        """Empty the blocks, about half a length scale wide, that positions (N, 2) are in."""
        s = self._statistics
        xy = positions(xy)
        column, row = s.x.locate(xy[:, 0])[0], s.y.locate(xy[:, 1])[0]
        inside = (column >= 0) & (column < s.x.count) & (row >= 0) & (row < s.y.count)
        at = row[inside], column[inside]
        for array in s.arrays:
            array[at] = 0.0
        self._changed[at] = True

    def limit_information(self, most: float) -> None:
        """Let the points count less in blocks whose weights sum to more than `most`, 1 / m^2.

        A sensor that looks at one place for hours would else make a map that nothing can change any more.
        """
        s = self._statistics
        weight = s.weights[..., 0, 0]
        # Blocks that are at the limit already may be above it by round-off.
        over = np.nonzero(weight > positive(most, "most") * self._gain * (1.0 + 1e-9))
        if over[0].size:
            factor = most * self._gain / weight[over]
            for array in s.arrays:
                array[over] *= factor.reshape(-1, *[1] * (array.ndim - 2))
            self._changed[over] = True

    def blocks(self) -> Blocks:
        """All that the map remembers, with the noise variances as they were given."""
        return blocks_of(self._as_given())

    def add_blocks(self, blocks: Blocks) -> None:
        """Take in the data of blocks, as far as they lie in this window; ValueError if their lattice is another."""
        s = self._statistics
        part = statistics_of(blocks, s.x, s.y)
        part.scale_noise(self._noise.factor)
        s.add(part, self._gain)
        self._changed |= part.weights[..., 0, 0] > 0.0

    def _axes(self, grid: Grid) -> tuple[Axis, Axis]:
        x_min, y_min, x_max, y_max = grid.bounds
        h_x, h_y = self._prior.spacing
        return Axis.covering(x_min, x_max, h_x), Axis.covering(y_min, y_max, h_y)

    def _checked(self, xy: Any, z: Any, variance: Any) -> tuple[Array, Array, Array]:
        xy = np.ascontiguousarray(xy, dtype=np.float64)
        z = np.ascontiguousarray(z, dtype=np.float64)
        if xy.size == 0 and z.size == 0:
            xy, z = xy.reshape(0, 2), z.reshape(0)
        if xy.ndim != 2 or xy.shape[1] != 2:
            raise ValueError(f"xy must be positions of shape (N, 2), got {xy.shape}")
        if z.shape != (xy.shape[0],):
            raise ValueError(f"z must have shape ({xy.shape[0]},) to match xy, got {z.shape}")
        r = np.asarray(self.noise_variance if variance is None else variance, dtype=np.float64)
        if r.ndim > 0 and r.shape != z.shape:
            raise ValueError(f"variance must be a number or have shape {z.shape}, got {r.shape}")
        return xy, z, np.ascontiguousarray(r.reshape(-1))

    def _require_good(self, xy: Array, z: Array, r: Array) -> None:
        s = self._statistics
        tally = locate(xy, z, r, self.grid.bounds, s.x, s.y).tally
        if tally.sum():
            raise ValueError(
                f"{tally.sum()} of {z.size} points are bad: {tally[NOT_FINITE]} not finite, "
                f"{tally[BAD_VARIANCE]} with variance <= 0, {tally[OUTSIDE]} outside the grid; nothing was "
                "taken in. Remove them, or use on_bad='drop'"
            )

    @property
    def _gain(self) -> float:
        """Factor by which all statistics are too large: new points enter with it, and none has to fade."""
        if self.half_life is None or self._now is None or self._epoch is None:
            return 1.0
        return float(2.0 ** ((self._now - self._epoch) / self.half_life))

    def _gain_at(self, stamp: float | None) -> float:
        """Weight of points of the given time, relative to the epoch; time moves on to it."""
        if self.half_life is None:
            return 1.0
        if stamp is None:
            raise ValueError("a map with a half-life needs the time of the points: give stamp, in seconds")
        stamp = float(stamp)
        if not np.isfinite(stamp):
            raise ValueError(f"stamp must be finite, got {stamp}")
        if self._epoch is None or self._now is None:
            self._epoch = self._now = stamp
        if stamp > self._now + 500.0 * self.half_life:  # all that was known has faded to nothing
            self._statistics.scale(0.0)
            self._changed |= True
            self._epoch = self._now = stamp
        self._now = max(self._now, stamp)
        if self._gain > 1e6:
            self._statistics.scale(1.0 / self._gain)
            self._drawn_gain /= self._gain
            self._epoch = self._now
        return float(2.0 ** ((stamp - self._epoch) / self.half_life))

    def _effective(self) -> Statistics:
        """The statistics with fading applied."""
        s = self._statistics
        if self._gain == 1.0:
            return s
        faded = s.moved(s.x, s.y)
        faded.scale(1.0 / self._gain)
        return faded

    def _as_given(self) -> Statistics:
        """The statistics with fading applied, without the factors on the noise."""
        s = self._effective()
        if np.isinf(self._noise.shape):
            return s
        plain = s.moved(s.x, s.y)
        plain.scale_noise(1.0 / self._noise.factor)
        return plain


def positions(xy: Any) -> Array:
    """xy as finite positions (N, 2)."""
    points: Array = np.ascontiguousarray(xy, dtype=np.float64)
    if points.size == 0:
        points = points.reshape(0, 2)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"xy must be positions of shape (N, 2), got {points.shape}")
    if not np.isfinite(points).all():
        raise ValueError("xy contains NaN or infinity: remove these points")
    return points
