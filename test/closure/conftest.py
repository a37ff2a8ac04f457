"""What the closure tests share: one made world, and two maps of one place in it."""

from __future__ import annotations

import numpy as np
import pytest
from fractal_world import World, fractal
from numpy.typing import NDArray

from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping import GPGMap

Array = NDArray[np.float64]


@pytest.fixture(scope="session")
def world() -> World:
    return World(fractal(11))


@pytest.fixture(scope="session")
def pair(world: World) -> tuple[GPGMap, GPGMap, Array]:
    """Source, target, T_target_source: two samples of overlapping ground, half shared, any yaw, tilted frames."""
    source, T_source = world.map_at((100.0, 100.0), 1, yaw=2.2, tilt=0.012)
    target, T_target = world.map_at((113.0, 114.0), 2, yaw=-0.7, tilt=0.01)
    return source, target, T_target @ inverse(T_source)
