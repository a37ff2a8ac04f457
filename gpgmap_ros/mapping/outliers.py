"""Points far from a survey: a stray return kilometres away must not decide how large its map is, nor how high."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from gpgmap_ros.arrays import Array, Mask
from gpgmap_ros.mapping.cells import cell_ids, first_of_each

FEW_POINTS, FEW_SHARE, MAX_SHARE = 10, 1e-4, 0.01
"""A group of neighbouring cells may be an outlier with this many points or this share of all, whichever is more; all
outliers together are never more than MAX_SHARE: a survey that consists of small groups is mapped as it is."""
FAR = 0.25
"""Distance to the rest of the survey beyond which such a group is left out, over the rest's longer side. What lies
nearer is mapped: it makes the map at most 1.5 times as long and wide."""
FAR_HEIGHT = 5000.0
"""Metres above or below all others beyond which a few points are no ground, however large the survey is."""
NO_DATA = (-9999.0, -32767.0, -32768.0, -99999.0)
"""Heights that programs for rasters write where there is none."""
CELLS_ALONG = 64
"""Cells along the body of a sample by which its outliers are found."""


def outlying_cells(cells: NDArray[np.int64], counts: NDArray[np.int64]) -> Mask:
    """Which of the occupied cells (K, 2) belong to a small group far from all others. counts: (K,) points in each"""
    total = int(counts.sum())
    near = cKDTree(cells.astype(np.float64)).query_pairs(1.5, p=np.inf, output_type="ndarray")
    links = coo_array((np.ones(len(near)), (near[:, 0], near[:, 1])), shape=(len(cells), len(cells)))
    _, group = connected_components(links, directed=False)
    points = np.bincount(group, counts)
    few = (points <= max(FEW_POINTS, FEW_SHARE * total))[group]
    if not few.any() or counts[few].sum() > MAX_SHARE * total:
        return np.zeros(len(cells), dtype=bool)
    low, high = cells[~few].min(axis=0), cells[~few].max(axis=0)
    gap = np.maximum(np.maximum(low - cells, cells - high), 0).max(axis=1)
    far: Mask = few & (gap > FAR * (high - low + 1).max())
    return far


def outlying_points(xy: Array) -> Mask:
    """Which of the points (N, 2) belong to a small group far from all others."""
    low, high = np.percentile(xy, (1.0, 99.0), axis=0)
    edge = float((high - low).max()) / CELLS_ALONG or float(np.ptp(xy, axis=0).max()) / CELLS_ALONG
    if edge <= 0.0:
        return np.zeros(len(xy), dtype=bool)
    ids = cell_ids(xy, edge)
    cells = np.floor(xy[first_of_each(ids)] / edge).astype(np.int64)
    return outlying_cells(cells, np.bincount(ids))[ids]


def height_limits(xyz: Array) -> tuple[float, float]:
    """Heights of points (N, 3), and as much above and below them as ground may lie that is not among the points.

    A few points farther above or below all others than a quarter of the survey's longer side, or than FAR_HEIGHT, are
    not within the limits; nor are, as far below, NO_DATA, however many they are.
    """
    side = float(np.ptp(xyz[:, :2], axis=0).max())
    marked = np.isin(xyz[:, 2], NO_DATA)
    if marked.any() and not marked.all():
        marks, ground = float(xyz[marked, 2].max()), xyz[~marked]
        if float(ground[:, 2].min()) - marks > min(FAR * side, FAR_HEIGHT):
            lowest, highest = height_limits(ground)
            return max(lowest, 0.5 * (marks + float(ground[:, 2].min()))), highest
    few = int(max(FEW_POINTS, FEW_SHARE * len(xyz)))
    if side <= 0.0 or 2 * few >= len(xyz):
        return -np.inf, np.inf
    far = min(FAR * side, FAR_HEIGHT)
    z = np.partition(xyz[:, 2], (few, len(xyz) - 1 - few))
    below, above = np.sort(z[: few + 1])[::-1], np.sort(z[-few - 1 :])
    if (_beyond_gap(-below, far) + _beyond_gap(above, far)) > MAX_SHARE * len(xyz):
        return -np.inf, np.inf
    lowest = below[len(below) - 1 - _beyond_gap(-below, far)]
    highest = above[len(above) - 1 - _beyond_gap(above, far)]
    return float(lowest - far), float(highest + far)


def _beyond_gap(ascending: Array, far: float) -> int:
    """How many of the values lie beyond the first step that is larger than `far`."""
    steps = np.flatnonzero(np.diff(ascending) > far)
    return len(ascending) - 1 - int(steps[0]) if len(steps) else 0
