"""LiDAR odometry as a pose source: drives, frames, the motion between clouds and the level of the ground."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

pytest.importorskip("small_gicp")

from rooms import corridor, plane, pose, room, scan

from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing import Cloud, SourceSetup, TransformUnavailable
from gpgmap_ros.sensing.lidar_source import LOST_TRACK, MAX_LOST, NO_MOTION, LidarSource
from gpgmap_ros.sensing.messages import FrameTransform
from gpgmap_ros.sensing.pose_source import WAITING_FOR_IMU, SensorPose

SECOND = 1_000_000_000
SPEED, TURN = 2.0, 30.0


def source() -> LidarSource:
    return LidarSource(SourceSetup.recorded("odom", "base", "lidar"))


def true_pose(seconds: float) -> Array:
    return pose(-5.0 + SPEED * seconds, 0.0, TURN * seconds)


def cloud(seconds: float, frame: str = "lidar", T: Array | None = None) -> Cloud:
    rng = np.random.default_rng(round(seconds * 1000))
    points = scan(room(rng), true_pose(seconds) if T is None else T, rng)
    return Cloud(round(seconds * SECOND), frame, points)


def empty(seconds: float) -> Cloud:
    return Cloud(round(seconds * SECOND), "lidar", np.zeros((10, 3)) + 5.0)


def test_poses_are_those_of_the_sensor_and_of_the_robot() -> None:
    lidar, mount = source(), pose(0.3, 0.0, 0.0, 0.5)
    lidar.insert_transform(FrameTransform("base", "lidar", 0, mount, static=True))
    found = [lidar.locate(cloud(0.1 * k)) for k in range(8)]
    moved = np.linalg.inv(found[0].T_map_sensor) @ found[-1].T_map_sensor
    expected = np.linalg.inv(true_pose(0.0)) @ true_pose(0.7)
    np.testing.assert_allclose(moved[:3, 3], expected[:3, 3], atol=0.05)
    np.testing.assert_allclose(found[-1].T_map_robot @ mount, found[-1].T_map_sensor, atol=1e-9)
    assert found[0].covariance is None, "the first cloud is where the frame begins"
    assert found[-1].covariance is not None
    assert {item.drive for item in found} == {0}
    assert lidar.newest() == round(0.7 * SECOND)


def test_what_a_registration_adds_to_the_drift_is_stated() -> None:
    odometry = source()
    assert odometry.locate(cloud(0.0)).step_covariance is None, "the first cloud is registered to none"
    step = odometry.locate(cloud(0.1)).step_covariance
    assert step is not None
    assert (np.linalg.eigvalsh(step) > 0.0).all()
    assert np.sqrt(step[0, 0]) < 0.1


def test_after_enough_lost_clouds_another_drive_begins_in_its_own_frame() -> None:
    lidar = source()
    for k in range(3):
        lidar.locate(cloud(0.1 * k))
    for k in range(3, 3 + MAX_LOST):
        with pytest.raises(
            TransformUnavailable, match="lost track: the scan has 1 points after thinning"
        ) as caught:
            lidar.locate(empty(0.1 * k))
        assert caught.value.reason == LOST_TRACK
    (problem,) = lidar.problems().values()
    assert f"lost track, the last {MAX_LOST} clouds have no pose: the scan has 1 points" in problem
    found = lidar.locate(cloud(0.1 * (3 + MAX_LOST)))
    assert found.drive == 1
    assert not lidar.problems()
    np.testing.assert_allclose(found.T_map_sensor[:3, 3], 0.0, atol=1e-9)
    (ended,) = lidar.breaks
    assert ended.reason == f"LiDAR odometry lost track for {MAX_LOST} clouds"
    assert lidar.locate(cloud(0.1 * (4 + MAX_LOST))).drive == 1


@contextmanager
def losses_kept(found: list[TransformUnavailable]) -> Iterator[None]:
    try:
        yield
    except TransformUnavailable as error:
        found.append(error)


def blank_wall(rng: np.random.Generator) -> Array:
    return plane([4, -20, -5], [0, 40, 0], [0, 0, 12], 6000, rng)


def sky(rng: np.random.Generator) -> Array:
    return rng.uniform([3.0, -1.0, 8.0], [5.0, 1.0, 12.0], (40, 3))  # a bird or two


@pytest.mark.parametrize(
    ("scene", "why"),
    [(corridor, "fixes its position to"), (blank_wall, "fixes its position to"), (sky, "points, 100 needed")],
)
def test_a_place_that_does_not_fix_the_motion_is_noticed_and_the_drive_is_split(scene: Any, why: str) -> None:
    lidar = source()
    for k in range(2):
        lidar.locate(cloud(0.1 * k))
    rng = np.random.default_rng(0)
    lost: list[TransformUnavailable] = []
    outcomes: list[SensorPose] = []
    for k in range(2, 6 + MAX_LOST):
        points = scan(scene(rng), pose(0.1 * k, 0.0, 0.0), rng)
        seen = Cloud(round(0.1 * k * SECOND), "lidar", points[:: max(1, len(points) // 1500)])
        with losses_kept(lost):
            outcomes.append(lidar.locate(seen))
    assert len(lost) >= MAX_LOST + 2
    assert {error.reason for error in lost} == {LOST_TRACK}
    assert why in str(lost[-1])
    assert lidar.breaks
    assert all(item.covariance is None for item in outcomes), "first clouds of drives, which claim no motion"


def test_a_single_lost_cloud_ends_nothing() -> None:
    lidar = source()
    first = lidar.locate(cloud(0.0))
    with pytest.raises(TransformUnavailable):
        lidar.locate(empty(0.1))
    found = lidar.locate(cloud(0.2))
    moved = np.linalg.inv(first.T_map_sensor) @ found.T_map_sensor
    np.testing.assert_allclose(
        moved[:3, 3], (np.linalg.inv(true_pose(0.0)) @ true_pose(0.2))[:3, 3], atol=0.05
    )
    assert not lidar.breaks


@pytest.mark.parametrize(
    ("stamp", "reason"), [(5.0, "no cloud for 4.8 s"), (0.05, "the stamps of the clouds go back")]
)
def test_a_gap_of_time_begins_another_drive(stamp: float, reason: str) -> None:
    lidar = source()
    for k in range(3):
        lidar.locate(cloud(0.1 * k))
    assert lidar.locate(cloud(stamp, T=true_pose(0.3))).drive == 1
    assert reason in lidar.breaks[0].reason


def test_a_cloud_of_another_sensor_has_no_pose_and_ends_nothing() -> None:
    lidar = source()
    lidar.locate(cloud(0.0))
    with pytest.raises(TransformUnavailable, match="follows 'lidar': a cloud of 'rear_lidar' has no pose"):
        lidar.locate(cloud(0.1, "rear_lidar"))
    assert lidar.locate(cloud(0.1)).drive == 0


def test_the_motion_of_the_last_two_clouds_is_known_between_and_around_them() -> None:
    lidar = source()
    with pytest.raises(TransformUnavailable) as caught:
        lidar.pose_at("lidar", 0)
    assert caught.value.reason == NO_MOTION
    first = lidar.locate(cloud(1.0))
    np.testing.assert_array_equal(lidar.pose_at("lidar", SECOND), first.T_map_sensor)
    with pytest.raises(TransformUnavailable, match="from the second cloud on"):
        lidar.pose_at("lidar", SECOND + 1)
    lidar.locate(cloud(1.1))
    last = lidar.locate(cloud(1.2))
    for seconds, atol in ((1.1, 0.03), (1.15, 0.03), (1.2, 0.03), (1.3, 0.06), (1.0, 0.06)):
        T = lidar.pose_at("lidar", round(seconds * SECOND))
        expected = first.T_map_sensor @ np.linalg.inv(true_pose(1.0)) @ true_pose(seconds)
        np.testing.assert_allclose(T[:3, 3], expected[:3, 3], atol=atol, err_msg=f"at {seconds} s")
    np.testing.assert_allclose(lidar.pose_at("lidar", round(1.2 * SECOND)), last.T_map_sensor, atol=1e-9)
    for seconds, reason in ((1.8, NO_MOTION), (0.5, "too_early")):
        with pytest.raises(TransformUnavailable) as caught:
            lidar.pose_at("lidar", round(seconds * SECOND))
        assert caught.value.reason == reason


def test_the_frame_is_level_where_the_sensor_is_tilted() -> None:
    lidar, rng = source(), np.random.default_rng(3)
    T = pose(-5.0, 0.0, 0.0)
    T[:3, :3] = Rotation.from_euler("yx", [20.0, -8.0], degrees=True).as_matrix()
    found = lidar.locate(Cloud(0, "lidar", scan(room(rng), T, rng)))
    up = found.T_map_sensor[:3, :3] @ T[:3, :3].T @ [0.0, 0.0, 1.0]
    assert np.degrees(np.arccos(up[2])) < 1.0


def test_forgetting_begins_at_the_origin_again() -> None:
    lidar = source()
    for k in range(4):
        lidar.locate(cloud(0.1 * k))
    lidar.forget()
    assert lidar.newest() is None
    np.testing.assert_allclose(lidar.locate(cloud(0.4)).T_map_sensor[:3, 3], 0.0, atol=1e-9)


def test_odometry_on_tf_is_no_mount() -> None:
    """As the node's own, which it hears as well: the sensor would have two parents."""
    lidar = source()
    lidar.insert_transform(FrameTransform("odom", "lidar", 0, pose(9.0, 0.0, 0.0)))
    lidar.insert_transform(FrameTransform("base", "lidar", 0, pose(0.3, 0.0, 0.0, 0.5), static=True))
    found = lidar.locate(cloud(0.0))
    assert found.T_base_sensor is not None
    np.testing.assert_allclose(found.T_base_sensor[:3, 3], [0.3, 0.0, 0.5])


def test_the_first_cloud_waits_for_an_imu_that_is_about_to_come() -> None:
    setup = SourceSetup.recorded("odom", "base", "lidar", has_imu=True)
    first = cloud(0.0)
    lidar = LidarSource(setup)
    with pytest.raises(TransformUnavailable) as waiting:
        lidar.locate(first)
    assert waiting.value.reason == WAITING_FOR_IMU
    lidar.stop_waiting(first, ended=False)
    assert lidar.locate(first).drive == 0, "an IMU that stays silent does not stop the mapping"
    assert lidar.locate(cloud(0.1)).drive == 0, "and is waited for once only"
