"""gpgmap localize and gpgmap merge on recordings: what they write, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpgmap_ros.cli.main import WRONG_CALL, main
from gpgmap_ros.storage.folder_lock import FolderLock

if TYPE_CHECKING:
    import drives


def test_a_recording_is_placed_in_its_own_map(
    gpgmap, run_folder: Path, drive_bags: drives.Bags, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in sorted(run_folder.rglob("*")) if path.is_file()}
    out = tmp_path / "found"
    result = gpgmap("localize", drive_bags.sqlite, "--in", run_folder, "--out", out, "--json",
                    "--set", "localization.step=2")  # fmt: skip
    summary = json.loads(result.stdout)
    assert summary["kind"] == "localize"
    assert summary["statuses"].get("tracking", 0) > 5
    assert summary["drives"][0]["first_fix_m"] < 10.0
    assert summary["changes"][0]["status"] == "searching"
    found = np.loadtxt(out / "trajectory.txt")
    true = {round(stamp, 6): row for stamp, *row in np.loadtxt(run_folder / "trajectory.txt")}
    errors = [np.hypot(*(row[1:3] - np.array(true[round(row[0], 6)])[:2])) for row in found]
    assert max(errors) < 0.5
    header, *rows = (out / "poses.csv").read_text().splitlines()
    assert len(header.split(",")) == 48
    assert len(rows) == summary["clouds"]["used"]
    assert (out / "report.html").exists()
    assert {path: path.read_bytes() for path in sorted(run_folder.rglob("*")) if path.is_file()} == before


def test_sessions_are_replayed_with_cells_of_one_size_and_merged(
    gpgmap, drive_bags: drives.Bags, tmp_path: Path, small: list[str]
) -> None:
    """The second robot sees a twentieth of the points: its cells would be coarser, and could not be compared."""
    import drives

    thinned = [replace(frame, points=frame.points[::20]) for frame in drive_bags.frames]
    drives.write_ros2(tmp_path / "robot_b", drives.messages_of(drives.later(thinned, 500.0, 30)))
    changes = [
        part for text in small if text != "--set" and ".resolution" not in text for part in ("--set", text)
    ]
    result = gpgmap("replay", drive_bags.sqlite, tmp_path / "robot_b", "--sessions", "--out", "team", "--json",
                    *changes)  # fmt: skip
    summary = json.loads(result.stdout)
    assert [row["name"] for row in summary["sessions"]] == ["drive", "robot_b"]
    assert summary["closures"]["between_sessions"] >= 1
    cells = {json.loads((tmp_path / "team_sessions" / name / "run.json").read_text())["map"]["resolution_m"]
             for name in ("drive", "robot_b")}  # fmt: skip
    assert len(cells) == 1
    assert (tmp_path / "team" / "report.html").exists()


def test_wrong_calls_write_nothing(
    run_folder: Path, drive_bags: drives.Bags, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    bag, out = drive_bags.sqlite, tmp_path / "out"
    for arguments, text in (
        (("localize", bag, "--in", tmp_path / "empty", "--out", out), "not a run"),
        (("localize", bag, "--in", run_folder, "--out", out, "--set", "submap.resolution=3"), "cells of"),
        (("localize", bag, "--in", run_folder, "--out", out, "--set", "localization.update=true"), "merge"),
        (("merge", run_folder, "--out", out), "two runs or more"),
        (("merge", run_folder, run_folder, "--out", out), "named twice"),
        (("merge", run_folder, tmp_path / "empty", "--out", run_folder), "one of the runs"),
        (("replay", bag, "--sessions", "--out", out), "two recordings or more"),
    ):
        assert main(list(map(str, arguments))) == WRONG_CALL
        assert text in capsys.readouterr().err
        assert not out.exists()


def test_a_run_that_is_being_written_is_neither_read_nor_changed(
    run_folder: Path, drive_bags: drives.Bags, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with FolderLock(run_folder, "another program"):
        for arguments in (
            ("localize", drive_bags.sqlite, "--in", run_folder, "--out", out),
            ("merge", run_folder, tmp_path, "--out", out),
        ):
            assert main(list(map(str, arguments))) == WRONG_CALL
            assert "being written by another program" in capsys.readouterr().err
            assert not out.exists()
