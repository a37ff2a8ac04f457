"""Two maps at a pose: heights, slopes and variances of both at the cells they share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.arrays import Array
from gp_core.compiled import compiled
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.cell_comparison import MapPair, compare_cell
from gpgmap_ros.closure.registration.refinement import Alignment
from gpgmap_ros.closure.registration.registration_map import WEIGHT, RegistrationMap


@dataclass(frozen=True)
class Overlay:
    """Both maps on the source's lattice, in units of cells; 0 where they share nothing.

    weight: w_A w_B; residual: height of source minus target; variance: v_A + v_B of the heights
    source_slope, target_slope: (2, rows, columns), the source's rotated into the target's frame
    slope_variance: u_A + u_B
    points: (3, rows, columns) the source's cells in the target
    """

    weight: Array
    residual: Array
    variance: Array
    source_slope: Array
    target_slope: Array
    slope_variance: Array
    points: Array


def overlay_maps(
    alignment: Alignment,
    source: RegistrationMap,
    target: RegistrationMap,
    config: ClosureConfig,
    stride: int = 1,
) -> Overlay:
    """Both maps at every cell of the source, or at every `stride`-th in x and y."""
    maps = MapPair(source.fields, target.fields, source.centre, stride, config.use_variance)
    out = sample_overlay(maps, alignment.R, alignment.t)
    return Overlay(out[0], out[1], out[2], out[3:5], out[5:7], out[7], out[8:11])


def crop(over: Overlay, shared: NDArray[np.bool_]) -> Overlay:
    """The part of the lattice that holds the shared cells."""
    rows, columns = np.flatnonzero(shared.any(1)), np.flatnonzero(shared.any(0))
    box = np.s_[..., rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return Overlay(*(getattr(over, name)[box] for name in Overlay.__dataclass_fields__))


@compiled()
def sample_overlay(maps: MapPair, R: Array, t: Array) -> Array:  # pragma: no cover
    """(11, rows, columns): the fields of an Overlay in order."""
    a = maps.source
    _, ny, nx = a.shape
    stride = maps.stride
    out = np.zeros((11, (ny + stride - 1) // stride, (nx + stride - 1) // stride))
    for row in range(out.shape[1]):
        for column in range(out.shape[2]):
            i, j = row * stride, column * stride
            if a[WEIGHT, i, j] <= 0.0:
                continue
            shared, qx, qy, qz, weight, r, ax, ay, bx, by, v, u = compare_cell(maps, R, t, i, j)
            if not shared:
                continue
            out[0, row, column] = weight
            out[1, row, column] = r
            out[2, row, column] = v
            out[3, row, column], out[4, row, column] = ax, ay
            out[5, row, column], out[6, row, column] = bx, by
            out[7, row, column] = u
            out[8, row, column], out[9, row, column], out[10, row, column] = qx, qy, qz
    return out
