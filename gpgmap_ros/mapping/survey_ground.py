"""Ground in a cloud of everything: the lowest returns, interpolated robustly from coarse to fine cells.

The surface is the posterior mean of a Gaussian Markov field on the cells, whose data are the lowest heights of cells.
Weights are asymmetric (Kraus and Pfeifer, 1998): what lies above the surface counts less the higher it is, so that the
surface sinks to the ground under crowns and roofs. It is found from coarse cells, wider than any object, to fine ones;
at each level the data are heights above the surface of the level before, so that slopes do not look like objects.
What was taken for an object but continues ground without a step (ridges, banks) is ground again. A point is ground
where it is near the surface.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gpgmap_ros.arrays import Array

Mask = NDArray[np.bool_]

LEAST_STEP = 0.3
"""Height over edge of a cell by which the ground may rise above that of cells twice as large."""
STEEPEST = 1.2
"""Slope of ground that continues ground."""
ROUNDS, SWEEPS = 6, 6
"""Of a level: times that weights are computed again, and passes over the cells for each."""
STIFFNESS = 0.6
"""Weight of the difference of two neighbouring cells against that of a measured height."""
RELAXATION = 1.5
"""Factor on each correction of a pass: information travels faster."""
SUPPORT = 2
"""Points that make a lowest height where a cell has as many: a single lower one is a stray return."""
LOW_NEIGHBOURS, LOW_REACH, LOW_SHARE = 8, 5, 0.85
"""A cell is a stray that is lower by more than slopes allow than this share of so many neighbours, looked for in a
square of at most so many cells around."""
POINTS_PER_CELL = 4.0
"""In the mean, that a cell of the filter holds: nearly all have some."""


@dataclass(frozen=True)
class GroundCells:
    """Square cells of an area. origin: x and y of its corner; shape: rows and columns; edge: metres"""

    origin: tuple[float, float]
    shape: tuple[int, int]
    edge: float

    def lowest(self) -> Array:
        """(rows, columns, 3) of the lowest point of each cell: its height, column and row, NaN where there is none.

        Column and row are fractions, 0 in the middle of the first cell: on a slope the lowest point is at the edge.
        """
        return np.full((*self.shape, 3), np.nan)

    def add(self, lowest: Array, xy: Array, z: Array, tolerance: float) -> None:
        """Take points (N, 2), (N,) that are lower, and have others near above them."""
        if len(z):
            _add_lowest(lowest, xy, z, *self.origin, self.edge, tolerance)


def filter_edge(resolution: float, density: float) -> float:
    """Edge of the filter's cells, metres: that of the map, larger where points are sparse. density: per m^2"""
    return max(resolution, float(np.sqrt(POINTS_PER_CELL / density)))


def ground_surface(lowest: Array, edge: float, tolerance: float, width: float) -> Array:
    """(rows, columns) heights of the ground, NaN where there is none at all.

    lowest: see `GroundCells.lowest`; tolerance: metres by which points of ground scatter
    width: of the widest object, metres
    """
    seeds = np.ascontiguousarray(lowest[..., 0])
    _drop_low_strays(seeds.copy(), seeds, edge, tolerance)
    levels = max(int(np.ceil(np.log2(max(width / edge, 1.0)))), 0)
    known = np.isfinite(seeds)
    if not known.any():
        return seeds
    surface = np.full(seeds.shape, float(np.median(seeds[known])))
    for level in range(levels, -1, -1):
        size = 2**level
        rest = _lowest_in_squares(seeds - _at_lowest(surface, lowest), size)
        start = np.zeros(rest.shape)
        limit = tolerance + LEAST_STEP * edge * size if level < levels else np.inf
        correction = _robust_surface(rest, start, limit, tolerance + 0.5 * LEAST_STEP * edge * size)
        surface = surface + _spread(correction, size, seeds.shape)
    step = tolerance + LEAST_STEP * edge
    above = seeds - _at_lowest(surface, lowest)
    ground = known & (np.abs(above) <= step)
    _grow(ground, seeds, STEEPEST * edge, tolerance)
    rest = np.where(ground, above, np.nan)
    out: Array = surface + _robust_surface(rest, np.zeros(rest.shape), np.inf, np.inf)
    return out


def is_ground(xy: Array, z: Array, surface: Array, cells: GroundCells, tolerance: float) -> Mask:
    """(N,) whether points (N, 2), (N,) are near the surface. On a slope cells are not level: the limit is wider."""
    out: Mask = _near(xy, z, surface, *cells.origin, cells.edge, tolerance)
    return out


