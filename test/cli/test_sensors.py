"""Recordings with IMU and GPS (simulated, with noise, bias, outliers and jumps) through `replay` and `doctor`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: no recordings can be made")
pytest.importorskip("pyproj", reason="pyproj is not installed: nothing can be georeferenced")

from drives import frames_of
from fast_mapping import FAST, options
from rosbags.typesys import get_typestore

from gpgmap_ros.cli import main
from gpgmap_ros.demo.recording import START, drive_messages, header
from gpgmap_ros.demo.sensors import SimulatedGps, SimulatedImu
from gpgmap_ros.demo.terrain import rover_terrain
from gpgmap_ros.geometry import Array, interpolate
from gpgmap_ros.io.bags import STORE, Stamped, write_bag
from gpgmap_ros.io.trajectory import read_tum
from gpgmap_ros.sensing.messages import GpsFix, ImuMeasurement
from gpgmap_ros.slam.geodesy import UtmZone

LATITUDE, LONGITUDE, HEIGHT = 48.1, 11.6, 520.0
YAW = 0.6
"""Radians from east to the x axis of the odometry."""
TYPES = get_typestore(STORE).types
IMU, GPS = "/imu/data", "/gps/fix"
SETTINGS = options({**FAST, "closure.enabled": False})


def imu_message(sample: ImuMeasurement) -> Any:
    vector = TYPES["geometry_msgs/msg/Vector3"]
    nothing = np.zeros(9)
    return TYPES["sensor_msgs/msg/Imu"](
        header(TYPES, sample.stamp, sample.frame_id),
        TYPES["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0),
        np.array([-1.0, *[0.0] * 8]),
        vector(*sample.angular_velocity),
        nothing,
        vector(*sample.acceleration),
        nothing,
    )


def gps_message(fix: GpsFix) -> Any:
    covariance = np.zeros(9) if fix.covariance is None else fix.covariance.ravel()
    status = TYPES["sensor_msgs/msg/NavSatStatus"](status=fix.status, service=1)
    return TYPES["sensor_msgs/msg/NavSatFix"](
        header(TYPES, fix.stamp, fix.frame_id), status, fix.latitude, fix.longitude, fix.altitude, covariance,
        0 if fix.covariance is None else 2,
    )  # fmt: skip


@dataclass(frozen=True)
class Drive:
    """clouds: /points, /tf and /tf_static; pose_at: T_odom_base; origin: of the odometry's frame in UTM"""

    clouds: list[Stamped]
    pose_at: Callable[[float], Array]
    seconds: float
    zone: UtmZone
    origin: Array

    def imu(self, **errors: Any) -> Iterator[Stamped]:
        samples = SimulatedImu(rate=50.0, frame_id="base_link", **errors).samples(
            self.pose_at, 0.0, self.seconds, START, np.random.default_rng(0)
        )
        return (Stamped(IMU, item.stamp, imu_message(item)) for item in samples)

    def fixes(self, gps: SimulatedGps) -> list[GpsFix]:
        c, s = np.cos(YAW), np.sin(YAW)

        def world(t: float) -> Array:
            T = self.pose_at(t).copy()
            T[:2, 3] = c * T[0, 3] - s * T[1, 3], s * T[0, 3] + c * T[1, 3]
            return T

        def to_earth(position: Array) -> tuple[float, float, float]:
            east, north = self.origin + self.zone.scale * position[:2]
            return (*self.zone.inverse(east, north), HEIGHT + float(position[2]))

        return list(gps.fixes(world, to_earth, self.seconds, START, np.random.default_rng(0)))

    def write(self, path: Path, *more: Any) -> Path:
        messages = [*self.clouds, *(item for items in more for item in items)]
        write_bag(path, sorted(messages, key=lambda item: item.time))
        return path


@pytest.fixture(scope="module")
def drive() -> Drive:
    frames = frames_of(rover_terrain(np.random.default_rng(11)))
    times = np.array([frame.time for frame in frames])

    def pose_at(t: float) -> Array:
        k = int(np.clip(np.searchsorted(times, t, side="right") - 1, 0, len(times) - 2))
        share = (t - times[k]) / (times[k + 1] - times[k])
        return interpolate(frames[k].T_odom_base, frames[k + 1].T_odom_base, share)

    zone = UtmZone.around(LATITUDE, LONGITUDE, HEIGHT)
    origin = zone.forward(np.array([LATITUDE]), np.array([LONGITUDE]))[0]
    return Drive(list(drive_messages(frames)), pose_at, float(times[-1]), zone, origin)


def as_messages(fixes: list[GpsFix]) -> Iterator[Stamped]:
    return (Stamped(GPS, fix.stamp, gps_message(fix)) for fix in fixes)


