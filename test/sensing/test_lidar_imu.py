"""LiDAR odometry with an IMU: the vertical, large turns, deskewing, and an IMU that is silent or wrongly mounted."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("small_gicp")

from rooms import pose, room, scan
from scipy.spatial.transform import Rotation

from gpgmap_ros.demo.sensors import SimulatedImu
from gpgmap_ros.geometry import Array, inverse, transform_from
from gpgmap_ros.sensing import Cloud, SourceSetup, TransformUnavailable, make_source
from gpgmap_ros.sensing.lidar_source import LidarSource
from gpgmap_ros.sensing.messages import FrameTransform
from gpgmap_ros.sensing.pose_source import TILTED
from gpgmap_ros.sensing.waiting import DroppedCloud, LocatedCloud, PoseQueue

SECOND = 1_000_000_000
TILT = Rotation.from_euler("y", 15.0, degrees=True).as_matrix()
"""Of the sensor on the robot: it looks down."""


def tilted(T: Array) -> Array:
    return T @ transform_from([0.0, 0.0, 0.0], Rotation.from_matrix(TILT).as_quat())


def drive(seconds: float, turn_rate: float = 20.0) -> Array:
    """Stands for a second, then turns in the hall and goes slowly forward."""
    t = max(seconds - 1.0, 0.0)
    return tilted(pose(-4.0 + 0.4 * t, 0.0, turn_rate * t))


def lidar_source() -> LidarSource:
    source = make_source("lidar", SourceSetup.recorded("odom", "base_link", "lidar"))
    assert isinstance(source, LidarSource)
    return source


def feed(source: LidarSource, pose_at: object, end: float, imu: SimulatedImu | None = None) -> None:
    simulated = imu or SimulatedImu(rate=100.0, frame_id="lidar")
    for sample in simulated.samples(pose_at, 0.0, end, SECOND, np.random.default_rng(1)):  # type: ignore[arg-type]
        source.insert_imu(sample)


def cloud_at(pose_at: object, seconds: float, rng: np.random.Generator, scene: Array) -> Cloud:
    return Cloud(SECOND + round(seconds * SECOND), "lidar", scan(scene, pose_at(seconds), rng))  # type: ignore[operator]


@pytest.fixture(scope="module")
def hall() -> Array:
    return room(np.random.default_rng(0))


def test_the_frame_is_level_by_the_imu_however_the_sensor_is_mounted(hall: Array) -> None:
    source, rng = lidar_source(), np.random.default_rng(0)
    feed(source, drive, 3.0)
    found = [source.locate(cloud_at(drive, t, rng, hall)) for t in np.arange(0.6, 2.9, 0.2)]
    truth = [drive(t) for t in np.arange(0.6, 2.9, 0.2)]
    for item, T in ((found[0], truth[0]), (found[-1], truth[-1])):
        up = item.T_map_sensor[2, :3]
        assert math.degrees(math.acos(min(float(up @ T[2, :3]), 1.0))) < 2.0
        assert item.tilt_std is not None
        assert math.radians(0.4) < item.tilt_std < math.radians(1.5)
    moved = inverse(found[0].T_map_sensor) @ found[-1].T_map_sensor
    np.testing.assert_allclose(moved[:3, 3], (inverse(truth[0]) @ truth[-1])[:3, 3], atol=0.06)
    assert "that of the IMU" in source.notes()[0]
    assert "the sensor is tilted by 1" in source.notes()[0]


def test_large_turns_are_followed_at_the_first_start(hall: Array) -> None:
    """48 degrees between two clouds, with turns about all axes that no search about the vertical finds."""

    def tumbling(seconds: float) -> Array:
        t = max(seconds - 1.0, 0.0)
        turn = Rotation.from_euler(
            "ZYX", [96.0 * t, 35.0 * math.sin(2.0 * t), 30.0 * math.sin(3.0 * t)], degrees=True
        )
        return transform_from([-3.0 + 0.3 * t, 0.0, 2.5], turn.as_quat())

    source, rng = lidar_source(), np.random.default_rng(0)
    feed(source, tumbling, 4.2)
    times = np.arange(0.6, 4.2, 0.5)
    found = [source.locate(cloud_at(tumbling, t, rng, hall)).T_map_sensor for t in times]
    truth = [tumbling(t) for t in times]
    moved, expected = inverse(found[0]) @ found[-1], inverse(truth[0]) @ truth[-1]
    np.testing.assert_allclose(moved[:3, 3], expected[:3, 3], atol=0.1)
    assert np.degrees(Rotation.from_matrix(moved[:3, :3].T @ expected[:3, :3]).magnitude()) < 2.0


def test_the_gyroscope_deskews_a_turn_that_has_just_begun(hall: Array) -> None:
    """Constant twist from the clouds before knows nothing of a turn that begins within the scan."""

    def turning(seconds: float) -> Array:
        return pose(-4.0, 0.0, 200.0 * max(seconds - 1.0, 0.0))

    source, rng = lidar_source(), np.random.default_rng(0)
    feed(source, turning, 1.2)
    for t in (0.6, 0.7, 0.8, 0.9):
        source.locate(cloud_at(turning, t, rng, hall))
    still = scan(hall, turning(1.0), rng)
    times = np.linspace(0.0, 0.1, len(still))
    T_world = np.stack([turning(1.0 + t) for t in times])
    world = still @ T_world[0, :3, :3].T + T_world[0, :3, 3]
    skewed = np.einsum("nji,nj->ni", T_world[:, :3, :3], world - T_world[:, :3, 3])
    cloud = Cloud(2 * SECOND, "lidar", skewed, times)
    (located,) = _through_queue(source, [cloud])
    assert isinstance(located, LocatedCloud)
    assert located.motion is not None
    turn = Rotation.from_matrix(located.motion.pose_at(0.1)[:3, :3]).as_rotvec(degrees=True)
    assert turn[2] == pytest.approx(20.0, abs=1.0)


def _through_queue(
    source: LidarSource, clouds: list[Cloud], now: int = 0
) -> list[LocatedCloud | DroppedCloud]:
    queue = PoseQueue(source, 0.5, lambda: now)
    for cloud in clouds:
        queue.put(cloud)
    return [*queue.ready(), *queue.end()]


def test_a_cloud_waits_for_the_imu_and_not_for_one_that_is_silent(hall: Array) -> None:
    source, rng, now = lidar_source(), np.random.default_rng(0), [0]
    feed(source, drive, 1.5)
    queue = PoseQueue(source, 0.5, lambda: now[0])
    queue.put(cloud_at(drive, 1.2, rng, hall))
    assert isinstance(queue.poll(), LocatedCloud)
    queue.put(cloud_at(drive, 1.6, rng, hall))  # the samples up to it may come any moment
    assert queue.poll() is None
    now[0] += SECOND
    assert isinstance(queue.poll(), LocatedCloud), "after half a second it goes on without"
    for t in (1.9, 2.2, 2.6):
        queue.put(cloud_at(drive, t, rng, hall))
    assert isinstance(queue.poll(), LocatedCloud | None)
    now[0] += SECOND
    assert all(isinstance(item, LocatedCloud) for item in queue.end())
    assert "silent" in source.problems()["imu silent"]


def test_axes_that_do_not_match_are_noticed_and_not_used(hall: Array) -> None:
    """The IMU is turned by 90 degrees about the vertical and says that it is the LiDAR."""
    source, rng = lidar_source(), np.random.default_rng(0)

    def nodding(seconds: float) -> Array:
        t = max(seconds - 1.0, 0.0)
        turn = Rotation.from_euler("ZYX", [20.0 * t, 12.0 * math.sin(6.0 * t), 0.0], degrees=True)
        return transform_from([-4.0 + 0.4 * t, 0.0, 1.5], turn.as_quat())

    mounted = SimulatedImu(
        rate=100.0, frame_id="lidar", R_sensor_imu=Rotation.from_euler("z", 90.0, degrees=True).as_matrix()
    )
    feed(source, nodding, 4.0, mounted)
    clouds = [cloud_at(nodding, t, rng, hall) for t in np.arange(0.6, 3.8, 0.2)]
    located = _through_queue(source, clouds)
    assert all(isinstance(item, LocatedCloud) for item in located)
    assert "the axes of the IMU do not match" in source.problems()["imu axes"]
    assert source.imu.turns("lidar", clouds[-2].stamp, [clouds[-1].stamp]) is None
    first, last = located[0].pose, located[-1].pose
    assert first is not None
    assert last is not None
    moved = inverse(first.T_map_sensor) @ last.T_map_sensor
    expected = inverse(nodding(0.6)) @ nodding(clouds[-1].stamp / SECOND - 1.0)
    np.testing.assert_allclose(moved[:3, 3], expected[:3, 3], atol=0.1)


def test_a_tilted_frame_of_tf_is_refused() -> None:
    """Poses in a frame that is tilted by 40 degrees: heights in it are none."""
    source = make_source("tf", SourceSetup.recorded("odom", "base_link", "lidar"))
    T_odom_world = transform_from([0.0, 0.0, 0.0], Rotation.from_euler("x", 40.0, degrees=True).as_quat())
    for k in range(200):
        T = T_odom_world @ drive(k / 40.0)
        source.insert_transform(FrameTransform("odom", "lidar", SECOND + k * SECOND // 40, T))
    for sample in SimulatedImu(rate=100.0, frame_id="lidar").samples(
        drive, 0.0, 4.5, SECOND, np.random.default_rng(1)
    ):
        source.insert_imu(sample)
    queue = PoseQueue(source, 1.0, lambda: 0)
    for t in np.arange(0.6, 4.0, 0.2):
        queue.put(Cloud(SECOND + round(t * SECOND), "lidar", np.ones((5, 3))))
    outcomes = list(queue.end())
    assert isinstance(outcomes[0], LocatedCloud), "one cloud says little"
    last = outcomes[-1]
    assert isinstance(last, DroppedCloud)
    assert isinstance(last.error, TransformUnavailable)
    assert last.error.reason == TILTED
    assert (
        "tilted by 40 deg" in str(last.error)
        or "tilted by 39 deg" in str(last.error)
        or "41" in str(last.error)
    )
