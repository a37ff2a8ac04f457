"""The demo's terrain, drive and recording."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be made")

from gpgmap_ros.demo.drift import Drift, add_drift
from gpgmap_ros.demo.drive import Route, drive, sensor_mount, start_pose
from gpgmap_ros.demo.recording import POINTS_TOPIC, drive_messages
from gpgmap_ros.demo.terrain import rover_terrain
from gpgmap_ros.geometry import apply
from gpgmap_ros.io.bags import count_messages, read_raw, write_bag


def test_the_terrain_is_a_rovers() -> None:
    terrain = rover_terrain(np.random.default_rng(0))
    gy, gx = np.gradient(terrain.heights, terrain.resolution)
    slope = np.degrees(np.arctan(np.hypot(gx, gy)))
    assert terrain.size == (40.0, 40.0)
    assert 3.0 < np.median(slope) < 20.0
    assert 1.0 < np.ptp(terrain.heights) < 10.0
    # rocks: some of the ground is much steeper than the relief
    assert np.mean(slope > 35.0) > 0.01


def test_what_the_sensor_saw_lies_on_the_ground() -> None:
    terrain = rover_terrain(np.random.default_rng(0))
    T_world_odom = start_pose(terrain)
    for frame in drive(terrain, np.random.default_rng(1), duration=2.0, rate=1.0):
        world = apply(T_world_odom @ frame.T_odom_base @ sensor_mount(), frame.points)
        error = world[:, 2] - terrain.height_at(world[:, 0], world[:, 1])
        assert np.median(np.abs(error)) < 0.02
        assert len(frame.points) > 5000


def test_the_drive_starts_level_at_the_origin_and_comes_back() -> None:
    terrain = rover_terrain(np.random.default_rng(0))
    poses = [frame.T_odom_base for frame in drive(terrain, np.random.default_rng(1), duration=6.0, rate=1.0)]
    np.testing.assert_allclose(poses[0][:3, 3], 0.0, atol=1e-9)
    np.testing.assert_allclose(poses[-1], poses[0], atol=1e-9)
    heading = np.arctan2(poses[0][1, 0], poses[0][0, 0])
    assert abs(heading) < 1e-9
    for T in poses:
        np.testing.assert_allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-12)
        assert np.linalg.det(T[:3, :3]) > 0.99


def test_the_recording_reads_back(tmp_path: Path) -> None:
    terrain = rover_terrain(np.random.default_rng(0), size=30.0)
    write_bag(
        tmp_path / "bag", drive_messages(drive(terrain, np.random.default_rng(1), duration=1.0, rate=2.0))
    )
    messages = list(read_raw(tmp_path / "bag"))
    assert [message.topic for message in messages[:3]] == ["/tf_static", "/tf", POINTS_TOPIC]
    assert count_messages(tmp_path / "bag", POINTS_TOPIC) == 3
    assert all(a.time <= b.time for a, b in itertools.pairwise(messages))
    assert {path.name for path in tmp_path.iterdir()} == {"bag"}


def test_odometry_drifts_in_proportion_to_the_distance() -> None:
    terrain = rover_terrain(np.random.default_rng(0))
    frames = list(drive(terrain, np.random.default_rng(1), duration=24.0, rate=1.0, route=Route(8.0, 1.25)))
    exact = list(add_drift(frames, Drift(0.0, 0.0, 0.0)))
    for true, same in zip(frames, exact, strict=True):
        np.testing.assert_allclose(same.T_odom_base, true.T_odom_base, atol=1e-12)
    drift = Drift(yaw=0.01, scale=0.0, climb=0.02)
    drifting = list(add_drift(frames, drift))
    np.testing.assert_allclose(drifting[0].T_odom_base, frames[0].T_odom_base)
    steps = np.diff([frame.T_odom_base[:3, 3] for frame in frames], axis=0)
    length = np.linalg.norm(steps, axis=1).sum()
    true, last = frames[-1].T_odom_base, drifting[-1].T_odom_base
    turned = true[:3, :3].T @ last[:3, :3]
    assert np.arccos((np.trace(turned) - 1.0) / 2.0) == pytest.approx(0.01 * length, rel=1e-6)
    assert last[2, 3] - true[2, 3] == pytest.approx(0.02 * length)
    # gravity is known: the direction of down in the rover's frame has no drift
    np.testing.assert_allclose(last[2, :3], true[2, :3], atol=1e-12)
    assert all(a.points is b.points for a, b in zip(frames, drifting, strict=True))


def test_the_demos_route_returns_and_goes_on_over_known_ground() -> None:
    from gpgmap_ros.demo.scene import DURATION, LIDAR, RATE, ROUTE, TERRAIN_SIZE

    terrain = rover_terrain(np.random.default_rng(0), TERRAIN_SIZE)
    lidar = type(LIDAR)(beams=2, turns=4)
    frames = list(drive(terrain, np.random.default_rng(1), DURATION, RATE, ROUTE, lidar))
    positions = np.array([frame.T_odom_base[:3, 3] for frame in frames])
    half = len(positions) // 2
    assert np.linalg.norm(positions[half]) > ROUTE.radius
    back = np.linalg.norm(positions[half:] - positions[0], axis=1).argmin() + half
    assert np.linalg.norm(positions[back] - positions[0]) < 1.0
    assert back < len(positions) - 5
    world = positions @ start_pose(terrain, ROUTE.radius)[:3, :3].T + start_pose(terrain, ROUTE.radius)[:3, 3]
    assert world[:, :2].min() > LIDAR.max_range / 2
