"""The result of a solve: layers over the cells of the map."""

from __future__ import annotations

from dataclasses import dataclass, field

from gp_core.arrays import Array
from gp_core.grid.axes import Grid


@dataclass(frozen=True)
class GridPosterior:
    """Posterior of height and slope at every cell centre; layers are `layer[iy, ix]`.

    mean: (ny, nx) E[f]
    variance: (ny, nx) Var[f], of the surface, without measurement noise
    gradient: (ny, nx, 2) E[df/dx], E[df/dy]
    gradient_variance: (ny, nx, 2) Var[df/dx], Var[df/dy]; infinite where the kernel has no derivative
    grid: the cells
    """

    mean: Array = field(repr=False)
    variance: Array = field(repr=False)
    gradient: Array = field(repr=False)
    gradient_variance: Array = field(repr=False)
    grid: Grid
