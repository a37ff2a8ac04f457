"""One contract for all buffers of transforms: the project's own, and tf2_ros behind its adapter.

tf2_ros is a stand-in that decides as the real one does (test_tf2_double.py), and the real one where it is installed.
"""

from __future__ import annotations

import importlib
import threading
import time

import numpy as np
import pytest
import tf2_double

from gpgmap_ros.geometry import inverse, transform_from
from gpgmap_ros.nodes.tf2_buffer import Tf2Buffer
from gpgmap_ros.sensing import Cloud, SourceSetup, make_source
from gpgmap_ros.sensing.messages import FrameTransform
from gpgmap_ros.sensing.transform_buffer import (
    HORIZON,
    TransformBuffer,
    TransformLoop,
    TransformTree,
    TransformUnavailable,
)
from gpgmap_ros.sensing.waiting import PoseQueue

SECOND = 1_000_000_000
T0 = 1_700_000_000 * SECOND


@pytest.fixture(params=["own", "tf2 double", "tf2_ros"])
def empty(request: pytest.FixtureRequest) -> TransformTree:
    if request.param == "own":
        return TransformBuffer()
    if request.param == "tf2 double":
        return Tf2Buffer(tf2_double)
    try:
        return Tf2Buffer(importlib.import_module("tf2_ros"))
    except ImportError:
        pytest.skip("tf2_ros is not installed (not on PyPI; a ROS installation has it)")


def at(x: float, yaw: float = 0.0) -> np.ndarray:
    return transform_from([x, 0, 0], [0, 0, np.sin(yaw / 2), np.cos(yaw / 2)])


@pytest.fixture
def buffer(empty: TransformTree) -> TransformTree:
    """map <- odom <- base (moving), base <- lidar and base <- camera (static)."""
    empty.insert("map", "odom", T0, at(100.0), static=True)
    for k in range(5):
        empty.insert("odom", "base", T0 + k * SECOND, at(float(k), 0.1 * k))
    empty.insert("base", "lidar", T0, at(0.5), static=True)
    empty.insert("base", "camera", T0, at(-0.5), static=True)
    return empty


def refusal(buffer: TransformTree, target: str, source: str, stamp: int) -> tuple[str, str]:
    """Reason and text."""
    with pytest.raises(TransformUnavailable) as caught:
        buffer.lookup(target, source, stamp)
    return caught.value.reason, str(caught.value)


def test_chains_inverses_and_siblings(buffer: TransformTree) -> None:
    stamp = T0 + 2 * SECOND
    expected = at(100.0) @ at(2.0, 0.2) @ at(0.5)
    np.testing.assert_allclose(buffer.lookup("map", "lidar", stamp), expected, atol=1e-9)
    np.testing.assert_allclose(buffer.lookup("lidar", "map", stamp), inverse(expected), atol=1e-9)
    np.testing.assert_allclose(buffer.lookup("camera", "lidar", stamp), at(1.0), atol=1e-9)
    np.testing.assert_array_equal(buffer.lookup("lidar", "lidar", 5), np.eye(4))


def test_between_two_stamps_it_interpolates(buffer: TransformTree) -> None:
    T = buffer.lookup("odom", "base", T0 + 1_250_000_000)
    np.testing.assert_allclose(T, at(1.25, 0.125), atol=1e-9)


def test_what_never_moves_is_known_at_any_time(buffer: TransformTree) -> None:
    for stamp in (0, 1, 12345, T0 + 1000 * SECOND):
        np.testing.assert_allclose(buffer.lookup("lidar", "camera", stamp), at(-1.0), atol=1e-9)


def test_stamp_0_is_a_time_and_not_the_newest_pose(buffer: TransformTree) -> None:
    assert refusal(buffer, "odom", "lidar", 0)[0] == "too_early"


def test_too_early_is_said_at_once(buffer: TransformTree) -> None:
    assert refusal(buffer, "odom", "base", T0 - SECOND)[0] == "too_early"


def test_too_late_is_refused(buffer: TransformTree) -> None:
    reason, text = refusal(buffer, "map", "lidar", T0 + 5 * SECOND)
    assert reason == "too_late"
    assert "1700000005.000" in text
    assert "1700000004.000" in text


