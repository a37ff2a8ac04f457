"""LiDAR odometry in made rooms, where nothing fixes the pose, and on a real recording with reference poses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

pytest.importorskip("small_gicp")

from rooms import corridor, plane, pose, room, scan

from gpgmap_ros.sensing.lidar_odometry import LidarOdometry, LostTrack

SECOND = 1_000_000_000


def test_a_drive_through_a_hall_is_followed_and_its_covariance_is_honest() -> None:
    rng = np.random.default_rng(1)
    odometry, first = LidarOdometry(threads=1), pose(-6.0, -4.0, 0.0)
    errors = []
    for k in range(25):
        true = pose(-6.0 + 0.4 * k, -4.0 + 0.02 * k * k / 2, 4.0 * k)
        step = odometry.register(scan(room(rng), true, rng), k * SECOND // 10)  # other points in every scan
        error = np.linalg.inv(first) @ true
        errors.append(np.linalg.norm(step.T_odom_sensor[:3, 3] - error[:3, 3]))
    assert max(errors) < 0.05
    assert 1e-4 < np.sqrt(np.trace(step.covariance[:3, :3])) < 0.05


def test_a_turn_of_45_degrees_between_two_scans_is_found() -> None:
    rng = np.random.default_rng(2)
    odometry = LidarOdometry(threads=1)
    odometry.register(scan(room(rng), pose(-2.0, 0.0, 0.0), rng), 0)
    step = odometry.register(scan(room(rng), pose(-2.0, 0.0, 45.0), rng), SECOND)
    yaw = Rotation.from_matrix(step.T_odom_sensor[:3, :3]).as_euler("zyx", degrees=True)[0]
    assert yaw == pytest.approx(45.0, abs=0.5)


def test_a_corridor_without_ends_is_not_tracked_along_its_axis() -> None:
    rng = np.random.default_rng(3)
    odometry = LidarOdometry(threads=1)
    odometry.register(scan(corridor(rng), pose(0.0, 0.0, 0.0), rng), 0)
    with pytest.raises(LostTrack, match="fixes its position to"):
        odometry.register(scan(corridor(rng), pose(0.5, 0.0, 0.0), rng), SECOND // 10)


def test_along_a_corridor_with_one_end_the_covariance_is_wide() -> None:
    """The end wall alone fixes the motion along the axis, and it is a tenth of what fixes it across."""
    rng = np.random.default_rng(7)
    odometry = LidarOdometry(threads=1)
    for k in range(6):
        scene = np.concatenate([corridor(rng), plane([9, -2, 0], [0, 4, 0], [0, 0, 3], 400, rng)])
        scene = scene[scene[:, 0] <= 9.0]
        step = odometry.register(scan(scene, pose(0.2 * k, 0.0, 0.0), rng), k * SECOND // 10)
    along, across = np.sqrt(np.diag(step.covariance)[:2])
    assert along > 2.0 * across
    assert abs(step.T_odom_sensor[0, 3] - 1.0) < 5.0 * along
    assert abs(step.T_odom_sensor[1, 3]) < 5.0 * across


@pytest.mark.parametrize("noise", [0.01, 0.04])
def test_the_covariance_is_that_of_the_errors(noise: float) -> None:
    """Whatever the noise of the ranges, which nobody states. Loose: twenty steps of one room."""
    rng, odometry = np.random.default_rng(8), LidarOdometry(threads=1)
    nees, before = [], (np.eye(4), np.eye(4), np.zeros((6, 6)))
    for k in range(23):
        true = pose(-6.0 + 0.3 * k, -4.0 + 0.1 * k, 3.0 * k)
        points = scan(room(rng), true, rng)
        step = odometry.register(points + rng.normal(0.0, noise, points.shape), k * SECOND // 10)
        T, last, covariance = before
        before = step.T_odom_sensor, true, step.covariance
        if k < 3:
            continue
        expected = T @ np.linalg.inv(last) @ true
        turn = Rotation.from_matrix(step.T_odom_sensor[:3, :3] @ expected[:3, :3].T).as_rotvec()
        error = np.append(step.T_odom_sensor[:3, 3] - expected[:3, 3], turn)
        nees.append(error @ np.linalg.solve(step.covariance + covariance, error) / 6.0)
    assert 0.33 < np.mean(nees) < 3.0


def test_surfaces_without_any_noise_are_registered() -> None:
    """As of a simulator: eigenvalues across an exact plane are zero, or below it by rounding."""
    rng, odometry = np.random.default_rng(0), LidarOdometry()
    for k in range(3):
        walls = rng.uniform(-5.0, 5.0, (6000, 3))
        walls[np.arange(6000), np.arange(6000) % 3] = -5.0
        step = odometry.register(walls, k * SECOND // 10)
    assert np.isfinite(step.covariance).all()
    assert np.linalg.norm(step.T_odom_sensor[:3, 3]) < 0.05


def test_a_level_field_is_not_tracked() -> None:
    rng = np.random.default_rng(4)
    field = plane([-30, -30, 0], [60, 0, 0], [0, 60, 0], 20000, rng)
    odometry = LidarOdometry(threads=1)
    odometry.register(scan(field, pose(0.0, 0.0, 0.0), rng), 0)
    with pytest.raises(LostTrack, match="fixes its position to"):
        odometry.register(scan(field, pose(0.4, 0.0, 2.0), rng), SECOND // 10)


def test_another_place_and_the_sky_are_noticed_and_change_nothing() -> None:
    rng = np.random.default_rng(5)
    odometry = LidarOdometry(threads=1)
    odometry.register(scan(room(rng), pose(0.0, 0.0, 0.0), rng), 0)
    elsewhere = rng.uniform(-12.0, 12.0, (8000, 3)) * [1.0, 1.0, 0.8]  # foliage on all sides
    with pytest.raises(LostTrack, match="% of the points match"):
        odometry.register(elsewhere, SECOND // 10)
    with pytest.raises(LostTrack, match="has 20 points after thinning, 100 needed"):
        odometry.register(rng.uniform(5.0, 9.0, (20, 3)) * 2.0, 2 * SECOND // 10)
    step = odometry.register(scan(room(rng), pose(0.3, 0.0, 0.0), rng), 3 * SECOND // 10)
    np.testing.assert_allclose(step.T_odom_sensor[:3, 3], [0.3, 0.0, 0.0], atol=0.03)


def test_after_a_restart_the_next_scan_is_at_the_pose_given() -> None:
    rng = np.random.default_rng(6)
    odometry = LidarOdometry(threads=1)
    odometry.register(scan(room(rng), pose(0.0, 0.0, 0.0), rng), 0)
    odometry.restart(pose(5.0, 6.0, 10.0))
    step = odometry.register(scan(room(rng), pose(1.0, 0.0, 0.0), rng), SECOND)
    np.testing.assert_array_equal(step.T_odom_sensor, pose(5.0, 6.0, 10.0))


def test_a_real_sensor_that_is_carried_around_is_followed(data_folder: Path) -> None:
    """Against bundle-adjusted poses; the sensor turns by up to 48 degrees between two clouds."""
    pytest.importorskip("rosbags")
    from gpgmap_ros.io.recordings import Decoder, Recording
    from gpgmap_ros.io.trajectory import read_tum
    from gpgmap_ros.sensing.pointcloud2 import read_xyz

    odometry, decode, found = LidarOdometry(threads=1), Decoder(), []
    with Recording([data_folder / "bag_balm_lidar_only"]) as recording:
        for message in recording.messages(["/points"], None, None):
            cloud = decode(message)
            stamp = cloud.header.stamp.sec * SECOND + cloud.header.stamp.nanosec
            found.append(odometry.register(read_xyz(cloud), stamp).T_odom_sensor[:3, 3])
    truth = read_tum(data_folder / "bag_balm_poses.txt").positions
    x, y = np.array(found) - np.mean(found, axis=0), truth - truth.mean(axis=0)
    aligned = x @ Rotation.align_vectors(y, x)[0].as_matrix().T
    assert np.sqrt(np.mean(np.sum((aligned - y) ** 2, axis=1))) < 0.10
