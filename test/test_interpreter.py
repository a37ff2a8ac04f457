"""A module in the working directory is never executed, however the package starts Python."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PATIENCE

from gpgmap_ros.config import Config
from gpgmap_ros.interpreter import module_command
from gpgmap_ros.slam.closure_messages import GlobalMap, MakeGlobalMap
from gpgmap_ros.slam.closure_process import ClosureProcess

MODULES = ("scipy", "numpy", "yaml", "numba", "pickle", "json", "rclpy", "gpgmap_ros_extra")


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory holds modules with the names of real ones; each would leave a file named `executed`."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text(
            f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})\nraise SystemExit(99)\n"
        )
    monkeypatch.chdir(folder)
    # a developer's PYTHONPATH is a decision of the developer
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path / "executed"


def test_the_trap_works(trap: Path) -> None:
    subprocess.run([sys.executable, "-m", "scipy"], check=False)
    assert trap.read_text() == "scipy"


def test_the_process_of_the_closures_runs_no_foreign_module(trap: Path) -> None:
    answers: queue.SimpleQueue[object] = queue.SimpleQueue()
    process = ClosureProcess(Config(), None, answers.put)
    process.ask(MakeGlobalMap())
    answer = answers.get(timeout=PATIENCE)
    process.close()
    assert isinstance(answer, GlobalMap), answer
    assert not trap.exists()


def test_a_module_is_run_with_its_arguments_and_nothing_else(trap: Path) -> None:
    command = module_command("gpgmap_ros.cli", "config", "--set", "map_frame=world")
    assert os.path.isabs(command[0])
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert result.returncode == 0, result.stderr
    assert "map_frame: world" in result.stdout
    assert not trap.exists()


def test_the_recorder_of_the_demo_runs_no_foreign_module(trap: Path) -> None:
    pytest.importorskip("rclpy")
    command = module_command("gpgmap_ros.nodes.map_recorder", "--help")
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert result.returncode == 0, result.stderr
    assert not trap.exists()


@pytest.mark.parametrize("name", ["gpgmap", "python -m"])
def test_the_command_line_runs_no_foreign_module(trap: Path, executables: Path, name: str) -> None:
    command = [sys.executable, "-m", "gpgmap_ros.cli"] if name == "python -m" else [str(executables / name)]
    result = subprocess.run(
        [*command, "config"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "ros__parameters" in result.stdout
    assert not trap.exists()
