"""Several drives in one replay: gaps of time and jumps of the pose split them, loop closures join them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import drives
import numpy as np
import pytest

from gpgmap_ros.config import DriveConfig
from gpgmap_ros.demo.terrain import Terrain
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.trajectory import read_tum
from gpgmap_ros.sensing.continuity import BETWEEN_DRIVES, POSE_GAP, Continuity
from gpgmap_ros.sensing.transform_buffer import TransformUnavailable

DAY = 86_400.0
SECOND = 1_000_000_000


def at(x: float, yaw: float = 0.0) -> np.ndarray:
    T = np.eye(4)
    T[0, 3] = x
    T[:2, :2] = [[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]]
    return T


def taken(continuity: Continuity, poses: list[tuple[float, float]]) -> list[float]:
    """Places that can be used, of poses given as (seconds, metres)."""
    out = []
    for seconds, x in poses:
        out.extend(float(pose.T[0, 3]) for pose in continuity.take(round(seconds * SECOND), at(x)))
    return out


# -- which poses belong together ---------------------------------------------------------------------------


def test_an_even_drive_is_one_drive() -> None:
    continuity = Continuity(DriveConfig())
    poses = [(0.1 * k, 0.5 * k) for k in range(100)]
    assert taken(continuity, poses) == [x for _, x in poses]
    assert continuity.breaks == []
    assert continuity.drive_at(5 * SECOND) == 0


@pytest.mark.parametrize(
    ("poses", "reason"),
    [
        ([(0.0, 0.0), (1.0, 1.0), (DAY, 1.0), (DAY + 1, 2.0)], "there is no pose for 24.0 hours"),
        ([(0.0, 0.0), (1.0, 1.0), (2.0, 90.0), (3.0, 91.0)], "the pose jumps by 89.0 m in 1 s"),
        ([(100.0, 0.0), (101.0, 1.0), (0.0, 0.0), (1.0, 1.0)], "the stamps of the poses go back by 101 s"),
    ],
)
def test_what_no_motion_connects_are_two_drives(poses: list[tuple[float, float]], reason: str) -> None:
    continuity = Continuity(DriveConfig())
    assert taken(continuity, poses) == [x for _, x in poses]
    (found,) = continuity.breaks
    assert found.reason.startswith(reason)
    assert continuity.drive_at(round(poses[-1][0] * SECOND)) == 1
    if not found.back:
        assert continuity.drive_at(0) == 0
        with pytest.raises(TransformUnavailable, match="between two drives") as caught:
            continuity.drive_at(round(0.5 * (poses[1][0] + poses[2][0]) * SECOND))
        assert caught.value.reason == BETWEEN_DRIVES


def test_a_turn_on_the_spot_that_is_too_fast_begins_a_drive() -> None:
    continuity = Continuity(DriveConfig())
    for stamp, yaw in ((0, 0.0), (100_000_000, 0.1), (200_000_000, 2.5), (300_000_000, 2.5)):
        continuity.take(stamp, at(0.0, yaw))
    assert continuity.breaks[0].reason.startswith("the pose turns by 138 deg in 0.1 s")


@pytest.mark.parametrize("wrong", [(0.3, 500.0), (3600.0, 0.3)])
def test_a_single_wrong_pose_is_left_out(wrong: tuple[float, float]) -> None:
    """In space, or with a stamp an hour ahead."""
    continuity = Continuity(DriveConfig())
    used = taken(continuity, [(0.0, 0.0), (0.1, 0.1), (0.2, 0.2), wrong, (0.4, 0.4), (0.5, 0.5)])
    assert used == [0.0, 0.1, 0.2, 0.4, 0.5]
    assert continuity.outliers == 1
    assert continuity.breaks == []


@pytest.mark.parametrize(
    ("period", "gap", "moved", "missing"),
    [(0.1, 5.0, 4.0, True), (0.1, 1.5, 4.0, False), (4.0, 5.0, 4.0, False), (0.1, 5.0, 0.0, False)],
    ids=["gap", "short", "slow source", "standing"],
)
def test_missing_poses_are_not_interpolated(period: float, gap: float, moved: float, missing: bool) -> None:
    continuity = Continuity(DriveConfig())
    end, x = 10 * period, 10 * 0.1
    taken(continuity, [(period * k, 0.1 * k) for k in range(11)] + [(end + gap, x + moved)])
    assert continuity.drive_at(round(end * SECOND)) == 0
    assert continuity.drive_at(round((end + gap) * SECOND)) == 0
    if missing:
        with pytest.raises(
            TransformUnavailable, match=r"no pose for 5 s, while the robot moved by 4\.0 m"
        ) as caught:
            continuity.drive_at(round((end + 0.5 * gap) * SECOND))
        assert caught.value.reason == POSE_GAP
    else:
        assert continuity.drive_at(round((end + 0.5 * gap) * SECOND)) == 0


def test_poses_may_overtake_one_another() -> None:
    continuity = Continuity(DriveConfig())
    used = taken(continuity, [(0.0, 0.0), (0.2, 0.2), (0.1, 0.1), (0.3, 0.3)])
    assert used == [0.0, 0.2, 0.1, 0.3]
    assert continuity.breaks == []


# -- the command --------------------------------------------------------------------------------------------


def placed_as(truth: list[np.ndarray], folder: Path, count: int) -> float:
    """The largest distance of the last `count` positions of a trajectory from the truth, in metres."""
    positions = read_tum(folder / "trajectory.txt").positions[-count:]
    return float(np.linalg.norm(positions - np.array(truth)[:, :3, 3], axis=1).max())


def test_two_drives_a_day_apart_are_joined_by_closures(gpgmap, small, drive_bags, tmp_path) -> None:
    second = drives.later(drive_bags.frames, DAY, 8)
    drives.write_ros2(tmp_path / "next_day", drives.messages_of(second))
    said = gpgmap("replay", drive_bags.sqlite, "next_day", "--out", "out", *small).stdout
    assert "another drive begins: there is no pose for 24.0 hours" in said
    assert "2, joined by loop closures" in said
    summary = RunFolder(tmp_path / "out").read_summary()
    assert [(row["number"], row["clouds"], row["in_map"]) for row in summary["drives"]] == [
        (1, 24, True),
        (2, 24, True),
    ]
    assert summary["seconds_of_data"] == pytest.approx(2 * 23 * drives.PERIOD)
    assert summary["way_m"] < 60.0, "the jump between the drives is no way driven"
    # where the second drive was in the frame of the first
    truth = [
        *(f.T_odom_base for f in drive_bags.frames[8:]),
        *(f.T_odom_base for f in drive_bags.frames[1:9]),
    ]
    assert placed_as(truth, tmp_path / "out", len(truth)) < 0.2
    assert "another drive begins" in (tmp_path / "out" / "report.html").read_text()
    said = gpgmap("evaluate", "out", "--truth", "out/trajectory.txt").stdout
    assert "odometry   several drives, each in its own frame" in said
    assert "ATE 0.000 m rmse" in said
    graph = (tmp_path / "out" / "closures.g2o").read_text().splitlines()
    edges = sum(line.startswith("EDGE") for line in graph)
    odometry = sum(row["submaps"] - 1 for row in summary["drives"])
    assert edges == odometry + summary["closures"]["accepted"], "no odometry leads from one drive to the next"


def test_drives_over_other_ground_are_kept_apart(gpgmap, small, drive_bags, run_folder, tmp_path) -> None:
    other = Terrain(
        drive_bags.terrain.heights[::-1, ::-1].T.copy()[::-1] * -1.0, drive_bags.terrain.resolution
    )
    frames = drives.later(drives.frames_of(other), DAY, 8)[:16]
    drives.write_ros2(tmp_path / "elsewhere", drives.messages_of(frames))
    result = gpgmap("replay", drive_bags.sqlite, "elsewhere", "--out", "out", *small)
    text = "no loop closure joins drive 2 (16 clouds) to the rest: it is not in the map, but in drives/2"
    assert text in result.stdout
    out = tmp_path / "out"
    assert text in (out / "report.html").read_text()
    summary = RunFolder(out).read_summary()
    assert any(text in warning for warning in summary["warnings"])
    assert [row["folder"] for row in summary["drives"]] == ["", "drives/2"]
    alone, both = RunFolder(run_folder).read_map()[0], RunFolder(out).read_map()[0]
    assert both.grid == alone.grid
    assert np.mean(both.known != alone.known) < 0.001
    # How upright submaps stand is estimated from the closures of all drives: millimetres, where other ground is metres.
    assert np.nanmax(np.abs(both["elevation"] - alone["elevation"])) < 0.01, "nothing is blended in"
    apart = RunFolder(out / "drives" / "2")
    assert apart.read_map()[0].known.sum() > 1000
    assert len(apart.read_trajectory()) == 16
    assert apart.read_summary()["submaps"] == summary["drives"][1]["submaps"]
    assert "drive 2" in apart.report.read_text()
    assert len(RunFolder(out).read_trajectory()) == drives.CLOUDS


def test_a_jump_inside_one_recording_begins_a_drive(gpgmap, quick, drive_bags, tmp_path) -> None:
    jump = at(40.0, 2.0)
    frames = [
        replace(f, T_odom_base=jump @ f.T_odom_base) if k >= 12 else f
        for k, f in enumerate(drive_bags.frames)
    ]
    drives.write_ros2(tmp_path / "jump", drives.messages_of(frames))
    summary = json.loads(gpgmap("replay", "jump", "--out", "out", "--json", *quick).stdout)
    assert [row["clouds"] for row in summary["drives"]] == [12, 12]
    assert summary["drives"][1]["because"].startswith("the pose jumps by")
    assert any("another drive begins: the pose jumps by" in text for text in summary["warnings"])
    assert summary["map"]["cells"][0] * summary["map"]["resolution_m"] < 40.0, (
        "two halves 40 m apart are not one map"
    )


def test_a_clock_that_was_set_back_begins_a_drive(gpgmap, quick, drive_bags, tmp_path) -> None:
    """As with simulated time: the second recording was made later, and its stamps begin again."""
    again = [
        replace(item, time=item.time + 10 * 60 * SECOND) for item in drives.drive_messages(drive_bags.frames)
    ]
    drives.write_ros2(tmp_path / "again", again)
    summary = json.loads(
        gpgmap("replay", drive_bags.sqlite, "again", "--out", "out", "--json", *quick).stdout
    )
    assert [row["clouds"] for row in summary["drives"]] == [24, 24]
    assert "the stamps of the poses go back by" in summary["drives"][1]["because"]
    assert summary["clouds"]["dropped"] == {}


def test_a_wrong_pose_is_left_out_and_said(gpgmap, quick, drive_bags, tmp_path) -> None:
    messages = list(
        drives.odometry_messages(drive_bags.frames, list(drives.drive_messages(drive_bags.frames)))
    )
    wrong = [k for k, item in enumerate(messages) if item.topic == drives.ODOMETRY][10]
    messages[wrong].message.pose.pose.position.x += 300.0
    drives.write_ros2(tmp_path / "spike", messages)
    summary = json.loads(gpgmap("replay", "spike", "--out", "out", "--json", *quick).stdout)
    assert len(summary["drives"]) == 1
    assert summary["clouds"]["used"] == drives.CLOUDS
    assert any(text.startswith("1 poses agree with none") for text in summary["warnings"])
    assert np.abs(read_tum(tmp_path / "out" / "odometry.txt").positions).max() < 20.0


def test_two_robots_at_the_same_time_are_refused(gpgmap, drive_bags, tmp_path) -> None:
    for command in (["replay"], ["doctor"]):
        result = gpgmap(*command, drive_bags.sqlite, drive_bags.mcap, code=None)
        assert "have clouds on /lidar/points from the same 6 s" in result.stderr + result.stdout
        assert result.returncode == (2 if command == ["replay"] else 1)
    assert not list(tmp_path.glob("*_gpgmap*"))


def test_doctor_says_where_drives_begin(gpgmap, drive_bags, tmp_path) -> None:
    drives.write_ros2(tmp_path / "next_day", drives.messages_of(drives.later(drive_bags.frames, DAY, 8)))
    said = gpgmap("doctor", drive_bags.sqlite, "next_day").stdout
    assert "another drive begins: there is no pose for 24.0 hours (drive.max_gap 60 s)" in said
