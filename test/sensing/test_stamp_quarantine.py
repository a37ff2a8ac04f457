"""Stamps that do not fit their series are held back; a series that moves to another time is followed."""

from __future__ import annotations

import pytest

from gpgmap_ros.sensing.stamp_quarantine import CONFIRMATIONS, StampQuarantine

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
T0 = 1_700_000_000 * SECOND


def stamps(quarantine: StampQuarantine, *pairs: tuple[int, int | None]) -> list[list[int]]:
    """What each pose, as (stamp, clock), brings into use."""
    return [[item.stamp for item in quarantine.admit("base", stamp, None, now).poses] for stamp, now in pairs]


def drive(start: int, count: int = 10, clock: int | None = None) -> list[tuple[int, int | None]]:
    """Poses a tenth of a second apart, and the clock at their arrival."""
    steps = [k * SECOND // 10 for k in range(count)]
    return [(start + step, None if clock is None else clock + step) for step in steps]


@pytest.mark.parametrize("clock", [T0, None, T0 + 3 * 365 * 24 * HOUR], ids=["live", "none", "old bag"])
def test_one_stamp_an_hour_off_is_held_back_and_the_series_goes_on(clock: int | None) -> None:
    for off in (HOUR, -HOUR):
        quarantine = StampQuarantine()
        for stamp, now in drive(T0, clock=clock):
            assert stamps(quarantine, (stamp, now)) == [[stamp]]
        later = None if clock is None else clock + SECOND
        wrong = quarantine.admit("base", T0 + off, None, later)
        assert not wrong.poses
        assert ("3599.1 s ahead of" if off > 0 else "3600.9 s behind") in wrong.why
        for stamp, now in drive(T0 + SECOND, clock=later):
            admission = quarantine.admit("base", stamp, None, now)
            assert [item.stamp for item in admission.poses] == [stamp]
            assert not admission.why


def test_every_second_stamp_off_is_held_back_for_good() -> None:
    quarantine, used = StampQuarantine(), []
    for stamp, now in drive(T0, 100, clock=T0):
        used += stamps(quarantine, (stamp, now), (stamp + HOUR, now))
    assert [stamp for poses in used for stamp in poses] == [stamp for stamp, _ in drive(T0, 100)]


@pytest.mark.parametrize("off", [HOUR, -HOUR], ids=["ahead", "back"])
def test_a_series_that_moves_to_another_time_is_followed_and_nothing_of_it_lost(off: int) -> None:
    """A clock was set, or a bag began again: several in a row agree."""
    quarantine = StampQuarantine()
    stamps(quarantine, *drive(T0, clock=T0))
    moved = drive(T0 + off, CONFIRMATIONS, clock=T0 + SECOND)
    *early, last = (quarantine.admit("base", stamp, None, now) for stamp, now in moved)
    assert not any(admission.poses for admission in early)
    assert [item.stamp for item in last.poses] == [stamp for stamp, _ in moved]
    assert last.restarted == (off < 0)
    stamp = moved[-1][0] + SECOND // 10
    assert stamps(quarantine, (stamp, moved[-1][1])) == [[stamp]]


def test_the_same_wrong_stamp_again_and_again_confirms_nothing() -> None:
    quarantine = StampQuarantine()
    stamps(quarantine, *drive(T0, clock=T0))
    assert stamps(quarantine, *[(T0 + HOUR, T0 + SECOND)] * 20) == [[]] * 20


def test_a_first_pose_ahead_of_the_clock_waits_for_others() -> None:
    quarantine = StampQuarantine()
    assert "3600.0 s ahead of the clock" in quarantine.admit("base", T0 + HOUR, None, T0).why
    assert stamps(quarantine, (T0, T0)) == [[T0]]


def test_a_robot_whose_clocks_differ_is_mapped_all_the_same() -> None:
    quarantine = StampQuarantine()
    ahead = stamps(quarantine, *drive(T0 + HOUR, 10, clock=T0))
    assert sum(map(len, ahead)) == 10


def test_a_gap_that_the_clock_saw_too_is_no_jump() -> None:
    quarantine = StampQuarantine()
    stamps(quarantine, *drive(T0, clock=T0))
    assert stamps(quarantine, (T0 + HOUR, T0 + HOUR)) == [[T0 + HOUR]]


def test_a_clock_that_was_set_back_does_not_stop_the_series() -> None:
    quarantine = StampQuarantine()
    stamps(quarantine, *drive(T0, clock=T0))
    back = stamps(quarantine, *drive(T0 - HOUR, 10, clock=T0 - HOUR))
    assert sum(map(len, back)) == 10


def test_late_poses_within_the_horizon_and_ahead_within_the_tolerance_are_used() -> None:
    quarantine = StampQuarantine()
    stamps(quarantine, *drive(T0, clock=T0))
    near = [T0 - 5 * SECOND, T0 + 3 * SECOND, T0 + SECOND]
    assert stamps(quarantine, *((stamp, T0 + SECOND) for stamp in near)) == [[stamp] for stamp in near]


def test_series_do_not_judge_each_other() -> None:
    quarantine = StampQuarantine()
    stamps(quarantine, *drive(T0))
    assert quarantine.admit("arm", T0 - HOUR, None, None).poses
    quarantine.clear()
    assert quarantine.admit("base", T0 - HOUR, None, None).poses
