"""The catchment of als_blanca as two flight lines measured it, for benchmark/localization.py.

Ground is only what a line measured: elsewhere heights are NaN, and beams return nothing. The lines are off against each
other by a decimetre. Where the map, made over one of them, has the ground of the other is the truth less that.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from localization_drives import Array
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import KDTree

from gpgmap_ros.demo.terrain import Terrain

CELL = 0.5
LINES = (1, 2)
"""For the map and for the starts."""
MAX_GAP = 3.0
"""Metres from the nearest point: what is farther was not measured."""
LOW, HIGH = np.array([25.0, 60.0]), np.array([165.0, 150.0])
"""The largest rectangle, in steps of 5 m, in which both lines measured the ground and all within 5 m of it."""


def measured_grounds(folder: Path) -> tuple[Terrain, Terrain]:
    """Both lines on one grid, NaN where a line has no points."""
    data = np.load(folder / "als_blanca.npz")
    xyz, line = np.asarray(data["xyz"], float), data["line"]
    both = [xyz[line == number] for number in LINES]
    low = np.max([points[:, :2].min(0) for points in both], axis=0)
    high = np.min([points[:, :2].max(0) for points in both], axis=0)
    cells = np.stack(np.meshgrid(*(np.arange(low[k], high[k], CELL) for k in (0, 1))), axis=-1)
    one, two = (Terrain(measured_heights(points, cells), CELL) for points in both)
    return one, two


def measured_heights(points: Array, cells: Array) -> Array:
    """(rows, columns) of points (N, 3) at cells (rows, columns, 2), NaN where none is near."""
    heights = LinearNDInterpolator(points[:, :2], points[:, 2])(cells)
    away, _ = KDTree(points[:, :2]).query(cells)
    return np.where(away <= MAX_GAP, heights, np.nan)


def offset_between(mapped: Terrain, driven: Terrain) -> Array:
    """(3,) x, y, z that take the ground of `driven` to where `mapped` has it, between the corners.

    Least squares of height differences over slopes (Nuth and Kaeaeb, 2011), without the tenth of the cells that fit
    least.
    """
    (left, bottom), (right, top) = (np.round(corner / CELL).astype(int) for corner in (LOW, HIGH))
    inside = np.s_[bottom:top, left:right]
    dy, dx = np.gradient(mapped.heights[inside], CELL)
    difference = (driven.heights - mapped.heights)[inside]
    usable = np.isfinite(dx) & np.isfinite(dy) & np.isfinite(difference)
    A = np.stack([dx[usable], dy[usable], -np.ones(usable.sum())], axis=1)
    b = difference[usable]
    kept, offset = np.ones(len(b), dtype=bool), np.zeros(3)
    for _ in range(10):
        offset = np.linalg.lstsq(A[kept], b[kept], rcond=None)[0]
        misfit = np.abs(b - A @ offset)
        kept = misfit <= np.quantile(misfit, 0.9)
    return np.asarray(offset)
