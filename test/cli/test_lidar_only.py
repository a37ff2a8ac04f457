"""A real recording with nothing but clouds becomes a map: by LiDAR odometry, or with a trajectory file beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fast_mapping import FAST, options
from scipy.spatial.transform import Rotation

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be read")

from gpgmap_ros.cli import main
from gpgmap_ros.io.trajectory import Trajectory, read_tum

SETTINGS = options({**FAST, "closure.enabled": False})


def position_error(found: Trajectory, truth: Trajectory) -> float:
    """Root mean square after the best rigid motion, metres."""
    x, y = found.positions - found.positions.mean(0), truth.positions - truth.positions.mean(0)
    aligned = x @ Rotation.align_vectors(y, x)[0].as_matrix().T
    return float(np.sqrt(np.mean(np.sum((aligned - y) ** 2, axis=1))))


def test_clouds_alone_are_mapped_by_lidar_odometry(
    data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("small_gicp")
    bag, out = data_folder / "bag_balm_lidar_only", tmp_path / "run"
    assert main(["replay", str(bag), "--to", "35", "--out", str(out), "--json", *SETTINGS]) == 0
    summary = json.loads(capsys.readouterr().out)
    reason = "poses by LiDAR odometry: there is no moving /tf above 'lidar' and no odometry"
    assert any(reason in text for text in summary["chosen"]["because"])
    assert summary["clouds"]["used"] == summary["clouds"]["read"] >= 60
    found, truth = read_tum(out / "trajectory.txt"), read_tum(data_folder / "bag_balm_poses.txt")
    truth = Trajectory(truth.stamps[: len(found)], truth.poses[: len(found)])
    assert position_error(found, truth) < 0.10
    assert (out / "report.html").exists()


def test_poses_from_a_file_are_used_as_they_are(data_folder: Path, tmp_path: Path) -> None:
    bag, poses, out = (
        data_folder / "bag_balm_lidar_only",
        data_folder / "bag_balm_poses.txt",
        tmp_path / "run",
    )
    assert main(["replay", str(bag), "--poses", str(poses), "--to", "15", "--out", str(out), *SETTINGS]) == 0
    found, truth = read_tum(out / "odometry.txt"), read_tum(poses)
    assert len(found) >= 25
    np.testing.assert_allclose(found.poses, truth.poses[: len(found)], atol=1e-5)


def test_a_file_of_another_time_is_named(
    data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag, poses, out = (
        data_folder / "bag_balm_lidar_only",
        data_folder / "bag_balm_poses.txt",
        tmp_path / "run",
    )
    options = ["--poses", str(poses), "--poses-offset", "3600", "--to", "5", "--out", str(out), *SETTINGS]
    main(["replay", str(bag), *options])
    assert "the file of poses begins" in capsys.readouterr().err


def test_lidar_inertial_odometry_needs_an_imu(
    data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag, out = data_folder / "bag_balm_lidar_only", tmp_path / "run"
    assert main(["replay", str(bag), "--lidar-inertial", "--out", str(out)]) != 0
    assert "--lidar-inertial needs the messages of an IMU" in capsys.readouterr().err
    assert not out.exists()
