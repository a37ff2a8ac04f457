"""Which clouds are of the present, stamp by stamp."""

from __future__ import annotations

from gpgmap_ros.nodes.cloud_order import TO_BELIEVE, TURNS_WITHIN, CloudOrder
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS

START = 1_000 * NANOSECONDS
TENTH = NANOSECONDS // 10


def drive(order: CloudOrder, clouds: int = 20, begin: int = START) -> int:
    for k in range(clouds):
        order.follow(begin + k * TENTH, 0.1 * k)
    return begin + (clouds - 1) * TENTH


def test_the_first_cloud_may_have_any_stamp() -> None:
    assert CloudOrder().offset(0, 0.0) == 0.0
    assert CloudOrder().offset(2**62, 0.0) == 0.0


def test_sensors_may_overtake_each_other_and_pause() -> None:
    order = CloudOrder()
    newest = drive(order)
    assert order.offset(newest - 19 * TENTH, 2.0) == 0.0
    assert order.offset(newest + 90 * TENTH, 2.0) == 0.0
    assert order.offset(newest + 3600 * NANOSECONDS, 2.0 + 3600.0) == 0.0  # the robot was paused for an hour


def test_stamps_of_another_time_are_strays() -> None:
    order = CloudOrder()
    newest = drive(order)
    assert order.offset(0, 2.0) < -900.0
    assert order.offset(newest - 3 * NANOSECONDS, 2.0) == -3.0
    assert order.offset(newest + 3600 * NANOSECONDS, 2.0) == 3600.0


def test_enough_strays_in_a_row_are_believed() -> None:
    order = CloudOrder()
    drive(order)
    believed = [order.stray(k * TENTH + 1, -900.0, "'/points'", True) for k in range(TO_BELIEVE)]
    assert believed == [False] * (TO_BELIEVE - 1) + [True]


def test_one_of_the_present_ends_the_row() -> None:
    order = CloudOrder()
    newest = drive(order)
    for k in range(10 * TO_BELIEVE):
        assert not order.stray(k * TENTH, -900.0, "'/points'", True)
        if k % (TO_BELIEVE - 1) == TO_BELIEVE - 2:
            order.follow(newest + k * TENTH, 2.0 + 0.1 * k)


def test_strays_without_poses_or_that_stand_still_or_jump_about_are_not_believed() -> None:
    for stamps, usable in (
        ([k * TENTH for k in range(50)], False),
        ([0] * 50, True),
        ([(k % 2) * 100 * NANOSECONDS + k for k in range(50)], True),
    ):
        order = CloudOrder()
        drive(order)
        assert not any(order.stray(stamp, -900.0, "'/points'", usable) for stamp in stamps)


def test_two_clocks_are_named_while_they_take_turns() -> None:
    order = CloudOrder()
    newest = drive(order)
    assert order.problem(2.0) is None
    for k in range(5):
        order.stray(k * TENTH, -900.0, "'/rear' (frame 'rear')", usable=k % 2 == 0)
        order.follow(newest + k * TENTH, 2.0 + 0.1 * k)
    text = order.problem(3.0)
    assert text is not None
    assert "two clocks: '/rear' (frame 'rear') is 900.0 s behind the other clouds" in text
    assert order.problem(3.0 + 2.0 * TURNS_WITHIN) is None