def replay(bag: Path, out: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["replay", str(bag), "--out", str(out), "--json", *SETTINGS, *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def findings(bag: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    main(["doctor", str(bag), "--json", *options])
    return [f"{item['subject']}: {item['text']}" for item in json.loads(capsys.readouterr().out)]


RTK = SimulatedGps(rate=10.0, noise=0.05, offset=0.03, outliers=0.2, jump=(2.0, 2.5, 50.0))


def test_a_map_with_gps_is_in_utm(drive: Drive, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bag = drive.write(tmp_path / "bag", drive.imu(), as_messages(drive.fixes(RTK)))
    summary = replay(bag, tmp_path / "run", capsys)
    found = summary["georeference"]
    assert found["epsg"] == 32632
    assert (summary["chosen"]["imu_topic"], summary["chosen"]["gps_topic"]) == (IMU, GPS)
    assert np.hypot(found["east"] - drive.origin[0], found["north"] - drive.origin[1]) < 0.1
    assert abs(found["yaw_deg"] - np.degrees(YAW)) < 1.0
    assert found["fixes_outliers"] >= 10

    local, utm = (read_tum(tmp_path / "run" / name) for name in ("trajectory.txt", "trajectory_utm.txt"))
    assert len(local) == len(utm) == summary["clouds"]["used"]
    np.testing.assert_allclose(utm.positions[0, :2], drive.origin, atol=0.1)
    assert np.linalg.norm(np.diff(utm.positions[:, :2], axis=0), axis=1).sum() == pytest.approx(
        np.linalg.norm(np.diff(local.positions[:, :2], axis=0), axis=1).sum(), rel=1e-3
    )
    rasterio = pytest.importorskip("rasterio")
    with rasterio.open(tmp_path / "run" / "layers" / "elevation.tif") as raster:
        assert raster.crs.to_epsg() == 32632
        heights = [next(raster.sample([position[:2]]))[0] for position in utm.positions]
        known = np.isfinite(heights)
        assert known.mean() > 0.8
        below = utm.positions[known, 2] - np.array(heights)[known]
        assert abs(np.median(below)) < 0.3, "the robot's frame stands on the ground, in altitudes"
    report = (tmp_path / "run" / "report.html").read_text()
    assert "EPSG:32632" in report
    assert "jumps" in " ".join(summary["warnings"])


def test_bad_fixes_leave_the_map_as_it_is_and_are_named(
    drive: Drive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = drive.fixes(SimulatedGps(rate=10.0, noise=0.05, offset=0.0))
    null = [GpsFix(f.stamp, "gps", 0.0, 0.0, 0.0, None, 0) for f in good[:20]]
    lost = [GpsFix(f.stamp, "gps", f.latitude, f.longitude, 0.0, None, -1) for f in good[20:40]]
    silent = [GpsFix(f.stamp, "gps", f.latitude, f.longitude, f.altitude, None, 0) for f in good[40:46]]
    bag = drive.write(tmp_path / "bag", as_messages([*null, *lost, *silent]))
    summary = replay(bag, tmp_path / "run", capsys)
    assert summary["georeference"] is None
    assert not (tmp_path / "run" / "trajectory_utm.txt").exists()
    text = " ".join(summary["warnings"])
    assert "20 of 46 fixes are at (0, 0)" in text
    assert "20 of 46 fixes are without a fix (status -1)" in text
    assert "6 fixes do not state their covariance" in text
    assert "the map is not georeferenced: there are 6 usable GPS fixes, 8 are needed" in text
    assert any("20 of 46 fixes are at (0, 0)" in item for item in findings(bag, capsys))


def test_the_tilt_of_the_frame_is_said_by_doctor_and_replay(
    drive: Drive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = drive.write(tmp_path / "bag", drive.imu())
    found = findings(bag, capsys)
    assert any("'odom' is tilted by" in item and "by the IMU" in item for item in found)
    assert not any("axes" in item for item in found)


def test_rotated_axes_and_a_clock_of_its_own_are_named(
    drive: Drive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turned = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]) @ np.diag([1.0, -1.0, -1.0])
    bag = drive.write(tmp_path / "bag", drive.imu(R_sensor_imu=turned))
    assert any("IMU: the axes of the IMU do not match" in item for item in findings(bag, capsys))
    late = [Stamped(item.topic, item.time + 700_000_000, item.message) for item in drive.imu()]
    bag = drive.write(tmp_path / "late", late)
    assert any("/imu/data are 0.70 s behind those of" in item for item in findings(bag, capsys))


def test_topics_can_be_named_and_refused(
    drive: Drive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = drive.write(tmp_path / "bag", as_messages(drive.fixes(RTK)))
    summary = replay(bag, tmp_path / "run", capsys, "--gps", "none")
    assert summary["georeference"] is None
    assert not any("GPS" in text for text in summary["warnings"])
    assert main(["replay", str(bag), "--out", str(tmp_path / "other"), "--imu", "/gps/fix"]) == 2
    assert "is of type sensor_msgs/msg/NavSatFix, not sensor_msgs/msg/Imu" in capsys.readouterr().err


def test_an_imu_that_falls_silent_is_named(
    drive: Drive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = [item for item in drive.imu() if item.time < START + 3 * 10**9]
    bag = drive.write(tmp_path / "bag", half)
    assert any("the IMU is silent for the last" in item for item in findings(bag, capsys))
