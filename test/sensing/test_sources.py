"""Pose sources: one interface for all of them, and what it takes to add one that registers scans."""

from __future__ import annotations

import numpy as np
import pytest

from gpgmap_ros.config import Config, settings
from gpgmap_ros.geometry import Array
from gpgmap_ros.sensing import (
    SOURCES,
    Cloud,
    PoseSource,
    SensorPose,
    SourceSetup,
    TransformUnavailable,
    make_source,
)
from gpgmap_ros.sensing.continuity import Break
from gpgmap_ros.sensing.messages import FrameTransform, PoseMeasurement
from gpgmap_ros.sensing.sources import DESCRIPTIONS
from gpgmap_ros.sensing.waiting import LocatedCloud, PoseQueue
from gpgmap_ros.slam import Executors, Slam, Step

SECOND = 1_000_000_000


def at(x: float) -> Array:
    T = np.eye(4)
    T[0, 3] = x
    return T


def cloud(seconds: float, points: Array | None = None) -> Cloud:
    return Cloud(round(seconds * SECOND), "lidar", np.zeros((0, 3)) if points is None else points)


def setups() -> dict[str, SourceSetup]:
    return {
        "live": SourceSetup.live("odom", "base", lambda: 10 * SECOND),
        "recorded": SourceSetup.recorded("odom", "base", "lidar"),
    }


