"""The demo's terrain, drive and recording."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be made")

from gpgmap_ros.demo.drive import drive, sensor_mount, start_pose
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
