"""From a message to a cloud with a pose, cloud by cloud and without a node."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from sensor_msgs.msg import PointCloud2, PointField

from gpgmap_ros.nodes.cloud_intake import CloudIntake
from gpgmap_ros.nodes.cloud_order import TO_BELIEVE
from gpgmap_ros.nodes.messages import time_message
from gpgmap_ros.nodes.worker import WaitingCloud
from gpgmap_ros.sensing import SourceSetup, make_source
from gpgmap_ros.sensing.messages import FrameTransform
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS
from gpgmap_ros.sensing.waiting import LocatedCloud, PoseQueue

START = 1_000 * NANOSECONDS
TENTH = NANOSECONDS // 10


def message(stamp: int, points: np.ndarray) -> PointCloud2:
    count = len(points)
    made = PointCloud2(height=1, width=count, point_step=12, row_step=12 * count, is_dense=False)
    made.header.frame_id, made.header.stamp = "lidar", time_message(stamp)
    made.fields = [PointField(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
    made.data = points.astype("<f4").tobytes()
    return made


@dataclass
class Intake:
    """An intake whose poses come from transforms, with a clock that stands still: no cloud is waited for."""

    dropped: list[tuple[str, str]] = field(default_factory=list)
    resets: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.source = make_source("tf", SourceSetup.recorded("odom", "lidar", "lidar"))
        self.intake = CloudIntake(
            PoseQueue(self.source, 0.0, lambda: 0),
            lambda *drop: self.dropped.append(drop),
            self.resets.append,
        )

    def insert_poses(self, begin: int, count: int) -> None:
        for k in range(count):
            T = np.eye(4)
            T[0, 3] = 0.1 * k
            self.source.insert_transform(FrameTransform("odom", "lidar", begin + k * TENTH, T))

    def give(self, stamp: int, points: np.ndarray | None = None, arrived: float = 5.0) -> LocatedCloud | None:
        points = np.ones((4, 3)) if points is None else points
        return self.intake.prepare(WaitingCloud(message(stamp, points), "/points", arrived))

    def follow(self, stamp: int, arrived: float = 5.0) -> None:
        self.intake.order.follow(stamp, arrived)


@pytest.fixture
def intake() -> Intake:
    made = Intake()
    made.insert_poses(START, 20)
    return made


def test_a_cloud_of_the_present_gets_its_pose(intake: Intake) -> None:
    located = intake.give(START + 5 * TENTH)
    assert located is not None
    np.testing.assert_allclose(located.pose.T_map_sensor[0, 3], 0.5, atol=1e-9)
    assert len(located.cloud.points) == 4
    assert located.cloud.topic == "/points"
    assert intake.dropped == []


def test_a_malformed_message_is_dropped_with_its_topic(intake: Intake) -> None:
    bad = message(START, np.ones((4, 3)))
    bad.data = bytes(bad.data)[:20]
    assert intake.intake.prepare(WaitingCloud(bad, "/points", 5.0)) is None
    [(reason, text)] = intake.dropped
    assert reason == "bad_cloud"
    assert text.startswith("'/points' is malformed")


def test_a_cloud_without_a_return_is_dropped(intake: Intake) -> None:
    assert intake.give(START, np.full((4, 3), np.nan)) is None
    assert intake.dropped == [("empty", "'/points' has no valid point")]


def test_a_cloud_whose_pose_does_not_come_is_dropped_with_the_reason(intake: Intake) -> None:
    assert intake.give(START + 25 * TENTH) is None
    assert [reason for reason, _ in intake.dropped] == ["too_late"]


@pytest.mark.parametrize(("seconds", "reason"), [(-300, "late"), (300, "ahead")])
def test_one_cloud_of_another_time_is_dropped(intake: Intake, seconds: int, reason: str) -> None:
    intake.follow(START + 19 * TENTH)
    assert intake.give(START + 19 * TENTH + seconds * NANOSECONDS) is None
    [(found, text)] = intake.dropped
    assert found == reason
    assert "300.0 s" in text
    assert intake.resets == []


def test_when_clouds_and_poses_go_back_together_the_map_is_reset_once(intake: Intake) -> None:
    back = START - 500 * NANOSECONDS
    intake.follow(START + 19 * TENTH)
    intake.source.forget()
    intake.insert_poses(back, 20)
    results = [intake.give(back + k * TENTH) for k in range(TO_BELIEVE)]
    assert [result is not None for result in results] == [False] * (TO_BELIEVE - 1) + [True]
    assert len(intake.resets) == 1
    assert "went back by" in intake.resets[0]
