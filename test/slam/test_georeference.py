"""One similarity from a trajectory to UTM: noise, outliers, jumps, gaps, and fixes that do not give one."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

pytest.importorskip("pyproj", reason="pyproj is not installed: nothing can be georeferenced")

from scipy.spatial.transform import Rotation

from gp_core.grid import Grid
from gpgmap_ros.demo.sensors import SimulatedGps
from gpgmap_ros.geometry import Array, transform_from
from gpgmap_ros.mapping import gpgmap_from_points
from gpgmap_ros.sensing.gps import GpsTrack
from gpgmap_ros.sensing.messages import GpsFix
from gpgmap_ros.slam.geodesy import UtmZone, load_pyproj
from gpgmap_ros.slam.georeference import GeoreferenceError, fit_georeference
from gpgmap_ros.slam.trajectory import Trajectory

SECOND = 1_000_000_000
LATITUDE, LONGITUDE, HEIGHT = 47.38, 8.54, 460.0
YAW = 0.7
"""Of the map's x axis from east."""


def loop(seconds: float) -> Array:
    """T_map_robot on a loop of some 500 m in 300 s."""
    a = 2.0 * np.pi * seconds / 300.0
    position = [80.0 * np.sin(a), 60.0 * (1.0 - np.cos(a)) + 15.0 * np.sin(2.0 * a), 2.0 * np.sin(a)]
    return transform_from(position, Rotation.from_euler("z", a).as_quat())


def trajectory(seconds: float = 300.0) -> Trajectory:
    times = np.arange(0.0, seconds, 0.5)
    return Trajectory((SECOND + times * SECOND).astype(np.int64), np.stack([loop(t) for t in times]))


@lru_cache(maxsize=1)
def zone() -> UtmZone:
    return UtmZone.around(LATITUDE, LONGITUDE, HEIGHT)


@lru_cache(maxsize=1)
def true_origin() -> Array:
    return np.array([*zone().forward(np.array([LATITUDE]), np.array([LONGITUDE]))[0], HEIGHT])


def to_earth(world: Array) -> tuple[float, float, float]:
    east, north = true_origin()[:2] + zone().scale * world[:2]
    return (*zone().inverse(east, north), HEIGHT + float(world[2]))


def fixes(
    gps: SimulatedGps, seconds: float = 300.0, seed: int = 0, lever: Array | None = None
) -> list[GpsFix]:
    R = Rotation.from_euler("z", YAW).as_matrix()

    def world(t: float) -> Array:
        T = loop(t)
        T[:3, 3] += T[:3, :3] @ (np.zeros(3) if lever is None else lever)
        T[:3, 3] = R @ T[:3, 3]
        return T

    return list(gps.fixes(world, to_earth, seconds, SECOND, np.random.default_rng(seed)))


EXACT = SimulatedGps(noise=1e-3, offset=1e-3)


