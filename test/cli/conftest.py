"""The command as a user calls it, and recordings that the tests make: short drives over the demo's terrain."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from limits import PATIENCE

if TYPE_CHECKING:
    import drives

Run = Callable[..., subprocess.CompletedProcess[str]]

# Small maps, so that a replay takes seconds: what is tested is the command, not the size.
SMALL = [
    "--set", "mapping.size_x=14", "--set", "mapping.size_y=14", "--set", "mapping.length_scale=0.6",
    "--set", "filter.max_range=8", "--set", "submap.size=16", "--set", "submap.max_distance=4",
    "--set", "submap.resolution=0.1", "--set", "submap.length_scale=0.6", "--set", "closure.min_path=8",
]  # fmt: skip


@pytest.fixture
def gpgmap(executables: Path, tmp_path: Path) -> Run:
    """Runs the installed command in an empty folder."""

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
        if code is not None:
            assert result.returncode == code, f"{result.stdout}\n{result.stderr}"
        return result

    return run


@pytest.fixture(scope="session")
def small() -> list[str]:
    return list(SMALL)


@pytest.fixture(scope="session")
def drive_bags(tmp_path_factory: pytest.TempPathFactory) -> drives.Bags:
    """The same drive in every format. Skips where rosbags, which writes them, is not installed."""
    import drives

    return drives.record(tmp_path_factory.mktemp("drive"))


@pytest.fixture(scope="session")
def run_folder(executables: Path, drive_bags: drives.Bags, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished replay of the drive, for the commands that read one."""
    folder = tmp_path_factory.mktemp("run") / "run"
    subprocess.run(
        [str(executables / "gpgmap"), "replay", str(drive_bags.sqlite), "--out", str(folder), *SMALL],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="session")
def hills() -> np.ndarray:
    """Points (N, 3) on smooth hills with noise, in the coordinates of a survey (UTM)."""
    rng = np.random.default_rng(5)
    xy = rng.uniform(0.0, 40.0, (60_000, 2))
    z = 3.0 * np.sin(xy[:, 0] / 6.0) * np.cos(xy[:, 1] / 7.0) + 0.02 * rng.normal(size=len(xy))
    return np.column_stack([xy, z]) + np.array([500_000.0, 4_000_000.0, 250.0])
