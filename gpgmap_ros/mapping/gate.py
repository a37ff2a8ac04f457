"""The innovation gate: points that contradict the map wait until others confirm them.

A point contradicts the surface (mean f, variance v, gradient g, at the point's own x and y) if its height z, of
variance r, is too far from it both in standard deviations and in metres:

    |z - f| > threshold sqrt(v + r)   and   |z - f| > tolerance + |g| length_scale

The second term allows for edges that the map cannot draw as sharp as they are. In each cell, points are compared as a
group: a cloud disputes the cell if more of its points there contradict than agree. When `confirmations` clouds in a
row that see the cell dispute it and say the same, the world has changed: the cell is released, its points pass and
what the map remembers there must be forgotten. Until then contradicting points are held back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gp_core.grid import Grid, GridPosterior
from gpgmap_ros.arrays import Array, Mask
from gpgmap_ros.config import GateConfig
from gpgmap_ros.mapping.cells import carry_over, flat_cells
from gpgmap_ros.mapping.elevation_map import ElevationMap


@dataclass(frozen=True)
class PosteriorSnapshot:
    """The map as it was last solved.

    known: (ny, nx) cells to compare with
    stamp: of the newest data, nanoseconds; points: `ElevationMap.taken` then
    """

    posterior: GridPosterior
    known: Mask
    stamp: int
    points: int = 0

    def gradient_at(self, xy: Array) -> Array:
        """Gradient (N, 2) at positions (N, 2), NaN where it is not known."""
        grid = self.posterior.grid
        out = np.empty((len(xy), 2))
        _gradient_at(xy, (*grid.origin, grid.resolution), self.known, self.posterior.gradient, out)
        return out

    def mark_unknown(self, xy: Array) -> None:
        """The cells at positions (N, 2) are not known any more."""
        index, inside = flat_cells(self.posterior.grid, xy)
        self.known.ravel()[index[inside]] = False


def take_snapshot(elevation_map: ElevationMap, stamp: int, closely: bool = True) -> PosteriorSnapshot:
    """The map as it is now, with data up to `stamp`; about so where it need not be `closely`."""
    posterior = elevation_map.posterior() if closely else elevation_map.approximate_posterior()
    known = ~elevation_map.unknown(posterior)
    return PosteriorSnapshot(posterior, known, stamp, elevation_map.taken)


@dataclass(frozen=True)
class GateResult:
    """What becomes of the points of a cloud.

    passed: (N,) points to fuse; released: (K, 2) centres of the cells whose past must be forgotten before that
    """

    passed: Mask
    released: Array


class InnovationGate:
    """Remembers, for each cell of the map's present window, how often in a row it was disputed, and at which height."""

    def __init__(self, config: GateConfig, length_scale: float) -> None:
        self.config = config
        self._length_scale = length_scale
        self._grid: Grid | None = None
        self._count: NDArray[np.int32] = np.zeros((0, 0), dtype=np.int32)
        self._height: Array = np.zeros((0, 0))
        self._unjudged: NDArray[np.uint8] = np.zeros((0, 0), dtype=np.uint8)

    @property
    def new_ground(self) -> int:
        """Cells that had points where the surface was not known, for the first time since `surface_taken`."""
        return int(np.count_nonzero(self._unjudged == NEW))

    def surface_taken(self) -> None:
        """The map is being solved: what is known of ground that was seen until now will be in the next surface."""
        self._unjudged[self._unjudged == NEW] = OLD

    @property
    def disputed(self) -> int:
        """Cells that wait for confirmation."""
        return int(np.count_nonzero(self._count))

    def apply(self, xyz: Array, variance: Array, snapshot: PosteriorSnapshot, grid: Grid) -> GateResult:
        """Decide which points (N, 3), with variances (N,) of their heights, are fused.

        snapshot: what they are compared with; cells released here are no longer known in it
        grid: the map's present window; the snapshot may be of an earlier one
        """
        self._align(grid)
        posterior, config = snapshot.posterior, self.config
        vote, cells = np.zeros(len(xyz), dtype=np.uint8), np.zeros(len(xyz), dtype=np.int64)
        per_cell = np.zeros((4, *grid.shape))
        _compare(
            xyz, variance,
            (*posterior.grid.origin, posterior.grid.resolution), snapshot.known,
            posterior.mean, posterior.variance, posterior.gradient,
            (*grid.origin, grid.resolution),
            (config.threshold, config.tolerance, self._length_scale),
            vote, cells, per_cell,
        )  # fmt: skip
        released = self._release_cells(*per_cell)
        passed = (vote != AGAINST) | released.ravel()[cells]
        iy, ix = np.nonzero(released)
        centres = np.column_stack([grid.x[ix], grid.y[iy]])
        snapshot.mark_unknown(centres)
        unjudged = self._unjudged.ravel()
        met = cells[vote == UNJUDGED]
        unjudged[met] = np.maximum(unjudged[met], NEW)
        return GateResult(passed, centres)

    def _release_cells(self, agreeing: Array, contradicting: Array, height: Array, variance: Array) -> Mask:
        """Count one more cloud in every cell it sees; mask (ny, nx) of the cells confirmed often enough.

        agreeing, contradicting: points in each cell; height, variance: sums over the contradicting ones
        """
        disputed = contradicting > agreeing
        self._count[(agreeing > 0) & ~disputed] = 0
        number = np.maximum(contradicting, 1.0)
        height, noise = height / number, np.sqrt(variance / number)
        same = np.abs(height - self._height) <= self.config.tolerance + self.config.threshold * noise
        self._count[disputed] = np.where(same, self._count, 0)[disputed] + 1
        self._height[disputed] = height[disputed]
        released = disputed & (self._count >= self.config.confirmations)
        self._count[released] = 0
        return released

    def _align(self, grid: Grid) -> None:
        """Carry the counts along when the window has moved, by whole cells."""
        if grid != self._grid:
            self._count = carry_over(self._count, self._grid, grid)
            self._height = carry_over(self._height, self._grid, grid)
            self._unjudged = carry_over(self._unjudged, self._grid, grid)
            self._grid = grid


