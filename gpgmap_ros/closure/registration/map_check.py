"""Can a surface that was read from a file be that of a map? Bytes may be whole and the numbers impossible."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.closure.registration.registration_map import FIELDS, WAY_POINTS, RegistrationMap
from gpgmap_ros.mapping.plausible import FARTHEST, check_number

SMALLEST_CELL, LARGEST_CELL = 1e-4, 1e4
"""Metres."""
ROUND_OFF = 1e-3
"""Relative: sums over single-precision weights, in another order."""


def check_fields(arrays: Mapping[str, NDArray[Any]]) -> None:
    """ValueError where the fields of a surface, by name, have not the type and the one shape that they must have."""
    shape = arrays["weight"].shape
    for name in FIELDS:
        field = arrays[name]
        if field.ndim != 2 or field.shape != shape or not field.size or field.dtype != np.float32:
            raise ValueError(f"its {name} is {field.dtype} {field.shape}, expected float32 {shape}")


def check_map(surface: RegistrationMap) -> None:
    """ValueError that names the first thing which can't be; `RegistrationMap` says what each field means."""
    shape = surface.weight.shape
    for name in FIELDS:
        field = getattr(surface, name)
        if not np.isfinite(field).all():
            raise ValueError(f"its {name} is not finite everywhere")
        if name.endswith("variance") and (field < 0.0).any():
            raise ValueError(f"its {name} is negative")
        if field[surface.weight == 0.0].any():
            raise ValueError(f"its {name} is not 0 where the weight is")
    if surface.weight.min() < 0.0 or surface.weight.max() > 1.0:
        raise ValueError("its weights are not from 0 to 1")
    resolution = check_number(surface.resolution, "its resolution", SMALLEST_CELL, LARGEST_CELL)
    if float(np.abs(surface.height).max()) * resolution > FARTHEST:
        raise ValueError(f"its heights are beyond {FARTHEST:.0e} m")
    check_number(surface.base, "its base")
    area = float(surface.weight.sum(dtype=np.float64))
    check_number(surface.area, "its area", (1.0 - ROUND_OFF) * area, (1.0 + ROUND_OFF) * area)
    if area <= 0.0:
        raise ValueError("none of its cells can be trusted")
    for name, low, high in (("origin", -FARTHEST, (FARTHEST, FARTHEST)), ("centre", 0.0, shape[::-1])):
        place = getattr(surface, name)
        if place.shape != (2,) or place.dtype != np.float64:
            raise ValueError(f"its {name} is {place.dtype} {place.shape}, expected two numbers")
        if not ((place >= low) & (place <= high)).all():
            raise ValueError(f"its {name} is out of range")
    way = surface.way
    if way.ndim != 2 or way.shape[1:] != (2,) or len(way) > WAY_POINTS or way.dtype != np.float64:
        raise ValueError(f"its way is {way.dtype} {way.shape}, expected at most {WAY_POINTS} places")
    if not (np.abs(way) * resolution <= FARTHEST).all():
        raise ValueError("its way is out of range")
    rates = surface.drift_rates
    if rates.shape != (2,) or rates.dtype != np.float64 or not (np.isfinite(rates) & (rates >= 0.0)).all():
        raise ValueError("its drift_rates are no pair of variances")
    check_number(surface.radius, "its radius", 0.0, math.hypot(*shape))
