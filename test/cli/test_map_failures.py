"""`gpgmap map` where something is wrong: one line with the file, the cause and the remedy; nothing hangs or is lost."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from fast_mapping import FAST, options
from limits import PATIENCE
from terminal import on_terminal

from gpgmap_ros.cli.common import UsageError, output_folder
from gpgmap_ros.storage.folder_lock import LOCK_FILE

SETTINGS = options({**FAST, "mapping.resolution": 1})


@pytest.fixture
def survey(hills: np.ndarray, tmp_path: Path) -> Path:
    np.savez(tmp_path / "survey.npz", xyz=hills[:20_000])
    return tmp_path / "survey.npz"


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """What a failed command said, without the progress bars."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("gpgmap")]
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return lines[0]


def test_one_point_far_away_is_named_and_left_out(gpgmap, hills: np.ndarray, tmp_path: Path) -> None:
    far = np.vstack([hills, [[505_000.0, 4_005_000.0, 250.0], [np.nan, 1.0, 1.0]]])
    np.savez(tmp_path / "far.npz", xyz=far)
    summary = json.loads(gpgmap("map", "far.npz", "--out", "out", "--json", *SETTINGS).stdout)
    assert summary["points"]["used"] == len(hills)
    assert max(summary["map"]["cells"]) == 40
    said = " ".join(summary["warnings"])
    assert "1 point lies far from all others (x 505000.0 y 4005000.0)" in said
    assert "1 points have no usable coordinates" in said


def test_one_absurd_height_is_named_and_left_out(gpgmap, hills: np.ndarray, tmp_path: Path) -> None:
    stray = np.array([[hills[:, 0].mean(), hills[:, 1].mean(), 1e6]])
    np.savez(tmp_path / "clean.npz", xyz=hills)
    np.savez(tmp_path / "high.npz", xyz=np.vstack([hills[:9000], stray, hills[9000:]]))
    clean = json.loads(gpgmap("map", "clean.npz", "--out", "clean", "--json", *SETTINGS).stdout)
    summary = json.loads(gpgmap("map", "high.npz", "--out", "out", "--json", *SETTINGS).stdout)
    assert summary["points"]["used"] == len(hills)
    assert summary["guesses"] == clean["guesses"], "one point decides on no setting"
    x, y, z = stray[0]
    (said,) = summary["warnings"]
    assert f"1 point lies far from all others (x {x:.1f} y {y:.1f} z {z:.1f}): left out" in said
    heights = np.load(tmp_path / "out" / "map.npz")["elevation"]
    assert np.nanmax(heights) < hills[:, 2].max() + 1.0


def test_points_no_map_can_span_are_refused(gpgmap, hills: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "far.npz", xyz=np.vstack([hills, [[-9e8, 9e8, 0.0]]]))
    said = one_line(gpgmap("map", "far.npz", "--out", "out", "--keep-outliers", *SETTINGS, code=1))
    assert "use larger cells (--set mapping.resolution)" in said
    assert json.loads((tmp_path / "out" / "run.json").read_text())["status"] == "failed"


@pytest.mark.parametrize(
    ("name", "points", "reason"),
    [
        (
            "two.npz",
            [[0.0, 0.0, 0.0], [5.0, 5.0, 1.0]],
            "two.npz: only 2 points that can be used: a map needs 10",
        ),
        ("none.npz", [[np.nan] * 3] * 50, "none.npz: the file has no points"),
        ("line.npz", [[float(k), 2.0, 0.0] for k in range(50)], "line.npz: the points lie on a line"),
        ("same.npz", [[1.0, 2.0, 3.0]] * 50, "same.npz: the points lie on a line or at one place"),
    ],
)
def test_too_few_points(gpgmap, tmp_path: Path, name: str, points: list[list[float]], reason: str) -> None:
    np.savez(tmp_path / name, xyz=np.array(points))
    assert reason in one_line(gpgmap("map", name, code=1))
    assert not (tmp_path / f"{Path(name).stem}_gpgmap").exists()


