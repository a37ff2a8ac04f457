"""gpgmap replay, as a user calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import drives
import numpy as np
import pytest
from fast_mapping import FAST
from limits import PATIENCE
from scipy.spatial.transform import Rotation

from gpgmap_ros.apps.replay import Replay
from gpgmap_ros.apps.topic_selection import TopicRequest, select_topics
from gpgmap_ros.closure import LoopCloser, LoopClosure
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.demo.drive import start_pose
from gpgmap_ros.geometry import apply
from gpgmap_ros.io.recordings import Recording
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.io.trajectory import read_tum
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.slam import MappingPipeline
from gpgmap_ros.slam.closure_server import ClosureServer


def elevation(folder: Path) -> np.ndarray:
    return np.load(folder / "map.npz")["elevation"]


def test_a_run_folder_has_everything(run_folder: Path) -> None:
    for name in (
        "config.yaml",
        "trajectory.txt",
        "odometry.txt",
        "closures.g2o",
        "closures.json",
        "report.html",
    ):
        assert (run_folder / name).stat().st_size > 0, name
    for name in ("elevation", "variance", "gradient_magnitude", "slope"):
        assert (run_folder / "layers" / f"{name}.tif").read_bytes()[:2] == b"II"
    assert (run_folder / "layers" / "elevation.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((run_folder / "submaps").glob("submap_*.npz"))) >= 3
    summary = json.loads((run_folder / "run.json").read_text())
    assert summary["status"] == "complete"
    assert summary["clouds"] == {"read": drives.CLOUDS, "used": drives.CLOUDS, "dropped": {}}
    assert not list(run_folder.rglob("*.new"))


def test_the_map_is_the_ground(run_folder: Path, drive_bags: drives.Bags) -> None:
    gpgmap, _ = RunFolder(run_folder).read_map()
    iy, ix = np.nonzero(gpgmap.known)
    T = start_pose(drive_bags.terrain)
    world = apply(T, np.column_stack([gpgmap.grid.x[ix], gpgmap.grid.y[iy], gpgmap["elevation"][iy, ix]]))
    error = world[:, 2] - drive_bags.terrain.height_at(world[:, 0], world[:, 1])
    assert len(error) > 5000
    assert np.sqrt(np.mean(error**2)) < 0.1


def test_the_trajectory_is_that_of_the_recording(run_folder: Path, drive_bags: drives.Bags) -> None:
    trajectory = read_tum(run_folder / "odometry.txt")
    truth = np.array([frame.T_odom_base for frame in drive_bags.frames])
    assert np.abs(trajectory.positions - truth[:, :3, 3]).max() < 1e-6
    turn = Rotation.from_matrix(trajectory.poses[:, :3, :3]) * Rotation.from_matrix(truth[:, :3, :3]).inv()
    assert turn.magnitude().max() < 1e-6
    assert np.diff(trajectory.stamps).tolist() == [250_000_000] * (drives.CLOUDS - 1)


@pytest.mark.parametrize("kind", ["mcap", "compressed", "ros1", "odometry", "file"])
def test_every_format_gives_the_same_map(gpgmap, quick, quick_folder, drive_bags, tmp_path, kind) -> None:
    bag = next(drive_bags.sqlite.glob("*.db3")) if kind == "file" else getattr(drive_bags, kind)
    summary = json.loads(gpgmap("replay", bag, "--out", "out", "--json", *quick).stdout)
    assert summary["clouds"]["used"] == drives.CLOUDS
    assert summary["losses"] == []
    same = np.abs(elevation(tmp_path / "out") - elevation(quick_folder))
    # poses are written with nine digits; all else is the same
    assert np.nanmax(same) < 1e-3
    expected = "odometry" if kind == "odometry" else "tf"
    assert summary["chosen"]["pose_source"] == expected


def test_several_files_are_one_drive(gpgmap, quick, drive_bags, tmp_path) -> None:
    messages = list(drives.drive_messages(drive_bags.frames))
    half = drives.START + round(drives.CLOUDS / 2 * drives.PERIOD * 1e9)
    drives.write_ros2(tmp_path / "a", [item for item in messages if item.time < half])
    drives.write_ros2(
        tmp_path / "b", [item for item in messages if item.time >= half], drives.StoragePlugin.MCAP
    )
    summary = json.loads(gpgmap("replay", "a", "b", "--out", "out", "--json", *quick).stdout)
    assert summary["clouds"]["used"] == drives.CLOUDS


def test_what_was_chosen_is_said(gpgmap, quick, drive_bags) -> None:
    said = gpgmap("replay", drive_bags.sqlite, *quick, "--to", 2).stdout
    assert "clouds from /lidar/points (24 messages, the only topic with clouds)" in said
    assert "poses from /tf (odom <- base_link <- lidar)" in said
    assert "drive_gpgmap/report.html" in said


def test_candidates_are_listed_where_it_is_not_clear(gpgmap, drive_bags, tmp_path) -> None:
    result = gpgmap("replay", drive_bags.two_clouds, "--out", "out", code=2)
    assert "several topics have clouds, choose one with --topic" in result.stderr
    assert "/other/points (24 clouds of" in result.stderr
    assert "/lidar/points (24 clouds of" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_topic_that_is_not_there_is_refused(gpgmap, drive_bags) -> None:
    result = gpgmap("replay", drive_bags.sqlite, "--topic", "/velodyne_points", code=2)
    assert "/velodyne_points is not in the recording; clouds are on /lidar/points" in result.stderr


def test_without_poses_lidar_odometry_is_used_and_said(gpgmap, quick, drive_bags, tmp_path) -> None:
    drives.write_ros2(tmp_path / "bare", drives.clouds_alone(drive_bags.frames))
    result = gpgmap("replay", "bare", "--out", "out", *quick, code=None)
    said = result.stdout + result.stderr
    assert "poses by LiDAR odometry: there is no moving /tf above 'lidar' and no odometry" in said
    assert json.loads((tmp_path / "out" / "run.json").read_text())["clouds"]["used"] >= 1


def test_a_part_of_the_recording(gpgmap, quick, drive_bags) -> None:
    # static transforms are at the beginning: they must count all the same
    summary = json.loads(
        gpgmap("replay", drive_bags.sqlite, "--from", 2, "--to", 4, "--out", "out", "--json", *quick).stdout
    )
    assert summary["clouds"]["read"] == summary["clouds"]["used"] == 8
    result = gpgmap("replay", drive_bags.sqlite, "--from", 60, code=2)
    assert "the recording is only 5.8 s long" in result.stderr


@pytest.mark.parametrize(("kind", "share"), [("mcap", 0.6), ("ros1", 0.6), ("sqlite", 0.6)])
def test_a_recording_that_was_cut_off_is_used_as_far_as_it_goes(
    gpgmap, quick, drive_bags, tmp_path, kind, share
):
    bag = drives.cut(getattr(drive_bags, kind), tmp_path / f"cut{'.bag' if kind == 'ros1' else ''}", share)
    summary = json.loads(gpgmap("replay", bag, "--out", "out", "--json", *quick).stdout)
    assert 5 <= summary["clouds"]["used"] < drives.CLOUDS
    said = "it ends or is damaged after" if kind == "sqlite" else "it ends within a record"
    assert any(said in text for text in summary["losses"])
    assert said in (tmp_path / "out" / "report.html").read_text()


def test_a_damaged_stretch_is_left_out(gpgmap, quick, drive_bags, tmp_path) -> None:
    """The chunk that can't be unpacked is left out, those after it are used."""
    messages = list(drives.drive_messages(drive_bags.frames))
    drives.write_ros2(tmp_path / "bag", messages, drives.StoragePlugin.MCAP, drives.CompressionMode.STORAGE)
    file = next((tmp_path / "bag").glob("*.mcap"))
    data = bytearray(file.read_bytes())
    frame = data.find(b"\x28\xb5\x2f\xfd", len(data) // 2)  # where a chunk's compressed data begin
    data[frame : frame + 64] = bytes(64)
    file.write_bytes(data)
    summary = json.loads(gpgmap("replay", "bag", "--out", "out", "--json", *quick).stdout)
    assert any("damaged" in text for text in summary["losses"])
    assert 5 <= summary["clouds"]["used"] < drives.CLOUDS
    last = read_tum(tmp_path / "out" / "odometry.txt").stamps[-1]
    assert last > drives.START + round((drives.CLOUDS - 6) * drives.PERIOD * 1e9)


def test_a_file_that_is_no_bag(gpgmap, tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("no bag")
    (tmp_path / "empty").mkdir()
    (tmp_path / "rubbish.mcap").write_bytes(b"rubbish" * 100)
    assert "not a bag: expected a folder" in gpgmap("replay", "notes.txt", code=1).stderr
    assert "there is no metadata.yaml" in gpgmap("replay", "empty", code=1).stderr
    assert "it is not an MCAP file" in gpgmap("replay", "rubbish.mcap", code=1).stderr
    assert "no such file or folder" in gpgmap("replay", "nowhere", code=1).stderr


def test_settings_are_checked_before_anything_is_written(gpgmap, drive_bags, tmp_path) -> None:
    result = gpgmap("replay", drive_bags.sqlite, "--out", "out", "--set", "mapping.resolutoin=0.2", code=2)
    assert "did you mean 'mapping.resolution'?" in result.stderr
    result = gpgmap("replay", drive_bags.sqlite, "--out", "out", "--set", "mapping.resolution=-1", code=2)
    assert "outside [0.001, 100.0] m" in result.stderr
    result = gpgmap("replay", drive_bags.sqlite, "--out", "out", "--set", "mapping.resolution", code=2)
    assert "expected NAME=VALUE" in result.stderr
    assert not (tmp_path / "out").exists()


def test_effective_settings_are_kept(gpgmap, drive_bags, quick, tmp_path) -> None:
    gpgmap("replay", drive_bags.sqlite, "--out", "out", *quick, "--to", 1, "--set", "mapping.resolution=0.2")
    config = RunFolder(tmp_path / "out").read_config()
    assert config.mapping.resolution == 0.2
    assert config.points_topics == ("/lidar/points",)
    assert config.map_frame == "odom"
    # and they can be used again
    gpgmap("replay", drive_bags.sqlite, "--out", "again", "--config", "out/config.yaml", "--to", 1)
    assert np.array_equal(elevation(tmp_path / "out"), elevation(tmp_path / "again"), equal_nan=True)


def test_other_peoples_files_are_left_alone(gpgmap, drive_bags, tmp_path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")
    result = gpgmap("replay", drive_bags.sqlite, "--out", "thesis", "--overwrite", code=2)
    assert "contains other files" in result.stderr
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "mine"


def test_interrupted_it_keeps_what_is_there(executables, drive_bags, quick, tmp_path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [
            str(executables / "gpgmap"),
            "replay",
            str(drive_bags.sqlite),
            "--out",
            str(out),
            "--rate",
            "0.5",
            *quick,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    try:
        deadline = time.monotonic() + PATIENCE
        while not list(out.glob("submaps/submap_*.npz")):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said, complaint = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 130, complaint
    assert "interrupted" in complaint
    assert "report.html" in said
    summary = json.loads((out / "run.json").read_text())
    assert summary["status"] == "interrupted"
    assert 0 < summary["clouds"]["used"] < drives.CLOUDS
    assert np.isfinite(elevation(out)).any()
    assert "interrupted" in (out / "report.html").read_text()
    assert not list(out.rglob("*.new"))


def test_the_real_loop(gpgmap, data_folder) -> None:
    summary = json.loads(
        gpgmap(
            "replay", data_folder / "bag_nclt_loop", "--out", "out", "--json", "--to", 60,
            "--set", "mapping.resolution=0.5", "--set", "mapping.length_scale=1.5", "--set", "submap.size=40",
            "--set", "submap.max_distance=20",
        ).stdout
    )  # fmt: skip
    assert summary["clouds"]["used"] == summary["clouds"]["read"] == 61
    assert summary["chosen"]["topic"] == "/points"
    assert summary["submaps"] >= 4
    assert summary["map"]["known_m2"] > 2000.0


def test_the_real_recording_of_a_standing_sensor(gpgmap, data_folder) -> None:
    bag = data_folder / "bag_os1_2scans"
    found = gpgmap("replay", bag, "--out", "odometry", code=None)
    assert "(--still if the sensor did not move)" in found.stdout + found.stderr
    summary = json.loads(gpgmap("replay", bag, "--still", "--out", "out", "--json").stdout)
    assert summary["clouds"]["used"] == 2
    assert summary["points"]["points"] > 80_000


MAX_BEHIND = 5


def test_the_mapping_waits_where_submaps_pile_up(drive_bags, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons that take longer than mapping must not fill the memory with submaps; none is lost, in their order."""
    config = with_settings(Config(), {"mapping.size_x": 8.0, "mapping.size_y": 8.0, "mapping.length_scale": 0.6,
                                      "filter.max_range": 6.0, "submap.size": 6.0, "submap.max_distance": 0.3, **FAST,
                                      "closure.min_path": 1000.0})  # fmt: skip
    ended: list[str] = []
    closed: list[int] = []

    def slow(self: LoopCloser, submap: Submap) -> list[LoopClosure]:
        time.sleep(0.2)
        closed.append(submap.id)
        return []

    def end(self: MappingPipeline, ended_by: str) -> object:
        ended.append(ended_by)
        return end_submap(self, ended_by)

    end_submap = MappingPipeline.end_submap
    monkeypatch.setattr(MappingPipeline, "end_submap", end)
    monkeypatch.setattr(LoopCloser, "add", slow)
    monkeypatch.setattr(ClosureServer, "_add", lambda self, request, began: self.closer.add(request.submap))
    with Recording([drive_bags.sqlite]) as recording:
        choice = select_topics(recording, TopicRequest(), config.map_frame, config.base_frame)
        replay = Replay(recording, choice, config)
        behind = []
        finished: list[Submap] = []
        for step in replay.steps():
            finished += step.submaps
            behind.append(len(ended) - len(closed))
        finished += replay.end()[0]
    # one that is compared and one that waits for it, one that is handed over, one that is solved or waits
    assert 3 <= max(behind) <= MAX_BEHIND
    assert closed == list(range(len(closed)))
    assert [item.id for item in finished] == closed
    assert len(closed) > 2 * MAX_BEHIND
