"""How much of what neighbouring blocks differ by is noise: one factor on the noise variances of all points.

The mean of the points of a block is an observation of the ground at their centroid, of variance 1 / sum(1 / r). Some
blocks with their K nearest neighbours are taken as independent groups (a composite likelihood; Varin, Reid and Firth,
2011). In each the plane through them is projected out, so that hillsides do not count, and the rest y is

    y ~ N(0, tau (K + s R)),    tau ~ scaled inverse chi-square with few degrees of freedom,

with the kernel's covariance K, the noise covariance R as it was given, the factor s that is wanted, and a scale tau of
the group's own: ground is rough here and smooth there, and only the ratio of noise to relief is asked for. In the
eigenvectors of K relative to R the likelihood costs nothing for any s.

Where blocks hold several points, their scatter about a plane of their own says how well the mean of each is known, w.
Then s is the one with the smallest estimated error of the surface (Stein, 1981),

    sum over groups of  e^2 + 2 w h,    e: mean of the middle block less the surface, h: its leverage.

It differs from the most likely s where few places are far rougher than the rest, as at vertical faces: there a surface
that smooths as suits the rest is far off, and what a little more noise costs elsewhere is small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gp_core.arrays import Array
from gp_core.grid.statistics import COUNT, SQUARES, Statistics
from gp_core.kernels import Kernel

Indices = np.ndarray[Any, np.dtype[np.int64]]

_GROUPS: Final = 600
_NEIGHBOURS: Final = 12
"""Blocks of a group, its middle included."""
_FEWEST: Final = 30
"""Blocks from which a factor can be learned."""
_DEGREES: Final = 4.0
"""Of the scale of a group: the ground may be ten times rougher in one place than in another."""
_LEVELS: Final = np.arange(-14.0, 14.01, 0.4)
"""Logarithms of the factor that are tried."""
_SPREAD: Final = 4.0
"""Of the logarithm of the factor before any data; counts like one group."""
_LEAST_OF_NEIGHBOURS: Final = 0.1
"""Share that the neighbours of a block have in the height there, at least: a map that only repeats its points has no
residuals to learn from, and a point is never exactly the height of its block."""
_MOST_OF_NEIGHBOURS: Final = 0.9
"""The same at most, of what it has where noise is all: a plane has no relief to learn from, so that any level fits
it, but the higher it is the more a slope is drawn towards the mean of the map."""
_NO_RELIEF: Final = 1e-12
"""Squares of heights beside the plane, over the noise variance, that are rounding and no more."""
_LEAST_TYPICAL: Final = 1e-9
"""Of the mean of the squares, the typical square at least."""
_PLANE: Final = 3
_AT_MOST_LESS: Final = 3.0
"""Times less than the level of least risk."""
_POINTS_DENSE, _SHARE_DENSE = 6.0, 0.5
"""Points of a block whose scatter can be judged, and share of such blocks from which s is chosen by it."""


@dataclass(frozen=True)
class _Groups:
    """G groups of K blocks, the middle one first.

    xy: (G, K, 2) centroids; height, variance: (G, K) of their means
    count: (G,) points of the middle block; scatter: (G,) variance of its mean by the scatter of its points, NaN of few
    """

    xy: Array
    height: Array
    variance: Array
    count: Array
    scatter: Array


def estimate_noise_level(s: Statistics, kernel: Kernel, unresolved: float) -> float | None:
    """The factor on the noise variances in `s`; None where there are too few blocks, or no relief at all.

    unresolved: variance under the kernel of the relief that the lattice can't carry
    """
    groups = _choose_groups(s)
    if groups is None:
        return None
    eigenvalues, rest, directions = _decompose(groups, kernel)
    total = (rest**2).sum(axis=1)
    if not np.isfinite(total).all() or not np.isfinite(eigenvalues).all() or total.max() <= _NO_RELIEF:
        return None
    factor = np.exp(_LEVELS)
    over = 1.0 / (eigenvalues[None] + factor[:, None, None])  # (S, G, K - 3)
    own = factor[:, None] * (directions**2 * over).sum(axis=-1)  # 1 - leverage, grows with the factor
    known = np.isfinite(groups.scatter)
    if known.mean() > _SHARE_DENSE:
        residual = factor[:, None] * (directions * rest * over).sum(axis=-1)
        risk = groups.variance[:, 0] * residual**2 - 2.0 * groups.scatter * own
        chosen = _smallest_as_good(risk[:, known])
    else:
        squares = (rest**2 * over).sum(axis=-1)
        value = 0.5 * np.log(over).sum(axis=(1, 2)) + _log_density_of_squares(squares, rest.shape[1])
        chosen = _peak(value - 0.5 * (_LEVELS / _SPREAD) ** 2)
        # Of the points of a block the means say nothing: what the lattice can't carry is noise of each of them.
        of_point = float(np.median(groups.count * groups.variance[:, 0]))
        chosen = max(chosen, float(np.log(max(unresolved / of_point, np.finfo(np.float64).tiny))))
    of_points = np.median(1.0 - (1.0 - own) / np.maximum(groups.count, 1.0), axis=1)
    least = float(np.interp(_LEAST_OF_NEIGHBOURS, of_points, _LEVELS))
    all_noise = float(np.median((directions**2).sum(axis=-1)))
    most = float(np.interp(_MOST_OF_NEIGHBOURS * all_noise, np.median(own, axis=1), _LEVELS))
    return float(np.exp(max(min(chosen, most), least)))


def _smallest_as_good(risk: Array) -> float:
    """The smallest level whose risk (S, G) is about the least: within a standard error (Breiman et al., 1984).

    Where few groups decide, smoothing less is the smaller mistake: the surface then follows its dense points.
    """
    best = int(np.argmin(risk.mean(axis=1)))
    worse = risk[:best] - risk[best]
    as_good = worse.mean(axis=1) <= worse.std(axis=1) / np.sqrt(risk.shape[1])
    last_bad = np.flatnonzero(~as_good)
    smallest = _LEVELS[int(last_bad[-1]) + 1 if last_bad.size else 0]
    return float(max(smallest, _LEVELS[best] - np.log(_AT_MOST_LESS)))


def _choose_groups(s: Statistics) -> _Groups | None:
    # When called: few programs need it, and it takes a while to import.
    from scipy.spatial import cKDTree

    weight = s.weights[..., 0, 0]
    row, column = np.nonzero(weight > 0.0)
    if row.size < _FEWEST:
        return None
    w = weight[row, column]
    x = (column + s.x.first + 0.5 + 0.5 * s.weights[row, column, 0, 1] / w) * s.x.spacing
    y = (row + s.y.first + 0.5 + 0.5 * s.weights[row, column, 1, 0] / w) * s.y.spacing
    xy = np.column_stack([x, y])
    middle = np.random.default_rng(0).permutation(row.size)[:_GROUPS]
    near: Indices = np.asarray(cKDTree(xy).query(xy[middle], k=_NEIGHBOURS)[1], dtype=np.int64)
    height = s.heights[row, column, 0, 0] / w
    at = row[near[:, 0]], column[near[:, 0]]
    return _Groups(
        xy[near],
        height[near] - height[near][:, :1],
        1.0 / w[near],
        s.totals[at][:, COUNT],
        _scatter_of_means(s, at),
    )


def _scatter_of_means(s: Statistics, at: tuple[Indices, Indices]) -> Array:
    """(G,) variance of the mean of each block by its points' scatter about a plane; NaN with too few points."""
    W, H, totals = s.weights[at], s.heights[at], s.totals[at]
    terms = ((0, 0), (0, 1), (1, 0))
    normal = np.array([[W[:, a + c, b + d] for c, d in terms] for a, b in terms]).transpose(2, 0, 1)
    right = np.array([H[:, a, b] for a, b in terms]).T
    count, out = totals[:, COUNT], np.full(len(W), np.nan)
    enough = count >= _POINTS_DENSE
    if enough.any():
        some = normal[enough] + 1e-9 * W[enough, :1, :1] * np.eye(_PLANE)
        fitted = (right[enough] * np.linalg.solve(some, right[enough][..., None])[..., 0]).sum(axis=1)
        squares = np.maximum(totals[enough, SQUARES] - fitted, 0.0)
        out[enough] = squares / ((count[enough] - _PLANE) * W[enough, 0, 0])
    return out


