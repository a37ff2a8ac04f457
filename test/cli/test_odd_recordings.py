"""Recordings with something wrong: one line with file, cause and remedy, or the words of `gpgmap doctor`."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import drives
import numpy as np
import pytest
from rosbags.typesys import Stores, get_typestore
from scipy.spatial.transform import Rotation

from gpgmap_ros.demo.drive import sensor_mount
from gpgmap_ros.demo.recording import POINTS_TOPIC
from gpgmap_ros.geometry import apply
from gpgmap_ros.io.bags import Stamped


def one_line(result: Any) -> str:
    (line,) = result.stderr.strip().splitlines()
    assert "Traceback" not in line
    return line


def heights_by_place(run: Path) -> dict[tuple[int, int], float]:
    """Heights of the known cells of a run, by their column and row from the origin of the frame."""
    with np.load(run / "map.npz") as stored:
        heights = stored["elevation"]
        column, row = np.round(stored["origin"] / stored["resolution"]).astype(int)
    return {
        (column + x, row + y): float(heights[y, x]) for y, x in np.argwhere(np.isfinite(heights)).tolist()
    }


# -- what can't be mapped --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["zero.mcap", "zero.db3", "zero.bag"])
def test_a_file_of_no_length(gpgmap, tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert f"{name}: is empty (0 bytes)" in one_line(gpgmap("replay", name, code=1))


def test_a_folder_with_only_its_metadata(gpgmap, drive_bags, tmp_path: Path) -> None:
    (tmp_path / "copied").mkdir()
    shutil.copy(drive_bags.sqlite / "metadata.yaml", tmp_path / "copied")
    said = one_line(gpgmap("replay", "copied", code=1))
    assert "copied: there is only metadata.yaml in it: copy the .mcap or .db3 files" in said


def test_a_topic_on_which_nothing_was_recorded(gpgmap, tmp_path: Path) -> None:
    writer = drives.Ros2Writer(tmp_path / "silent", version=9)
    with writer:
        writer.add_connection(
            "/points", "sensor_msgs/msg/PointCloud2", typestore=get_typestore(Stores.ROS2_JAZZY)
        )
    said = one_line(gpgmap("replay", "silent", code=2))
    assert "silent: no cloud was recorded on /points: was the driver running" in said


def test_a_recording_without_clouds(gpgmap, drive_bags, tmp_path: Path) -> None:
    drives.write_ros2(
        tmp_path / "poses", [m for m in drives.messages_of(drive_bags.frames) if m.topic != POINTS_TOPIC]
    )
    said = one_line(gpgmap("replay", "poses", code=2))
    assert "poses: there are no point clouds" in said
    assert "/tf (tf2_msgs/msg/TFMessage)" in said


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--topic", "/nope"], "/nope is not in the recording; clouds are on /lidar/points"),
        (["--topic", "/tf"], "/tf is of type tf2_msgs/msg/TFMessage"),
        (["--odom", "/nope"], "/nope is not in the recording; poses are on no topic"),
        (["--map-frame", "nope"], "'nope' is not above 'lidar': frames are odom"),
    ],
)
def test_names_that_are_not_in_it(gpgmap, drive_bags, tmp_path: Path, options: list[str], text: str) -> None:
    said = one_line(gpgmap("replay", drive_bags.sqlite, *options, "--out", "out", code=2))
    assert f"{drive_bags.sqlite}: {text}" in said
    assert not (tmp_path / "out").exists()


# -- what is mapped, and may be wrong: the same words in doctor, on the terminal, in run.json and in the report ----


def found_everywhere(
    gpgmap, bag: str, quick: list[str], folder: Path, status: str, subject: str = ""
) -> dict[str, Any]:
    """Of doctor's findings of a status about `bag`, the one; replay says it too, wherever it says something."""
    told = json.loads(gpgmap("doctor", bag, "--json", *quick, code=None).stdout)
    installed = {item["subject"] for item in json.loads(gpgmap("doctor", "--json").stdout)}
    (finding,) = [
        item
        for item in told
        if item["status"] == status and item["subject"] not in installed and subject in ("", item["subject"])
    ]
    said = gpgmap("replay", bag, "--out", "out", *quick).stdout
    summary = json.loads((folder / "out" / "run.json").read_text())
    report = (folder / "out" / "report.html").read_text()
    assert finding in summary["findings"]
    sentence = f"{finding['text']}; {finding['remedy']}"
    assert sentence in summary["warnings"]
    assert re.search(rf"warning +{re.escape(sentence)}", said)
    assert json.dumps(sentence).replace("<", "\\u003c") in report
    return finding