def test_a_single_transform_knows_early_from_late(empty: TransformTree) -> None:
    empty.insert("odom", "base", T0, at(1.0))
    np.testing.assert_allclose(empty.lookup("odom", "base", T0), at(1.0), atol=1e-9)
    assert refusal(empty, "odom", "base", T0 - 1)[0] == "too_early"
    assert refusal(empty, "odom", "base", T0 + 1)[0] == "too_late"


def test_what_is_past_on_one_link_is_not_waited_for_on_another(buffer: TransformTree) -> None:
    buffer.insert("base", "arm", T0 + 20 * SECOND, at(0.0))
    buffer.insert("base", "arm", T0 + 21 * SECOND, at(0.0))
    assert refusal(buffer, "odom", "arm", T0 + 10 * SECOND)[0] == "too_early"
    assert refusal(buffer, "arm", "odom", T0 + 10 * SECOND)[0] == "too_early"


def test_history_above_the_common_ancestor_does_not_matter(buffer: TransformTree) -> None:
    buffer.insert("world", "map", T0 + 20 * SECOND, at(0.0))
    assert refusal(buffer, "odom", "base", T0 + 10 * SECOND)[0] == "too_late"


def test_a_leading_slash_is_left_out(buffer: TransformTree) -> None:
    expected = buffer.lookup("map", "lidar", T0 + SECOND)
    np.testing.assert_array_equal(buffer.lookup("/map", "/lidar", T0 + SECOND), expected)
    buffer.insert("/base", "/gps", T0, at(3.0), static=True)
    np.testing.assert_allclose(buffer.lookup("base", "gps", T0), at(3.0), atol=1e-9)


def test_unknown_and_unconnected_frames_are_named_with_those_that_are_known(buffer: TransformTree) -> None:
    known = "known frames: 'base', 'camera', 'lidar', 'map', 'odom'"
    assert refusal(buffer, "map", "gps", T0) == (
        "unknown_frame",
        f"no transform has named frame 'gps'; {known}",
    )
    assert refusal(buffer, "map", "", T0) == ("unknown_frame", f"a frame id is empty; {known}")
    buffer.insert("island", "palm", T0, at(0.0), static=True)
    reason, text = refusal(buffer, "map", "palm", T0)
    assert reason == "not_connected"
    assert "'map' and 'palm' are not connected; known frames: 'base', 'camera', 'island'" in text


def test_nothing_is_known_at_first(empty: TransformTree) -> None:
    reason, text = refusal(empty, "map", "lidar", T0)
    assert reason == "unknown_frame"
    assert "known frames: none" in text
    assert empty.newest("map", "lidar") is None


def test_the_newest_common_stamp(buffer: TransformTree) -> None:
    assert buffer.newest("map", "lidar") == T0 + 4 * SECOND
    assert buffer.newest("base", "lidar") is None
    assert buffer.newest("map", "gps") is None
    buffer.insert("base", "arm", T0 + 3 * SECOND, at(0.0))
    assert buffer.newest("/map", "arm") == T0 + 3 * SECOND


def test_clear_keeps_what_never_changes(buffer: TransformTree) -> None:
    buffer.clear()
    np.testing.assert_allclose(buffer.lookup("base", "lidar", T0), at(0.5), atol=1e-9)
    assert refusal(buffer, "odom", "base", T0)[0] == "not_connected"
    assert buffer.newest("odom", "base") is None
    buffer.insert("odom", "base", T0 - 100 * SECOND, at(7.0))
    np.testing.assert_allclose(buffer.lookup("odom", "base", T0 - 100 * SECOND), at(7.0), atol=1e-9)


def test_a_frame_whose_time_went_back_starts_anew(buffer: TransformTree) -> None:
    buffer.forget_frame("lidar")  # static: it stays
    buffer.forget_frame("base")
    for k in range(2):
        buffer.insert("odom", "base", T0 - (1000 - k) * SECOND, at(7.0))
    np.testing.assert_allclose(buffer.lookup("odom", "lidar", T0 - 1000 * SECOND), at(7.5), atol=1e-9)


def test_history_is_bounded(empty: TransformTree) -> None:
    for k in range(100):
        empty.insert("odom", "base", T0 + k * SECOND, at(float(k)))
    empty.lookup("odom", "base", T0 + 90 * SECOND)
    assert refusal(empty, "odom", "base", T0 + 80 * SECOND)[0] == "too_early"


