"""The stand-in decides as the real tf2_ros does: random trees, stamps and questions, side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tf2_double
from geometry_msgs.msg import TransformStamped
from rclpy.duration import Duration
from rclpy.time import Time

tf2_ros = pytest.importorskip(
    "tf2_ros", reason="tf2_ros is not installed (not on PyPI; a ROS installation has it)"
)

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
FRAMES = ("map", "odom", "base", "lidar", "camera", "island", "palm")
PARENTS = {"odom": "map", "base": "odom", "lidar": "base", "camera": "base", "palm": "island"}
WORDS = ("into the past", "into the future", "only time", "loop")
"""What the message of an exception is read for."""


def transform(rng: np.random.Generator, parent: str, child: str, stamp: int) -> TransformStamped:
    message = TransformStamped(child_frame_id=child)
    message.header.frame_id = parent
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(int(stamp), SECOND)
    q = rng.normal(size=4)
    q /= np.linalg.norm(q)
    values = message.transform.rotation
    values.x, values.y, values.z, values.w = (float(value) for value in q)
    move = message.transform.translation
    move.x, move.y, move.z = (float(value) for value in rng.normal(size=3))
    return message


def answer(module: Any, buffer: Any, question: str, *arguments: Any) -> Any:
    try:
        found = getattr(buffer, question)(*arguments)
    except module.TransformException as error:
        return type(error).__name__, tuple(word for word in WORDS if word in str(error))
    if isinstance(found, TransformStamped):
        p, q = found.transform.translation, found.transform.rotation
        sign = np.sign(q.w) or 1.0
        return np.array([p.x, p.y, p.z, *(sign * value for value in (q.x, q.y, q.z, q.w))])
    return found.nanoseconds if isinstance(found, Time) else found


def assert_alike(real: Any, double: Any, what: object) -> None:
    if isinstance(real, np.ndarray) and isinstance(double, np.ndarray):
        np.testing.assert_allclose(double, real, atol=1e-6, err_msg=str(what))
    else:
        assert not isinstance(real, np.ndarray), (what, double)
        assert double == real, what


@pytest.mark.parametrize("seed", range(30))
def test_random_trees(seed: int) -> None:
    rng = np.random.default_rng(seed)
    real, double = tf2_ros.Buffer(Duration(seconds=10)), tf2_double.Buffer(Duration(seconds=10))
    static = {child for child in PARENTS if rng.random() < 0.4}
    parents = PARENTS | ({"map": "camera"} if seed % 10 == 9 else {})  # a loop
    for step in range(60):
        for child, parent in parents.items():
            if rng.random() < 0.5 and (seed % 3 or child != "camera"):
                message = transform(rng, parent, child, START + step * SECOND // 2 + rng.integers(SECOND))
                for buffer in (real, double):
                    add = buffer.set_transform_static if child in static else buffer.set_transform
                    add(message, "test")
        if rng.random() < 0.03:
            real.clear()
            double.clear()
        target, source = rng.choice([*FRAMES, "absent", "/map", ""], 2, p=[*[0.13] * 7, 0.03, 0.03, 0.03])
        stamp = int(rng.choice([0, 1, START, START + step * SECOND // 2, START + rng.integers(40 * SECOND)]))
        when = Time(nanoseconds=stamp)
        for question, arguments in (
            ("lookup_transform", (str(target), str(source), when)),
            ("can_transform", (str(target), str(source), when)),
            ("get_latest_common_time", (str(target), str(source))),
        ):
            assert_alike(
                answer(tf2_ros, real, question, *arguments),
                answer(tf2_double, double, question, *arguments),
                (seed, step, question, arguments, static),
            )


def test_a_single_transform_and_none() -> None:
    rng = np.random.default_rng(0)
    for module in (tf2_ros, tf2_double):
        buffer = module.Buffer()
        buffer.set_transform(transform(rng, "odom", "base", START), "test")
        for stamp, words in ((START - 1, ("only time",)), (START + 1, ("only time",))):
            found = answer(module, buffer, "lookup_transform", "odom", "base", Time(nanoseconds=stamp))
            assert found == ("ExtrapolationException", words)
        buffer.clear()
        found = answer(module, buffer, "lookup_transform", "odom", "base", Time(nanoseconds=START))
        assert found == ("ExtrapolationException", ())