@pytest.mark.parametrize("command", ["replay", "doctor"])
def test_a_second_topic_is_not_dropped_without_a_word(gpgmap, command: str) -> None:
    said = gpgmap(command, "bag", "--topic", "/front", "--topic", "/rear", code=2).stderr
    assert "argument --topic: /front and /rear: only one can be given" in said


@pytest.mark.parametrize("poses", ["tf", "odometry"])
def test_registered_clouds_are_not_moved_once_more(
    gpgmap, quick, quick_folder: Path, drive_bags, tmp_path: Path, poses: str
) -> None:
    """Programs for odometry publish scans in the frame of their poses: the same ground comes of them."""
    frames = [
        replace(frame, points=apply(frame.T_odom_base @ sensor_mount(), frame.points))
        for frame in drive_bags.frames
    ]
    messages = drives.messages_of(frames)
    for item in messages:
        if item.topic == POINTS_TOPIC:
            item.message.header.frame_id = "odom"
    if poses == "odometry":
        messages = [item for item in drives.odometry_messages(frames, messages) if item.topic != "/tf_static"]
    drives.write_ros2(tmp_path / "registered", messages)
    said = gpgmap("replay", "registered", "--out", "out", *quick).stdout
    assert "the clouds are in the frame of the poses, 'odom', already: rays begin at 'base_link'" in said
    found, expected = heights_by_place(tmp_path / "out"), heights_by_place(quick_folder)
    both = found.keys() & expected.keys()
    assert len(both) > 0.9 * len(expected)
    assert np.median([abs(found[place] - expected[place]) for place in both]) < 0.01


def test_frames_without_names(gpgmap, quick, drive_bags, tmp_path: Path) -> None:
    """The cloud's and the odometry's are not one because both are empty."""
    frames = drive_bags.frames[:6]
    messages = [
        item
        for item in drives.odometry_messages(frames, drives.messages_of(frames))
        if item.topic != "/tf_static"
    ]
    for item in messages:
        item.message.header.frame_id = ""
    drives.write_ros2(tmp_path / "nameless", messages)
    summary = json.loads(gpgmap("replay", "nameless", "--json", *quick).stdout)
    assert summary["clouds"]["used"] >= 5
    assert "the sensor is taken to be at 'base_link'" in summary["warnings"][0]


def test_odometry_in_the_axes_of_a_camera_is_named(gpgmap, drive_bags, tmp_path: Path) -> None:
    lying = np.eye(4)
    lying[:3, :3] = Rotation.from_euler("x", 90.0, degrees=True).as_matrix()
    frames = [replace(frame, T_odom_base=lying @ frame.T_odom_base) for frame in drive_bags.frames[:6]]
    drives.write_ros2(tmp_path / "lying", drives.odometry_messages(frames, drives.messages_of(frames)))
    told = json.loads(gpgmap("doctor", "lying", "--json", code=None).stdout)
    (tilted,) = [item for item in told if item["subject"] == "frame"]
    assert f"{drives.ODOMETRY} has another, such as that of a camera" in tilted["remedy"]


def test_poses_that_begin_long_after_the_recorder_are_found(gpgmap, drive_bags, tmp_path: Path) -> None:
    static, *rest = drives.messages_of(drive_bags.frames)
    drives.write_ros2(tmp_path / "early", [replace(static, time=static.time - 30 * 10**9), *rest])
    told = json.loads(gpgmap("doctor", "early", "--json", code=None).stdout)
    assert any(item["text"].startswith("poses from /tf (odom <- base_link") for item in told)


def test_a_map_without_ground_is_a_failure(gpgmap, quick, drive_bags, tmp_path: Path) -> None:
    """Such as of coordinates in millimetres."""
    frames = [replace(frame, points=1000.0 * frame.points) for frame in drive_bags.frames[:3]]
    drives.write_ros2(tmp_path / "millimetres", drives.messages_of(frames))
    said = gpgmap("replay", "millimetres", *quick, code=1).stderr
    assert "no map: all points are outside" in said
    assert "coordinates must be in metres" in said


