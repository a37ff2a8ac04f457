"""Visibility clearing: a ray that passes through the mapped surface is evidence against it.

People, vehicles and dust leave points where, later, nothing is. The gate notices that where later points fall into the
same cell; where they do not, the rays to points behind it still pass through what the map shows there. On its way from
the sensor to a measured point, at a distance r, a ray is below the surface (mean f, variance v, gradient g) by f - z
and contradicts it if

    f - z > tolerance + |g| edge + threshold sqrt(v + height_std^2 + (angle_std r)^2)

where the second term allows for the shape of the ground within a cell and the third for what map and ray are uncertain
by: at grazing angles a small error of the pose moves the ray through much ground. v is that of a place whose points
scatter as they do on the whole: somebody who stood here and went leaves scatter that must not protect what is left. A
cell is cleared when `clouds` clouds had rays through it and none of the points in it, of these clouds or between them,
agreed with the surface. So are the cells around it, as far as they join, through which as many clouds had rays deeper
than `tolerance` alone, then or later: the flanks of what is not there. The map then forgets all of its data in them, as
in cells that the gate releases.

There are no overhangs in an elevation map: under a bridge, the rays pass through what the map may show of its deck.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_propagation

from gp_core.compiled import compiled
from gp_core.grid import Grid
from gpgmap_ros.arrays import Array
from gpgmap_ros.config import ClearingConfig
from gpgmap_ros.mapping.cells import carry_over
from gpgmap_ros.mapping.gate import PosteriorSnapshot

STEP: Final = 0.75
"""Cells from one look at a ray to the next: it may miss the corner of a cell, which the rays beside it do not."""


class VisibilityClearing:
    """Remembers, for each cell of the map's present window, how many clouds have looked through it."""

    def __init__(self, config: ClearingConfig) -> None:
        self.config = config
        self._grid: Grid | None = None
        self._clouds = 0
        self._clearly: NDArray[np.int32] = np.zeros((0, 0), dtype=np.int32)
        self._perhaps: NDArray[np.int32] = np.zeros((0, 0), dtype=np.int32)
        self._cleared: NDArray[np.bool_] = np.zeros((0, 0), dtype=np.bool_)
        """Cells that were cleared, and in which no point has agreed with the surface since."""

    @property
    def doubted(self) -> int:
        """Cells that some clouds have looked through, not yet enough."""
        return int(np.count_nonzero(self._clearly))

    def apply(
        self, sensor: Array, xyz: Array, ray_std: tuple[float, float], snapshot: PosteriorSnapshot, grid: Grid
    ) -> Array:
        """Centres (K, 2) of the cells whose past must be forgotten; they are no longer known in the snapshot.

        sensor: (3,) where the rays begin; xyz: (N, 3) where they end
        ray_std: of the rays' height at the sensor, in metres, and of their direction, in radians
        grid: the map's present window; the snapshot may be of an earlier one
        """
        self._align(grid)
        posterior, config = snapshot.posterior, self.config
        known = posterior.mean[snapshot.known]
        if not known.size:
            return np.empty((0, 2))
        stride = -(-len(xyz) // config.rays)
        self._clouds += 1  # so that the rays that are followed take turns
        seen = np.zeros((3, *grid.shape), dtype=np.bool_)
        variance = posterior.variance if snapshot.even_variance is None else snapshot.even_variance
        _look_through(
            sensor, xyz, (stride, self._clouds % max(stride, 1)), float(known.max()),
            (*posterior.grid.origin, posterior.grid.resolution), snapshot.known,
            posterior.mean, variance, posterior.gradient,
            (*grid.origin, grid.resolution), (config.tolerance, config.threshold, *ray_std), seen,
        )  # fmt: skip
        supported, clearly, perhaps = seen
        for count, passed in ((self._clearly, clearly), (self._perhaps, perhaps)):
            count[supported] = 0
            count[passed & ~supported] += 1
        sure, likely = (count >= config.clouds for count in (self._clearly, self._perhaps))
        self._cleared &= ~supported
        seeds = sure | self._cleared
        around = np.ones((3, 3), dtype=np.bool_)
        cleared = binary_propagation(seeds, structure=around, mask=seeds | likely) & (sure | likely)
        self._cleared |= cleared
        self._clearly[cleared] = self._perhaps[cleared] = 0
        iy, ix = np.nonzero(cleared)
        centres = np.column_stack([grid.x[ix], grid.y[iy]])
        snapshot.mark_unknown(centres)
        return centres

    def _align(self, grid: Grid) -> None:
        """Carry the counts along when the window has moved, by whole cells."""
        if grid != self._grid:
            self._clearly = carry_over(self._clearly, self._grid, grid)
            self._perhaps = carry_over(self._perhaps, self._grid, grid)
            self._cleared = carry_over(self._cleared, self._grid, grid)
            self._grid = grid


@compiled()
def _look_through(  # type: ignore[no-untyped-def]
    sensor, xyz, rays, top, at, known, mean, variance, gradient, window, limits, seen
):
    """Mark cells with points that agree (seen[0]), rays through them (1), rays deeper than the tolerance (2).

    rays: every so manieth is followed, and the first of them; top: the highest of the surface
    at, window: x and y of the corner and edge of the cells, of the surface and of the map's window
    limits: tolerance, threshold, standard deviation of the rays' height and of their direction
    """
    supported, clearly, perhaps = seen[0], seen[1], seen[2]
    edge = at[2]
    for n in range(xyz.shape[0]):
        d_x, d_y, d_z = xyz[n, 0] - sensor[0], xyz[n, 1] - sensor[1], xyz[n, 2] - sensor[2]
        length = np.sqrt(d_x * d_x + d_y * d_y)
        j, i = _cell(xyz[n, 0], xyz[n, 1], at, known)
        m, k = _cell(xyz[n, 0], xyz[n, 1], window, supported)
        if m >= 0 and j >= 0 and known[j, i]:
            far = np.sqrt(d_x * d_x + d_y * d_y + d_z * d_z)
            limit = _limit(j, i, far, edge, mean, variance, gradient, limits)
            if mean[j, i] - xyz[n, 2] <= limit:
                supported[m, k] = True
        if n % rays[0] != rays[1] or length < edge:
            continue
        begin = 0.0
        if sensor[2] > top:  # nothing to meet before the ray is as low as the highest ground
            if d_z >= 0.0:
                continue
            begin = (top - sensor[2]) / d_z
        steps = int(length / (STEP * edge)) + 1
        last_j, last_i = -1, -1
        for step in range(int(begin * steps), steps):
            share = (step + 0.5) / steps
            x, y = sensor[0] + share * d_x, sensor[1] + share * d_y
            j, i = _cell(x, y, at, known)
            if j < 0 or (j == last_j and i == last_i) or not known[j, i]:
                continue
            last_j, last_i = j, i
            z = sensor[2] + share * d_z
            if mean[j, i] - z > limits[0]:
                m, k = _cell(x, y, window, supported)
                if m < 0:
                    continue
                perhaps[m, k] = True
                far = share * np.sqrt(d_x * d_x + d_y * d_y + d_z * d_z)
                if mean[j, i] - z > _limit(j, i, far, edge, mean, variance, gradient, limits):
                    clearly[m, k] = True


@compiled()
def _cell(x, y, at, cells):  # type: ignore[no-untyped-def]
    """Row and column of a position, -1 outside."""
    i = int(np.floor((x - at[0]) / at[2]))
    j = int(np.floor((y - at[1]) / at[2]))
    if i < 0 or j < 0 or i >= cells.shape[1] or j >= cells.shape[0]:
        return -1, -1
    return j, i


@compiled()
def _limit(j, i, far, edge, mean, variance, gradient, limits):  # type: ignore[no-untyped-def]
    """Depth below the surface of a cell that a ray may have without contradicting it."""
    tolerance, threshold, height_std, angle_std = limits
    slope = np.sqrt(gradient[j, i, 0] ** 2 + gradient[j, i, 1] ** 2)
    ray = height_std * height_std + (angle_std * far) ** 2
    return tolerance + slope * edge + threshold * np.sqrt(variance[j, i] + ray)
