"""LiDAR odometry in a process: what it gives is what it gives in this one, and its end is noticed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("small_gicp")

from rooms import corridor, pose, room, scan

from gp_core.parallel import single_threaded_blas
from gpgmap_ros.sensing.lidar_odometry import LidarOdometry, LostTrack
from gpgmap_ros.sensing.odometry_process import OdometryProcess

SECOND = 1_000_000_000


@pytest.fixture
def process() -> Iterator[OdometryProcess]:
    odometry = OdometryProcess()
    yield odometry
    odometry.close()


def test_poses_and_covariances_are_those_of_the_same_process(process: OdometryProcess) -> None:
    rng, here = np.random.default_rng(1), LidarOdometry()
    start = pose(1.0, 2.0, 30.0)
    process.restart(start)
    here.restart(start)
    for k in range(4):
        points = scan(room(rng), pose(-2.0 + 0.3 * k, 0.0, 3.0 * k), rng).astype(np.float32)
        there = process.register(points, 1 + k * SECOND // 10)
        with single_threaded_blas():
            step = here.register(points, 1 + k * SECOND // 10)
        np.testing.assert_array_equal(there.T_odom_sensor, step.T_odom_sensor)
        np.testing.assert_array_equal(there.covariance, step.covariance)
        assert there.matched == step.matched
    given = process.follow(points, SECOND, step.T_odom_sensor)
    np.testing.assert_array_equal(given.T_odom_sensor, step.T_odom_sensor)


def test_loss_of_track_is_raised_here_and_the_next_scan_is_registered(process: OdometryProcess) -> None:
    rng = np.random.default_rng(3)
    process.restart()
    process.register(scan(corridor(rng), pose(0.0, 0.0, 0.0), rng), 0)
    with pytest.raises(LostTrack, match="fixes its position to"):
        process.register(scan(corridor(rng), pose(0.5, 0.0, 0.0), rng), SECOND // 10)
    process.restart()
    assert process.register(scan(room(rng), pose(0.0, 0.0, 0.0), rng), SECOND).matched == 1.0


def test_an_error_in_the_child_is_not_taken_for_loss_of_track(process: OdometryProcess) -> None:
    with pytest.raises(RuntimeError, match="please report"):
        process.register(np.zeros((500, 2)), 0)


def test_a_child_that_is_killed_is_named(process: OdometryProcess) -> None:
    process.restart()
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="ended with code -9"):
        process.register(np.zeros((500, 3)), 0)


def test_closing_ends_the_child() -> None:
    odometry = OdometryProcess()
    odometry.close()
    with pytest.raises(ProcessLookupError):
        os.kill(odometry.pid, 0)
