"""Two surfaces laid on each other at a pose: what both say about the cells they share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.compiled import compiled
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.interpolation import FLOOR, between, covered, height_between, landed, turned_slope
from gpgmap_ros.closure.refinement import Alignment, alignment_of, heights, refine
from gpgmap_ros.closure.search import Candidate
from gpgmap_ros.closure.surface import Field, Surface

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
        *heights(source), source.slope_variance, *heights(target), target.slope_variance,
        source.centre, alignment.R, alignment.t, every, config.use_variance,
    )  # fmt: skip
    return Overlay(out[0], out[1], out[2], out[3:5], out[5:7], out[7], out[8:11])


@compiled()
def overlaid(
    w_a: Field, z_a: Field, gx_a: Field, gy_a: Field, v_a: Field, u_a: Field,
    w_b: Field, z_b: Field, gx_b: Field, gy_b: Field, v_b: Field, u_b: Field,
    source_centre: Array, R: Array, t: Array, every: int, variances: bool,
) -> Array:  # fmt: skip # pragma: no cover
    """(11, rows, columns): the fields of an Overlay in order."""
    ny, nx = w_a.shape
    out = np.zeros((11, (ny + every - 1) // every, (nx + every - 1) // every))
    for row in range(out.shape[1]):
        for column in range(out.shape[2]):
            i, j = row * every, column * every
            if w_a[i, j] <= 0.0:
                continue
            qx, qy, qz = landed(i, j, z_a[i, j], source_centre, R, t)
            if not covered(qx, qy, w_b):
                continue
            out[0, row, column] = w_a[i, j] * between(qx, qy, w_b)
            out[1, row, column] = qz - height_between(qx, qy, z_b, gx_b, gy_b)
            out[2, row, column] = (v_a[i, j] + between(qx, qy, v_b) if variances else 1.0) + FLOOR
            out[3, row, column], out[4, row, column] = turned_slope(R, gx_a[i, j], gy_a[i, j])
            out[5, row, column], out[6, row, column] = between(qx, qy, gx_b), between(qx, qy, gy_b)
            out[7, row, column] = (u_a[i, j] + between(qx, qy, u_b) if variances else 1.0) + FLOOR
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
        *heights(source), source.slope_variance, *heights(target), target.slope_variance,
        source.centre, alignment.R, alignment.t, every, config.use_variance,
    )  # fmt: skip
    return float(worth(total, every, config.min_overlap * min(source.area, target.area)))


@compiled()
def worth(total: Array, every: int, least: float) -> float:  # pragma: no cover
    """The value of `promise` from the sums (10,) of `likeness_sums`; 0 where fewer than `least` cells are shared."""
    shared, a_x, a_y, b_x, b_y, energy_a, energy_b, product, chi_z, chi_g = total
    if shared * every**2 < least:
        return 0.0
    product -= (a_x * b_x + a_y * b_y) / shared
    energies = (energy_a - (a_x**2 + a_y**2) / shared) * (energy_b - (b_x**2 + b_y**2) / shared)
    if product <= 0.0 or energies <= 0.0:
        return 0.0
    rho2 = min(product**2 / energies, 0.9999)
    return -shared * np.log1p(-rho2) * min(1.0, 0.5 * chi_g / max(chi_z, 1e-12))


@compiled()
def likeness_sums(
    w_a: Field, z_a: Field, gx_a: Field, gy_a: Field, v_a: Field, u_a: Field,
    w_b: Field, z_b: Field, gx_b: Field, gy_b: Field, v_b: Field, u_b: Field,
    source_centre: Array, R: Array, t: Array, every: int, variances: bool,
) -> Array:  # fmt: skip # pragma: no cover
    """(10,) weighted sums over the shared cells: 1, a (2), b (2), |a|^2, |b|^2, a . b, r_z^2 / v, |r_g|^2 / u."""
    ny, nx = w_a.shape
    total = np.zeros(10)
    for i in range(0, ny, every):
        for j in range(0, nx, every):
            if w_a[i, j] <= 0.0:
                continue
            qx, qy, qz = landed(i, j, z_a[i, j], source_centre, R, t)
            if not covered(qx, qy, w_b):
                continue
            w = w_a[i, j] * between(qx, qy, w_b)
            r = qz - height_between(qx, qy, z_b, gx_b, gy_b)
            ax, ay = turned_slope(R, gx_a[i, j], gy_a[i, j])
            bx, by = between(qx, qy, gx_b), between(qx, qy, gy_b)
            v = (v_a[i, j] + between(qx, qy, v_b) if variances else 1.0) + FLOOR
            u = (u_a[i, j] + between(qx, qy, u_b) if variances else 1.0) + FLOOR
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