@pytest.mark.parametrize("kind", ["live", "recorded"])
@pytest.mark.parametrize("name", ["tf", "odometry"])
def test_live_and_recorded_sources_give_the_same_poses(kind: str, name: str) -> None:
    source = make_source(name, setups()[kind])
    source.insert_transform(FrameTransform("base", "lidar", 0, at(0.5), static=True))
    for k in range(10, 15):
        if source.uses_odometry:
            source.insert_pose(PoseMeasurement(k * SECOND, at(k), np.eye(6) * k))
        else:
            source.insert_transform(FrameTransform("odom", "base", k * SECOND, at(k)))
    pose = source.locate(cloud(12.25))
    np.testing.assert_allclose(pose.T_map_sensor, at(12.75), atol=1e-12)
    np.testing.assert_allclose(pose.T_map_robot, at(12.25), atol=1e-12)
    assert (pose.covariance is None) == (name == "tf")
    if pose.covariance is not None:
        assert pose.covariance[0, 0] == 12.0, "of the nearest message"
    assert source.newest() == 14 * SECOND
    motion = source.motion("lidar", [12 * SECOND, 12 * SECOND + SECOND // 2])
    np.testing.assert_allclose(motion[:, 0, 3], [12.5, 13.0])
    with pytest.raises(TransformUnavailable) as caught:
        source.motion("lidar", [12 * SECOND, 99 * SECOND])
    assert caught.value.reason == "too_late"


@pytest.mark.parametrize("kind", ["live", "recorded"])
@pytest.mark.parametrize("name", ["tf", "odometry"])
def test_a_registered_cloud_is_seen_from_the_robot(kind: str, name: str) -> None:
    """It is in the frame of the poses: moved by its pose once more, it would be in a wrong place."""
    source = make_source(name, setups()[kind])
    queue = PoseQueue(source, 1.0, lambda: 0)
    queue.put(Cloud(round(12.5 * SECOND), "odom", np.array([[15.0, 1.0, 0.0]]), times=np.zeros(1)))
    for k in range(10, 15):
        if source.uses_odometry:
            source.insert_pose(PoseMeasurement(k * SECOND, at(k), None))
        else:
            source.insert_transform(FrameTransform("odom", "base", k * SECOND, at(k)))
    (found,) = queue.ready()
    assert isinstance(found, LocatedCloud)
    np.testing.assert_allclose(found.cloud.points, [[2.5, 1.0, 0.0]])
    np.testing.assert_allclose(found.pose.T_map_sensor, at(12.5))
    assert (found.cloud.frame_id, found.cloud.times) == ("base", None)


def test_a_sensor_that_stands_may_be_the_frame_of_the_map() -> None:
    source = make_source("tf", SourceSetup.live("lidar", "base", lambda: 10 * SECOND))
    source.insert_transform(FrameTransform("base", "lidar", 0, at(0.5), static=True))
    scan, pose = source.locate_cloud(cloud(1.0, np.ones((1, 3))))
    np.testing.assert_array_equal(scan.points, np.ones((1, 3)))
    np.testing.assert_array_equal(pose.T_map_sensor, np.eye(4))


def test_odometry_that_has_not_come_is_named() -> None:
    setup = SourceSetup.live("odom", "base", lambda: 0, pose_topic="/wheel/odometry")
    with pytest.raises(TransformUnavailable, match="no usable odometry on '/wheel/odometry'") as caught:
        make_source("odometry", setup).locate(cloud(1.0))
    assert caught.value.reason == "no_odometry"


def test_every_source_of_the_configuration_is_in_the_table() -> None:
    (setting,) = [item for item in settings(Config()) if item.name == "pose_source"]
    assert setting.value in SOURCES
    assert set(SOURCES) == set(DESCRIPTIONS)
    with pytest.raises(ValueError, match="choose one of tf, odometry, lidar, lidar_inertial, still"):
        make_source("gps", setups()["live"])


class CentroidOdometry(PoseSource):
    """Follows the mean of the points: a minimal source that sees them, keeps state and loses track."""

    def __init__(self, setup: SourceSetup) -> None:
        super().__init__()
        self._x, self._drive, self._breaks = 0.0, 0, list[Break]()
        self._last: Array | None = None

    def locate(self, cloud: Cloud) -> SensorPose:
        if not len(cloud.points):
            self._last = None
            raise TransformUnavailable("too_early", "lost track: the scan is empty")
        mean = cloud.points.mean(axis=0)
        if self._last is not None:
            self._x += float(self._last[0] - mean[0])
        elif self._x:
            self._x, self._drive = 0.0, self._drive + 1
            self._breaks.append(Break(0, cloud.stamp, "the scan registration lost track", False))
        self._last = mean
        return SensorPose(self.pose_at(cloud.frame_id, cloud.stamp), np.eye(6) * 1e-4, drive=self._drive)

    def pose_at(self, sensor_frame: str, stamp: int) -> Array:
        return at(self._x)

    def insert_transform(self, transform: FrameTransform) -> None:
        """Mounts are not needed."""

    @property
    def breaks(self) -> list[Break]:
        return self._breaks


def test_a_source_that_registers_scans_drives_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """One class and one row of the table: poses come from the points, and a loss of track begins another drive."""
    monkeypatch.setitem(SOURCES, "centroid", CentroidOdometry)
    ground = np.random.default_rng(0).uniform(-6.0, 6.0, (2000, 3)) * [1.0, 1.0, 0.01] - [0.0, 0.0, 1.0]
    source = make_source("centroid", setups()["recorded"])
    slam = Slam(Config(), PoseQueue(source, 1.0, lambda: 0), Executors.inline())
    steps, dropped = [], 0
    for k in range(8):
        scan = cloud(k + 1, np.zeros((0, 3)) if k == 4 else ground - [0.5 * k, 0.0, 0.0])
        for outcome in slam.add_cloud(scan):
            if isinstance(outcome, Step):
                steps.append(outcome)
            else:
                dropped += 1
    assert dropped == 1
    assert [step.drive for step in steps] == [1, 1, 1, 1, 2, 2, 2]
    np.testing.assert_allclose(
        [step.T_map_robot[0, 3] for step in steps], [0, 0.5, 1, 1.5, 0, 0.5, 1], atol=1e-9
    )
    assert slam.drives.all[1].reason == "the scan registration lost track"
    assert all(step.report.used for step in steps)
    slam.end("end of the test")
    submaps, _ = slam.take_results()
    assert [item.ended_by for item in submaps] == ["end of the test"], "the first went out with a step"
    assert sum(len(step.submaps) for step in steps) == 1
