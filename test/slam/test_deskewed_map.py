"""A simulated rover at 3 m/s and 60 deg/s: its deskewed map is as good as that of a sensor that stood still."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from gp_core.grid.workers import single_threaded_blas
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.demo.circling import CirclingRover
from gpgmap_ros.demo.lidar import SpinningLidar
from gpgmap_ros.demo.terrain import rover_terrain
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.sensing import Cloud, SourceSetup, make_source
from gpgmap_ros.sensing.scan_motion import UNKNOWN_SPEED, skew_covariance
from gpgmap_ros.sensing.waiting import PoseQueue
from gpgmap_ros.slam import Executors, Slam, Step

SECONDS = 1.0
SETTINGS = {
    "mapping.size_x": 14.0,
    "mapping.size_y": 14.0,
    "mapping.resolution": 0.2,
    "submap.enabled": False,
}


@pytest.fixture(scope="module")
def rover() -> CirclingRover:
    lidar = SpinningLidar(beams=16, turns=180, max_range=8.0)
    return CirclingRover(rover_terrain(np.random.default_rng(1), 24.0), lidar)


def run(rover: CirclingRover, clouds: Iterator[Cloud], deskew: bool = True) -> tuple[Slam, list[Step]]:
    source = make_source("tf", SourceSetup.recorded("odom", "lidar", "lidar"))
    for transform in rover.transforms(SECONDS):
        source.insert_transform(transform)
    config = with_settings(Config(), {**SETTINGS, "deskew": deskew})
    slam = Slam(config, PoseQueue(source, 1.0, lambda: 0, deskew=deskew), Executors.inline())
    steps: list[Step] = []
    with single_threaded_blas():
        for cloud in clouds:
            steps += [item for item in slam.add_cloud(cloud) if isinstance(item, Step)]
    return slam, steps


def height_errors(rover: CirclingRover, maps: list[GPGMap]) -> list[float]:
    """RMSE of each map where all of them know the ground well, metres."""
    centers = maps[0].grid.centers
    truth = rover.terrain.height_at(centers[..., 0], centers[..., 1])
    known = np.all([(item["variance"] < 0.05**2) & item.known for item in maps], axis=0)
    assert known.sum() > 500
    return [float(np.sqrt(np.mean((item["elevation"] - truth)[known] ** 2))) for item in maps]


def finished_map(slam: Slam) -> GPGMap:
    gpgmap = slam.mapping.gpgmap()
    assert gpgmap is not None
    return gpgmap


def test_the_deskewed_map_is_as_good_as_that_of_a_still_sensor(rover: CirclingRover) -> None:
    count = int(SECONDS * rover.scan_rate)
    still, _ = run(rover, rover.clouds(SECONDS, np.random.default_rng(2), moving=False))
    moving, steps = run(rover, rover.clouds(SECONDS, np.random.default_rng(2)))
    distorted, _ = run(rover, rover.clouds(SECONDS, np.random.default_rng(2)), deskew=False)
    assert len(steps) == moving.metrics["clouds deskewed"] == count
    assert not distorted.metrics["clouds deskewed"]
    errors = height_errors(rover, [finished_map(item) for item in (still, moving, distorted)])
    assert errors[1] < 1.2 * errors[0], errors
    assert errors[2] > 2.0 * errors[0], errors


def test_a_cloud_whose_motion_is_unknown_is_mapped_with_the_noise_of_it(rover: CirclingRover) -> None:
    """Poses end with the stamp of the second cloud: its points were measured after that."""
    first, second = list(rover.clouds(0.2, np.random.default_rng(2)))
    config = with_settings(Config(), SETTINGS)

    def last_step(poses_until: int, clouds: list[Cloud]) -> tuple[Slam, Step]:
        now = second.stamp
        source = make_source("tf", SourceSetup.recorded("odom", "lidar", "lidar"))
        for transform in rover.transforms(0.5):
            if transform.stamp <= poses_until:
                source.insert_transform(transform)
        slam = Slam(config, PoseQueue(source, 1.0, lambda: now), Executors.inline())
        steps = [item for cloud in clouds for item in slam.add_cloud(cloud)]
        assert len(steps) == (len(clouds) if poses_until > second.stamp else len(clouds) - 1), "it waits"
        now += 2_000_000_000
        steps += list(slam.advance())
        assert isinstance(steps[-1], Step)
        return slam, steps[-1]

    deskewed, step = last_step(second.stamp + 1_000_000_000, [first, second])
    assert step.deskewed
    after, step = last_step(second.stamp, [first, second])
    assert step.deskewed is False
    assert (after.metrics["clouds deskewed"], after.metrics["clouds not deskewed"]) == (1, 1)
    alone, _ = last_step(second.stamp, [second])
    stds = [
        float(np.sqrt(np.median(item["variance"][item.known & (item["variance"] < 1.0)])))
        for item in map(finished_map, (deskewed, after, alone))
    ]
    assert stds[0] < stds[1] < stds[2], "the cloud before says how fast the rover is; without it nothing does"


def test_a_sensor_that_stood_adds_no_noise(rover: CirclingRover) -> None:
    T = rover.pose_at(0.0)
    times = np.linspace(0.0, 0.1, 11)
    np.testing.assert_allclose(skew_covariance(times, 0.1, T, T), 0.0)
    unknown = skew_covariance(times, 0.1, None, T)
    np.testing.assert_allclose(
        np.diag(unknown), np.mean(times**2) * np.array([UNKNOWN_SPEED**2] * 3 + [1.0] * 3)
    )
    np.testing.assert_allclose(skew_covariance(times, 60.0, T, T), unknown, err_msg="too long ago")
    moving = skew_covariance(times, 0.1, rover.pose_at(-0.1), T)
    assert np.sqrt(np.trace(moving[:2, :2]) / np.mean(times**2)) == pytest.approx(rover.speed, rel=0.01)
    assert np.sqrt(moving[5, 5] / np.mean(times**2)) == pytest.approx(np.deg2rad(rover.turn_rate), rel=0.02)


def test_times_of_a_wrong_unit_are_not_used_and_the_clouds_have_the_noise_of_a_scan(
    rover: CirclingRover,
) -> None:
    """Ten times too long: the points would be moved by ten times the motion."""
    given = list(rover.clouds(SECONDS, np.random.default_rng(2)))
    wrong, steps = run(rover, (replace(item, times=10.0 * np.asarray(item.times)) for item in given))
    none, _ = run(rover, (replace(item, times=None) for item in given))
    assert [item.deskewed for item in steps[1:]] == [None] * (len(steps) - 1)
    assert wrong.metrics["clouds with unusable times"] == len(steps) - 1
    assert "unit of the time field" in steps[-1].cloud.times_error
    careful, careless = finished_map(wrong), finished_map(none)
    both = careful.known & careless.known & (careless["variance"] < 0.05**2)
    assert np.median((careful["variance"] / careless["variance"])[both]) > 2.0


def test_a_point_without_a_time_is_left_out_and_counted(rover: CirclingRover) -> None:
    given = next(rover.clouds(SECONDS, np.random.default_rng(2)))
    times = np.array(given.times)
    times[::10] = np.nan
    _, [step] = run(rover, iter([replace(given, times=times)]))
    assert step.deskewed
    assert step.report.not_finite == np.isnan(times).sum()
    assert step.report.points == len(times)
