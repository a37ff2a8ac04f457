"""Two surfaces laid on each other at a pose: what both say about the cells they share."""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p

import numpy as np
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.interpolation import FLOOR, between, covered, height_between, landed, turned_slope
from gpgmap_ros.closure.refinement import Alignment, alignment_of, refine
from gpgmap_ros.closure.search import Candidate
from gpgmap_ros.closure.surface import (
    HEIGHT,
    HEIGHT_VARIANCE,
    SLOPE_VARIANCE,
    SLOPE_X,
    SLOPE_Y,
    WEIGHT,
    Field,
    Surface,
)

Array = NDArray[np.float64]

ROUGH_ACROSS, ROUGH_STEPS = 20, 8
"""Candidates are first refined on so many cells across the smaller map, and for so many steps."""


@dataclass(frozen=True)
class Overlay:
    """Both surfaces on the source's lattice, in units of cells; 0 where they share nothing.

    weight: w_A w_B; residual: height of source minus target; variance: v_A + v_B of the heights
    source_slope, target_slope: (2, rows, columns), the source's turned into the target's frame
    slope_variance: u_A + u_B
    points: (3, rows, columns) where the source's cells lie in the target
    """

    weight: Array
    residual: Array
    variance: Array
    source_slope: Array
    target_slope: Array
    slope_variance: Array
    points: Array


def overlay(
    alignment: Alignment, source: Surface, target: Surface, config: ClosureConfig, every: int = 1
) -> Overlay:
    """What the two maps say about the cells they share, on every `every`-th cell of the source in x and y."""
    out = overlaid(
        source.fields, target.fields, source.centre, alignment.R, alignment.t, every, config.use_variance
    )
    return Overlay(out[0], out[1], out[2], out[3:5], out[5:7], out[7], out[8:11])


@compiled()
def overlaid(
    a: Field, b: Field, source_centre: Array, R: Array, t: Array, every: int, variances: bool
) -> Array:  # pragma: no cover
    """(11, rows, columns): the fields of an Overlay in order."""
    _, ny, nx = a.shape
    out = np.zeros((11, (ny + every - 1) // every, (nx + every - 1) // every))
    for row in range(out.shape[1]):
        for column in range(out.shape[2]):
            i, j = row * every, column * every
            if a[WEIGHT, i, j] <= 0.0:
                continue
            qx, qy, qz = landed(i, j, a[HEIGHT, i, j], source_centre, R, t)
            if not covered(qx, qy, b):
                continue
            v, u = 1.0, 1.0
            if variances:
                v = a[HEIGHT_VARIANCE, i, j] + between(qx, qy, b, HEIGHT_VARIANCE)
                u = a[SLOPE_VARIANCE, i, j] + between(qx, qy, b, SLOPE_VARIANCE)
            out[0, row, column] = a[WEIGHT, i, j] * between(qx, qy, b, WEIGHT)
            out[1, row, column] = qz - height_between(qx, qy, b)
            out[2, row, column] = v + FLOOR
            out[3, row, column], out[4, row, column] = turned_slope(R, a[SLOPE_X, i, j], a[SLOPE_Y, i, j])
            out[5, row, column] = between(qx, qy, b, SLOPE_X)
            out[6, row, column] = between(qx, qy, b, SLOPE_Y)
            out[7, row, column] = u + FLOOR
            out[8, row, column], out[9, row, column], out[10, row, column] = qx, qy, qz
    return out


def rough_fit(
    candidate: Candidate, source: Surface, target: Surface, config: ClosureConfig
) -> tuple[float, Alignment]:
    """A candidate refined on few cells and for a few steps, after what it promises."""
    every = max(2, round(np.sqrt(min(source.area, target.area)) / ROUGH_ACROSS))
    pose = refine(alignment_of(candidate, target), source, target, config, every, ROUGH_STEPS)
    return promise(pose, source, target, config, every), pose


def promise(
    alignment: Alignment, source: Surface, target: Surface, config: ClosureConfig, every: int
) -> float:
    """A quick guess at what a pose will turn out to be worth: likelihood of its slopes, less where heights disagree.

    -(shared cells) log(1 - rho^2) min(1, lambda_g / lambda_z),   0 where too little is shared.
    """
    total = likeness_sums(
        source.fields, target.fields, source.centre, alignment.R, alignment.t, every, config.use_variance
    )
    return worth(total, every, config.min_overlap * min(source.area, target.area))


def worth(total: Array, every: int, least: float) -> float:
    """The value of `promise` from the sums (10,) of `likeness_sums`; 0 where fewer than `least` cells are shared."""
    shared, a_x, a_y, b_x, b_y, energy_a, energy_b, product, chi_z, chi_g = total.tolist()
    if shared <= 0.0 or shared * every**2 < least:
        return 0.0
    product -= (a_x * b_x + a_y * b_y) / shared
    energies = (energy_a - (a_x * a_x + a_y * a_y) / shared) * (energy_b - (b_x * b_x + b_y * b_y) / shared)
    if product <= 0.0 or energies <= 0.0:
        return 0.0
    rho2 = min(product * product / energies, 0.9999)
    return -shared * log1p(-rho2) * min(1.0, 0.5 * chi_g / max(chi_z, 1e-12))


@compiled()
def likeness_sums(
    a: Field, b: Field, source_centre: Array, R: Array, t: Array, every: int, variances: bool
) -> Array:  # pragma: no cover
    """(10,) weighted sums over the shared cells: 1, a (2), b (2), |a|^2, |b|^2, a . b, r_z^2 / v, |r_g|^2 / u."""
    total = np.zeros(10)
    for i in range(0, a.shape[1], every):
        for j in range(0, a.shape[2], every):
            if a[WEIGHT, i, j] <= 0.0:
                continue
            qx, qy, qz = landed(i, j, a[HEIGHT, i, j], source_centre, R, t)
            if not covered(qx, qy, b):
                continue
            w = a[WEIGHT, i, j] * between(qx, qy, b, WEIGHT)
            r = qz - height_between(qx, qy, b)
            ax, ay = turned_slope(R, a[SLOPE_X, i, j], a[SLOPE_Y, i, j])
            bx, by = between(qx, qy, b, SLOPE_X), between(qx, qy, b, SLOPE_Y)
            v, u = 1.0, 1.0
            if variances:
                v = a[HEIGHT_VARIANCE, i, j] + between(qx, qy, b, HEIGHT_VARIANCE)
                u = a[SLOPE_VARIANCE, i, j] + between(qx, qy, b, SLOPE_VARIANCE)
            v, u = v + FLOOR, u + FLOOR
            total[0] += w
            total[1] += w * ax
            total[2] += w * ay
            total[3] += w * bx
            total[4] += w * by
            total[5] += w * (ax * ax + ay * ay)
            total[6] += w * (bx * bx + by * by)
            total[7] += w * (ax * bx + ay * by)
            total[8] += w * r * r / v
            total[9] += w * ((ax - bx) ** 2 + (ay - by) ** 2) / u
    return total
