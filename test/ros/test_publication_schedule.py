"""Maps go out with their data: right after a cloud, never oftener than asked, and the last one without a next cloud."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="gpgmap_ros.nodes needs rclpy: run `make setup`")

from gpgmap_ros.nodes.publication_schedule import PublicationSchedule


def maps_of(clouds: np.ndarray, period: float, end: float) -> list[tuple[float, float]]:
    """(time, age of the data) of the maps that go out for clouds at these times."""
    schedule, maps, fused = PublicationSchedule(period), [], None
    for cloud, following in zip(clouds, [*clouds[1:], end], strict=True):
        schedule.note_cloud(cloud)
        fused = cloud
        due = max(schedule.next_map(), cloud)
        if due < following:
            schedule.note_map(due)
            maps.append((due, due - fused))
    return maps


@pytest.mark.parametrize("phase", [0.0, 0.03, 0.07])
def test_a_map_is_as_new_as_its_cloud_whatever_the_phase(phase: float) -> None:
    rng = np.random.default_rng(1)
    clouds = phase + 0.1 * np.arange(200) + rng.normal(0.0, 0.004, 200)
    for period in (0.1, 0.2):
        maps = maps_of(clouds, period, 21.0)
        ages = [age for _, age in maps]
        assert np.median(ages) == 0.0
        assert np.quantile(ages, 0.95) <= 0.011
        assert len(maps) >= 0.9 * 20.0 / period


def test_there_are_never_more_maps_than_asked_for() -> None:
    rng = np.random.default_rng(2)
    clouds = np.cumsum(rng.exponential(0.03, 2000))
    times = np.array([time for time, _ in maps_of(clouds, 0.1, clouds[-1] + 1.0)])
    for first in range(0, len(times) - 50, 10):
        assert times[first + 50] - times[first] >= 0.1 * (50 - 1)


def test_a_late_cloud_costs_one_map_and_does_not_age_the_others() -> None:
    clouds = 0.1 * np.arange(40.0)
    clouds[20] += 0.06
    maps = maps_of(clouds, 0.1, 5.0)
    assert len(maps) >= 38
    assert max(age for _, age in maps) <= 0.011


def test_the_last_change_goes_out_without_another_cloud() -> None:
    maps = maps_of(np.array([0.0, 0.1, 0.2, 0.25]), 0.2, 10.0)
    assert maps[-1][0] < 0.6


def test_somebody_new_does_not_wait_for_a_cloud() -> None:
    schedule = PublicationSchedule(1.0)
    schedule.note_cloud(0.0)
    schedule.note_map(0.0)
    schedule.note_cloud(0.3)
    assert schedule.next_map() > schedule.next_map(wait_for_cloud=False)


def test_clouds_that_wait_go_first() -> None:
    schedule = PublicationSchedule(0.1)
    schedule.note_cloud(0.0)
    schedule.note_map(0.0)
    schedule.note_cloud(0.05)
    assert schedule.next_map(at_least=3.0) >= 2.9


def test_there_is_time_between_clouds_and_where_none_is_expected() -> None:
    schedule = PublicationSchedule(0.1)
    assert schedule.has_time(5.0, 1.0), "before the first cloud nothing is known of the next"
    assert schedule.cloud_overdue <= 5.0
    schedule.note_cloud(10.0)
    assert schedule.has_time(10.0, 1.0)
    for time in (11.0, 12.0):
        schedule.note_cloud(time)
    assert schedule.has_time(12.0, 0.9)
    assert not schedule.has_time(12.0, 1.1)
    assert not schedule.has_time(13.2, 0.0), "it is late, and may come at any moment"
    assert schedule.has_time(schedule.cloud_overdue, 1.1)
