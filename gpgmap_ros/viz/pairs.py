"""Two maps of one place, laid over each other: what a registration says, to be looked at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import map_coordinates

from gp_core.grid import Grid
from gpgmap_ros.arrays import Array
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.layers import ColourScale
from gpgmap_ros.viz.rendering import (
    STYLES,
    UNKNOWN,
    Pixels,
    certainty,
    colour_layer,
    relief_shade,
    shade_pixels,
)

RESIDUAL = ColourScale("Difference", "m", "RdBu_r", symmetric=True)


@dataclass(frozen=True, eq=False)
class Side:
    """One map on the common cells. elevation, gradient_x, gradient_y, variance: NaN where unknown
    certain: how well the slope is known, 0 to 1"""

    elevation: Array
    gradient_x: Array
    gradient_y: Array
    variance: Array
    certain: Array


@dataclass(frozen=True, eq=False)
class Pair:
    """Both maps in the target's frame, on cells that cover both."""

    grid: Grid
    source: Side
    target: Side

    @property
    def residual(self) -> Array:
        """Height of the source above the target where both know it."""
        return self.source.elevation - self.target.elevation

    def standardised_residual(self, scale: float = 1.0) -> Array:
        """The same in standard deviations of both maps, whose variances are too small by the factor `scale`."""
        return self.residual / np.sqrt(scale * (self.source.variance + self.target.variance))

    @property
    def shared(self) -> float:
        """Square metres that both know."""
        return float(np.isfinite(self.residual).sum()) * self.grid.resolution**2


def pair_of(source: GPGMap, target: GPGMap, T_target_source: Array, max_cells: int = 240) -> Pair:
    """max_cells: along the longer side; coarser cells than the maps' own are used beyond it"""
    corners = _corners(source)
    moved = corners @ T_target_source[:2, :2].T + T_target_source[:2, 3]
    both = np.vstack([moved, _corners(target)])
    low, high = both.min(axis=0), both.max(axis=0)
    resolution = max(target.grid.resolution, float((high - low).max()) / max_cells)
    columns, rows = np.maximum(np.ceil((high - low) / resolution).astype(int), 1)
    grid = Grid((float(low[0]), float(low[1])), (int(rows), int(columns)), resolution)
    return _crop_to_known(grid, _resample(source, T_target_source, grid), _resample(target, np.eye(4), grid))


def _crop_to_known(grid: Grid, source: Side, target: Side) -> Pair:
    """Without the margins in which neither map knows anything: a turned map leaves large ones."""
    known = np.isfinite(source.elevation) | np.isfinite(target.elevation)
    if not known.any():
        return Pair(grid, source, target)
    rows, columns = (np.flatnonzero(known.any(axis=axis)) for axis in (1, 0))
    part = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    h = grid.resolution
    corner = (grid.origin[0] + columns[0] * h, grid.origin[1] + rows[0] * h)
    own = Grid(corner, (int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1), h)
    return Pair(own, *(Side(*(layer[part] for layer in vars(side).values())) for side in (source, target)))


def _corners(gpgmap: GPGMap) -> Array:
    x_min, y_min, x_max, y_max = gpgmap.grid.bounds
    return np.array([[x_min, y_min], [x_max, y_min], [x_min, y_max], [x_max, y_max]])


def _resample(gpgmap: GPGMap, T: Array, grid: Grid) -> Side:
    """The map seen from another frame, which T leads to, at the middles of other cells: bilinear."""
    x, y = np.meshgrid(grid.x, grid.y)
    back, own = inverse(T), gpgmap.grid
    layers = {
        name: gpgmap[name].astype(np.float64)
        for name in ("elevation", "gradient_x", "gradient_y", "variance")
    }
    layers["certain"] = certainty(gpgmap).astype(np.float64)
    z = np.full(x.shape, T[2, 3] + float(np.nanmedian(layers["elevation"])) if gpgmap.known.any() else 0.0)
    for _ in range(2):  # which cell is below depends on the height, a little, where T tilts
        u = back[0, 0] * x + back[0, 1] * y + back[0, 2] * z + back[0, 3]
        v = back[1, 0] * x + back[1, 1] * y + back[1, 2] * z + back[1, 3]
        at = np.array(
            [(v - own.origin[1]) / own.resolution - 0.5, (u - own.origin[0]) / own.resolution - 0.5]
        )
        here = {name: map_coordinates(layer, at, order=1, cval=np.nan) for name, layer in layers.items()}
        height = T[2, 0] * u + T[2, 1] * v + T[2, 2] * here["elevation"] + T[2, 3]
        z = np.where(np.isfinite(height), height, z)
    # the normal (-g_x, -g_y, 1) turns with the frame
    normal = np.stack([-here["gradient_x"], -here["gradient_y"], np.ones_like(u)])
    turned = np.einsum("ij,jkl->ikl", T[:3, :3], normal)
    certain = np.nan_to_num(here["certain"])
    return Side(height, -turned[0] / turned[2], -turned[1] / turned[2], here["variance"], certain)


def pair_pictures(pair: Pair) -> dict[str, Pixels]:
    """source and target with one scale of colours, and their difference; rows from south to north."""
    both = np.concatenate([pair.source.elevation.ravel(), pair.target.elevation.ravel()])
    known = both[np.isfinite(both)]
    ends = tuple(np.percentile(known, (1.0, 99.0))) if known.size else (0.0, 1.0)
    ends = (float(ends[0]), max(float(ends[1]), float(ends[0]) + 1e-3))
    pictures = {}
    for name, side in (("source", pair.source), ("target", pair.target)):
        colours = colour_layer(side.elevation, STYLES["elevation"], ends)
        pixels = shade_pixels(colours, relief_shade(side.gradient_x, side.gradient_y), certain=side.certain)
        pixels[~np.isfinite(side.elevation)] = UNKNOWN
        pictures[name] = pixels
    limit = residual_limit(pair)
    pictures["difference"] = colour_layer(pair.residual, RESIDUAL, (-limit, limit))
    return pictures


def residual_limit(pair: Pair) -> float:
    """Ends of the scale of differences, in metres: six times their middle, about four standard deviations.

    Not their largest, which are where a map goes on beyond its data.
    """
    residual = pair.residual
    known = np.abs(residual[np.isfinite(residual)])
    return max(6.0 * float(np.median(known)), 0.02) if known.size else 1.0
