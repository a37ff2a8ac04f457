"""Real terrain, where the data folder is there: two flight lines of one survey, ridges that look alike, trees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fractal_world import World, map_as_submap, pose_error
from scipy.spatial.transform import Rotation

from gpgmap_ros.closure import ClosureConfig, NotComparable, register
from gpgmap_ros.closure.registration.registration_map import make_registration_map
from gpgmap_ros.config import Config, FilterConfig, with_settings
from gpgmap_ros.geometry import apply, inverse
from gpgmap_ros.mapping import GPGMap, gpgmap_from_points
from gpgmap_ros.mapping.filters import lowest_surface

SMOOTH = with_settings(
    Config(), {"mapping.kernel": "rbf", "mapping.learn_noise": False, "mapping.length_scale": 1.5}
)
"""As submaps are made."""


@pytest.fixture(scope="module")
def lines(data_folder: Path):
    """Ground points of flight lines 1 and 2."""
    data = np.load(data_folder / "als_blanca.npz")
    xyz = data["xyz"].astype(np.float64)
    return [xyz[data["line"] == k] for k in (1, 2)]


def cut(points: np.ndarray, centre: tuple[float, float], yaw: float) -> tuple[GPGMap, np.ndarray]:
    """A 60 m disc in a frame of its own, and T_map_world."""
    disc = points[np.hypot(points[:, 0] - centre[0], points[:, 1] - centre[1]) < 30.0]
    T_world_map = np.eye(4)
    T_world_map[:3, :3] = Rotation.from_euler("z", yaw).as_matrix()
    T_world_map[:3, 3] = [*centre, np.median(disc[:, 2])]
    T_map_world = inverse(T_world_map)
    return map_as_submap(apply(T_map_world, disc)), T_map_world


def test_two_flight_lines_find_each_other(lines):
    """The survey's own error between the lines is about 0.1 m."""
    source, T_source = cut(lines[0], (110.0, 100.0), 1.9)
    target, T_target = cut(lines[1], (130.0, 90.0), -0.4)
    found = register(source, target)
    assert found.accepted, found.reason
    shift, yaw = pose_error(found.T_target_source, T_target @ inverse(T_source), np.zeros(3))
    assert shift < 0.4
    assert yaw < 0.4


def test_other_gullies_are_refused(lines):
    source, _ = cut(lines[0], (60.0, 60.0), 0.3)
    for place in ((150.0, 60.0), (60.0, 150.0), (180.0, 140.0)):
        assert not register(source, cut(lines[1], place, 0.0)[0]).accepted


def test_self_similar_ridges_are_refused(data_folder: Path):
    ridges = World(np.load(data_folder / "dem_gabilan_1m.npz")["z"].astype(np.float64))
    maps = [
        ridges.map_at(place, k)[0] for k, place in enumerate(((120.0, 150.0), (420.0, 500.0), (650.0, 300.0)))
    ]
    for k, source in enumerate(maps):
        for target in maps[k + 1 :]:
            assert not register(source, target).accepted


def test_a_mound_under_trees_is_ground_and_its_trees_are_not(data_folder: Path):
    xyz = np.asarray(np.load(data_folder / "lone_star.npz")["xyz"], float)
    disc = xyz[np.hypot(xyz[:, 0] - 24.0, xyz[:, 1] - 20.0) < 6.0][::4]
    with pytest.raises(NotComparable, match="no ground"):
        make_registration_map(gpgmap_from_points(disc, 0.3, SMOOTH), ClosureConfig())
    ground = disc[lowest_surface(disc, FilterConfig())]
    make_registration_map(gpgmap_from_points(ground, 0.3, SMOOTH), ClosureConfig())
