"""Is a map one of ground, or of tree crowns?

Soil comes to rest at 30 to 40 degrees, and where rock is steeper it is steep in one direction over many cells. The tops
of crowns are steeper than that everywhere, and in another direction every few cells: two maps of them share nothing
that stays. So the slopes that are left when their mean over a few cells is taken away are looked at. They have no unit,
and no smooth form of whatever steepness is in them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter

WINDOW = 7
"""Cells over which slopes are averaged: twice the correlation length of what the points can show."""


def detail_slope(
    slope_x: NDArray[np.floating], slope_y: NDArray[np.floating], trusted: NDArray[np.bool_]
) -> float:
    """Median of the slope, as a gradient, that changes from cell to cell. trusted: (rows, columns) cells that count"""
    if not trusted.any():
        return 0.0
    weight = trusted.astype(np.float64)
    around = uniform_filter(weight, WINDOW, mode="constant")
    squared = np.zeros(trusted.shape)
    for slope in (slope_x, slope_y):
        known = np.where(trusted, slope, 0.0).astype(np.float64)
        mean = uniform_filter(known, WINDOW, mode="constant") / np.maximum(around, 1e-9)
        squared += (known - mean) ** 2
    return float(np.sqrt(np.median(squared[trusted])))