def _lowest_in_squares(values: Array, size: int) -> Array:
    """Smallest of squares of size x size cells, NaN where all are."""
    if size == 1:
        return values
    rows, columns = (-(-length // size) * size for length in values.shape)
    padded = np.full((rows, columns), np.inf)
    padded[: values.shape[0], : values.shape[1]] = np.where(np.isnan(values), np.inf, values)
    low = padded.reshape(rows // size, size, columns // size, size).min(axis=(1, 3))
    return np.where(np.isinf(low), np.nan, low)


def _spread(coarse: Array, size: int, shape: tuple[int, ...]) -> Array:
    """Bilinear between the middles of squares of size x size cells."""
    if size == 1:
        return coarse
    for axis in (0, 1):
        at = np.clip((np.arange(shape[axis]) + 0.5) / size - 0.5, 0.0, coarse.shape[axis] - 1.0)
        first = np.minimum(at.astype(np.int64), max(coarse.shape[axis] - 2, 0))
        share = (at - first).reshape((-1, 1) if axis == 0 else (1, -1))
        after = np.minimum(first + 1, coarse.shape[axis] - 1)
        coarse = np.take(coarse, first, axis) * (1.0 - share) + np.take(coarse, after, axis) * share
    return coarse


@compiled()
def _add_lowest(lowest, xy, z, x0, y0, edge, tolerance):  # type: ignore[no-untyped-def]
    """Of the points in each cell the lowest that has SUPPORT - 1 others within `tolerance` + slope above it."""
    rows, columns = lowest.shape[:2]
    cell = np.empty(len(z), dtype=np.int64)
    starts = np.zeros(rows * columns + 1, dtype=np.int64)
    for n in range(len(z)):
        i, j = int(np.floor((xy[n, 1] - y0) / edge)), int(np.floor((xy[n, 0] - x0) / edge))
        cell[n] = i * columns + j if 0 <= i < rows and 0 <= j < columns else -1
        if cell[n] >= 0:
            starts[cell[n] + 1] += 1
    for k in range(rows * columns):
        starts[k + 1] += starts[k]
    fill, order = starts[:-1].copy(), np.empty(starts[-1], dtype=np.int64)
    for n in range(len(z)):
        if cell[n] >= 0:
            order[fill[cell[n]]] = n
            fill[cell[n]] += 1
    for k in range(rows * columns):
        here = order[starts[k] : starts[k + 1]]
        if here.size == 0:
            continue
        here = here[np.argsort(z[here])]
        chosen = here[0]
        for n in range(here.size - SUPPORT + 1):
            if z[here[n + SUPPORT - 1]] <= z[here[n]] + tolerance + edge:
                chosen = here[n]
                break
        i, j = k // columns, k % columns
        if np.isnan(lowest[i, j, 0]) or z[chosen] < lowest[i, j, 0]:
            lowest[i, j, 0] = z[chosen]
            lowest[i, j, 1] = (xy[chosen, 0] - x0) / edge - 0.5
            lowest[i, j, 2] = (xy[chosen, 1] - y0) / edge - 0.5


@compiled()
def _at_lowest(surface, lowest):  # type: ignore[no-untyped-def]
    """(rows, columns) the surface, bilinear between the middles of cells, where the lowest point of each cell is."""
    rows, columns = surface.shape
    out = np.full((rows, columns), np.nan)
    for k in range(rows):
        for m in range(columns):
            if np.isnan(lowest[k, m, 0]):
                continue
            u = min(max(lowest[k, m, 1], 0.0), columns - 1.0)
            v = min(max(lowest[k, m, 2], 0.0), rows - 1.0)
            j, i = int(u), int(v)
            after, above = min(j + 1, columns - 1), min(i + 1, rows - 1)
            s, t = u - j, v - i
            south = surface[i, j] + s * (surface[i, after] - surface[i, j])
            north = surface[above, j] + s * (surface[above, after] - surface[above, j])
            out[k, m] = south + t * (north - south)
    return out


@compiled()
def _drop_low_strays(lowest, seeds, edge, tolerance):  # type: ignore[no-untyped-def]
    """Empty cells that are far below nearly all around them."""
    rows, columns = lowest.shape
    for i in range(rows):
        for j in range(columns):
            if np.isnan(lowest[i, j]):
                continue
            higher = others = 0
            for reach in range(1, LOW_REACH + 1):
                higher = others = 0
                for k in range(max(i - reach, 0), min(i + reach + 1, rows)):
                    for m in range(max(j - reach, 0), min(j + reach + 1, columns)):
                        if (k == i and m == j) or np.isnan(lowest[k, m]):
                            continue
                        others += 1
                        distance = edge * np.hypot(float(k - i), float(m - j))
                        higher += lowest[k, m] > lowest[i, j] + tolerance + STEEPEST * distance
                if others >= LOW_NEIGHBOURS:
                    break
            if others >= LOW_NEIGHBOURS and higher >= LOW_SHARE * others:
                seeds[i, j] = np.nan


@compiled()
def _robust_surface(data, start, limit, scale):  # type: ignore[no-untyped-def]
    """Smooth heights through the data (NaN: none) that those above pull less, and those beyond `limit` not at all.

    scale: height above the surface at which a cell has a quarter of its weight
    """
    rows, columns = data.shape
    out = start.copy()
    weight = np.zeros((rows, columns))
    for step in range(ROUNDS):
        for i in range(rows):
            for j in range(columns):
                if np.isnan(data[i, j]):
                    weight[i, j] = 0.0
                    continue
                above = data[i, j] - out[i, j]
                if above <= 0.0:
                    weight[i, j] = 1.0
                elif above > limit and step > 0:
                    weight[i, j] = 0.0
                else:
                    weight[i, j] = 1.0 / (1.0 + (above / scale) ** 2) ** 2
        for sweep in range(SWEEPS):
            for n in range(rows * columns):
                cell = n if sweep % 2 == 0 else rows * columns - 1 - n
                i, j = cell // columns, cell % columns
                total, count = 0.0, 0.0
                if i > 0:
                    total, count = total + out[i - 1, j], count + 1.0
                if i + 1 < rows:
                    total, count = total + out[i + 1, j], count + 1.0
                if j > 0:
                    total, count = total + out[i, j - 1], count + 1.0
                if j + 1 < columns:
                    total, count = total + out[i, j + 1], count + 1.0
                w = weight[i, j]
                value = STIFFNESS * total
                if w > 0.0:
                    value += w * data[i, j]
                if STIFFNESS * count + w > 0.0:
                    out[i, j] += RELAXATION * (value / (STIFFNESS * count + w) - out[i, j])
    return out


@compiled()
def _grow(ground, seeds, rise, tolerance):  # type: ignore[no-untyped-def]
    """Cells that continue ground without a step are ground. rise: between neighbouring cells"""
    rows, columns = seeds.shape
    stack = np.empty(rows * columns, dtype=np.int64)
    size = 0
    for cell in range(rows * columns):
        if ground[cell // columns, cell % columns]:
            stack[size] = cell
            size += 1
    while size > 0:
        size -= 1
        i, j = stack[size] // columns, stack[size] % columns
        for di, dj in ((0, 1), (0, -1), (1, 0), (-1, 0)):
            k, m = i + di, j + dj
            if not (0 <= k < rows and 0 <= m < columns) or ground[k, m] or np.isnan(seeds[k, m]):
                continue
            if abs(seeds[k, m] - seeds[i, j]) <= rise + tolerance:
                ground[k, m] = True
                stack[size] = k * columns + m
                size += 1


@compiled()
def _near(xy, z, surface, x0, y0, edge, tolerance):  # type: ignore[no-untyped-def]
    rows, columns = surface.shape
    out = np.zeros(len(z), dtype=np.bool_)
    for n in range(len(z)):
        u = min(max((xy[n, 0] - x0) / edge - 0.5, 0.0), columns - 1.0)
        v = min(max((xy[n, 1] - y0) / edge - 0.5, 0.0), rows - 1.0)
        j, i = min(int(u), max(columns - 2, 0)), min(int(v), max(rows - 2, 0))
        k, m = min(i + 1, rows - 1), min(j + 1, columns - 1)
        s, t = u - j, v - i
        south, north = surface[i, m] - surface[i, j], surface[k, m] - surface[k, j]
        west, east = surface[k, j] - surface[i, j], surface[k, m] - surface[i, m]
        slope = np.hypot((1.0 - t) * south + t * north, (1.0 - s) * west + s * east)  # over one cell
        height = (1.0 - t) * (surface[i, j] + s * south) + t * (surface[k, j] + s * north)
        above = z[n] - height
        limit = tolerance + 0.5 * slope
        out[n] = -limit <= above <= limit
    return out