def test_exact_fixes_give_the_exact_pose() -> None:
    found = fit_georeference(fixes(EXACT), trajectory())
    assert found.epsg == 32632
    np.testing.assert_allclose(found.origin, true_origin(), atol=0.02)
    assert found.yaw == pytest.approx(YAW, abs=1e-4)
    assert found.outliers == 0
    assert found.scale == pytest.approx(0.9996, abs=3e-4)
    np.testing.assert_allclose(found.move(loop(0.0))[:3, 3], true_origin(), atol=0.02)
    assert found.position(loop(0.0)) == pytest.approx((LATITUDE, LONGITUDE, HEIGHT), abs=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_a_fifth_of_outliers_and_jumps_of_50_m_do_not_move_the_map(seed: int) -> None:
    gps = SimulatedGps(noise=0.5, offset=0.2, outliers=0.2, jump=(120.0, 150.0, 50.0))
    found = fit_georeference(fixes(gps, seed=seed), trajectory())
    assert 55 <= found.outliers <= 110
    error = np.linalg.norm(found.origin[:2] - true_origin()[:2])
    std = np.sqrt(found.covariance[0, 0] + found.covariance[1, 1])
    assert error < min(0.5, 3.0 * std)
    assert np.degrees(abs(found.yaw - YAW)) < 0.2
    assert abs(found.origin[2] - HEIGHT) < 1.0


def test_the_lever_of_the_antenna_counts() -> None:
    lever = np.array([1.0, 0.5, 2.0])
    given = fit_georeference(fixes(EXACT, lever=lever), trajectory(), lever)
    np.testing.assert_allclose(given.origin, true_origin(), atol=0.02)
    assert abs(fit_georeference(fixes(EXACT, lever=lever), trajectory()).origin[2] - HEIGHT) > 1.9


def test_stated_deviations_that_are_too_small_are_noticed() -> None:
    honest = fixes(SimulatedGps(noise=1.0, offset=0.3))
    proud = [
        GpsFix(f.stamp, f.frame_id, f.latitude, f.longitude, f.altitude, np.eye(3) * 0.04, 0) for f in honest
    ]
    found = fit_georeference(proud, trajectory())
    assert found.inflation > 1.0
    assert np.linalg.norm(found.origin[:2] - true_origin()[:2]) < 0.7


def test_the_earth_frame_is_where_the_map_is() -> None:
    found = fit_georeference(fixes(EXACT), trajectory())
    pyproj = load_pyproj()
    T = found.T_earth_map()
    to_ecef = pyproj.Transformer.from_crs(4979, 4978, always_xy=True)
    for t in (0.0, 70.0):
        latitude, longitude, height = found.position(loop(t))
        expected = to_ecef.transform(longitude, latitude, height)
        np.testing.assert_allclose((T @ loop(t))[:3, 3], expected, atol=0.05)


def test_a_map_is_placed_on_the_grid() -> None:
    found = fit_georeference(fixes(EXACT), trajectory())
    xy = np.random.default_rng(0).uniform(0.0, 5.0, (2000, 2))
    local = gpgmap_from_points(np.column_stack([xy, np.full(len(xy), 1.5)]), 0.5)
    placed = found.place(local)
    assert placed.frame_id == "EPSG:32632"
    assert isinstance(placed.grid, Grid)
    expected = found.origin[:2] + found.scale * np.array(local.grid.origin)
    np.testing.assert_allclose(placed.grid.origin, expected)
    assert np.nanmedian(placed["elevation"]) == pytest.approx(HEIGHT + 1.5, abs=0.1)
    np.testing.assert_array_equal(placed["gradient_x"], local["gradient_x"])


@pytest.mark.parametrize(
    ("seconds", "gps", "message"),
    [
        (5.0, EXACT, "usable GPS fixes, 8 are needed"),
        (12.0, SimulatedGps(noise=3.0, offset=1.0), "the trajectory is too short|do not agree"),
    ],
)
def test_too_little_is_refused(seconds: float, gps: SimulatedGps, message: str) -> None:
    with pytest.raises(GeoreferenceError, match=message):
        fit_georeference(fixes(gps, seconds), trajectory(seconds))


def test_another_clock_is_named() -> None:
    later = Trajectory(trajectory().stamps + 10_000 * SECOND, trajectory().poses)
    with pytest.raises(GeoreferenceError, match=r"0 of 300 usable GPS fixes .* do both have the same clock"):
        fit_georeference(fixes(EXACT), later)


def test_fixes_that_have_nothing_to_do_with_the_trajectory_are_refused() -> None:
    rng = np.random.default_rng(0)
    wild = [
        GpsFix(SECOND + k * SECOND, "gps", LATITUDE + east, LONGITUDE + north, 0.0, np.eye(3), 0)
        for k, (east, north) in enumerate(rng.normal(0.0, 0.01, (100, 2)))
    ]
    with pytest.raises(GeoreferenceError, match="do not agree with the trajectory"):
        fit_georeference(wild, trajectory())


def test_fixes_that_are_none_are_counted_by_reason() -> None:
    track = GpsTrack()
    for latitude, longitude, status in (
        (47.0, 8.0, 0), (0.0, 0.0, 0), (np.nan, 8.0, 0), (47.0, 8.0, -1), (147.0, 8.0, 0),
    ):  # fmt: skip
        track.insert(GpsFix(track.received * SECOND, "gps", latitude, longitude, 0.0, None, status))
    assert len(track.fixes) == 1
    assert track.without_covariance == 1
    assert dict(track.refused) == {
        "at (0, 0)": 1,
        "not finite": 1,
        "without a fix (status -1)": 1,
        "no latitude and longitude in degrees": 1,
    }
