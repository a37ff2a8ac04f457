"""Poses from the transforms of a recording, some of which are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be read")

from rosbags.typesys import Stores, get_typestore

from gpgmap_ros.sensing import Cloud, PoseSource, SourceSetup, make_source
from gpgmap_ros.sensing.sources import insert_message
from gpgmap_ros.sensing.transform_buffer import TransformLoop

SECOND = 1_000_000_000
TYPES = get_typestore(Stores.ROS2_JAZZY).types


def transform(parent: str, child: str, stamp: int, x: float) -> Any:
    header = TYPES["std_msgs/msg/Header"](
        TYPES["builtin_interfaces/msg/Time"](*divmod(stamp, SECOND)), frame_id=parent
    )
    return TYPES["geometry_msgs/msg/TransformStamped"](
        header,
        child,
        TYPES["geometry_msgs/msg/Transform"](
            TYPES["geometry_msgs/msg/Vector3"](x, 0.0, 0.0),
            TYPES["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0),
        ),
    )


def tf_source() -> PoseSource:
    return make_source("tf", SourceSetup.recorded("odom", "base"))


def sensor_x(poses: PoseSource, frame: str, stamp: int) -> float:
    return float(poses.locate(Cloud(stamp, frame, np.empty((0, 3)))).T_map_sensor[0, 3])


def message(*transforms: Any) -> Any:
    return TYPES["tf2_msgs/msg/TFMessage"](list(transforms))


@pytest.mark.parametrize("topic", ["/tf", "/tf_static"])
def test_a_wrong_transform_leaves_the_others_of_its_message(topic: str) -> None:
    poses = tf_source()
    insert_message(poses, message(transform("odom", "base", SECOND, 1.0)), "/tf")
    wrong = transform("base", "odom", SECOND, 1.0) if topic == "/tf" else transform("x", "x", SECOND, 1.0)
    with pytest.raises(ValueError, match=r"loop|two different frames"):
        insert_message(poses, message(wrong, transform("base", "lidar", SECOND, 0.5)), topic)
    np.testing.assert_allclose(sensor_x(poses, "lidar", SECOND), 1.5)


def test_a_loop_in_a_recording_changes_nothing() -> None:
    poses = tf_source()
    for k in range(1, 20):
        insert_message(poses, message(transform("odom", "base", k * SECOND, float(k))), "/tf")
        with pytest.raises(TransformLoop, match="'odom' <- 'base' <- 'odom'"):
            insert_message(poses, message(transform("base", "odom", k * SECOND, 0.0)), "/tf")
        assert sensor_x(poses, "base", k * SECOND) == pytest.approx(k)
    assert not poses.breaks


def test_a_jump_is_still_seen_after_a_wrong_transform_that_came_first() -> None:
    poses = tf_source()
    insert_message(poses, message(transform("base", "odom", SECOND, 0.0)), "/tf")
    with pytest.raises(TransformLoop):
        insert_message(poses, message(transform("odom", "base", 2 * SECOND, 0.0)), "/tf")
    for k in range(100, 140):  # nobody has renewed the wrong one since
        x = 0.1 * k + (1000.0 if k >= 120 else 0.0)
        insert_message(poses, message(transform("odom", "base", k * SECOND, x)), "/tf")
    assert len(poses.breaks) == 1
    assert sensor_x(poses, "base", 135 * SECOND) == pytest.approx(1013.5)
