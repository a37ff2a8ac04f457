"""Poses from a trajectory: interpolated, refused in gaps and outside, of the sensor or of the robot."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing import Cloud, SourceSetup, TransformUnavailable
from gpgmap_ros.sensing.file_source import MAX_GAP, FileSource
from gpgmap_ros.sensing.messages import FrameTransform

SECOND = 1_000_000_000


def at(x: float, yaw: float = 0.0) -> Array:
    T = np.eye(4)
    T[:3, :3], T[0, 3] = Rotation.from_euler("z", yaw, degrees=True).as_matrix(), x
    return T


def file_source(seconds: list[float], of_base: bool = False) -> FileSource:
    """At x = 2 t, with 10 degrees of yaw each second."""
    stamps = np.array([round(t * SECOND) for t in seconds], dtype=np.int64)
    poses = np.stack([at(2.0 * t, 10.0 * t) for t in seconds]) if seconds else np.zeros((0, 4, 4))
    return FileSource(SourceSetup.recorded("odom", "base", "lidar"), stamps, poses, of_base)


def cloud(seconds: float) -> Cloud:
    return Cloud(round(seconds * SECOND), "lidar", np.ones((3, 3)))


def test_poses_between_those_of_the_file_are_interpolated() -> None:
    source = file_source([10.0, 11.0, 12.0])
    np.testing.assert_allclose(source.locate(cloud(10.25)).T_map_sensor, at(20.5, 102.5), atol=1e-9)
    np.testing.assert_allclose(source.pose_at("lidar", 11 * SECOND), at(22.0, 110.0), atol=1e-9)
    motion = source.motion("lidar", [round(11.9 * SECOND), 12 * SECOND])
    np.testing.assert_allclose(motion[:, 0, 3], [23.8, 24.0])
    assert source.newest() == 12 * SECOND


@pytest.mark.parametrize(
    ("seconds", "message"), [(9.0, "begins 1.000 s later"), (12.5, "ends 0.500 s earlier")]
)
def test_outside_the_file_there_is_no_pose(seconds: float, message: str) -> None:
    with pytest.raises(TransformUnavailable, match=message) as caught:
        file_source([10.0, 12.0]).locate(cloud(seconds))
    assert caught.value.reason == "too_early", "nobody waits for it"


def test_a_stamp_that_was_rounded_as_text_is_inside() -> None:
    source = file_source([10.0, 11.0])
    np.testing.assert_allclose(source.locate(cloud(11.0005)).T_map_sensor, at(22.0, 110.0), atol=1e-9)


def test_across_a_gap_nothing_is_interpolated() -> None:
    source = file_source([10.0, 11.0, 11.5 + MAX_GAP, 12.0 + MAX_GAP])
    with pytest.raises(TransformUnavailable, match=r"has none for 2\.5 s around this cloud"):
        source.locate(cloud(12.0))
    assert source.locate(cloud(11.75 + MAX_GAP)).T_map_sensor[0, 3] == pytest.approx(2.0 * (11.75 + MAX_GAP))


def test_the_robots_poses_need_the_mount() -> None:
    source = file_source([10.0, 11.0], of_base=True)
    with pytest.raises(TransformUnavailable):
        source.locate(cloud(10.5))
    source.insert_transform(FrameTransform("base", "lidar", 0, at(0.5), static=True))
    found = source.locate(cloud(10.5))
    np.testing.assert_allclose(found.T_map_robot, at(21.0, 105.0), atol=1e-9)
    np.testing.assert_allclose(found.T_map_sensor, at(21.0, 105.0) @ at(0.5), atol=1e-9)
    np.testing.assert_allclose(source.pose_at("lidar", round(10.5 * SECOND)), found.T_map_sensor, atol=1e-9)


def test_a_file_with_one_pose_or_none() -> None:
    assert file_source([10.0]).locate(cloud(10.0)).T_map_sensor[0, 3] == 20.0
    empty = file_source([])
    assert empty.newest() is None
    with pytest.raises(TransformUnavailable):
        empty.locate(cloud(10.0))
