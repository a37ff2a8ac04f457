"""Checks of maps that were read from files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fractal_world import World

from gpgmap_ros.closure import ClosureConfig
from gpgmap_ros.closure.registration.map_check import check_fields, check_map
from gpgmap_ros.closure.registration.registration_map import FIELDS, RegistrationMap, make_registration_map


@pytest.fixture(scope="module")
def prepared(world: World) -> RegistrationMap:
    return make_registration_map(world.map_at((100.0, 100.0), 1)[0], ClosureConfig())


def test_a_map_that_was_just_made_passes(prepared: RegistrationMap) -> None:
    check_map(prepared)
    check_fields({name: getattr(prepared, name) for name in FIELDS})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"resolution": 0.0}, "resolution"),
        ({"base": np.nan}, "base"),
        ({"area": 1e9}, "area"),
        ({"radius": -1.0}, "radius"),
        ({"centre": np.array([-5.0, 0.0])}, "centre is out of range"),
        ({"origin": np.array([1.0])}, "origin"),
    ],
)
def test_impossible_numbers_are_named(prepared: RegistrationMap, change: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_map(replace(prepared, **change))


def test_impossible_fields_are_named(prepared: RegistrationMap) -> None:
    negative = prepared.height_variance.copy()
    negative[prepared.weight > 0.0] = -1.0
    with pytest.raises(ValueError, match="height_variance is negative"):
        check_map(replace(prepared, height_variance=negative))
    fields = {name: getattr(prepared, name) for name in FIELDS}
    with pytest.raises(ValueError, match="slope_x is float64"):
        check_fields(fields | {"slope_x": prepared.slope_x.astype(np.float64)})
