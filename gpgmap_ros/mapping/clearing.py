"""Visibility clearing: a ray that passes through what the map's points show is evidence against them.

People, vehicles and dust leave points where, later, nothing is. The gate notices that where later points fall into the
same cell; where they do not, the rays to points behind it still pass there. What a ray is compared with is the mean
height f of the points that a cell has now, not the map as it was last solved, which knows nothing of what came since,
and where a ghost spreads into the cells around (of a map that was loaded, they are in its blocks). On
its way from the sensor, at a distance r, a ray contradicts the cell if it is deeper below f than

    tolerance + |g| edge + threshold sqrt(v + height_std^2 + (angle_std r)^2)

where g is the slope to the cells around, for the shape of the ground within the cell, v the variance of a point there,
and the last terms what the ray is uncertain by: at grazing angles a small error of the pose moves it through much
ground. Learned scatter takes no part: somebody who stood here leaves some, which must not protect what is left.

A cell is cleared when, since the last point that agreed with it, there or in a cell around,

- in `clouds` clouds, rays that contradict it passed on both sides of its points, closer together than these are wide
  (both with those of contradicted cells around): nothing as wide could stand there and not be hit. A wall seen along
  its face has rays on one side only, and a post or a fence thinner than the rays are apart may be missed, and stays;
- so many clouds would have missed it with a probability of at most `UNLIKELY` if they still hit it as often as clouds
  did before: what rays pass through and also hit, as grass and bushes, stays.

So are the cells around it, as far as they join, through which as many clouds had rays deeper than `tolerance` alone,
then or later: the flanks of what is not there. The map then forgets all of its data in them, as in cells that the gate
releases. A point clearly above the others of its cell begins a new layer, with which rays are compared from then on:
somebody over ground that was seen before. If such a layer goes, but what is below it has almost all of the weight, the
cell stays and the layer counts no longer. A ray says nothing of the cell that it ends in, nor of one without points.

There are no overhangs in an elevation map: under a bridge, the rays pass through what the map may show of its deck.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation, binary_propagation

from gp_core.grid import Blocks, Grid
from gp_core.grid.statistics import COUNT as POINTS
from gpgmap_ros.arrays import Array, Mask
from gpgmap_ros.config import ClearingConfig
from gpgmap_ros.mapping.cells import carry_over, flat_cells
from gpgmap_ros.mapping.elevation_map import block_centres
from gpgmap_ros.mapping.gate import PosteriorSnapshot
from gpgmap_ros.mapping.ray_evidence import (
    COUNT,
    HEIGHT,
    LOW_HEIGHT,
    LOW_WEIGHT,
    SUMS,
    VARIANCE,
    WEIGHT,
    XX,
    XY,
    YY,
    X,
    Y,
    compared_heights,
    follow_rays,
    judge,
    take_points,
)

UNLIKELY: Final = 1e-6
"""Probability that clouds miss by chance what they hit before, up to which it is believed to be gone: a map has 10^5
cells, and each cloud looks at many of them again."""


class VisibilityClearing:
    """Remembers the points of each cell of the map's present window, and how many clouds have looked through it.

    Its cells are the blocks in which the map keeps its data, about as large as cells or larger: a block is what the map
    can forget, and where one block of a cell shows somebody and another the ground, their mean is neither.

    spacing: edge of the blocks
    """

    def __init__(self, config: ClearingConfig, spacing: float) -> None:
        self.config = config
        self._spacing = spacing
        self._grid: Grid | None = None
        self._clouds = 0
        self._sums: Array = np.zeros((SUMS, 0, 0))
        """Of the points that each cell has, see `ray_evidence`."""
        self._clearly, self._perhaps, self._agreed, self._missed = (
            np.zeros((0, 0), dtype=np.int32) for _ in range(4)
        )
        """Clouds that contradict each cell, and those with rays deeper than the tolerance, since a point has agreed;
        clouds with points that agreed, and of the second kind between them."""
        self._cleared: NDArray[np.bool_] = np.zeros((0, 0), dtype=np.bool_)
        """Cells that were cleared; no point has agreed with the map there since, or rays pass below what is beside."""

    @property
    def doubted(self) -> int:
        """Cells that some clouds have looked through, not yet enough."""
        return int(np.count_nonzero(self._clearly))

    def apply(
        self, sensor: Array, xyz: Array, ray_std: tuple[float, float], snapshot: PosteriorSnapshot, grid: Grid
    ) -> Array:
        """Places (K, 2) in the blocks whose past must be forgotten; they are no longer known in the snapshot.

        sensor: (3,) where the rays begin; xyz: (N, 3) where they end
        ray_std: of the rays' height at the sensor, in metres, and of their direction, in radians
        grid: the map's present window; the snapshot may be of an earlier one
        """
        blocks = self._align(grid)
        place = *blocks.origin, blocks.resolution
        height = np.empty(blocks.shape)
        top = compared_heights(self._sums, height)
        if not np.isfinite(top):
            return np.empty((0, 2))
        stride = max(-(-len(xyz) // self.config.rays), 1)
        self._clouds += 1  # so that the rays that are followed take turns
        highest, beside = np.full(blocks.shape, -np.inf), np.full((2, *blocks.shape), np.inf)
        below, agreed, contradicted = (np.zeros(blocks.shape, dtype=np.bool_) for _ in range(3))
        limits = self._limits(ray_std)
        follow_rays(
            sensor, xyz, (stride, self._clouds % stride), top, height, place,
            self._sums, limits, highest, below, beside,
        )  # fmt: skip
        judge(sensor, place, self._sums, limits, height, highest, beside, agreed, contradicted)
        cleared = self._without_outvoted(self._decide(agreed, contradicted, below))
        self._empty(cleared)
        self._cleared |= cleared
        places = _places(cleared, blocks, grid)
        snapshot.mark_unknown(places)
        return places

    def add(
        self, sensor: Array, xyz: Array, variance: Array, ray_std: tuple[float, float], grid: Grid
    ) -> None:
        """Remember the points (N, 3) that the map takes, with their variances (N,) there; the others as in `apply`."""
        blocks = self._align(grid)
        place = (*blocks.origin, blocks.resolution)
        take_points(sensor, xyz, variance, place, self._sums, self._limits(ray_std))

    @property
    def is_new(self) -> bool:
        """Whether it has not seen any cloud yet."""
        return self._grid is None

    def begin(self, blocks: Blocks, grid: Grid, ray_std: tuple[float, float]) -> None:
        """Remember what a map with this window has already, in blocks with edges of `spacing`."""
        window = self._align(grid)
        first = np.round(np.array(window.origin) / self._spacing).astype(int)
        weight, count = blocks.weights[:, 0, 0], blocks.totals[:, POINTS]
        row, column = blocks.index[:, 0] - first[1], blocks.index[:, 1] - first[0]
        inside = (row >= 0) & (column >= 0) & (row < window.shape[0]) & (column < window.shape[1])
        inside &= (weight > 0.0) & (count > 0.0)
        row, column, weight, count = row[inside], column[inside], weight[inside], count[inside]
        sums = self._sums
        sums[COUNT, row, column] = count
        sums[WEIGHT, row, column] = weight
        sums[HEIGHT, row, column] = blocks.heights[inside, 0, 0] + blocks.reference * weight
        sums[VARIANCE, row, column] = count * ray_std[0] ** 2
        share, half = count / weight, 0.5 * self._spacing
        for sum_of, (of_y, of_x) in ((X, (0, 1)), (Y, (1, 0)), (XX, (0, 2)), (XY, (1, 1)), (YY, (2, 0))):
            sums[sum_of, row, column] = share * half ** (of_x + of_y) * blocks.weights[inside, of_y, of_x]

    def forget(self, centres: Array, resolution: float) -> None:
        """The map has forgotten what is in its cells with these centres (K, 2)."""
        if self._grid is not None and len(centres):
            places = np.concatenate([centres, block_centres(centres, resolution, (self._spacing,) * 2)])
            index, inside = flat_cells(self._grid, places)
            gone = np.zeros(self._grid.shape, dtype=np.bool_)
            gone.ravel()[index[inside]] = True
            self._empty(gone)

    def _decide(self, agreed: Mask, contradicted: Mask, below: Mask) -> Mask:
        """The cells (ny, nx) to be cleared, after a cloud with points that agree, rays that contradict, and below."""
        self._clearly[contradicted] += 1
        self._perhaps[below & ~agreed] += 1
        self._agreed[agreed] += 1
        self._missed[agreed] += self._perhaps[agreed]
        self._clearly[agreed] = self._perhaps[agreed] = 0
        around = np.ones((3, 3), dtype=np.bool_)
        self._cleared &= ~agreed | binary_dilation(self._perhaps > 0, around)
        likely = self._perhaps >= self.config.clouds
        at = np.nonzero(likely)
        enough = np.maximum(self.config.clouds, _enough_clouds(self._agreed[at], self._missed[at]))
        likely[at] = self._perhaps[at] >= enough
        sure = np.zeros_like(likely)
        sure[at] = self._clearly[at] >= enough
        if not likely.any():
            return likely
        seeds = sure | self._cleared
        return binary_propagation(seeds, structure=around, mask=seeds | likely) & (sure | likely)

    def _without_outvoted(self, cleared: Mask) -> Mask:
        """Those cells (ny, nx) whose highest layer counts: it moves the height by more than a point is uncertain by.

        In the others what is below it has the weight, and a stray point must not take that along.
        """
        j, i = np.nonzero(cleared & (self._sums[LOW_WEIGHT] > 0.0))
        s = self._sums[:, j, i]
        total = s[WEIGHT] + s[LOW_WEIGHT]
        pull = (s[HEIGHT] + s[LOW_HEIGHT]) / total - s[LOW_HEIGHT] / s[LOW_WEIGHT]
        few = pull**2 * s[COUNT] <= s[VARIANCE]
        j, i, s = j[few], i[few], s[:, few]
        s[[WEIGHT, HEIGHT]] += s[[LOW_WEIGHT, LOW_HEIGHT]]
        s[[LOW_WEIGHT, LOW_HEIGHT]] = 0.0
        self._sums[:, j, i] = s
        self._restart((j, i))
        counts = cleared.copy()
        counts[j, i] = False
        return counts

    def _restart(self, cells: Mask | tuple[Array, Array]) -> None:
        """No ray has said anything of these cells."""
        for values in (self._clearly, self._perhaps, self._agreed, self._missed):
            values[cells] = 0

    def _empty(self, cells: Mask) -> None:
        """What was known of cells (ny, nx) is gone."""
        self._sums[:, cells] = 0.0
        self._restart(cells)

    def _limits(self, ray_std: tuple[float, float]) -> tuple[float, float, float, float]:
        return (self.config.tolerance, self.config.threshold, *ray_std)

    def _align(self, grid: Grid) -> Grid:
        """The blocks of the window; what is known of them is carried along when it has moved."""
        h = self._spacing
        low, high = (np.floor(np.array(corner) / h) for corner in (grid.bounds[:2], grid.bounds[2:]))
        columns, rows = (high - low).astype(int) + 1
        grid = Grid((float(low[0] * h), float(low[1] * h)), (int(rows), int(columns)), h)
        if grid != self._grid:
            old = self._grid
            self._sums = np.stack([carry_over(values, old, grid) for values in self._sums])
            self._clearly, self._perhaps, self._agreed, self._missed = (
                carry_over(values, old, grid)
                for values in (self._clearly, self._perhaps, self._agreed, self._missed)
            )
            self._cleared = carry_over(self._cleared, old, grid)
            self._grid = grid
        return grid


def _places(cleared: Mask, blocks: Grid, grid: Grid) -> Array:
    """(K, 2) the middle of each cleared block, and the cells of the map with theirs in one that is larger than they."""
    iy, ix = np.nonzero(cleared)
    middles = np.column_stack([blocks.x[ix], blocks.y[iy]])
    if not len(middles) or blocks.resolution <= grid.resolution:
        return middles
    centres = grid.centers.reshape(-1, 2)
    index, inside = flat_cells(blocks, centres)
    return np.concatenate([middles, centres[inside & cleared.ravel()[index]]])


def _enough_clouds(agreed: NDArray[np.int32], missed: NDArray[np.int32]) -> Array:
    """Clouds that all miss, by chance, with probability `UNLIKELY` what so many have hit and missed before."""
    share = (agreed + 1.0) / (agreed + missed + 1.0)  # with the points that it is there for
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(UNLIKELY) / np.log1p(-share))