AGREES, AGAINST, UNJUDGED = 1, 2, 3
NEW, OLD = 1, 2


@compiled()
def _compare(  # type: ignore[no-untyped-def]
    xyz, variance, at, known, mean, surface_variance, gradient, window, limits, votes, cells, per_cell
):
    """Vote of each point (0 outside the window), its flat cell in the window, and sums per cell.

    at, window: x and y of the corner and edge of the cells, of the surface and of the map's window
    limits: threshold, tolerance, length scale
    votes, cells: (N,), and per_cell: (4, ny, nx) agreeing and contradicting points, sums of the heights and of the
        variances of the latter; zeros, written here
    """
    threshold, tolerance, length_scale = limits
    agreeing, contradicting, heights, variances = per_cell[0], per_cell[1], per_cell[2], per_cell[3]
    rows, columns = agreeing.shape
    for n in range(xyz.shape[0]):
        x, y, z = xyz[n, 0], xyz[n, 1], xyz[n, 2]
        i = int(np.floor((x - at[0]) / at[2]))
        j = int(np.floor((y - at[1]) / at[2]))
        k = int(np.floor((x - window[0]) / window[2]))
        m = int(np.floor((y - window[1]) / window[2]))
        if k < 0 or m < 0 or k >= columns or m >= rows:
            continue
        cells[n] = m * columns + k
        if i < 0 or j < 0 or i >= known.shape[1] or j >= known.shape[0] or not known[j, i]:
            votes[n] = UNJUDGED
            continue
        g_x, g_y = gradient[j, i, 0], gradient[j, i, 1]
        expected = mean[j, i] + g_x * (x - at[0] - (i + 0.5) * at[2]) + g_y * (y - at[1] - (j + 0.5) * at[2])
        innovation = abs(z - expected)
        far = innovation > tolerance + np.sqrt(g_x * g_x + g_y * g_y) * length_scale
        if far and innovation**2 > threshold**2 * (surface_variance[j, i] + variance[n]):
            votes[n] = AGAINST
            contradicting[m, k] += 1.0
            heights[m, k] += z
            variances[m, k] += variance[n]
        else:
            votes[n] = AGREES
            agreeing[m, k] += 1.0


@compiled()
def _gradient_at(xy, at, known, gradient, out):  # type: ignore[no-untyped-def]
    for n in range(xy.shape[0]):
        i = int(np.floor((xy[n, 0] - at[0]) / at[2]))
        j = int(np.floor((xy[n, 1] - at[1]) / at[2]))
        if i < 0 or j < 0 or i >= known.shape[1] or j >= known.shape[0] or not known[j, i]:
            out[n, 0] = out[n, 1] = np.nan
        else:
            out[n, 0], out[n, 1] = gradient[j, i, 0], gradient[j, i, 1]
