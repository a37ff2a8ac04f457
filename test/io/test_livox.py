"""Livox CustomMsg in recordings: read, timed, and chosen as clouds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be made")

from rosbags.typesys import get_typestore

from gpgmap_ros.apps.topic_selection import TopicRequest, select_topics
from gpgmap_ros.io.bags import STORE, Stamped, write_bag
from gpgmap_ros.io.recordings import Decoder, Recording, register_livox
from gpgmap_ros.sensing import decode_cloud
from gpgmap_ros.sensing.livox import PACKAGES

STAMP = 1_700_000_000_000_000_000


def make_message(store: Any, package: str, timebase: int, offsets: list[int]) -> Any:
    types = store.types
    points = [
        types[f"{package}/msg/CustomPoint"](offset, float(k), 1.0, -1.0, 7, 16, 0)
        for k, offset in enumerate(offsets)
    ]
    points[0].x = points[0].y = points[0].z = 0.0  # no return
    time = types["builtin_interfaces/msg/Time"](sec=STAMP // 10**9, nanosec=STAMP % 10**9)
    header = types["std_msgs/msg/Header"](stamp=time, frame_id="livox_frame")
    return types[f"{package}/msg/CustomMsg"](
        header, timebase, len(points), 0, np.zeros(3, dtype=np.uint8), points
    )


@pytest.fixture
def store() -> Any:
    store = get_typestore(STORE)
    register_livox(store)
    return store


@pytest.mark.parametrize("package", PACKAGES)
def test_a_recording_is_read(store: Any, package: str, tmp_path: Path) -> None:
    message = make_message(store, package, STAMP, [0, 20_000_000, 99_000_000])
    write_bag(tmp_path / "bag", [Stamped("/livox/lidar", STAMP, message)], store)
    with Recording([tmp_path / "bag"]) as recording:
        choice = select_topics(recording, TopicRequest(still=True), "odom", "base_link")
        assert choice.topic == "/livox/lidar"
        assert choice.sensor_frame == "livox_frame"
        (raw,) = recording.messages(["/livox/lidar"])
        cloud = decode_cloud(Decoder()(raw))
    np.testing.assert_allclose(cloud.points, [[1.0, 1.0, -1.0], [2.0, 1.0, -1.0]])
    assert cloud.times is not None
    np.testing.assert_allclose(cloud.times, [0.02, 0.099])
    assert cloud.size == 3


def test_a_timebase_of_another_clock_counts_from_the_stamp(store: Any) -> None:
    cloud = decode_cloud(make_message(store, PACKAGES[0], 12345, [0, 10_000_000, 90_000_000]))
    assert cloud.times is not None
    np.testing.assert_allclose(cloud.times, [0.01, 0.09])


@pytest.mark.parametrize("offsets", [[5, 5, 5], [0, 10, 4_000_000_000]])
def test_times_that_are_no_scan_are_not_used(store: Any, offsets: list[int]) -> None:
    cloud = decode_cloud(make_message(store, PACKAGES[0], STAMP, offsets))
    assert cloud.times is None
    assert "no scan" in cloud.times_error
