"""A map prepared for registration: heights, slopes, and how far each cell can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gp_core.arrays import Array
from gpgmap_ros.closure.acceptance import (
    canopy_objection,
    coverage_objection,
    layer_objection,
    relief_objection,
    size_objection,
)
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.canopy import detail_slope
from gpgmap_ros.closure.types import NotComparable
from gpgmap_ros.mapping import GPGMap

Field = NDArray[np.float32]

LAYERS = ("elevation", "variance", "gradient_x", "gradient_y", "gradient_x_variance", "gradient_y_variance")
BEST_PART = 25.0
"""Percentile of the gradient variances that stands for a well observed cell of the map."""
WELL_OBSERVED = 10.0
"""A cell whose gradient variance is this many times that of a well observed one counts half."""
UNSEEN = 50.0
"""Beyond this many times the GP extrapolates, with an error that grows faster than its variance: left out."""
WAY_POINTS = 6
"""Of the way in a map: between them the odometry drifts."""

WEIGHT, HEIGHT, SLOPE_X, SLOPE_Y, HEIGHT_VARIANCE, SLOPE_VARIANCE = range(6)
"""Numbers of the fields of a RegistrationMap in `RegistrationMap.fields`."""
FIELDS = ("weight", "height", "slope_x", "slope_y", "height_variance", "slope_variance")


@dataclass(frozen=True, eq=False)
class RegistrationMap:
    """Fields `[iy, ix]` in units of cells: a slope keeps its value, a height z becomes z / resolution.

    weight: trust in [0, 1], 0 where unknown or extrapolated
    height, slope_x, slope_y: finite everywhere, 0 where the weight is 0
    height_variance, slope_variance: of the GP, grown with u, in units of cells squared; slopes: mean of x and y
    origin: (2,) metres, centre of cell (0, 0); base: metres, height that was subtracted
    centre: (2,) x and y of the middle of the trusted cells, in cells from the centre of cell (0, 0)
    radius: of the trusted cells around `centre`, in cells; area: sum of the weights
    way: (K, 2) x and y of the robot in cells, at most WAY_POINTS of equal distance; empty where no way is known
    drift_rates: (2,) as of a GPGMap, m^2 and rad^2 per metre
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
    way: Array = field(default_factory=lambda: np.zeros((0, 2)), repr=False)
    drift_rates: Array = field(default_factory=lambda: np.zeros(2), repr=False)
    fields: Field = field(init=False, repr=False)

    def __post_init__(self) -> None:
        fields = np.array([getattr(self, name) for name in FIELDS], np.float32)
        object.__setattr__(self, "fields", fields)
        for name, values in zip(FIELDS, fields, strict=True):  # views: each number is kept once
            object.__setattr__(self, name, values)

    @cached_property
    def middle(self) -> Array:
        """(3,) the middle of the trusted cells in metres; z is `base`."""
        return np.array([*(self.origin + self.centre * self.resolution), self.base])


def make_registration_map(map_: GPGMap, config: ClosureConfig) -> RegistrationMap:
    """The fields of a map that are compared; NotComparable where no place can be recognised in it.

    Wherever the terrain is rougher than the kernel, the GP's variances are too small: by a factor that is common to
    the map where there is data, and by more between and beyond data, where the error grows about as the square of the
    variance. They are therefore read relative to the map's own best part, u = slope variance / its lower quartile:

        weight = 1 / (1 + u / WELL_OBSERVED) for u < UNSEEN, else 0;      variances are multiplied by max(u, 1).
    """
    layers = {name: map_[name] for name in LAYERS if name in map_.layers}
    require(layer_objection(layers, LAYERS, map_.grid.shape))
    known = np.logical_and.reduce([np.isfinite(layer) for layer in layers.values()])
    require(coverage_objection(known))
    h = map_.grid.resolution
    slope_variance = 0.5 * (layers["gradient_x_variance"] + layers["gradient_y_variance"])
    known &= (slope_variance >= 0.0) & (layers["variance"] >= 0.0)
    weight, growth = trust_cells(slope_variance, known, config)
    trusted = weight > 0.0
    require(size_objection(trusted, config))
    slopes = layers["gradient_x"][trusted], layers["gradient_y"][trusted]
    noise = float(np.median(slope_variance[trusted])) if config.use_variance else 0.0
    require(relief_objection(float(np.var(slopes[0]) + np.var(slopes[1])), noise))
    require(canopy_objection(detail_slope(layers["gradient_x"], layers["gradient_y"], trusted)))
    base = float(np.median(layers["elevation"][trusted]))
    area = float(weight.sum())
    centre = np.array(
        [np.sum(weight.sum(0) * np.arange(weight.shape[1])), weight.sum(1) @ np.arange(len(weight))]
    )
    centre /= area
    rows, columns = np.nonzero(trusted)

    def trusted_part(values: NDArray[np.floating]) -> Field:
        return np.ascontiguousarray(np.where(trusted, values, 0.0), dtype=np.float32)

    return RegistrationMap(
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
        way=thin_way((map_.way[:, :2] - np.array(map_.grid.origin)) / h - 0.5),
        drift_rates=np.array(map_.drift_rates, dtype=np.float64),
    )


def thin_way(way: Array) -> Array:
    """At most WAY_POINTS points of equal distance along a way (K, 2); none where it does not move."""
    steps = np.hypot(*np.diff(way, axis=0).T) if len(way) > 1 else np.zeros(0)
    driven = np.concatenate([[0.0], np.cumsum(steps)])
    if not (np.isfinite(driven[-1]) and driven[-1] > 1.0):
        return np.zeros((0, 2))
    at = np.linspace(0.0, driven[-1], min(WAY_POINTS, max(len(way), 3)))
    return np.stack([np.interp(at, driven, part) for part in way.T], axis=1)


def require(objection: str) -> None:
    if objection:
        raise NotComparable(objection)


def trust_cells(
    slope_variance: NDArray[np.floating], known: NDArray[np.bool_], config: ClosureConfig
) -> tuple[Array, Array]:
    """Weights of the cells, and the factor by which their variances grow."""
    if not config.use_variance:
        return known.astype(float), np.ones(known.shape)
    reference = max(float(np.percentile(slope_variance[known], BEST_PART)), float(np.finfo(np.float32).tiny))
    excess = np.where(known, slope_variance / reference, np.inf)
    weight = np.where(excess < UNSEEN, 1.0 / (1.0 + excess / WELL_OBSERVED), 0.0)
    return weight, np.maximum(excess, 1.0)
