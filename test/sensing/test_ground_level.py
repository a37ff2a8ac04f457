"""The vertical from the ground's normal, with walls and bushes around, and where there is no ground."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gpgmap_ros.sensing.ground_level import find_level

RNG = np.random.default_rng(3)


def scene() -> np.ndarray:
    """Rough ground 1.2 m below the sensor, a wall and bushes."""
    ground = np.column_stack([RNG.uniform(-10, 10, (4000, 2)), RNG.normal(-1.2, 0.03, 4000)])
    wall = np.column_stack([np.full(1500, 6.0), RNG.uniform(-5, 5, 1500), RNG.uniform(-1.2, 2.0, 1500)])
    bushes = RNG.uniform([-8, -8, -1.2], [-4, -4, 0.5], (1500, 3))
    return np.vstack([ground, wall, bushes])


@pytest.mark.parametrize("tilt", [0.0, 8.0, 40.0])
def test_a_tilted_sensor_is_levelled(tilt: float) -> None:
    R = Rotation.from_euler("yx", [tilt, 0.3 * tilt], degrees=True).as_matrix()  # sensor in the world
    level = find_level(scene() @ R, np.random.default_rng(1))
    assert level is not None
    up = level.T_level_sensor[:3, :3] @ R.T @ [0.0, 0.0, 1.0]
    assert np.rad2deg(np.arccos(up[2])) < 1.0
    assert np.rad2deg(level.tilt) == pytest.approx(np.rad2deg(np.arccos(R[2, 2])), abs=1.0)
    assert np.linalg.det(level.T_level_sensor[:3, :3]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((0, 3)),
        np.column_stack([np.full(3000, 4.0), RNG.uniform(-5, 5, (3000, 2))]),  # a wall
        RNG.uniform(-10, 10, (3000, 3)),  # foliage on all sides
    ],
)
def test_without_ground_nothing_is_claimed(points: np.ndarray) -> None:
    assert find_level(points, np.random.default_rng(1)) is None
