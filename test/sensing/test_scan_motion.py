"""The motion within a scan: the way from the poses, the rotation from the gyroscope where there is one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gpgmap_ros.demo.sensors import SimulatedImu
from gpgmap_ros.geometry import Array, inverse, transform_from
from gpgmap_ros.sensing import Cloud, PoseSource, SourceSetup, make_source
from gpgmap_ros.sensing.messages import FrameTransform, ImuMeasurement, PoseMeasurement
from gpgmap_ros.sensing.waiting import LocatedCloud, PoseQueue

SECOND = 1_000_000_000
SCAN = 0.1
"""Seconds."""


def shaken(seconds: float) -> Array:
    """Stands for a second, then drives off and nods three times a second, which 5 poses a second do not show."""
    t = max(seconds - 1.0, 0.0)
    turn = Rotation.from_euler("ZYX", [10.0 * t, 8.0 * math.sin(6.0 * math.pi * t), 0.0], degrees=True)
    return transform_from([0.75 * t * t, 0.0, 1.0], turn.as_quat())


def made(kind: str, mounted: bool = True, imu: SimulatedImu | None = None, end: float = 4.0) -> PoseSource:
    """A source with five poses a second and an IMU from second 0 to `end`."""
    source = make_source(kind, SourceSetup.recorded("odom", "lidar", "lidar", mounted=kind == "tf"))
    for k in range(21):
        stamp, T = SECOND + k * SECOND // 5, shaken(k / 5.0)
        if kind == "tf":
            source.insert_transform(FrameTransform("odom", "lidar", stamp, T))
        else:
            source.insert_pose(PoseMeasurement(stamp, T, None, "lidar"))
    simulated = imu or SimulatedImu(frame_id="lidar" if mounted else "imu")
    for sample in simulated.samples(shaken, 0.0, end, SECOND, np.random.default_rng(1)):
        source.insert_imu(sample)
    return source


def scan_at(seconds: float) -> Cloud:
    return Cloud(SECOND + round(seconds * SECOND), "lidar", np.ones((5, 3)), np.linspace(0.0, SCAN, 5))


def turn_error(source: PoseSource, seconds: float) -> float:
    """Degrees by which the rotation within a scan is wrong; the scan begins at the stamp of a pose."""
    queue = PoseQueue(source, 0.5, lambda: 0)
    queue.put(scan_at(seconds))
    (located,) = queue.end()
    assert isinstance(located, LocatedCloud)
    assert located.motion is not None
    true = inverse(shaken(seconds)) @ shaken(seconds + SCAN)
    found = located.motion.pose_at(SCAN)
    np.testing.assert_allclose(found[:3, 3], true[:3, 3], atol=0.03)
    return float(np.degrees(Rotation.from_matrix(found[:3, :3].T @ true[:3, :3]).magnitude()))


@pytest.mark.parametrize("kind", ["tf", "odometry"])
def test_the_gyroscope_gives_the_turn_within_a_scan(kind: str) -> None:
    with_imu = [turn_error(made(kind), t) for t in (1.4, 2.0, 2.6, 3.0)]
    without = [turn_error(made(kind, end=0.0), t) for t in (1.4, 2.0, 2.6, 3.0)]
    assert max(with_imu) < 0.3
    assert max(without) > 3.0, "or the poses alone would do"


def test_an_imu_without_a_mount_is_used_once_its_turns_were_seen_to_agree() -> None:
    source = made("tf", mounted=False)
    assert turn_error(source, 2.0) > 1.0
    queue = PoseQueue(source, 0.5, lambda: 0)
    for k in range(1, 20):  # at the stamps of poses, which are right there
        queue.put(Cloud(SECOND + k * SECOND // 5, "lidar", np.ones((5, 3))))
    list(queue.end())
    assert turn_error(source, 3.0) < 0.3


def test_turns_of_wrong_axes_are_named_and_not_used() -> None:
    wrong = SimulatedImu(
        frame_id="lidar", R_sensor_imu=Rotation.from_euler("x", 90, degrees=True).as_matrix()
    )
    source, queue_time = made("tf", imu=wrong), 0
    queue = PoseQueue(source, 0.5, lambda: queue_time)
    for k in range(1, 20):
        queue.put(Cloud(SECOND + k * SECOND // 5, "lidar", np.ones((5, 3))))
    list(queue.end())
    assert "axes of the IMU do not match" in source.problems()["imu axes"]
    assert turn_error(source, 3.0) == pytest.approx(turn_error(made("tf", end=0.0), 3.0), abs=1e-6)


def test_a_scan_waits_for_the_end_of_its_turns_but_not_for_an_imu_that_is_silent() -> None:
    source, now = made("tf", end=2.05), [0]
    queue = PoseQueue(source, 0.5, lambda: now[0])
    queue.put(scan_at(2.0))
    assert queue.poll() is None, "the samples of its second half are about to come"
    source.insert_imu(
        ImuMeasurement(SECOND + round(2.12 * SECOND), "lidar", (0.0, 0.0, 0.0), (0.0, 0.0, 9.81))
    )
    assert isinstance(queue.poll(), LocatedCloud)
    queue.put(scan_at(2.3))
    assert queue.poll() is None
    now[0] += SECOND
    late = queue.poll()
    assert isinstance(late, LocatedCloud), "after half a second it goes on by the poses alone"
    assert late.motion is not None
    queue.put(scan_at(3.3))
    assert isinstance(queue.poll(), LocatedCloud), "nobody waits for an IMU that has been silent for a second"
    assert "the last 2 clouds were used without it" in source.problems()["imu silent"]
