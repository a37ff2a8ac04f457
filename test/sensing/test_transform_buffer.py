"""The transform buffer: chains, time, waiting, and refusals that name frames and times."""

from __future__ import annotations

import numpy as np
import pytest

from gpgmap_ros.geometry import inverse, transform_from
from gpgmap_ros.sensing.transform_buffer import TransformBuffer, TransformUnavailable

SECOND = 1_000_000_000
T0 = 1_700_000_000 * SECOND


def at(x: float, yaw: float = 0.0) -> np.ndarray:
    return transform_from([x, 0, 0], [0, 0, np.sin(yaw / 2), np.cos(yaw / 2)])


def filled() -> TransformBuffer:
    """map <- odom <- base (moving), base <- lidar and base <- camera (static)."""
    buffer = TransformBuffer()
    buffer.insert("map", "odom", T0, at(100.0), static=True)
    for k in range(5):
        buffer.insert("odom", "base", T0 + k * SECOND, at(float(k), 0.1 * k))
    buffer.insert("base", "lidar", T0, at(0.5), static=True)
    buffer.insert("base", "camera", T0, at(-0.5), static=True)
    return buffer


def test_a_chain_is_multiplied_in_order() -> None:
    expected = at(100.0) @ at(2.0, 0.2) @ at(0.5)
    np.testing.assert_allclose(filled().lookup("map", "lidar", T0 + 2 * SECOND), expected, atol=1e-12)


def test_the_inverse_and_siblings() -> None:
    buffer, stamp = filled(), T0 + 3 * SECOND
    np.testing.assert_allclose(
        buffer.lookup("lidar", "map", stamp), inverse(buffer.lookup("map", "lidar", stamp)), atol=1e-12
    )
    np.testing.assert_allclose(buffer.lookup("camera", "lidar", stamp), at(1.0), atol=1e-12)
    np.testing.assert_array_equal(buffer.lookup("lidar", "lidar", 5), np.eye(4))


def test_between_two_stamps_it_interpolates_in_any_order_of_arrival() -> None:
    buffer = TransformBuffer()
    for k in (3, 0, 4, 1, 2):
        buffer.insert("odom", "base", T0 + k * SECOND, at(float(k), 0.1 * k))
    np.testing.assert_allclose(buffer.lookup("odom", "base", T0 + 1_250_000_000), at(1.25, 0.125), atol=1e-12)


def test_static_links_are_valid_at_any_time_and_siblings_need_no_motion() -> None:
    np.testing.assert_allclose(filled().lookup("lidar", "camera", 12345), at(-1.0), atol=1e-12)


@pytest.mark.parametrize(
    ("offset", "reason", "text"),
    [
        (-0.5, "too_early", "0.500 s before the oldest"),
        (
            4.25,
            "too_late",
            "'odom' <- 'base' is known from 1700000000.000 to 1700000004.000.*0.250 s after the newest",
        ),
    ],
)
def test_extrapolation_is_refused_with_frames_and_times(offset: float, reason: str, text: str) -> None:
    with pytest.raises(TransformUnavailable, match=text) as caught:
        filled().lookup("map", "lidar", T0 + round(offset * SECOND))
    assert caught.value.reason == reason


def test_unknown_and_unconnected_frames_are_named() -> None:
    buffer = filled()
    with pytest.raises(TransformUnavailable, match="frame 'gps'; known frames: 'base', 'camera'") as caught:
        buffer.lookup("map", "gps", T0)
    assert caught.value.reason == "unknown_frame"
    buffer.insert("island", "palm", T0, at(0.0), static=True)
    with pytest.raises(TransformUnavailable, match="'map' and 'palm' are not connected") as caught:
        buffer.lookup("map", "palm", T0)
    assert caught.value.reason == "not_connected"


def test_history_is_bounded() -> None:
    buffer = TransformBuffer(horizon=2.0)
    for k in range(100):
        buffer.insert("odom", "base", T0 + k * SECOND, at(float(k)))
    buffer.lookup("odom", "base", T0 + 97 * SECOND)
    with pytest.raises(TransformUnavailable, match="before the oldest"):
        buffer.lookup("odom", "base", T0 + 96 * SECOND)


def test_clear_keeps_what_never_changes() -> None:
    buffer = filled()
    buffer.clear()
    np.testing.assert_allclose(buffer.lookup("base", "lidar", T0), at(0.5))
    with pytest.raises(TransformUnavailable):
        buffer.lookup("odom", "base", T0)


def test_nonsense_is_refused() -> None:
    buffer = TransformBuffer()
    with pytest.raises(ValueError, match="two different frames"):
        buffer.insert("a", "a", T0, np.eye(4))
    with pytest.raises(ValueError, match="not finite"):
        buffer.insert("a", "b", T0, np.full((4, 4), np.nan))
