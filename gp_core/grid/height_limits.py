"""Between which heights a surface can be where there are points all around: no overshoot beside a step.

The mean of a Gaussian process on a lattice is linear in the heights, and beside a step of the ground it overshoots like
every linear fit by smooth functions. Where a block and the eight around it hold points, the ground in the middle one is
between the lowest and the highest of their mean heights, but for its curvature within a block.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from gp_core.arrays import Array
from gp_core.grid.statistics import Statistics

_AROUND = 3
"""Blocks along each side of those that are looked at."""


def height_limits(s: Statistics) -> tuple[Array, Array]:
    """(J, I) lowest and highest mean height among the points of a block and of the eight around it.

    -inf and inf unless all nine hold points.
    """
    weight = s.weights[..., 0, 0]
    some = weight > 0.0
    mean = s.reference + s.heights[..., 0, 0] / np.where(some, weight, 1.0)
    inside = ndimage.minimum_filter(some, _AROUND, mode="constant", cval=0)
    low = np.where(inside, ndimage.minimum_filter(mean, _AROUND), -np.inf)
    high = np.where(inside, ndimage.maximum_filter(mean, _AROUND), np.inf)
    return low, high