def test_a_tilted_frame_is_said(gpgmap, quick, drive_bags, tmp_path: Path) -> None:
    tilt = np.eye(4)
    tilt[:3, :3] = Rotation.from_euler("x", 40.0, degrees=True).as_matrix()
    frames = [replace(frame, T_odom_base=tilt @ frame.T_odom_base) for frame in drive_bags.frames]
    drives.write_ros2(tmp_path / "tilted", drives.messages_of(frames))
    finding = found_everywhere(gpgmap, "tilted", quick, tmp_path, "wrong")
    assert finding["text"].startswith("the robot is tilted by 4")
    assert "gravity-aligned" in finding["remedy"]


def with_times(item: Stamped, duration: float = 0.1, missing: int = 0) -> Stamped:
    """A cloud whose points have a time each, as a driver of a spinning LiDAR writes them.

    duration: negative where the stamp is that of the last point; missing: each of so many points has none (NaN)
    """
    cloud = item.message
    types = get_typestore(Stores.ROS2_JAZZY).types
    xyz = np.asarray(cloud.data).reshape(-1, 12)
    seconds = np.linspace(0.0, duration, len(xyz), dtype="<f4")
    if missing:
        seconds[::missing] = np.nan
    times = seconds.view(np.uint8).reshape(-1, 4)
    field = types["sensor_msgs/msg/PointField"](name="time", offset=12, datatype=7, count=1)
    changed = replace(
        cloud, fields=[*cloud.fields, field], point_step=16, row_step=16 * len(xyz),
        data=np.ascontiguousarray(np.hstack([xyz, times])).reshape(-1),
    )  # fmt: skip
    return replace(item, message=changed)


def write_timed(path: Path, frames: list[drives.Frame], duration: float = 0.1, missing: int = 0) -> None:
    messages = drives.messages_of(frames)
    drives.write_ros2(
        path, [with_times(m, duration, missing) if m.topic == POINTS_TOPIC else m for m in messages]
    )


def test_clouds_are_deskewed_and_those_whose_motion_is_unknown_are_said(
    gpgmap, quick, drive_bags, tmp_path: Path
) -> None:
    """The poses end with the last cloud, while its points go on."""
    write_timed(tmp_path / "moving", drive_bags.frames)
    finding = found_everywhere(gpgmap, "moving", quick, tmp_path, "note")
    count = len(drive_bags.frames)
    assert finding["text"].startswith(f"1 of {count} clouds are not deskewed")
    summary = json.loads((tmp_path / "out" / "run.json").read_text())
    assert summary["clouds"]["used"] == count
    assert summary["deskewing"] == {"deskewed": count - 1, "not_deskewed": 1, "unusable_times": 0}


def test_times_that_cannot_be_used_are_said(gpgmap, quick, drive_bags, tmp_path: Path) -> None:
    write_timed(tmp_path / "constant", drive_bags.frames, duration=0.0)
    finding = found_everywhere(gpgmap, "constant", quick, tmp_path, "note")
    count = len(drive_bags.frames)
    assert f"can't be used in {count} of {count} clouds: all points have the same time" in finding["text"]
    summary = json.loads((tmp_path / "out" / "run.json").read_text())
    assert summary["clouds"]["used"] == count
    assert summary["deskewing"] == {"deskewed": 0, "not_deskewed": 0, "unusable_times": count}


def test_times_in_a_wrong_unit_are_said_and_not_used(gpgmap, quick, drive_bags, tmp_path: Path) -> None:
    """Ten times too long: they look like a scan, but the next cloud begins before it would end."""
    write_timed(tmp_path / "unit", drive_bags.frames, duration=1.0)
    finding = found_everywhere(gpgmap, "unit", quick, tmp_path, "note")
    count = len(drive_bags.frames)
    assert f"can't be used in {count - 1} of {count} clouds: they span 1 s" in finding["text"]
    summary = json.loads((tmp_path / "out" / "run.json").read_text())
    assert summary["clouds"]["used"] == count
    assert summary["deskewing"] == {"deskewed": 1, "not_deskewed": 0, "unusable_times": count - 1}


