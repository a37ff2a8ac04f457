"""A folder that may not be written: said before the work, and by the name that the user gave."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
"""linux/prctl.h, linux/capability.h: without it permissions hold for root as for anybody."""


def without_override() -> None:
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


def call(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=folder, capture_output=True, text=True, check=False,
        preexec_fn=without_override,
    )  # fmt: skip


@pytest.fixture
def forbidden(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "forbidden"
    folder.mkdir(mode=0o555)
    if call(folder, "-c", "open('x', 'w')").returncode == 0:
        pytest.skip("permissions do not hold for this user")
    yield folder
    folder.chmod(0o755)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["map", "../points.npz"], "--out points_gpgmap"),
        (["tune", "../points.npz"], "--out tuned.yaml"),
        (["view", "../points.npz", "--png", "a.png"], "--png a.png"),
        (["register", "../points.npz", "../points.npz", "--resolution", "1"], "--out registration.png"),
        (["compare", "../points.npz", "../points.npz"], "--out points_points_change"),
        (["merge", "../a", "../b"], "--out merged_gpgmap"),
        (["replay", "../a", "../b", "--sessions"], "--out a_merged"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_it_is_said_before_the_work(command: list[str], option: str, forbidden: Path, tmp_path: Path) -> None:
    np.savez(
        tmp_path / "points.npz", xyz=np.random.default_rng(0).uniform(0.0, 9.0, (900, 3)) * [1.0, 1.0, 0.01]
    )
    found = call(forbidden, "-m", "gpgmap_ros.cli", *command)
    assert found.returncode == 2
    assert (
        found.stderr.splitlines()[-1]
        == f"gpgmap {command[0]}: {option}: {forbidden} is not writable: choose another folder"
    )
    assert "learning" not in found.stderr + found.stdout
    assert not list(forbidden.iterdir())


def test_files_are_named_as_they_are_called(forbidden: Path) -> None:
    program = "from gpgmap_ros.storage.atomic import write_text; write_text('settings.yaml', '')"
    said = call(forbidden, "-c", program).stderr
    assert "PermissionError" in said
    assert said.splitlines()[-1].endswith("'settings.yaml'")
