"""The command, in this process or its own, and recordings that the tests make: short drives over the demo's terrain."""

from __future__ import annotations

import io
import os
import subprocess
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fast_mapping import FAST, options
from limits import PATIENCE

from gpgmap_ros.cli import main

if TYPE_CHECKING:
    import drives

Run = Callable[..., subprocess.CompletedProcess[str]]

# Small maps and the fast kernel, so that a replay takes seconds: what is tested is the command, not the size.
SMALL = options(FAST) + options(
    {
        "mapping.size_x": 14, "mapping.size_y": 14, "mapping.length_scale": 0.6, "filter.max_range": 8,
        "submap.size": 16, "submap.max_distance": 4, "submap.resolution": 0.1, "submap.length_scale": 0.6,
        "closure.min_path": 8,
    }
)  # fmt: skip
# Coarser, and no submaps are compared, which is half of what a short replay takes.
QUICK = SMALL + options({"mapping.resolution": 0.2, "submap.resolution": 0.2, "closure.enabled": False})


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    """What the process of the command would answer, run in this one: a start costs two seconds of CPU."""
    out, complaint = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(complaint):
        try:
            code = main(list(map(str, arguments)))
        except SystemExit as end:  # of argparse, after --help or an error
            code = end.code if isinstance(end.code, int) else 0
        except Exception:  # shown by -v
            traceback.print_exc()
            code = 1
    return subprocess.CompletedProcess(["gpgmap", *arguments], code, out.getvalue(), complaint.getvalue())


def checked(result: subprocess.CompletedProcess[str], code: int | None) -> subprocess.CompletedProcess[str]:
    if code is not None:
        assert result.returncode == code, f"{result.stdout}\n{result.stderr}"
    return result


@pytest.fixture
def gpgmap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls the command in an empty folder, without a process of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: object, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        return checked(call(*arguments), code)

    return run


@pytest.fixture
def gpgmap_process(executables: Path, tmp_path: Path) -> Run:
    """Runs the installed command in an empty folder, as a user does."""

    def run(
        *arguments: object, code: int | None = 0, timeout: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        result = subprocess.run(
            [str(executables / "gpgmap"), *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env={**os.environ, "COLUMNS": "120"},
        )
        return checked(result, code)

    return run


@pytest.fixture(scope="session")
def small() -> list[str]:
    return list(SMALL)


@pytest.fixture(scope="session")
def quick() -> list[str]:
    return list(QUICK)


@pytest.fixture(scope="session")
def drive_bags(tmp_path_factory: pytest.TempPathFactory) -> drives.Bags:
    """The same drive in every format. Skips where rosbags, which writes them, is not installed."""
    import drives

    return drives.record(tmp_path_factory.mktemp("drive"))


@pytest.fixture(scope="session")
def run_folder(drive_bags: drives.Bags, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished replay of the drive, for the commands that read one."""
    folder = tmp_path_factory.mktemp("run") / "run"
    checked(call("replay", drive_bags.sqlite, "--out", folder, *SMALL), 0)
    return folder


@pytest.fixture(scope="session")
def quick_folder(drive_bags: drives.Bags, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the quick settings."""
    folder = tmp_path_factory.mktemp("quick_run") / "run"
    checked(call("replay", drive_bags.sqlite, "--out", folder, *QUICK), 0)
    return folder


@pytest.fixture(scope="session")
def hills() -> np.ndarray:
    """Points (N, 3) on smooth hills with noise, in the coordinates of a survey (UTM)."""
    rng = np.random.default_rng(5)
    xy = rng.uniform(0.0, 40.0, (60_000, 2))
    z = 3.0 * np.sin(xy[:, 0] / 6.0) * np.cos(xy[:, 1] / 7.0) + 0.02 * rng.normal(size=len(xy))
    return np.column_stack([xy, z]) + np.array([500_000.0, 4_000_000.0, 250.0])