def test_files_that_are_none(gpgmap, tmp_path: Path) -> None:
    (tmp_path / "empty.laz").touch()
    (tmp_path / "folder.npz").mkdir()
    os.mkfifo(tmp_path / "pipe.xyz")
    for name, reason in (
        ("empty.laz", "is empty (0 bytes)"),
        ("folder.npz", "is a folder"),
        ("pipe.xyz", "is not a regular file"),
    ):
        assert one_line(gpgmap("map", name, code=1)).startswith(f"gpgmap map: {name}: {reason}")


def test_out_naming_a_file_is_refused_before_anything_is_read(gpgmap, survey: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for out in ("notes.txt", "notes.txt/below"):
        said = one_line(gpgmap("map", survey, "--out", out, code=2))
        assert "notes.txt is a file: choose a new or empty folder" in said
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_overwrite_without_out_replaces_the_run_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = Path("survey_gpgmap")  # of a run that has ended
    first.mkdir()
    (first / "run.json").write_text("{}")
    (first / "old").touch()
    assert output_folder(None, "survey_gpgmap", overwrite=False) == Path("survey_gpgmap_2")
    again = output_folder(None, "survey_gpgmap", overwrite=True)
    assert again == first
    assert [path.name for path in again.iterdir()] == [LOCK_FILE]
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file"):
        output_folder(Path("file"), "x", overwrite=True)


def test_a_full_disk_is_named_with_what_is_needed(executables: Path, survey: Path, tmp_path: Path) -> None:
    """Files that may not grow stand for the full disk: the same errors, wherever the tests run."""
    settings = options({**FAST, "mapping.resolution": 0.2})
    result = subprocess.run(
        [str(executables / "gpgmap"), "map", str(survey), "--out", "out", *settings],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)),
    )  # fmt: skip
    assert result.returncode == 1
    said = one_line(result)
    assert "gpgmap map: out: cannot be written (File too large): about " in said
    assert "MB are needed in all, " in said
    assert "are free: make room, or choose another folder with --out" in said
    assert json.loads((tmp_path / "out" / "run.json").read_text())["status"] == "failed"
    assert not list((tmp_path / "out").rglob("*.new")), "nothing half-written is left"
    assert not (tmp_path / "out" / ".tiles").exists()


def test_memory_is_held(gpgmap_process, tmp_path: Path) -> None:
    """A survey whose tiles and layers are several times as large as what is allowed."""
    rng = np.random.default_rng(0)
    xy = rng.uniform(0.0, 900.0, (1_200_000, 2))
    z = 3.0 * np.sin(xy[:, 0] / 20.0)
    np.savez(tmp_path / "wide.npz", xyz=np.column_stack([xy, z]).astype(np.float32))
    settings = options({**FAST, "mapping.resolution": 1, "mapping.length_scale": 2})
    summary = json.loads(
        gpgmap_process("map", "wide.npz", "--out", "out", "--json", "--memory", 560, *settings).stdout
    )
    assert summary["largest_memory_mb"] < 560
    assert "at least 400 MB are needed" in gpgmap_process("map", "wide.npz", "--memory", 100, code=2).stderr


def test_ctrl_c_is_heard(executables: Path, tmp_path: Path) -> None:
    """While windows are solved, of which there are more than anybody would wait for: no further one is begun."""
    rng = np.random.default_rng(0)
    xyz = np.column_stack([rng.uniform(0.0, 3000.0, (200_000, 2)), np.zeros(200_000)])
    np.savez(tmp_path / "large.npz", xyz=xyz)
    settings = options({**FAST, "mapping.resolution": 0.2, "mapping.length_scale": 2})
    command = [str(executables / "gpgmap"), "map", "large.npz", "--out", "out", *settings]
    with on_terminal(command, tmp_path) as running:
        running.wait_for(r"window \d+ of ")  # its number is shown when it is solved
        running.process.send_signal(signal.SIGINT)
        running.read()
        solved = last_window(running.said)
        assert running.end() == 130
        while running.read(0.05):
            pass
    said = running.said
    assert "gpgmap map: interrupted" in said
    assert last_window(said) <= solved + 1, "the window under way may end; no other may begin"
    assert json.loads((tmp_path / "out" / "run.json").read_text())["status"] == "interrupted"
    assert not (tmp_path / "out" / ".tiles").exists()


def last_window(said: str) -> int:
    return int(re.findall(r"window (\d+) of \d+", said)[-1])
