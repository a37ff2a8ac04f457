"""The command line as a user calls it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpgmap_ros import __version__
from gpgmap_ros.cli.main import COMMANDS, main


def gpgmap(executables: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(executables / "gpgmap"), *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_help_has_examples(executables: Path, tmp_path: Path) -> None:
    result = gpgmap(executables, "--help", cwd=tmp_path)
    assert result.returncode == 0
    assert "examples:" in result.stdout
    assert "gpgmap demo" in result.stdout


def test_version(executables: Path, tmp_path: Path) -> None:
    assert gpgmap(executables, "--version", cwd=tmp_path).stdout == f"gpgmap {__version__}\n"


def test_a_wrong_call_is_refused(executables: Path, tmp_path: Path) -> None:
    assert gpgmap(executables, "fly", cwd=tmp_path).returncode == 2


def test_the_demo_leaves_other_peoples_files_alone(executables: Path, tmp_path: Path) -> None:
    pytest.importorskip("rosbags", reason="rosbags is not installed: the demo records its drive with it")
    (tmp_path / "thesis.txt").write_text("mine")
    result = gpgmap(executables, "demo", "--out", str(tmp_path), cwd=tmp_path)
    assert result.returncode == 1
    assert "has other files in it: name an empty or a new folder with --out" in result.stderr
    assert "Traceback" not in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_the_demo_closes_its_loop(executables: Path, tmp_path: Path) -> None:
    """The whole of it, as `make demo` runs it: drive, node, player and recorder as processes, report and pictures."""
    pytest.importorskip("rosbags", reason="rosbags is not installed: the demo records its drive with it")
    from gpgmap_ros.demo.scene import LAST_STAMP

    result = gpgmap(executables, "demo", "--out", "demo", "--json", "--animation", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["clouds_received"] == summary["clouds_used"] + sum(summary["clouds_dropped"].values())
    # on a slow machine clouds are dropped and maps are fewer, but the last map is that of the last cloud
    with np.load(tmp_path / "demo" / "last_map.npz") as last:
        assert last["stamp"] == LAST_STAMP
        assert len(last["path_stamps"]) == len(last["path_poses"]) > 0
    # the loop: received on ~/loop_closure, between the beginning and the second visit, and on ~/path
    assert summary["closures_received"]
    assert all(a < b for a, b in summary["closures_received"])
    assert summary["paths_received"] >= 1
    assert summary["drift_before_m"] > 1.5
    assert summary["drift_after_m"] < 0.25 * summary["drift_before_m"]
    assert summary["rmse_m"] < 0.5 * summary["rmse_before_m"]
    assert summary["within_two_std"] > 0.9
    assert json.loads((tmp_path / "demo" / "summary.json").read_text()) == summary
    for name in ("before_after.png", "gpgmap.png", "elevation.png", "variance.png", "gradient.png"):
        assert (tmp_path / "demo" / name).read_bytes().startswith(b"\x89PNG")
    with Image.open(tmp_path / "demo" / "demo.gif") as animation:
        assert animation.n_frames > 10
    assert not list((tmp_path / "demo").glob("*.new"))

    # the report is that of a replay, and the folder a run for the other commands
    report = (tmp_path / "demo" / "report.html").read_text()
    for a, b in summary["closures_received"]:
        assert f'"a":{a},"b":{b},"accepted":true' in report
    exported = gpgmap(executables, "export", "demo", "--to", "ply", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr


def test_a_wrong_call_is_one_line_with_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (
            ["replya", "bag"],
            "gpgmap: there is no command 'replya': did you mean 'replay'? (see gpgmap --help)",
        ),
        (["replay"], "gpgmap replay: the following arguments are required: BAG (see gpgmap replay --help)"),
        (["replay", "bag", "--tf", "--still"], "not allowed with argument --tf (see gpgmap replay --help)"),
        (["map", "a.laz", "--resolution", "1"], "a setting is given as --set mapping.resolution=VALUE"),
        (["map", "a.laz", "--frobnicate"], "unrecognized arguments: --frobnicate (see gpgmap --help)"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1


def test_without_a_command_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert all(command.name in shown.err for command in COMMANDS)
