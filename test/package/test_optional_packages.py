"""Without the packages that a robot lacks: what needs them says so, and the rest works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


def run_without(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process in which `module` cannot be imported."""
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from gpgmap_ros.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", ["replay", "doctor", "play", "tune"])
def test_recordings_without_rosbags(command: str, tmp_path: Path) -> None:
    bag = tmp_path / "bag"
    bag.mkdir()
    result = run_without("rosbags", command, str(bag))
    assert result.returncode == 1
    assert result.stderr.startswith(f"gpgmap {command}: the Python package rosbags is needed to read")
    assert "pip install rosbags" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_survey_needs_no_rosbags(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    xy = rng.uniform(0.0, 10.0, (4000, 2))
    np.savez(tmp_path / "points.npz", xyz=np.column_stack([xy, np.sin(xy[:, 0])]))
    out = tmp_path / "out"
    result = run_without("rosbags", "map", str(tmp_path / "points.npz"), "--out", str(out))
    assert result.returncode == 0, result.stderr
    assert list(out.rglob("*.tif")), sorted(out.iterdir())
