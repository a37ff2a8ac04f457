"""A submap made ready for comparison: heights, slopes, and how far each cell can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.mapping import GPGMap

Array = NDArray[np.float64]
Field = NDArray[np.float32]

LAYERS = ("elevation", "variance", "gradient_x", "gradient_y", "gradient_x_variance", "gradient_y_variance")
BEST_PART = 25.0
"""Percentile of the gradient variances that stands for a well observed cell of the map."""
WELL_OBSERVED = 10.0
"""A cell whose gradient variance is this many times that of a well observed one counts half."""
UNSEEN = 50.0
"""Beyond this many times the GP extrapolates, with an error that grows faster than its variance: left out."""


FLAT = 2.0
"""Variance of the slopes over that of their errors, below which there is nothing to recognise."""


WEIGHT, HEIGHT, SLOPE_X, SLOPE_Y, HEIGHT_VARIANCE, SLOPE_VARIANCE = range(6)
"""Numbers of the fields of a Surface in `Surface.fields`."""
FIELDS = ("weight", "height", "slope_x", "slope_y", "height_variance", "slope_variance")


class NotComparable(ValueError):
    """A map, or a pair of maps, in which no place can be recognised: why."""


@dataclass(frozen=True, eq=False)
class Surface:
    """Fields `[iy, ix]` in units of cells: a slope keeps its value, a height z becomes z / resolution.

    weight: trust in [0, 1], 0 where unknown or extrapolated
    height, slope_x, slope_y: finite everywhere, 0 where the weight is 0
    height_variance, slope_variance: of the GP, grown with u, in units of cells squared; slopes: mean of x and y
    origin: (2,) metres, centre of cell (0, 0); base: metres, height that was subtracted
    centre: (2,) x and y of the middle of the trusted cells, in cells from the centre of cell (0, 0)
    radius: of the trusted cells around `centre`, in cells; area: sum of the weights
    fields: (6, rows, columns) the fields above in one array, of which they are views: inner loops that take one array
        instead of six are compiled sooner
    """

    weight: Field
    height: Field
    slope_x: Field
    slope_y: Field
    height_variance: Field
    slope_variance: Field
    resolution: float
    origin: Array
    base: float
    centre: Array
    radius: float
    area: float
    fields: Field = field(init=False, repr=False)

    def __post_init__(self) -> None:
        fields = np.array([getattr(self, name) for name in FIELDS], np.float32)
        object.__setattr__(self, "fields", fields)
        for name, values in zip(FIELDS, fields, strict=True):  # views: each number is kept once
            object.__setattr__(self, name, values)

    @property
    def middle(self) -> Array:
        """(3,) the middle of the trusted cells in metres; z is `base`."""
        return np.array([*(self.origin + self.centre * self.resolution), self.base])


def surface_of(map_: GPGMap, config: ClosureConfig) -> Surface:
    """The surface of a map; NotComparable where the map can't be recognised at all.

    Wherever the terrain is rougher than the kernel, the GP's variances are too small: by a factor that is common to
    the map where there is data, and by more between and beyond data, where the error grows about as the square of the
    variance. They are therefore read relative to the map's own best part, u = slope variance / its lower quartile:

        weight = 1 / (1 + u / WELL_OBSERVED) for u < UNSEEN, else 0;      variances are multiplied by max(u, 1).
    """
    missing = [name for name in LAYERS if name not in map_.layers]
    if missing:
        raise NotComparable(f"the map has no layer {', '.join(missing)}")
    if any(map_[name].shape != map_.grid.shape for name in LAYERS):
        raise NotComparable(f"the layers do not have the shape of the grid, {map_.grid.shape}")
    layers = {name: map_[name] for name in LAYERS}
    known = np.logical_and.reduce([np.isfinite(layer) for layer in layers.values()])
    if not known.any():
        raise NotComparable("the map is empty: no cell is known")
    h = map_.grid.resolution
    slope_variance = 0.5 * (layers["gradient_x_variance"] + layers["gradient_y_variance"])
    known &= (slope_variance >= 0.0) & (layers["variance"] >= 0.0)
    if config.use_variance:
        reference = max(float(np.percentile(slope_variance[known], BEST_PART)), np.finfo(np.float32).tiny)
        excess = np.where(known, slope_variance / reference, np.inf)
        weight = np.where(excess < UNSEEN, 1.0 / (1.0 + excess / WELL_OBSERVED), 0.0)
        growth = np.maximum(excess, 1.0)
    else:
        growth = np.ones(known.shape)
        weight = known.astype(float)
    trusted = weight > 0.0
    count = int(trusted.sum())
    if count < config.min_cells:
        raise NotComparable(
            f"the map is too small: {count} well observed cells, {config.min_cells} are needed"
        )
    rows, columns = np.nonzero(trusted)
    if np.ptp(rows) < 4 or np.ptp(columns) < 4:
        raise NotComparable("the map is too narrow: fewer than five rows or columns of cells")
    base = float(np.median(layers["elevation"][trusted]))
    area = float(weight.sum())
    centre = np.array(
        [np.sum(weight.sum(0) * np.arange(weight.shape[1])), weight.sum(1) @ np.arange(len(weight))]
    )
    centre /= area
    slopes = layers["gradient_x"][trusted], layers["gradient_y"][trusted]
    spread = float(np.var(slopes[0]) + np.var(slopes[1]))
    noise = float(np.median(slope_variance[trusted])) if config.use_variance else 0.0
    if spread <= max(FLAT * 2.0 * noise, 1e-10):
        raise NotComparable("the map is flat: its slopes hardly differ by more than their own uncertainty")

    def trusted_part(values: NDArray[np.floating]) -> Field:
        return np.ascontiguousarray(np.where(trusted, values, 0.0), dtype=np.float32)

    return Surface(
        weight=np.ascontiguousarray(weight, dtype=np.float32),
        height=trusted_part((layers["elevation"].astype(np.float64) - base) / h),
        slope_x=trusted_part(layers["gradient_x"]),
        slope_y=trusted_part(layers["gradient_y"]),
        height_variance=trusted_part(growth * layers["variance"] / h**2),
        slope_variance=trusted_part(growth * slope_variance),
        resolution=h,
        origin=np.array(map_.grid.origin) + 0.5 * h,
        base=base,
        centre=centre,
        radius=float(np.hypot(columns - centre[0], rows - centre[1]).max()),
        area=area,
    )
