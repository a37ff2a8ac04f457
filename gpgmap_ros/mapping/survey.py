"""Surveys of any size: what is fixed before the first point is added, and the points of a part of it, sorted by tile.

A survey is worked on in parts, by any number of processes in any order. The points of a part are added to the
statistics of their blocks (`PartialSums`), and these are written to a file (survey_parts.py). When all parts are done,
each window of cells is solved from the blocks in it and around it (survey_window.py). Memory depends on the sizes of
parts and windows, not on the number of points or the extent of the survey.

The relief is modelled as a deviation from a coarse trend, which is subtracted from the points and added again to the
map: far from the data a map should continue the hillside, not return to the mean height of the survey.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gp_core.grid import Lattice
from gp_core.grid.local_scale import ScalePrior
from gp_core.grid.tiled_statistics import TileKey
from gpgmap_ros.config import Config
from gpgmap_ros.mapping.model import cached_gp
from gpgmap_ros.mapping.survey_trend import Trend, spline_height, trend_of

__all__ = ["Outliers", "PartialSums", "SurveyModel", "SurveyNoise", "TilePoints", "Trend", "trend_of"]

MAX_TILES_AT_ONCE = 1 << 18
"""Tiles over whose box a piece of points is sorted in one go; one that reaches farther is divided first."""


@dataclass(frozen=True, eq=False)
class SurveyModel:
    """What all parts of a survey must have in common.

    config: resolution, kernel, its length, its relief (of deviations from the trend) and noise.height_std are used
    trend: see above
    heights: lowest and highest that are used; points beyond are counted and left out
    ground_width: of the widest object that is told from ground, metres; 0 where all points are ground
    """

    config: Config
    trend: Trend
    heights: tuple[float, float] = (-np.inf, np.inf)
    ground_width: float = 0.0

    @cached_property
    def lattice(self) -> Lattice:
        """Of the blocks in which statistics are kept."""
        return cached_gp(self.config.mapping).lattice

    @property
    def variance(self) -> float:
        """Noise variance of every point."""
        return self.config.noise.height_std**2


@dataclass(frozen=True)
class SurveyNoise:
    """What all windows of a survey have in common, so that they agree where they meet.

    level: factor on the noise variances of all points
    scale: from which the factors on the variances are learned by place; None where there was nothing to learn from
    """

    level: float
    scale: ScalePrior | None


@dataclass(frozen=True)
class Outliers:
    """Points that were left out: their number, and where the first few, or the middles of groups of them, are."""

    count: int = 0
    places: tuple[tuple[float, ...], ...] = ()

    def __add__(self, other: Outliers) -> Outliers:
        return Outliers(self.count + other.count, (*self.places, *other.places)[:3])


@dataclass
class TilePoints:
    """Points of a part in one tile: batches of positions (N, 2) and heights above the trend (N,), in order."""

    batches: list[tuple[Array, Array]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(len(z) for _, z in self.batches)

    def joined(self) -> tuple[Array, Array]:
        """All positions (N, 2), and all heights (N,)."""
        if len(self.batches) > 1:
            xy, z = zip(*self.batches, strict=True)
            self.batches = [(np.concatenate(xy), np.concatenate(z))]
        return self.batches[0]


class PartialSums:
    """The points of one part of a survey, by tile: 24 bytes for each, so a part has a limited number of them.

    beyond_heights: points that were left out
    """

    def __init__(self, model: SurveyModel) -> None:
        self.model = model
        self.tiles: dict[TileKey, TilePoints] = {}
        self.beyond_heights = Outliers()

    @property
    def count(self) -> int:
        """Number of points."""
        return sum(tile.count for tile in self.tiles.values())

    def add(self, xyz: Array) -> None:
        """Add points (N, 3), all finite."""
        if not len(xyz):
            return
        xyz = np.ascontiguousarray(xyz)
        low, high = bounding_box(xyz)
        if low[2] < self.model.heights[0] or high[2] > self.model.heights[1]:
            self.add(self._drop_implausible(xyz))
            return
        for key, xy, z in sort_by_tile(self.model, xyz):
            self.tiles.setdefault(key, TilePoints()).batches.append((xy, z))

    def _drop_implausible(self, xyz: Array) -> Array:
        """The points whose heights are within the limits; the others are counted."""
        low, high = self.model.heights
        good = (xyz[:, 2] >= low) & (xyz[:, 2] <= high)
        gone = xyz[~good]
        self.beyond_heights += Outliers(len(gone), tuple(tuple(map(float, row)) for row in gone[:3]))
        return np.ascontiguousarray(xyz[good])


def sort_by_tile(model: SurveyModel, xyz: Array) -> Iterator[tuple[TileKey, Array, Array]]:
    """Positions (N, 2) and heights above the trend (N,) of the points (N, 3) in each tile."""
    low, high = (corner[:2] for corner in bounding_box(xyz))
    edges = np.array(model.lattice.tile_size)
    first = np.floor(low / edges).astype(np.int64)
    count = np.floor(high / edges).astype(np.int64) - first + 1
    if count[0] > MAX_TILES_AT_ONCE // count[1]:
        axis = int(np.argmax(count))
        nearer = xyz[:, axis] < 0.5 * (low[axis] + high[axis])
        yield from sort_by_tile(model, np.ascontiguousarray(xyz[nearer]))
        yield from sort_by_tile(model, np.ascontiguousarray(xyz[~nearer]))
        return
    trend = model.trend
    xy, z, starts = _sort_by_tile(xyz, edges, first, count, trend.heights, *trend.origin, trend.edge)
    for number in np.flatnonzero(np.diff(starts)):
        part = slice(starts[number], starts[number + 1])
        row, column = divmod(int(number), int(count[0]))
        yield (row + int(first[1]), column + int(first[0])), xy[part], z[part]


@compiled()
def bounding_box(points):  # type: ignore[no-untyped-def]
    """Smallest and largest coordinates (D,) of points (N, D): NumPy takes twenty times as long to find them."""
    low, high = points[0].copy(), points[0].copy()
    for n in range(len(points)):
        for axis in range(len(low)):
            value = points[n, axis]
            low[axis], high[axis] = min(low[axis], value), max(high[axis], value)
    return low, high


@compiled()
def _sort_by_tile(xyz, edges, first, count, heights, x0, y0, edge):  # type: ignore[no-untyped-def]
    """Positions (N, 2) and heights above the trend (N,) in order of the tiles, row by row, and where each tile begins
    (tiles + 1,): a counting sort. One pass over the points where there could be five: they come from memory.
    """
    tiles = count[0] * count[1]
    tile = np.empty(len(xyz), dtype=np.int32)
    starts = np.zeros(tiles + 1, dtype=np.int64)
    for n in range(len(xyz)):
        i = min(max(int(np.floor(xyz[n, 0] / edges[0])) - first[0], 0), count[0] - 1)
        j = min(max(int(np.floor(xyz[n, 1] / edges[1])) - first[1], 0), count[1] - 1)
        tile[n] = j * count[0] + i
        starts[tile[n] + 1] += 1
    for k in range(tiles):
        starts[k + 1] += starts[k]
    fill = starts[:-1].copy()
    xy, z = np.empty((len(xyz), 2)), np.empty(len(xyz))
    for n in range(len(xyz)):
        to = fill[tile[n]]
        fill[tile[n]] += 1
        x, y = xyz[n, 0], xyz[n, 1]
        xy[to, 0], xy[to, 1] = x, y
        z[to] = xyz[n, 2] - spline_height(x, y, heights, x0, y0, edge)
    return xy, z, starts
