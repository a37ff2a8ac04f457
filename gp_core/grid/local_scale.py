"""How far the ground is from what the map says, by place: one factor on all variances.

A process with kernel tau k and noise variances tau r has the same mean for every tau, and tau times the variance. So
tau can be learned by place, where the ground is rougher or the points scatter more than elsewhere, without touching the
surface. Given the mean f, the points of a block leave the squares q = sum (z - f)^2 / r, of which the model expects
d = n - sum of the leverages. For d the degrees of freedom of q,

    tau | q  ~  scaled inverse chi-square,    nu + d degrees,    about (nu tau_0 + q) / (nu + d),

with the prior's tau_0 from the surroundings: the same over a square of blocks three times as wide, and so on up to the
whole map. nu says how much a place resembles its surroundings. It is chosen at each width so that the squares are most
likely (empirical Bayes), so a map with few points is pooled widely and one with many is not.

Points are not normal, either: they follow a Student t distribution about the map, with the width and the degrees that
make a sample of the map's own points most likely, each predicted without itself. What is left is taken out by the
shares of that sample within each interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from scipy.ndimage import uniform_filter
from scipy.special import gammaln

from gp_core.arrays import Array
from gp_core.grid import student_t
from gp_core.grid.axes import Axis
from gp_core.grid.markov.detail import Detail, join_details
from gp_core.grid.statistics import COUNT, Mask, Statistics, overlap

_WIDTHS: Final = (27, 9, 3, 1)
"""Blocks along a side of the squares, from the widest to the finest."""
_DEGREES: Final = 2.0 ** np.arange(-1.0, 9.0)
"""Values of nu that are tried."""
_MAX_BLOCKS: Final = 1500
"""From which nu is chosen."""
_STATED: Final = 10.0
"""Degrees of freedom that the stated noise counts for in the map as a whole."""
_LEAST: Final = 1e-4
"""Of the stated noise variance, the scatter at least: exact points are a simulation, or copies of one another."""
_LEAST_OWN: Final = 0.05
"""Of a point, what the others leave to be learned from it at least: leverages are known to some per cent."""
_T_DEGREES: Final = (1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 60.0)
_T_WIDTHS: Final = np.exp(np.arange(-2.0, 1.01, 0.05))
_QUANTILES: Final = 400
"""Of a sample, to which a distribution is fitted: as good as all of it."""
_MORE, _FEWEST_OWN = 2.0, 3.0
"""Times the scatter around that a block must exceed to have relief of its own, and degrees of freedom to say so."""
_LEVEL, _REACH = 0.95, 1.96
"""Share of a normal distribution within so many standard deviations."""
MIN_SAMPLE: Final = 100
"""Points from which the distribution of points about the map is learned."""


@dataclass
class LocalScale:
    """Factors on the variances of a map by block of a window of the lattice.

    x, y: the axes
    overall: of the whole map, which holds beyond the window
    factor: (J, I) tau, before the correction
    degrees: (J, I) degrees of freedom of that knowledge
    unfollowed: (J, I) variance of heights within a block beyond that of points around it: relief of an edge or a face
        that a surface with blocks of this size can't follow
    correction: on all factors, so that two deviations hold what they should of a sample of points
    width, tails: scale and degrees of the Student t distribution of points, in deviations that the map states
    levels: (M,) levels of the intervals that just hold each point of a sample, growing; empty if there was none
    """

    x: Axis
    y: Axis
    overall: float
    factor: Array = field(repr=False)
    degrees: Array = field(repr=False)
    unfollowed: Array = field(repr=False)
    correction: float = 1.0
    width: float = 1.0
    tails: float = np.inf
    levels: Array = field(default_factory=lambda: np.zeros(0), repr=False)

    def copy_to(self, x: Axis, y: Axis) -> LocalScale:
        """The factors of another window: what both cover is kept, the rest has that of the whole map."""
        size = (y.count, x.count)
        out = replace(
            self,
            x=x,
            y=y,
            factor=np.full(size, self.overall),
            degrees=np.full(size, _STATED),
            unfollowed=np.zeros(size),
        )
        (to_x, from_x), (to_y, from_y) = overlap(x, self.x), overlap(y, self.y)
        out.factor[to_y, to_x] = self.factor[from_y, from_x]
        out.degrees[to_y, to_x] = self.degrees[from_y, from_x]
        out.unfollowed[to_y, to_x] = self.unfollowed[from_y, from_x]
        return out

    def at(self, x: Array, y: Array) -> Array:
        """tau (N,) at points; that of the nearest block outside the window."""
        return np.asarray(self.correction * self.factor[_nearest(self.y, y), _nearest(self.x, x)])

    def on_grid(self, x: Array, y: Array) -> Array:
        """tau (ny, nx) at the crossings of lines at x (nx,) and y (ny,)."""
        return np.asarray(self.correction * self.factor[np.ix_(_nearest(self.y, y), _nearest(self.x, x))])

    def unfollowed_at(self, x: Array, y: Array) -> Array:
        """(N,) at points."""
        return np.asarray(self.correction * self.unfollowed[_nearest(self.y, y), _nearest(self.x, x)])

    def unfollowed_on_grid(self, x: Array, y: Array) -> Array:
        """(ny, nx) at the crossings of lines at x (nx,) and y (ny,)."""
        return np.asarray(self.correction * self.unfollowed[np.ix_(_nearest(self.y, y), _nearest(self.x, x))])

    def degrees_at(self, x: Array, y: Array) -> Array:
        """Degrees (N,) of the distribution of a point: those of the sample, or of the factor where there was none."""
        if self.levels.size:
            return np.full(x.shape, self.tails)
        return np.asarray(self.degrees[_nearest(self.y, y), _nearest(self.x, x)])

    def calibrate(self, score: Array) -> None:
        """Learn the distribution of points from a sample's errors (M,) in the deviations that `at` gives.

        Too few leave it as it is.
        """
        score = np.abs(score[np.isfinite(score)])
        if score.size < MIN_SAMPLE:
            return
        spread = max(float(np.quantile(score, _LEVEL)) / _REACH, _LEAST)
        self.correction *= spread**2
        score = score / spread
        order = np.sort(score)
        spaced = order[np.linspace(0, order.size - 1, min(order.size, _QUANTILES)).astype(np.int64)]
        best = -np.inf
        for tails in _T_DEGREES:
            value = student_t.log_density(spaced / _T_WIDTHS[:, None], np.asarray(tails)).mean(axis=1)
            value -= np.log(_T_WIDTHS)
            k = int(np.argmax(value))
            if value[k] > best:
                best, self.width, self.tails = float(value[k]), float(_T_WIDTHS[k]), tails
        self.levels = student_t.inside(order / self.width, np.full(order.shape, self.tails))

    def keep_shape(self, other: LocalScale) -> None:
        """Take over what was learned from a sample of points."""
        self.correction, self.width, self.tails = other.correction, other.width, other.tails
        self.levels = other.levels


@dataclass(frozen=True)
class BlockResiduals:
    """What the points of a window of the lattice say about tau.

    squares: (J, I) q, of the present residuals over the present noise variances
    own: (J, I) d; count: (J, I) points
    noise: (J, I) noise variance of a point, 0 without points
    inside: (J, I) blocks that speak for their surroundings: not those at the edge of a part of a larger map
    detail: below the lattice, which these residuals are without; None of none
    splines: the residuals with it; None of none
    """

    x: Axis
    y: Axis
    squares: Array = field(repr=False)
    own: Array = field(repr=False)
    count: Array = field(repr=False)
    noise: Array = field(repr=False)
    inside: Mask = field(repr=False)
    detail: Detail | None = None
    splines: BlockResiduals | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ScalePrior:
    """What all places of a map have in common. Parts of a map that share it agree where they overlap.

    stated: tau if the noise were as stated; overall: tau of the whole map
    degrees: nu at each width, from the widest on
    detail: of the map below the lattice; None of none
    splines: of the residuals with the detail; None of none
    """

    stated: float
    overall: float
    degrees: tuple[float, ...]
    detail: Detail | None = None
    splines: ScalePrior | None = None


def block_residuals(
    s: Statistics,
    squares: Array,
    leverage: Array,
    inside: Mask | None = None,
    detail: Detail | None = None,
    splines: BlockResiduals | None = None,
) -> BlockResiduals:
    """squares, detail, splines: see above; leverage: (J, I) of the points of a block; inside: all unless given"""
    count, weight = s.totals[..., COUNT], s.weights[..., 0, 0]
    own = np.clip(count - leverage, _LEAST_OWN * count, count)
    noise = np.divide(count, weight, out=np.zeros_like(count), where=count > 0.0)
    inside = np.ones(count.shape, np.bool_) if inside is None else inside
    return BlockResiduals(s.x, s.y, squares, own, count, noise, inside, detail, splines)


def learn_scale_prior(windows: Sequence[BlockResiduals], stated: float) -> ScalePrior:
    """What the windows, parts of one map, have in common. stated: what tau would be if the noise were as stated"""
    q = sum(float(window.squares[window.inside].sum()) for window in windows)
    d = sum(float(window.own[window.inside].sum()) for window in windows)
    overall = (_STATED * stated + q) / (_STATED + d)
    filled = [np.flatnonzero(window.inside.ravel() & (window.count.ravel() > 0.0)) for window in windows]
    step = -(-sum(some.size for some in filled) // _MAX_BLOCKS) or 1
    chosen = [some[::step] for some in filled]
    factors = [np.full(window.count.shape, overall) for window in windows]
    degrees: list[float] = []
    for width in _WIDTHS:
        sums = [_sums_around(window, width) for window in windows]
        some = [
            (q.ravel()[at], d.ravel()[at], factor.ravel()[at])
            for (q, d), factor, at in zip(sums, factors, chosen, strict=True)
        ]
        degrees.append(_choose_degrees(*(np.concatenate(part) for part in zip(*some, strict=True))))
        factors = [_pool(*of, factor, degrees[-1])[0] for of, factor in zip(sums, factors, strict=True)]
    detail = join_details([window.detail for window in windows])
    splines = None if detail is None else learn_scale_prior([w.splines or w for w in windows], stated)
    return ScalePrior(stated, overall, tuple(degrees), detail, splines)


def estimate_scale(window: BlockResiduals, prior: ScalePrior) -> LocalScale:
    """The factors of a window of a map.

    Which blocks the surface can't follow is judged by the splines: detail takes out most of what an edge leaves of the
    points of a block, and is as far off between them and at its sides as the splines are.
    """
    factor, degrees = np.full(window.count.shape, prior.overall), np.full(window.count.shape, _STATED)
    around = factor
    for width, nu in zip(_WIDTHS, prior.degrees, strict=True):
        factor, degrees = _pool(*_sums_around(window, width), factor, nu)
        around = factor if width == _WIDTHS[0] else around
    unfollowed = np.where(
        window.own >= _FEWEST_OWN, np.maximum(factor - _MORE * around, 0.0) * window.noise, 0.0
    )
    if window.splines is not None and prior.splines is not None:
        unfollowed = estimate_scale(window.splines, prior.splines).unfollowed
    least = _LEAST * prior.stated
    return LocalScale(window.x, window.y, prior.overall, np.maximum(factor, least), degrees, unfollowed)


def _sums_around(window: BlockResiduals, width: int) -> tuple[Array, Array]:
    """(J, I) q and d over a square of blocks around each."""
    if width == 1:
        return window.squares, window.own
    return _sum_around(window.squares, width), _sum_around(window.own, width)


def _pool(q: Array, d: Array, around: Array, nu: float) -> tuple[Array, Array]:
    """tau of q with d degrees and its own degrees, given tau of the surroundings and how much it says."""
    degrees = nu + d
    return (nu * around + q) / degrees, degrees


def _sum_around(values: Array, width: int) -> Array:
    total: Array = uniform_filter(values, width, mode="constant") * float(width * width)
    return np.maximum(total, 0.0)


def _choose_degrees(q: Array, d: Array, around: Array) -> float:
    """nu under which squares (K,) of d (K,) degrees are most likely, given tau of the surroundings (K,)."""
    if not q.size:
        return float(_DEGREES[-1])
    a = 0.5 * _DEGREES[:, None]
    c = a * np.maximum(around, np.finfo(np.float64).tiny)
    value = a * np.log(c) - (a + 0.5 * d) * np.log(c + 0.5 * q) + gammaln(a + 0.5 * d) - gammaln(a)
    return float(_DEGREES[int(np.argmax(value.mean(axis=1)))])


def _nearest(axis: Axis, at: Array) -> Array:
    index: Array = np.clip(axis.locate(at)[0], 0, axis.count - 1)
    return index
