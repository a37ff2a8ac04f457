"""What the uncertainty of the submaps' poses adds to the variance of a stitched map.

A pose that is off by e = (dt, w), along the map's axes, moves a point at r from the submap's origin by dt + w x r. The
height that the map shows at a fixed x and y is then off by

    dz = (dt + w x r)_z - g . (dt + w x r)_xy = j' e
    j = (-g_x, -g_y, 1, r_y + g_y r_z, -r_x - g_x r_z, g_x r_y - g_y r_x)

with g the gradient there: on flat ground it does not matter where exactly one is. The variance of one submap's heights
is j' S j. Where several share a cell, each has a share s_i of the information about it; whatever the correlation of
their poses, the variance of the sum of s_i j_i' e_i is at most the sum of s_i j_i' S_i j_i, and that is what is stated.

This error is common to a whole submap. It must not be added to the noise of its points: they would be taken for
independent, average out where there are many, and lose against the prior where the pose is uncertain by metres.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter

from gp_core.grid import Grid
from gpgmap_ros.arrays import Array

REACH = 6.0
"""Blocks of one length scale as far as which a submap's points have a share in what is known."""


@dataclass(frozen=True)
class PosedSubmap:
    """A submap over a tile.

    origin: (3,) of its frame in the map; covariance: (6, 6) of its pose over (x, y, z, roll, pitch, yaw), along the
    map's axes; xy, information: (N, 2) and (N,) its points, and one over their variances
    """

    origin: Array
    covariance: Array
    xy: Array
    information: Array


def pose_variance(
    grid: Grid, elevation: Array, gradient: Array, submaps: Iterable[PosedSubmap], block: float
) -> Array:
    """(rows, columns) square metres; NaN where the elevation is, or where no submap is near.

    elevation, gradient: (rows, columns) and (rows, columns, 2) of the map; block: length scale
    """
    at = grid.centers
    total, out = np.zeros(grid.shape), np.zeros(grid.shape)
    for submap in submaps:
        share = nearby_information(grid, submap, block)
        seen = share > 0.0
        r = np.stack([*np.moveaxis(at[seen], -1, 0), elevation[seen]], axis=-1) - submap.origin
        j = height_jacobian(gradient[seen], r)
        out[seen] += share[seen] * np.einsum("ni,ij,nj->n", j, submap.covariance, j)
        total += share
    variance: Array = np.divide(out, total, out=np.full(grid.shape, np.nan), where=total > 0.0)
    return variance


def height_jacobian(g: Array, r: Array) -> Array:
    """(N, 6) by how much the height at a fixed place follows each error of the pose. g: (N, 2); r: (N, 3)"""
    (g_x, g_y), (x, y, z) = g.T, r.T
    return np.column_stack([-g_x, -g_y, np.ones(len(g)), y + g_y * z, -x - g_x * z, g_x * y - g_y * x])


def nearby_information(grid: Grid, submap: PosedSubmap, block: float) -> Array:
    """(rows, columns) a submap's information around each cell: sums over blocks, weighted by their distance."""
    x_min, y_min, x_max, y_max = grid.bounds
    around = int(REACH)
    columns, rows = (
        int(np.ceil((high - low) / block)) + 2 * around for low, high in ((x_min, x_max), (y_min, y_max))
    )
    column, row = (np.floor((submap.xy - [x_min, y_min]) / block).astype(int) + around).T
    inside = (column >= 0) & (column < columns) & (row >= 0) & (row < rows)
    flat = np.bincount(
        row[inside] * columns + column[inside], submap.information[inside], minlength=rows * columns
    )
    smooth = gaussian_filter(flat.reshape(rows, columns), 1.0, mode="constant", truncate=REACH)
    to_block = [
        np.floor((centres - low) / block).astype(int) + around
        for centres, low in ((grid.y, y_min), (grid.x, x_min))
    ]
    out: Array = smooth[np.ix_(*to_block)]
    return out
