"""What the clouds and poses of a recording say about it, and what is advised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be read")

from gpgmap_ros.apps.cloud_checks import CloudChecks, drive_findings
from gpgmap_ros.apps.topic_selection import TopicSelection
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.diagnostics import GOOD, NOTE, WRONG, Finding
from gpgmap_ros.sensing import Cloud, SensorPose, TransformUnavailable
from gpgmap_ros.sensing.continuity import POSE_GAP, Break
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

CHOICE = TopicSelection("/points", "lidar", "tf", "odom", "base_link")
TENTH = NANOSECONDS // 10


@pytest.fixture
def checks() -> CloudChecks:
    return CloudChecks(Config())


def cloud(stamp: int, metres: float = 5.0, returns: int = 80, **changes: object) -> Cloud:
    points = np.tile([metres, 0.0, 0.0], (returns, 1))
    values = {"received": stamp, "size": 100, "fields": ("x", "y", "z")} | changes
    return Cloud(stamp, "lidar", points, **values)


def pose(x: float = 0.0, roll: float = 0.0) -> SensorPose:
    T = np.eye(4)
    T[1:3, 1:3] = [[np.cos(roll), -np.sin(roll)], [np.sin(roll), np.cos(roll)]]
    T[0, 3] = x
    return SensorPose(T)


def bad(checks: CloudChecks) -> list[Finding]:
    return [finding for finding in checks.findings(CHOICE) if finding.status != GOOD]


def test_a_sound_recording_has_nothing_but_good_findings(checks: CloudChecks) -> None:
    for k in range(10):
        checks.add_cloud(cloud(k * TENTH))
        checks.add_pose(k * TENTH, pose(0.01 * k))
    assert bad(checks) == []
    texts = {finding.subject: finding.text for finding in checks.findings(CHOICE)}
    assert "10 looked at: 10.0 Hz, 100 points, 80% returns; fields x, y, z" in texts["clouds"]
    assert texts["poses"] == "10 of 10 clouds have one in 'odom'"


def test_clouds_of_a_camera_ask_for_its_noise() -> None:
    forward = np.random.default_rng(2).uniform([-1.0, -1.0, 2.0], [1.0, 1.0, 6.0], (80, 3))
    for sensor, points, told in (
        ("spinning_lidar", forward, True),
        ("stereo", forward, False),
        ("spinning_lidar", forward[:, [2, 0, 1]], False),
    ):
        checks = CloudChecks(with_settings(Config(), {"noise.sensor": sensor}))
        for k in range(3):
            checks.add_cloud(replace(cloud(k * TENTH), points=points))
        assert [finding.remedy.startswith("if it is a stereo") for finding in bad(checks)] == [True] * told


def test_clouds_without_a_pose_are_not_missing(checks: CloudChecks) -> None:
    for k in range(20):
        checks.add_cloud(cloud(k * TENTH))
        if 5 <= k < 15:
            checks.add_missing(TransformUnavailable(POSE_GAP, "there is no pose for 1 s"))
        else:
            checks.add_pose(k * TENTH, pose(0.01 * k))
    (finding,) = bad(checks)
    assert finding.text == "10 clouds have none: there is no pose for 1 s"
    assert "why the poses stopped" in finding.remedy


def test_clouds_without_stamps_are_named(checks: CloudChecks) -> None:
    for _ in range(3):
        checks.add_cloud(cloud(0))
        checks.add_missing(TransformUnavailable("too_early", "asked for 0.000"))
    assert any(finding.remedy.startswith("the stamps of the clouds are 0") for finding in bad(checks))


def test_stamps_that_do_not_grow_are_wrong(checks: CloudChecks) -> None:
    for stamp in (0, TENTH, TENTH, 2 * TENTH):
        checks.add_cloud(cloud(stamp))
    [finding] = bad(checks)
    assert finding.status == WRONG
    assert finding.text.startswith("1 clouds are not newer")


def test_a_gap_is_noted(checks: CloudChecks) -> None:
    for k in (0, 1, 2, 3, 30, 31):
        checks.add_cloud(cloud(k * TENTH))
    [finding] = bad(checks)
    assert finding.status == NOTE
    assert "2.70 s" in finding.text


def test_two_clocks_are_noted(checks: CloudChecks) -> None:
    for k in range(5):
        checks.add_cloud(cloud(k * TENTH, received=k * TENTH + 7 * NANOSECONDS))
    [finding] = bad(checks)
    assert "7.0 s apart" in finding.text


@pytest.mark.parametrize("metres", [0.01, 5000.0])
def test_points_outside_the_range_of_the_filter_are_wrong(checks: CloudChecks, metres: float) -> None:
    checks.add_cloud(cloud(0, metres))
    [finding] = bad(checks)
    assert (finding.subject, finding.status) == ("range", WRONG)


def test_clouds_without_returns_are_wrong(checks: CloudChecks) -> None:
    checks.add_cloud(cloud(0, returns=0))
    assert "no cloud has a single return" in [finding.text for finding in bad(checks)]


def test_missing_poses_are_wrong_only_where_none_are_known(checks: CloudChecks) -> None:
    for _ in range(3):
        checks.add_missing(TransformUnavailable("too_late", "no pose came"))
    [finding] = bad(checks)
    assert (finding.status, finding.text) == (WRONG, "3 clouds have none: no pose came")
    checks.add_pose(0, pose())
    [finding] = bad(checks)
    assert finding.status == NOTE


def test_a_frame_that_is_not_level_is_wrong(checks: CloudChecks) -> None:
    checks.add_pose(0, pose(roll=np.radians(90.0)))
    [finding] = bad(checks)
    assert (finding.subject, finding.status) == ("frame", WRONG)
    assert "90 deg in 'odom'" in finding.text


@pytest.mark.parametrize(
    ("changes", "subjects"),
    [
        ({}, ["motion"]),  # no times, and the sensor moves
        ({"times": np.linspace(0.0, 0.1, 80)}, []),  # deskewed
        ({"times_error": "all points have the same time"}, ["times"]),
    ],
    ids=["no times", "times", "unusable times"],
)
def test_motion_within_a_cloud_is_noted_where_it_is_not_undone(
    checks: CloudChecks, changes: dict[str, object], subjects: list[str]
) -> None:
    for k in range(10):
        checks.add_cloud(cloud(k * TENTH, **changes))
        checks.add_pose(k * TENTH, pose(2.0 * k))
    assert [finding.subject for finding in bad(checks)] == subjects


def test_breaks_with_one_reason_are_told_once() -> None:
    breaks = [Break(0, 1, "a gap of 9 s", False), Break(5, 6, "a gap of 9 s", False)]
    found = list(drive_findings(breaks, 3))
    assert [finding.text for finding in found] == [
        "another drive begins: a gap of 9 s",
        "3 poses agree with none before and after and are left out",
    ]
    assert list(drive_findings([], 0)) == []
