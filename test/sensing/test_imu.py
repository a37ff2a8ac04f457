"""The vertical and the turns of an IMU, simulated with noise, bias and vibration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from gpgmap_ros.demo.sensors import SimulatedImu
from gpgmap_ros.geometry import Array, transform_from
from gpgmap_ros.sensing.imu import Imu, Vertical
from gpgmap_ros.sensing.imu_axes import ImuAxes
from gpgmap_ros.sensing.levelling import FrameTilt, LevelTracker, first_level
from gpgmap_ros.sensing.messages import ImuMeasurement, imu_measurement
from gpgmap_ros.sensing.sensor_imu import SensorImu

SECOND = 1_000_000_000


def wandering(seconds: float) -> Array:
    """Stands tilted for two seconds, then drives in curves over rough ground."""
    t = max(seconds - 2.0, 0.0)
    begin = min(t, 1.0)  # no jerk
    turn = Rotation.from_euler(
        "ZYX", [40.0 * math.sin(0.5 * t), 8.0 + 3.0 * begin * math.sin(4.0 * t), 5.0 - 3.0 * begin * math.sin(3.0 * t)],
        degrees=True,
    )  # fmt: skip
    x = 1.5 * (t - math.sin(t)) if t < math.pi else 1.5 * t
    return transform_from([x, 2.0 * (1.0 - math.cos(0.6 * t)), 0.0], turn.as_quat())


def feed(imu: Imu, seconds: float, seed: int = 0, **errors: float) -> None:
    errors = {"rate": 100.0, **errors}
    for sample in SimulatedImu(**errors).samples(
        wandering, 0.0, seconds, SECOND, np.random.default_rng(seed)
    ):
        imu.insert(sample)


def tilt_error(vertical: Vertical, T: Array) -> float:
    return math.degrees(math.acos(min(float(vertical.up @ T[2, :3]), 1.0)))


def test_standing_still_gives_the_vertical_and_the_bias() -> None:
    imu = Imu(30.0)
    feed(imu, 1.9)
    found = imu.vertical(SECOND + round(1.8 * SECOND))
    assert found is not None
    assert found.still
    assert tilt_error(found, wandering(1.8)) < 3.0 * math.degrees(found.std) < 3.0
    expected = np.random.default_rng(0).normal(0.0, SimulatedImu().gyro_bias, 3)
    np.testing.assert_allclose(imu.bias, expected, atol=2e-3)


@pytest.mark.parametrize("seed", range(2))
def test_the_vertical_is_held_while_driving_and_its_error_is_as_stated(seed: int) -> None:
    imu = Imu(30.0)
    feed(imu, 8.0, seed)
    found = imu.vertical(SECOND + round(7.9 * SECOND))
    assert found is not None
    assert tilt_error(found, wandering(7.9)) < 4.0 * math.degrees(found.std) < 8.0


def test_turns_are_those_of_the_motion() -> None:
    imu = Imu(30.0)
    feed(imu, 5.2)
    stamps = [SECOND + round(t * SECOND) for t in (5.0, 5.05, 5.1)]
    found = imu.turns(stamps[0], stamps)
    assert found is not None
    truth = wandering(5.0)[:3, :3].T @ np.stack([wandering(t)[:3, :3] for t in (5.0, 5.05, 5.1)])
    angles = Rotation.from_matrix(found).inv() * Rotation.from_matrix(truth)
    assert np.degrees(angles.magnitude()).max() < 0.15


def test_a_gap_breaks_turns_and_begins_the_vertical_again() -> None:
    imu = Imu(30.0)
    for sample in SimulatedImu(rate=100.0).samples(wandering, 0.0, 4.0, SECOND, np.random.default_rng(0)):
        if not 1.0 < (sample.stamp - SECOND) / SECOND < 1.5:
            imu.insert(sample)
    assert imu.gaps == 1
    assert imu.turns(SECOND + SECOND // 2, [3 * SECOND]) is None
    assert imu.turns(3 * SECOND, [3 * SECOND + SECOND // 10]) is not None


def test_accelerations_in_g_are_recognised() -> None:
    imu = Imu(30.0)
    for sample in SimulatedImu(rate=100.0).samples(wandering, 0.0, 1.5, SECOND, np.random.default_rng(0)):
        a = sample.acceleration
        imu.insert(
            ImuMeasurement(
                sample.stamp, "imu", sample.angular_velocity, (a[0] / 9.81, a[1] / 9.81, a[2] / 9.81)
            )
        )
    found = imu.vertical(2 * SECOND)
    assert imu.in_g
    assert found is not None
    assert found.still
    assert tilt_error(found, wandering(1.0)) < 2.0


@pytest.mark.parametrize("rate", [math.nan, 1e3])
def test_what_no_imu_measures_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="not what an IMU measures"):
        Imu(1.0).insert(ImuMeasurement(1, "imu", (rate, 0.0, 0.0), (0.0, 0.0, 9.8)))


def test_samples_out_of_order_and_of_another_imu_are_left_out() -> None:
    imu = Imu(1.0)
    for stamp, frame in ((SECOND, "imu"), (SECOND - 1000, "imu"), (SECOND + 1000, "other")):
        imu.insert(ImuMeasurement(stamp, frame, (0.0, 0.0, 0.0), (0.0, 0.0, 9.8)))
    assert imu.samples == 1
    assert imu.newest == SECOND


def test_a_message_without_rates_is_refused() -> None:
    class Message:
        angular_velocity_covariance = (-1.0,) * 9
        linear_acceleration_covariance = (0.0,) * 9

    with pytest.raises(ValueError, match="does not measure its angular velocity"):
        imu_measurement(Message(), "/imu")


# ------------------------------------------------ axes


def random_turns(count: int, seed: int = 0) -> Array:
    return np.asarray(
        Rotation.from_rotvec(np.random.default_rng(seed).normal(0.0, 0.1, (count, 3))).as_matrix()
    )


def test_axes_that_agree_are_said_to() -> None:
    axes = ImuAxes()
    for R in random_turns(30):
        axes.add(R @ Rotation.from_rotvec([0.005, 0.0, 0.0]).as_matrix(), R)
    assert axes.agree
    assert not axes.problem


def test_rotated_axes_are_named_with_their_rotation() -> None:
    axes, mount = ImuAxes(), Rotation.from_euler("z", 90.0, degrees=True).as_matrix()
    for R in random_turns(30):
        axes.add(mount.T @ R @ mount, R)
    assert not axes.agree
    assert "rotation by 90 deg (roll 0, pitch 0, yaw 90)" in axes.problem or "yaw 90" in axes.problem


def test_turns_that_have_nothing_in_common_are_another_clock() -> None:
    axes = ImuAxes()
    for a, b in zip(random_turns(30, 1), random_turns(30, 2), strict=True):
        axes.add(a, b)
    assert "not those of the poses under any mount" in axes.problem


def test_without_turns_nothing_is_judged() -> None:
    axes = ImuAxes()
    for _ in range(100):
        axes.add(np.eye(3), np.eye(3))
    assert not axes.judged
    assert not axes.problem


# ------------------------------------------------ levelling


def plane_under(up: Array, count: int = 3000) -> Array:
    """Level ground 1.5 m below a sensor in whose axes `up` is up."""
    rng = np.random.default_rng(0)
    level = np.column_stack([rng.uniform(-8.0, 8.0, (count, 2)), np.full(count, -1.5)])
    R = Rotation.align_vectors([up], [[0.0, 0.0, 1.0]])[0].as_matrix()
    return np.asarray(level @ R.T)


def test_the_imu_goes_before_the_ground_and_the_ground_before_nothing() -> None:
    up = np.array([np.sin(0.2), 0.0, np.cos(0.2)])
    slope = plane_under(np.array([np.sin(0.3), 0.0, np.cos(0.3)]))
    by_imu = first_level(slope, Vertical(up, 0.01, True), True, None)
    np.testing.assert_allclose(by_imu.T_level_sensor[:3, :3] @ up, [0.0, 0.0, 1.0], atol=1e-9)
    assert (by_imu.source, by_imu.std) == ("imu", 0.01)
    by_ground = first_level(slope, None, True, None)
    assert by_ground.source == "ground"
    assert by_ground.tilt == pytest.approx(0.3, abs=0.01)
    assert by_ground.std == pytest.approx(np.deg2rad(5.0))
    nothing = first_level(np.zeros((0, 3)), None, True, None)
    assert nothing.source == "none"
    assert nothing.std > by_ground.std


def test_an_imu_whose_axes_contradict_the_ground_is_not_used_unless_its_mount_is_known() -> None:
    ground, wrong = plane_under(np.array([0.0, 0.0, 1.0])), Vertical(np.array([1.0, 0.0, 0.0]), 0.01, True)
    guessed = first_level(ground, wrong, False, None)
    assert guessed.source == "ground"
    assert "90 deg apart" in guessed.problem
    assert first_level(ground, wrong, True, None).source == "imu"


def test_a_sensor_on_its_side_is_levelled_by_its_mount() -> None:
    mount = Rotation.from_euler("x", 90.0, degrees=True).as_matrix()
    found = first_level(plane_under(mount.T @ [0.0, 0.0, 1.0]), None, True, mount)
    assert found.source == "ground"
    np.testing.assert_allclose(found.T_level_sensor[:3, :3], mount, atol=0.02)


def test_a_drifting_frame_is_brought_back_to_level_about_the_sensor() -> None:
    tracker, rng = LevelTracker(0.01), np.random.default_rng(0)
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("x", 4.0, degrees=True).as_matrix()  # what registrations have added up to
    T[:3, 3] = 100.0, 20.0, 5.0
    up_sensor = np.array([0.0, 0.0, 1.0])
    for _ in range(600):
        tracker.drift(np.deg2rad(0.1) ** 2)
        noisy = up_sensor + rng.normal(0.0, 0.01, 3)
        tracker.correct(T, Vertical(noisy / np.linalg.norm(noisy), 0.02, False), 0.1)
    found = tracker.T_map_odom @ T
    assert np.degrees(np.arccos(found[2, 2])) < 1.0
    np.testing.assert_allclose(found[:3, 3], T[:3, 3], atol=1e-9)
    assert np.deg2rad(0.5) < tracker.std < np.deg2rad(2.0)


def test_the_tilt_of_a_frame_is_known_after_some_clouds() -> None:
    tilt = FrameTilt()
    for k in range(10):
        assert not tilt.known
        tilt.add(Rotation.from_euler("x", 20.0 + (-1) ** k, degrees=True).apply([0.0, 0.0, 1.0]), 0.01)
    assert tilt.known
    assert math.degrees(tilt.tilt) == pytest.approx(20.0, abs=0.1)


def driving(seconds: float) -> Array:
    """As `wandering`, but never still."""
    return wandering(seconds + 5.0)


def drive_without_a_stop(imu: Imu, seed: int, noise: float, seconds: float) -> Array:
    """Insert samples, and after each tenth of a second the turn by poses, off by `noise` degrees; the true bias."""
    rng = np.random.default_rng([seed, 1])
    samples = iter(
        SimulatedImu(rate=100.0, gyro_bias=0.02).samples(
            driving, 0.0, seconds, SECOND, np.random.default_rng(seed)
        )
    )
    end = 0.1
    for sample in samples:
        imu.insert(sample)
        if (sample.stamp - SECOND) / SECOND > end + 0.03:  # a scan is registered after its last sample
            turn = Rotation.from_matrix(driving(end - 0.1)[:3, :3].T @ driving(end)[:3, :3])
            error = Rotation.from_rotvec(np.deg2rad(rng.normal(scale=noise, size=3)))
            begin_stamp, end_stamp = (SECOND + round(t * SECOND) for t in (end - 0.1, end))
            imu.learn_bias(begin_stamp, end_stamp, (turn * error).as_matrix())
            end += 0.1
    return np.random.default_rng(seed).normal(0.0, 0.02, 3)


@pytest.mark.parametrize("seed", range(2))
def test_the_bias_of_a_gyroscope_that_never_stands_still_is_learned(seed: int) -> None:
    imu = Imu(30.0)
    truth = drive_without_a_stop(imu, seed, 0.05, 8.0)
    before = float(np.linalg.norm(truth))
    assert before > 0.01, "or there is nothing to learn"
    assert np.linalg.norm(imu.bias - truth) < 0.3 * before
    # and turns are those of the motion after it: half a second at the end
    stamps = [SECOND + round(t * SECOND) for t in (7.4, 7.9)]
    found = imu.turns(stamps[0], stamps[1:])
    assert found is not None
    expected = driving(7.4)[:3, :3].T @ driving(7.9)[:3, :3]
    left = Rotation.from_matrix(expected.T @ found[0]).magnitude()
    assert left < 0.5 * 0.5 * before


def test_few_or_wrong_turns_teach_no_bias() -> None:
    few, wrong = Imu(30.0), Imu(30.0)
    drive_without_a_stop(few, 0, 0.05, 1.5)
    assert few.bias == (0.0, 0.0, 0.0)
    drive_without_a_stop(wrong, 0, 20.0, 4.0)
    assert np.linalg.norm(wrong.bias) < 0.1


def test_a_bias_seen_standing_still_stays() -> None:
    imu = Imu(30.0)
    feed(imu, 1.9)
    bias = imu.bias
    for _ in range(100):
        imu.learn_bias(SECOND, SECOND + SECOND // 10, Rotation.from_rotvec([0.0, 0.0, 0.004]).as_matrix())
    assert imu.bias == bias


@pytest.mark.parametrize("mounted", [True, False])
def test_on_a_straight_way_the_bias_is_learned_where_the_mount_is_known(mounted: bool) -> None:
    """Axes can't be judged there: without a mount the bias might be another axis's."""
    robot, rng = SensorImu(None), np.random.default_rng(0)
    bias, frame = (0.01, -0.02, 0.015), "lidar" if mounted else "imu"
    for k in range(500):
        force = rng.normal([0.0, 0.0, 9.81], 1.0)
        robot.insert(ImuMeasurement(SECOND + k * SECOND // 100, frame, bias, (force[0], force[1], force[2])))
        if k % 10 == 9 and k > 20:
            end = SECOND + (k - 5) * SECOND // 100
            robot.compare("lidar", end - SECOND // 10, end, np.eye(3))
    np.testing.assert_allclose(robot.imu.bias, bias if mounted else np.zeros(3), atol=1e-3)
