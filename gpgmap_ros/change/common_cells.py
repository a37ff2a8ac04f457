"""Two maps on the same cells: heights, variances and slopes where both know the ground."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from gp_core.arrays import Array
from gp_core.grid import Grid
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping import GPGMap

Mask = NDArray[np.bool_]

LEAST_CELLS = 400
"""Shared cells from which an error model can be estimated."""
GAP_RATIO = 3.0
"""Posterior standard deviations, in typical ones, beyond which a cell counts as a gap and is not compared: what the
prior continues there is no survey."""
SAME_CELLS = 1e-3
"""Relative difference of two resolutions, and part of a cell by which two grids may be off, to be the same."""
LAYERS = ("elevation", "variance", "gradient_x", "gradient_y")


class NoCommonGround(ValueError):
    """Two maps that cannot be compared: why, and what to do."""


@dataclass(frozen=True, eq=False)
class CommonCells:
    """Layers (rows, columns) on the cells of the first map.

    before, after: heights, NaN where unknown; variance: sum of both posteriors'
    gradients: (2, 2, rows, columns) of both maps, along x and y; compared: cells that both surveys measured
    """

    grid: Grid
    before: Array
    after: Array
    variance: Array
    gradients: Array
    compared: Mask

    @property
    def known(self) -> Mask:
        """Cells that both maps know, also those where one of them is too uncertain to be compared."""
        return np.isfinite(self.before) & np.isfinite(self.after)

    @property
    def slopes(self) -> Array:
        """(2, rows, columns) steepness of both maps."""
        return np.asarray(np.nan_to_num(np.hypot(self.gradients[:, 0], self.gradients[:, 1])))

    @property
    def curvatures(self) -> Array:
        """(2, rows, columns) second difference of the heights over a cell, without sign."""
        along_x, along_y = self.gradients[:, 0], self.gradients[:, 1]
        k = np.abs(np.gradient(along_x, axis=2)) + np.abs(np.gradient(along_y, axis=1))
        return np.asarray(np.nan_to_num(k * self.grid.resolution))


def lay_over(before: GPGMap, after: GPGMap, T_before_after: Array | None = None) -> CommonCells:
    """Both maps on the cells of `before` that both cover. NoCommonGround where there are too few.

    T_before_after: (4, 4) pose of the frame of `after` in that of `before`; the frames are the same unless given
    """
    h = before.grid.resolution
    if abs(np.log(after.grid.resolution / h)) > SAME_CELLS:
        raise NoCommonGround(
            f"the maps have cells of {h:g} m and {after.grid.resolution:g} m: make both with cells of one size"
        )
    layers = cut_out(after, before.grid) if T_before_after is None else None
    moved = layers if layers is not None else resample(after, before.grid, T_before_after)
    own = {name: before[name].astype(np.float64) for name in LAYERS}
    both = np.isfinite(own["elevation"]) & np.isfinite(moved["elevation"])
    if both.sum() < LEAST_CELLS:
        raise NoCommonGround(
            f"the maps share {int(both.sum())} cells of {h:g} m, {LEAST_CELLS} are needed: they show different ground, "
            "or their frames differ (--register finds the pose)"
        )
    rows, columns = (np.flatnonzero(both.any(axis=axis)) for axis in (1, 0))
    part = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    a, b = ({name: layer[part] for name, layer in side.items()} for side in (own, moved))
    variance = a["variance"] + b["variance"]
    compared = both[part] & (variance <= GAP_RATIO**2 * np.median(variance[both[part]]))
    gradients = np.stack([[side["gradient_x"], side["gradient_y"]] for side in (a, b)])
    corner = (before.grid.origin[0] + columns[0] * h, before.grid.origin[1] + rows[0] * h)
    grid = Grid((float(corner[0]), float(corner[1])), compared.shape, h)
    return CommonCells(grid, a["elevation"], b["elevation"], variance, gradients, compared)


def cut_out(gpgmap: GPGMap, grid: Grid) -> dict[str, Array] | None:
    """The layers on the cells of another grid, NaN beyond the map; None where the cells are not the same."""
    off = (np.array(grid.origin) - gpgmap.grid.origin) / grid.resolution
    if np.abs(off - np.round(off)).max() > SAME_CELLS:
        return None
    left, bottom = (int(value) for value in np.round(off))
    rows, columns = np.arange(grid.shape[0]) + bottom, np.arange(grid.shape[1]) + left
    there_y, there_x = (
        (at >= 0) & (at < n) for at, n in zip((rows, columns), gpgmap.grid.shape, strict=True)
    )
    out = {}
    for name in LAYERS:
        layer = np.full(grid.shape, np.nan)
        layer[np.ix_(there_y, there_x)] = gpgmap[name][np.ix_(rows[there_y], columns[there_x])]
        out[name] = layer
    return out


def resample(gpgmap: GPGMap, grid: Grid, T: Array | None) -> dict[str, Array]:
    """The layers seen from another frame, at the middles of other cells: heights by cubic splines.

    T: (4, 4) pose of the map's frame in the other
    """
    T = np.eye(4) if T is None else T
    back, own = inverse(T), gpgmap.grid
    if not gpgmap.known.any():
        raise NoCommonGround("a map has no known cells: there is nothing to compare")
    spline = ndimage.spline_filter(fill_unknown(gpgmap["elevation"]), order=3)
    x, y = np.meshgrid(grid.x, grid.y)
    z = np.full(x.shape, T[2, 3] + float(np.nanmedian(gpgmap["elevation"])))
    for _ in range(2):  # which cell is below depends on the height, a little, where T tilts
        u = back[0, 0] * x + back[0, 1] * y + back[0, 2] * z + back[0, 3]
        v = back[1, 0] * x + back[1, 1] * y + back[1, 2] * z + back[1, 3]
        at = np.array(
            [(v - own.origin[1]) / own.resolution - 0.5, (u - own.origin[0]) / own.resolution - 0.5]
        )
        height = ndimage.map_coordinates(spline, at, order=3, prefilter=False, mode="nearest")
        z = T[2, 0] * u + T[2, 1] * v + T[2, 2] * height + T[2, 3]
    linear = {
        name: ndimage.map_coordinates(gpgmap[name].astype(np.float64), at, order=1, cval=np.nan)
        for name in LAYERS
    }
    normal = np.stack([-linear["gradient_x"], -linear["gradient_y"], np.ones_like(u)])
    turned = np.einsum("ij,jkl->ikl", T[:3, :3], normal)
    return {
        "elevation": np.where(np.isfinite(linear["elevation"]), z, np.nan),
        "variance": linear["variance"],
        "gradient_x": -turned[0] / turned[2],
        "gradient_y": -turned[1] / turned[2],
    }


def fill_unknown(layer: NDArray[np.floating]) -> Array:
    """Unknown cells with the height of the nearest known one, so that a spline does not spread them."""
    unknown = ~np.isfinite(layer)
    nearest = ndimage.distance_transform_edt(unknown, return_distances=False, return_indices=True)
    return np.asarray(layer[tuple(nearest)], dtype=np.float64)