def _decompose(groups: _Groups, kernel: Kernel) -> tuple[Array, Array, Array]:
    """(G, K - 3) per group: eigenvalues of its covariance relative to the noise, heights in the eigenvectors, and
    the eigenvectors at the middle block."""
    xy = groups.xy - groups.xy[:, :1]
    distance = np.sqrt(((xy[:, :, None] - xy[:, None]) ** 2).sum(axis=-1))
    at = np.linspace(0.0, float(distance.max()) * (1.0 + 1e-9), 2048)
    covariance = np.interp(distance, at, kernel(np.column_stack([at, 0.0 * at]), np.zeros((1, 2)))[:, 0])
    extent = np.maximum(np.abs(xy).max(axis=(1, 2)), np.finfo(np.float64).tiny)
    root = np.sqrt(groups.variance)
    # In units of the noise of each block its covariance is 1: contrasts orthogonal to the plane are, too.
    plane = (
        np.concatenate([np.ones((*xy.shape[:2], 1)), xy / extent[:, None, None]], axis=-1) / root[..., None]
    )
    contrasts = np.linalg.qr(plane, mode="complete")[0][..., _PLANE:]
    relative = covariance / (root[:, :, None] * root[:, None])
    values, vectors = np.linalg.eigh(np.swapaxes(contrasts, 1, 2) @ relative @ contrasts)
    directions = contrasts @ vectors
    rest = np.einsum("gki,gk->gi", directions, groups.height / root)
    return np.maximum(values, 0.0), rest, directions[:, 0]


def _log_density_of_squares(squares: Array, degrees: int) -> Array:
    """(S,) of squares (S, G) under groups with scales of their own, at the most likely typical scale."""
    # Most groups may be exactly level, with a step in the others: the typical scale is then as small as can be told.
    least = _LEAST_TYPICAL * squares.mean(axis=1, keepdims=True) + np.finfo(np.float64).tiny
    typical = np.maximum(np.median(squares, axis=1, keepdims=True) / degrees, least)
    for _ in range(30):
        scaled = (_DEGREES + degrees) * squares / (_DEGREES + squares / typical)
        typical = np.maximum(scaled.mean(axis=1, keepdims=True) / degrees, least)
    one = -0.5 * degrees * np.log(typical) - 0.5 * (_DEGREES + degrees) * np.log1p(
        squares / (_DEGREES * typical)
    )
    total: Array = one.sum(axis=1)
    return total


def _peak(value: Array) -> float:
    """Where the parabola through the largest value and its neighbours has its peak."""
    k = int(np.argmax(value))
    if k in (0, value.size - 1):
        return float(_LEVELS[k])
    below, here, above = value[k - 1 : k + 2]
    bend = below - 2.0 * here + above
    shift = 0.5 * (below - above) / bend if bend < 0.0 else 0.0
    return float(_LEVELS[k] + shift * (_LEVELS[1] - _LEVELS[0]))
