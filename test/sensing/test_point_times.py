"""Time fields of all kinds of drivers, and fields that cannot be used."""

from __future__ import annotations

import numpy as np
import pytest

from gpgmap_ros.sensing.point_times import TimesError, interpret_times

STAMP = 1_630_577_758_569_490_123
SCAN = np.linspace(0.0, 0.1, 1001)  # seconds since the first point


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ((SCAN * 1e9).astype(np.uint32), "ns"),  # Ouster t, Livox offset_time
        (SCAN.astype(np.float32), "s"),  # Velodyne time
        ((SCAN * 1e6).astype(np.uint32), "us"),
        ((SCAN * 1e3).astype(np.float64), "ms"),
    ],
)
def test_times_since_the_first_point(values: np.ndarray, unit: str) -> None:
    times = interpret_times(values, STAMP)
    assert (times.unit, times.absolute) == (unit, False)
    np.testing.assert_allclose(times.seconds, SCAN, atol=1e-6)


def test_times_before_the_stamp_stay_negative() -> None:
    times = interpret_times((SCAN - 0.1).astype(np.float32), STAMP)
    np.testing.assert_allclose(times.seconds, SCAN - 0.1, atol=1e-6)


def test_the_order_of_the_points_does_not_matter() -> None:
    times = interpret_times(SCAN[::-1].copy(), STAMP)
    np.testing.assert_allclose(times.seconds, SCAN[::-1])


@pytest.mark.parametrize("late", [0.0, -0.1])
def test_absolute_times_in_seconds_and_nanoseconds(late: float) -> None:
    seconds = interpret_times(STAMP * 1e-9 + SCAN + late, STAMP)
    exact = interpret_times((STAMP + np.round((SCAN + late) * 1e9).astype(np.int64)).astype(np.uint64), STAMP)
    assert seconds.absolute
    assert exact.absolute
    np.testing.assert_allclose(seconds.seconds, SCAN + late, atol=1e-6)  # a double at 1.6e9 s
    np.testing.assert_allclose(exact.seconds, SCAN + late, atol=1e-9)


def test_another_clock_is_recognised_and_its_first_point_taken_as_stamped() -> None:
    times = interpret_times(50.0 + SCAN, STAMP)  # seconds since the sensor was switched on
    assert times.clock_offset == pytest.approx(50.0 - STAMP * 1e-9)
    np.testing.assert_allclose(times.seconds, SCAN, atol=1e-6)


def test_points_without_a_time_keep_none() -> None:
    values = SCAN.copy()
    values[[3, 500]] = np.nan
    seconds = interpret_times(values, STAMP).seconds
    assert np.isnan(seconds[[3, 500]]).all()
    assert np.isfinite(np.delete(seconds, [3, 500])).all()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.full(100, 7.0), "all points have the same time"),
        (np.full(100, np.nan), "no point has a finite time"),
        (SCAN * 30.0, "span 3"),
        (SCAN * 1e-6, "span 1e-07"),
        ((1.63e9 + SCAN * 1e4).astype(np.float32), "do not fit into float32"),
        (np.array(["a", "b"]), "expected numbers"),
    ],
)
def test_what_is_no_time_is_refused_with_the_reason(values: np.ndarray, message: str) -> None:
    with pytest.raises(TimesError, match=message):
        interpret_times(values, STAMP)