def test_times_may_decrease_and_single_points_may_have_none(
    gpgmap, quick, drive_bags, tmp_path: Path
) -> None:
    write_timed(tmp_path / "decreasing", drive_bags.frames, duration=-0.1, missing=7)
    finding = found_everywhere(gpgmap, "decreasing", quick, tmp_path, "note")
    count = len(drive_bags.frames)
    assert finding["text"].startswith(f"1 of {count} clouds are not deskewed"), (
        "the first: no pose is before it"
    )
    summary = json.loads((tmp_path / "out" / "run.json").read_text())
    assert summary["deskewing"] == {"deskewed": count - 1, "not_deskewed": 1, "unusable_times": 0}
    sizes = [len(frame.points) for frame in drive_bags.frames[1:]]
    assert summary["points"]["not_finite"] == sum(-(-size // 7) for size in sizes)
    report = (tmp_path / "out" / "report.html").read_text()
    assert f"{count - 1} of {count} clouds with times (1 motion not known)" in report


def test_a_fast_sensor_without_times_is_said(gpgmap, quick, drive_bags, tmp_path: Path) -> None:
    drives.write_ros2(tmp_path / "fast", drives.messages_of(drive_bags.frames))
    finding = found_everywhere(gpgmap, "fast", quick, tmp_path, "note")
    assert finding["text"].startswith("the points have no time field, and in 0.1 s the sensor moves by")
    assert "undistort" in finding["remedy"]


def test_times_of_points_do_not_matter_where_the_sensor_stands(gpgmap, drive_bags, tmp_path: Path) -> None:
    stands = [replace(frame, T_odom_base=drive_bags.frames[0].T_odom_base) for frame in drive_bags.frames]
    write_timed(tmp_path / "standing", stands)
    assert "deskewed" not in gpgmap("doctor", "standing").stdout


def test_a_missing_mount_is_said(gpgmap, quick, drive_bags, tmp_path: Path) -> None:
    messages = drives.odometry_messages(drive_bags.frames, drives.messages_of(drive_bags.frames))
    drives.write_ros2(tmp_path / "unmounted", [m for m in messages if m.topic != "/tf_static"])
    finding = found_everywhere(gpgmap, "unmounted", quick, tmp_path, "note", "choice")
    assert finding["text"] == (
        "no transform leads from 'base_link' to 'lidar': the sensor is taken to be at 'base_link'"
    )


# -- run folders that are damaged ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[" * 200_000, "nested too deeply"),
        ('{"kind": ' * 50_000, "nested too deeply"),
        ('{"kind": "replay", "way_m": NaN}', "NaN is not a number"),
        ('{"kind": "replay", "way_m": -Infinity}', "-Infinity is not a number"),
        ('{"kind": "replay", "way_m": ' + "9" * 5000 + "}", "damaged"),
        ("[1, 2]", "does not say what kind of run"),
        ('{"kind": 7}', "does not say what kind of run"),
        ("", "damaged"),
        ("\udcff\udcfe", "damaged"),
    ],
)
def test_a_damaged_summary_is_named_in_one_line(
    gpgmap, run_folder, tmp_path: Path, text: str, cause: str
) -> None:
    shutil.copytree(run_folder, tmp_path / "run")
    (tmp_path / "run" / "run.json").write_bytes(text.encode(errors="surrogateescape"))
    said = one_line(gpgmap("evaluate", "run", "--truth", run_folder / "odometry.txt", code=1))
    assert said.startswith("gpgmap evaluate: run/run.json: ")
    assert cause in said
    assert len(said) < 300


@pytest.mark.parametrize(
    "change",
    [{"a": "0"}, {"accepted": 1}, {"T_a_b": [[1, 2], [3]]}, {"T_a_b": [[1e400] * 4] * 4}, {"T_a_b": None}],
)
def test_a_damaged_comparison_is_named_in_one_line(gpgmap, run_folder, tmp_path: Path, change: dict) -> None:
    shutil.copytree(run_folder, tmp_path / "run")
    row = {"a": 0, "b": 1, "accepted": True, "T_a_b": np.eye(4).tolist()} | change
    (tmp_path / "run" / "closures.json").write_text(json.dumps([row]))
    said = one_line(gpgmap("evaluate", "run", "--truth", run_folder / "odometry.txt", code=1))
    assert said.startswith("gpgmap evaluate: run/closures.json: damaged: ")
