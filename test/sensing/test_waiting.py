"""Clouds wait for their poses: as long as it makes sense, in order, live and by the time of a recording."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from limits import PATIENCE

from gpgmap_ros.sensing import Cloud, PoseSource, SourceSetup, TransformUnavailable, make_source
from gpgmap_ros.sensing.messages import FrameTransform
from gpgmap_ros.sensing.waiting import DroppedCloud, LocatedCloud, PoseQueue

SECOND = 1_000_000_000


def at(x: float) -> np.ndarray:
    T = np.eye(4)
    T[0, 3] = x
    return T


def cloud(seconds: float, frame: str = "lidar") -> Cloud:
    return Cloud(round(seconds * SECOND), frame, np.ones((3, 3)))


def insert(source: PoseSource, seconds: float) -> None:
    source.insert_transform(FrameTransform("odom", "lidar", round(seconds * SECOND), at(seconds)))


@pytest.fixture
def source() -> PoseSource:
    """Poses for the seconds 10 to 14."""
    made = make_source("tf", SourceSetup.live("odom", "base", lambda: 14 * SECOND))
    for k in range(10, 15):
        insert(made, k)
    return made


def live(source: PoseSource, patience: float) -> PoseQueue:
    return PoseQueue(source, patience, time.monotonic_ns)


def in_a_moment(action: Callable[[], None]) -> None:
    threading.Timer(0.2, action).start()


def test_it_waits_for_a_pose_that_is_still_to_come(source: PoseSource) -> None:
    in_a_moment(lambda: insert(source, 15))
    assert live(source, PATIENCE).wait(cloud(14.5)).pose.T_map_sensor[0, 3] == pytest.approx(14.5)


def test_it_waits_for_a_frame_that_is_not_known_yet(source: PoseSource) -> None:
    mount = FrameTransform("lidar", "camera", 0, at(2.0), static=True)
    in_a_moment(lambda: source.insert_transform(mount))
    assert live(source, PATIENCE).wait(cloud(12.0, "camera")).pose.T_map_sensor[0, 3] == pytest.approx(14.0)


def test_it_does_not_wait_for_a_pose_of_the_past(source: PoseSource, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*arguments: object) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(threading.Condition, "wait", wait)
    with pytest.raises(TransformUnavailable) as caught:
        live(source, PATIENCE).wait(cloud(5.0))
    assert caught.value.reason == "too_early"
    with pytest.raises(TransformUnavailable):
        live(source, 0.0).wait(cloud(100.0))


def test_waiting_ends_with_the_reason(source: PoseSource) -> None:
    with pytest.raises(TransformUnavailable) as caught:
        live(source, 0.05).wait(cloud(100.0))
    assert caught.value.reason == "too_late"


def test_waiting_can_be_interrupted(source: PoseSource) -> None:
    poses = live(source, PATIENCE)
    in_a_moment(poses.interrupt)
    with pytest.raises(TransformUnavailable) as caught:
        poses.wait(cloud(100.0))
    assert caught.value.reason == "interrupted"
    assert poses.wait(cloud(12.0)).pose.T_map_sensor[0, 3] == pytest.approx(12.0), (
        "the next cloud is not affected"
    )


class Recording:
    """A queue by the time of a recording."""

    def __init__(self, source: PoseSource, max_waiting: int = 100) -> None:
        self.now = 0
        self.queue = PoseQueue(source, 5.0, lambda: self.now, max_waiting)

    def put(self, seconds: float) -> None:
        self.now = round(seconds * SECOND)
        self.queue.put(cloud(seconds))

    def out(self, seconds: float) -> list[tuple[float, str]]:
        self.now = round(seconds * SECOND)
        return [outcome(item) for item in self.queue.ready()]


def outcome(item: LocatedCloud | DroppedCloud) -> tuple[float, str]:
    if isinstance(item, LocatedCloud):
        return item.cloud.stamp / SECOND, "located"
    assert isinstance(item.error, TransformUnavailable)
    return item.cloud.stamp / SECOND, item.error.reason


def test_in_a_recording_clouds_keep_their_order(source: PoseSource) -> None:
    recording = Recording(source)
    for seconds in (12.0, 14.5, 13.0):
        recording.put(seconds)
    assert recording.out(15.0) == [(12.0, "located")]
    insert(source, 15)
    assert recording.out(15.1) == [(14.5, "located"), (13.0, "located")]


def test_in_a_recording_a_cloud_is_dropped_once_its_pose_is_overdue(source: PoseSource) -> None:
    recording = Recording(source)
    recording.put(14.5)
    recording.put(14.6)
    assert recording.out(19.4) == []
    assert recording.out(19.55) == [(14.5, "too_late")]
    assert [outcome(item) for item in recording.queue.end()] == [(14.6, "too_late")]


def test_no_more_clouds_wait_than_memory_allows(source: PoseSource) -> None:
    recording = Recording(source, max_waiting=3)
    for k in range(4):
        recording.put(15.0 + 0.1 * k)
    assert recording.out(15.3) == [(15.0, "too_late"), (15.1, "too_late")]


def test_at_the_end_nothing_is_located_behind_a_cloud_without_a_pose(source: PoseSource) -> None:
    recording = Recording(source)
    for seconds in (12.0, 14.5, 13.0):
        recording.put(seconds)
    found = [outcome(item) for item in recording.queue.end()]
    assert found == [(12.0, "located"), (14.5, "too_late"), (13.0, "too_late")]


def timed_cloud(seconds: float, duration: float = 0.1) -> Cloud:
    """A cloud whose points were measured during `duration` after its stamp."""
    return Cloud(round(seconds * SECOND), "lidar", np.ones((3, 3)), np.linspace(0.0, duration, 3))


def test_a_cloud_waits_for_the_motion_of_its_scan(source: PoseSource) -> None:
    """The pose at the stamp is known, the one at the end of the scan comes later."""
    recording = Recording(source)
    recording.now = 14 * SECOND
    recording.queue.put(timed_cloud(13.95))
    assert recording.queue.poll() is None
    insert(source, 15)
    found = recording.queue.poll()
    assert isinstance(found, LocatedCloud)
    assert found.motion is not None
    np.testing.assert_allclose(found.motion.pose_at(0.1)[0, 3], 0.1, atol=1e-9)


def test_after_its_patience_a_cloud_goes_out_without_its_motion(source: PoseSource) -> None:
    recording = Recording(source)
    recording.now = 14 * SECOND
    recording.queue.put(timed_cloud(13.95))
    assert recording.out(18.9) == []
    recording.now = round(19.1 * SECOND)
    found = recording.queue.poll()
    assert isinstance(found, LocatedCloud)
    assert found.motion is None
    recording.queue.put(timed_cloud(13.95))
    (found,) = recording.queue.end()
    assert isinstance(found, LocatedCloud)
    assert found.motion is None


def test_without_deskewing_nobody_waits_for_the_end_of_a_scan(source: PoseSource) -> None:
    queue = PoseQueue(source, 5.0, lambda: 14 * SECOND, deskew=False)
    queue.put(timed_cloud(13.95))
    found = queue.poll()
    assert isinstance(found, LocatedCloud)
    assert found.motion is None
    assert found.cloud.times is None
