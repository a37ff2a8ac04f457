"""LiDAR-inertial odometry by rko-lio: a drive in a hall, an IMU that ends, and the package that is not installed."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

pytest.importorskip("small_gicp")

from rooms import pose, room, scan

from gpgmap_ros.demo.sensors import SimulatedImu
from gpgmap_ros.geometry import Array, inverse
from gpgmap_ros.sensing import Cloud, PoseSource, SourceSetup, make_source
from gpgmap_ros.sensing.lidar_odometry import LidarOdometry

SECOND = 1_000_000_000


def drive(seconds: float) -> Array:
    """Stands for a second, then drives off in a curve."""
    t = max(seconds - 1.0, 0.0)
    way = t * t / (t + 1.0)
    return pose(-4.0 + 0.8 * way, 0.3 * way, 15.0 * way)


def inertial(imu_end: float, **changes: Any) -> PoseSource:
    source = make_source("lidar_inertial", SourceSetup.recorded("odom", "base_link", "lidar"))
    imu = SimulatedImu(rate=100.0, frame_id="lidar", **changes)
    for sample in imu.samples(drive, 0.0, imu_end, SECOND, np.random.default_rng(1)):
        source.insert_imu(sample)
    return source


def steps(source: PoseSource, times: Array) -> Array:
    """Metres by which each step is wrong."""
    scene, rng = room(np.random.default_rng(0)), np.random.default_rng(2)
    found = []
    for t in times:
        points = scan(scene, drive(t), rng)
        found.append(source.locate(Cloud(SECOND + round(t * SECOND), "lidar", points)))
    assert all(item.covariance is not None for item in found[1:])
    moved = [inverse(a.T_map_sensor) @ b.T_map_sensor for a, b in pairwise(found)]
    true = [inverse(drive(a)) @ drive(b) for a, b in pairwise(times)]
    return np.array([np.linalg.norm(T[:3, 3] - E[:3, 3]) for T, E in zip(moved, true, strict=True)])


def test_a_drive_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rko_lio")
    registered, register = [], LidarOdometry.register

    def counted(*arguments: Any) -> Any:
        registered.append(arguments)
        return register(*arguments)

    monkeypatch.setattr(LidarOdometry, "register", counted)
    errors = steps(inertial(3.5), np.arange(0.6, 3.0, 0.1))
    assert errors.max() < 0.05
    assert len(registered) <= 2, "all but the first by rko-lio"


def test_where_the_imu_ends_scans_are_registered_without_it() -> None:
    pytest.importorskip("rko_lio")
    source = inertial(1.8)
    times = np.concatenate([np.arange(0.6, 1.75, 0.1), np.arange(3.0, 3.35, 0.1)])
    assert steps(source, times).max() < 0.05


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rko_lio", "rko_lio.config", "rko_lio.lio", "rko_lio.rko_lio_pybind"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=r"rko-lio .*extra `lidar_inertial`.* pip install rko-lio"):
        make_source("lidar_inertial", SourceSetup.recorded("odom", "base_link", "lidar"))