def test_nonsense_is_refused(empty: TransformTree) -> None:
    with pytest.raises(ValueError, match="two different frames"):
        empty.insert("/a", "a", T0, np.eye(4))
    with pytest.raises(ValueError, match="not finite"):
        empty.insert("a", "b", T0, np.full((4, 4), np.nan))


@pytest.mark.parametrize("static", [False, True])
def test_a_transform_that_closes_a_loop_is_refused_and_nothing_else(
    buffer: TransformTree, static: bool
) -> None:
    """Through the whole tree, and beside it: every look-up goes on as before, without clearing anything."""
    stamp = T0 + 2 * SECOND
    before = buffer.lookup("map", "lidar", stamp)
    buffer.insert("a", "b", T0, at(1.0), static=True)
    loops = [("b", "a", "'a' <- 'b' <- 'a'")]
    if not static:  # a static one drives out the moving link between map and lidar: the next test
        loops.append(("lidar", "map", "'map' <- 'odom' <- 'base' <- 'lidar' <- 'map'"))
    for parent, child, named in loops:
        with pytest.raises(TransformLoop, match=f"would form a loop: {named}"):
            buffer.insert(parent, child, stamp, at(1.0), static)
    np.testing.assert_allclose(buffer.lookup("map", "lidar", stamp), before, atol=1e-9)
    np.testing.assert_allclose(buffer.lookup("a", "b", stamp), at(1.0), atol=1e-9)
    buffer.insert("odom", "base", T0 + 5 * SECOND, at(5.0, 0.5))
    np.testing.assert_allclose(
        buffer.lookup("map", "base", T0 + 5 * SECOND), at(100.0) @ at(5.0, 0.5), atol=1e-9
    )


def test_a_static_transform_takes_precedence_over_a_moving_one(buffer: TransformTree) -> None:
    """It is sent only once: were it refused, it would be missing for good."""
    buffer.insert("lidar", "world", T0, at(1.0))
    buffer.insert("world", "map", T0, at(7.0), static=True)
    np.testing.assert_allclose(buffer.lookup("world", "map", T0), at(7.0), atol=1e-9)
    for k in range(3):
        with pytest.raises(TransformLoop):
            buffer.insert("map", "world", T0 + k * SECOND, at(1.0))
    buffer.insert("odom", "base", T0 + SECOND, at(1.0, 0.1))
    expected = at(7.0) @ at(100.0) @ at(1.0, 0.1)
    np.testing.assert_allclose(buffer.lookup("world", "base", T0 + SECOND), expected, atol=1e-9)


def test_a_wrong_transform_that_came_first_gives_way_once_nobody_renews_it(empty: TransformTree) -> None:
    empty.insert("base", "odom", T0, at(1.0))
    step = SECOND // 2
    refused = 0
    for k in range(round(2 * HORIZON * SECOND / step)):
        try:
            empty.insert("odom", "base", T0 + k * step, at(0.1 * k))
        except TransformLoop:
            refused += 1
    assert refused == 1 + HORIZON * SECOND / step
    np.testing.assert_allclose(
        empty.lookup("odom", "base", T0 + (refused + 3) * step), at(0.1 * (refused + 3)), atol=1e-9
    )


def test_a_frame_may_change_its_parent_and_go_back(buffer: TransformTree) -> None:
    buffer.insert("elsewhere", "base", T0 + 5 * SECOND, at(0.0))
    assert refusal(buffer, "odom", "lidar", T0 + 5 * SECOND)[0] == "not_connected"
    buffer.insert("odom", "base", T0 + 6 * SECOND, at(6.0))
    np.testing.assert_allclose(buffer.lookup("odom", "base", T0 + 6 * SECOND), at(6.0), atol=1e-9)


def test_a_robots_frame_that_is_absent_costs_no_waiting(
    empty: TransformTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pose is there; only the mount, which nobody needs, is not."""
    source = make_source("tf", SourceSetup.live("odom", "base_link", lambda: T0, lambda: empty))
    for k in range(3):
        source.insert_transform(FrameTransform("odom", "lidar", T0 + k * SECOND, at(float(k))))

    def wait(*arguments: object) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(threading.Condition, "wait", wait)
    monkeypatch.setattr(time, "sleep", wait)
    located = PoseQueue(source, 60.0, time.monotonic_ns).wait(Cloud(T0 + SECOND, "lidar", np.ones((3, 3))))
    np.testing.assert_allclose(located.pose.T_map_sensor, at(1.0), atol=1e-9)
    assert located.pose.T_base_sensor is None
