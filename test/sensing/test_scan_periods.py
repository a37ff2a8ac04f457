"""Times of points that outlast the time to the next cloud are not used, live and in replay alike."""

from __future__ import annotations

import numpy as np

from gpgmap_ros.sensing import Cloud, SourceSetup, make_source
from gpgmap_ros.sensing.scan_periods import ScanPeriods
from gpgmap_ros.sensing.waiting import PoseQueue

TENTH = 100_000_000


def cloud(stamp: int, duration: float = 0.1, frame: str = "lidar", error: str = "") -> Cloud:
    times = np.linspace(0.0, duration, 20)
    times[3] = np.nan
    return Cloud(stamp, frame, np.ones((20, 3)), None if error else times, times_error=error)


def used(clouds: list[Cloud]) -> list[bool]:
    periods = ScanPeriods()
    return [periods.check(item).times is not None for item in clouds]


def test_scans_that_follow_each_other_keep_their_times() -> None:
    assert all(used([cloud(k * TENTH) for k in range(20)]))
    assert all(used([cloud(k * TENTH) for k in (0, 1, 2, 7, 8, 30, 31)])), "some are missing"
    assert all(used([cloud(k * TENTH, frame=str(k % 2)) for k in range(20)])), "two sensors in turn"


def test_one_stamp_that_is_late_refuses_nothing() -> None:
    stamps = [0, 100, 200, 380, 400, 500, 600]
    assert all(used([cloud(k * TENTH // 100) for k in stamps]))


def test_times_in_a_unit_that_is_wrong_by_ten_are_refused_from_the_second_cloud_on() -> None:
    periods = ScanPeriods()
    found = [periods.check(cloud(k * TENTH, duration=1.0)) for k in range(5)]
    assert [item.times is not None for item in found] == [True] + [False] * 4
    assert {item.times_error for item in found[1:]} == {
        "they span 1 s, and a cloud comes every 0.1 s: the unit of the time field is wrong"
    }


def test_stamps_that_stand_still_or_go_back_judge_nothing() -> None:
    assert all(used([cloud(0, duration=0.9), cloud(0, duration=0.9), cloud(-TENTH, duration=0.9)]))


def test_where_nothing_is_to_be_deskewed_times_are_not_looked_at() -> None:
    poses = PoseQueue(make_source("still", SourceSetup.recorded("map", "lidar", "lidar")), 1.0, lambda: 0)
    poses.put(cloud(0, duration=1.0))
    assert "unit" in poses.put(cloud(TENTH, duration=1.0)).times_error
    poses.deskew = False
    assert poses.put(cloud(2 * TENTH, duration=1.0)).times_error == ""
    assert poses.put(cloud(3 * TENTH, error="all points have the same time")).times_error == ""
