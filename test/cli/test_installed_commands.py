"""Commands as a user calls them: the installed program, a process of its own, the default settings.

The other tests of this folder call them inside the test, mostly with settings that are mapped fast. `demo`, `play` and
`compile` are started as processes by their own tests.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import drives
import numpy as np
import pytest
from fast_mapping import options
from limits import PATIENCE

from gpgmap_ros.config import Config
from gpgmap_ros.io.run_folder import RunFolder

COARSE = options({"mapping.resolution": 1.0, "mapping.length_scale": 3.0})
"""Cells for the few points that settings are learned from."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, hills: np.ndarray) -> Path:
    """The folder in which all of them are called, with a survey of a few square metres."""
    folder = tmp_path_factory.mktemp("user")
    near = hills[(np.abs(hills[:, :2] - hills[:, :2].mean(axis=0)) < 6.0).all(axis=1)]
    np.savez(folder / "survey.npz", xyz=near)
    return folder


@pytest.fixture(scope="module")
def replayed(executables: Path, here: Path, drive_bags: drives.Bags) -> Path:
    called(executables, here, "replay", drive_bags.sqlite, "--to", 1.5, "--out", "run")
    return here / "run"


@pytest.fixture(scope="module")
def mapped(executables: Path, here: Path) -> Path:
    called(executables, here, "map", "survey.npz", "--out", "made")
    return here / "made"


def called(executables: Path, folder: Path, *arguments: object, timeout: float = PATIENCE) -> str:
    """Standard output of the installed command, which must succeed."""
    result = subprocess.run(
        [str(executables / "gpgmap"), *map(str, arguments)],
        cwd=folder, capture_output=True, text=True, check=False, timeout=timeout,
        env={**os.environ, "COLUMNS": "120"},
    )  # fmt: skip
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return result.stdout


def test_replay(replayed: Path) -> None:
    run = RunFolder(replayed)
    summary = run.read_summary()
    assert summary["status"] == "complete"
    assert summary["clouds"]["used"] == summary["clouds"]["read"] == 6
    assert run.read_config().mapping == Config().mapping
    assert run.read_map()[0].known.sum() > 1000
    assert run.report.stat().st_size > 0


def test_evaluate(executables: Path, here: Path, replayed: Path) -> None:
    said = called(executables, here, "evaluate", replayed, "--truth", replayed / "odometry.txt", "--json")
    assert json.loads(said)["odometry"]["ate_m"]["rmse"] < 1e-6


def test_export(executables: Path, here: Path, replayed: Path) -> None:
    called(executables, here, "export", replayed, "--to", "xyz", "--out", "points")
    assert len(np.loadtxt(here / "points.xyz")) == RunFolder(replayed).read_map()[0].known.sum()


def test_view(executables: Path, here: Path, replayed: Path) -> None:
    called(executables, here, "view", replayed, "--png", "view.png", "--width", 160)
    assert (here / "view.png").read_bytes().startswith(b"\x89PNG")


def test_localize(executables: Path, here: Path, replayed: Path, drive_bags: drives.Bags) -> None:
    called(executables, here, "localize", drive_bags.sqlite, "--in", replayed, "--to", 1, "--out", "found")
    assert json.loads((here / "found" / "run.json").read_text())["kind"] == "localize"


def test_map(here: Path, mapped: Path) -> None:
    run = RunFolder(mapped)
    summary = run.read_summary()
    with np.load(here / "survey.npz") as survey:
        assert summary["points"]["used"] == len(survey["xyz"])
    assert run.read_config().mapping.kernel == Config().mapping.kernel
    assert run.report.stat().st_size > 0


def test_compare(executables: Path, here: Path, mapped: Path) -> None:
    called(executables, here, "compare", mapped, mapped, "--draws", 20, "--out", "compared")
    assert json.loads((here / "compared" / "run.json").read_text())["patches"] == []


def test_register(executables: Path, here: Path) -> None:
    """Of so little ground: it answers, whatever it finds."""
    result = subprocess.run(
        [str(executables / "gpgmap"), "register", "survey.npz", "survey.npz", "--resolution", "0.4", "--json"],
        cwd=here, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert isinstance(json.loads(result.stdout)["accepted"], bool), result.stderr


def test_tune(executables: Path, here: Path) -> None:
    with np.load(here / "survey.npz") as survey:
        np.savez(here / "few.npz", xyz=survey["xyz"][:600])
    said = called(executables, here, "tune", "few.npz", "--out", "tuned.yaml", "--json", *COARSE)
    before, after = (json.loads(said)["held_out"][name] for name in ("before", "after"))
    assert after["log_density"] >= before["log_density"]


def test_doctor(executables: Path, here: Path, drive_bags: drives.Bags) -> None:
    assert "nothing is wrong" in called(executables, here, "doctor", drive_bags.sqlite)


def test_a_failure_is_one_line(executables: Path, here: Path) -> None:
    result = subprocess.run(
        [str(executables / "gpgmap"), "replay", "nowhere"],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr == "gpgmap replay: nowhere: no such file or folder\n"
