"""Runs that share ground come into one frame; those that share none stay apart, and are named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from saved_runs import CONFIG, StraightDrive, save_run

from gpgmap_ros.apps.merge import check_output, write_merge
from gpgmap_ros.config import with_settings
from gpgmap_ros.geometry import inverse
from gpgmap_ros.io.run_folder import RunFolder
from gpgmap_ros.slam import Session, SessionError, merge
from gpgmap_ros.slam.merging import Merged, lone_probability

A = StraightDrive((60.0, 60.0), 0.0, 33.0, seed=1)
B = StraightDrive(
    (98.0, 64.0), np.pi, 33.0, seed=2, first_stamp=A.first_stamp
)  # another robot, the same clock
ELSEWHERE = StraightDrive((60.0, 60.0), 0.0, 17.0, seed=3, world=9)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    for name, drive in (("a", A), ("b", B), ("elsewhere", ELSEWHERE)):
        (folder / name).mkdir()
        save_run(folder / name, drive)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def merged(runs: dict[str, Path]) -> Merged:
    return merge([runs["a"], runs["elsewhere"], runs["b"]])


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_runs_that_share_ground_are_in_one_frame(merged: Merged) -> None:
    assert [member.name for member in merged.members] == ["a", "b"]
    a, b = merged.members
    T_a, T_b = (merged.closer.pose(member.ids[0]) for member in (a, b))
    truth = inverse(A.pose(0.0)) @ B.pose(0.0)
    found = inverse(T_a) @ T_b
    # b drove a's way back: closures tie them, and what is left is the bend of both odometries
    assert np.hypot(*(found - truth)[:2, 3]) < 2.0
    alone = inverse(a.session.poses[0]) @ b.session.poses[0]
    assert np.hypot(*(alone - truth)[:2, 3]) > 20.0


def test_a_run_that_shares_nothing_stays_apart(merged: Merged) -> None:
    assert [member.name for member in merged.apart] == ["elsewhere"]
    assert len(merged.closer.nodes) == sum(len(member.ids) for member in merged.members)


def test_drives_of_one_clock_are_told_apart(merged: Merged) -> None:
    a, b = ({merged.closer.node(id).drive for id in member.ids.values()} for member in merged.members)
    assert not a & b
    assert min(a | b) > 0


def test_the_result_is_a_run_that_can_be_used_again(
    runs: dict[str, Path], merged: Merged, tmp_path: Path
) -> None:
    before = {name: files_in(path) for name, path in runs.items()}
    summary = write_merge(tmp_path / "both", merged, lambda stage: None)
    folder = RunFolder(tmp_path / "both")
    assert summary["closures"]["between_sessions"] >= 2
    assert [row["name"] for row in summary["sessions"]] == ["a", "b"]
    assert len({row["colour"] for row in summary["sessions"]}) == 2
    assert any("elsewhere shares no ground" in text for text in summary["warnings"])
    page = folder.report.read_text()
    assert all(row["colour"] in page for row in summary["sessions"])
    gpgmap, _ = folder.read_map()
    assert gpgmap.known.any()
    assert len(folder.read_trajectory()) > 50
    again = Session.load(folder.path)
    assert again.ids == frozenset(id for member in merged.members for id in member.ids.values())
    for id, T in again.poses.items():
        assert np.allclose(T, merged.closer.pose(id), atol=1e-6)
    assert {name: files_in(path) for name, path in runs.items()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["both"]


def test_what_can_not_be_merged_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="two runs or more"):
        merge([runs["a"]])
    with pytest.raises(SessionError, match="named twice"):
        merge([runs["a"], runs["a"]])
    with pytest.raises(SessionError, match=r"no two of the runs share ground.*: a, elsewhere"):
        merge([runs["a"], runs["elsewhere"]])
    coarse = with_settings(CONFIG, {"submap.resolution": 1.0})
    (tmp_path / "coarse").mkdir()
    save_run(tmp_path / "coarse", StraightDrive((60.0, 60.0), 0.0, 9.0, seed=1), coarse)
    with pytest.raises(SessionError, match=r"cells of 0\.5 m, those of .* of 1 m"):
        merge([runs["a"], tmp_path / "coarse"])


def test_nothing_is_overwritten(runs: dict[str, Path], tmp_path: Path) -> None:
    assert "one of the runs to merge" in check_output(runs["a"], [runs["a"], runs["b"]], True)
    (tmp_path / "notes.txt").write_text("mine")
    assert "contains other files" in check_output(tmp_path, [], True)
    (tmp_path / "run.json").write_text("{}")
    assert "earlier run" in check_output(tmp_path, [], False)
    assert check_output(tmp_path, [], True) == ""
    assert check_output(tmp_path / "new", [], False) == ""


def test_a_merge_that_is_killed_leaves_nothing_by_that_name(runs: dict[str, Path], tmp_path: Path) -> None:
    before = {name: files_in(path) for name, path in runs.items()}
    code = (
        "import sys, time; from pathlib import Path; from gpgmap_ros.slam import merge;"
        " from gpgmap_ros.apps.merge import write_merge;"
        " stop = lambda stage: (print(stage, flush=True), time.sleep(600) if stage == 'map' else None);"
        " write_merge(Path(sys.argv[1]), merge(sys.argv[2:]), stop)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "both"), str(runs["a"]), str(runs["b"])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.strip() == "map":
                break
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert not (tmp_path / "both").exists()
    assert {name: files_in(path) for name, path in runs.items()} == before


def test_a_lone_closure_counts_less_the_more_was_compared() -> None:
    assert np.isclose(lone_probability(0.98, 10), 0.98)
    assert np.isclose(lone_probability(0.98, 40), 0.98)
    assert lone_probability(0.98, 400) < 0.95 < lone_probability(0.999, 400)
