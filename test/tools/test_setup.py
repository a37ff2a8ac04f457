"""The set-up says what is missing, notices what is half-made, and touches nothing that is complete.

The script runs as a process, on a copy of the project where it would change something.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

INPUTS = ("tools", "interfaces", "requirements", "setup.py", "setup.cfg", "pyproject.toml", "gp_core/__init__.py",
          "gpgmap_ros/__init__.py", "gpgmap_ros/progress.py")  # fmt: skip


@pytest.fixture
def project(root: Path, tmp_path: Path) -> Path:
    """What the set-up reads, without an environment."""
    copy = tmp_path / "project"
    for name in INPUTS:
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (root / name).is_dir():
            shutil.copytree(root / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(root / name, target)
    return copy


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with the usual small tools and nothing else: no Python, no compiler."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "dirname", "cat", "uname"):
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return folder


def base_python() -> str:
    """The interpreter that made this environment: the one a newcomer has."""
    return str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")


def run_setup(project: Path, profile: str = "run", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "tools/setup.sh", profile],
        cwd=project,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_no_python(project: Path, tools: Path) -> None:
    result = run_setup(project, PATH=str(tools), PYTHON="")
    assert result.returncode == 2
    assert "Python 3.11 or 3.12 is needed, found no Python" in result.stderr
    assert "apt install python3" in result.stderr


def test_wrong_python(project: Path, tools: Path) -> None:
    old = tools / "python3"
    # answers as Python 3.9 would: it is asked for its version and to compare it
    old.write_text('#!/bin/sh\ncase "$*" in *platform*) echo "Python 3.9.2";; *) exit 1;; esac\n')
    old.chmod(0o755)
    result = run_setup(project, PATH=str(tools), PYTHON="")
    assert result.returncode == 2
    assert "found Python 3.9.2" in result.stderr


def test_no_compiler(project: Path, tools: Path) -> None:
    result = run_setup(project, PATH=str(tools), PYTHON=base_python())
    assert result.returncode == 2
    assert "no C/C++ compiler: gcc and g++ not found" in result.stderr
    assert "sudo apt install gcc g++" in result.stderr
    assert not (project / ".venv").exists()


def script_with(project: Path, statement: str) -> subprocess.CompletedProcess[str]:
    """The set-up script after a statement that takes something away from it."""
    code = (
        f"import runpy, sys; sys.argv = ['setup_environment.py']; {statement};"
        "runpy.run_path('tools/setup_environment.py', run_name='__main__')"
    )
    return subprocess.run(
        [base_python(), "-c", code], cwd=project, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("import platform; platform.machine = lambda: 'aarch64'", "x86_64 only, this is Linux on aarch64"),
        ("import platform; platform.libc_ver = lambda: ('', '')", r"glibc 2.28 or newer is needed"),
        (
            "import shutil, collections; shutil.disk_usage = lambda p: collections.namedtuple('D', 'free')(1e8)",
            "only 0.1 GB are free",
        ),
        ("import sysconfig; sysconfig.get_paths = lambda: {'include': '/nowhere'}", "no /nowhere/Python.h"),
    ],
)
def test_what_the_machine_lacks(project: Path, statement: str, message: str) -> None:
    result = script_with(project, statement)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (project / ".venv").exists()


def test_no_venv_module(project: Path, tmp_path: Path) -> None:
    """Debian's python3 without python3-venv: importing ensurepip fails."""
    (tmp_path / "ensurepip.py").write_text("raise ImportError('No module named ensurepip')")
    result = run_setup(project, PYTHON=base_python(), PYTHONPATH=str(tmp_path))
    assert result.returncode == 2
    assert "cannot make virtual environments" in result.stderr
    assert "sudo apt install python3-venv" in result.stderr


@pytest.fixture
def nowhere() -> dict[str, str]:
    """An index that refuses connections; loopback port 9 has nobody listening."""
    return {
        "PYTHON": base_python(),
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_RETRIES": "1",
    }


def test_code_of_the_working_directory_does_not_run(project: Path, nowhere: dict[str, str]) -> None:
    ran = project / "ran"
    for name in ("platform", "venv", "ensurepip", "pip", "argparse"):
        (project / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})")
    result = run_setup(project, **nowhere)
    assert not ran.exists(), ran.read_text()
    assert "the package index cannot be reached" in result.stderr


def test_no_network(project: Path, nowhere: dict[str, str]) -> None:
    first = run_setup(project, **nowhere)
    assert first.returncode == 2
    assert "the package index cannot be reached" in first.stderr
    assert "then run the same command again" in first.stderr
    assert (project / ".cache" / "setup.log").stat().st_size > 0
    # what is there now is half-made, and is known to be
    assert (project / ".venv").is_dir()
    assert ".venv is incomplete or made elsewhere, making it anew" in run_setup(project, **nowhere).stderr


@pytest.mark.skipif(sys.version_info[:2] == (3, 12), reason="this is the version that a robot has")
def test_the_robots_environment_asks_for_its_python(project: Path) -> None:
    result = run_setup(project, "robot", PYTHON=base_python())
    assert result.returncode == 2
    assert ".venv-robot is made with Python 3.12, this is 3.11" in result.stderr
    assert "make PYTHON=/path/to/python3.12" in result.stderr
    assert not (project / ".venv-robot").exists()


def test_a_path_with_spaces_and_umlauts(project: Path, tools: Path) -> None:
    """An interpreter and a project below such a folder are found, as far as the set-up gets without a compiler."""
    moved = project.rename(project.with_name("Öde Gegend"))
    folder = tools.rename(tools.with_name("Werkzeug und Späne"))
    (folder / "python3").symlink_to(base_python())
    result = run_setup(moved, PATH=str(folder), PYTHON=str(folder / "python3"))
    assert "no C/C++ compiler" in result.stderr


STEPS_LEFT = """
import sys
sys.path.insert(0, "")
from setup_environment import PROFILES, pending_steps, read_state
profile = PROFILES["dev"]
print(*(step.name for step in pending_steps(profile, read_state(profile.environment))))
"""


def test_a_complete_environment_is_left_alone(root: Path) -> None:
    state = root / ".venv" / "setup-state.json"
    if not state.exists() or Path(sys.prefix) != root / ".venv":
        pytest.skip("this is not the environment that `make setup` makes")
    left = subprocess.run(
        [sys.executable, "-c", STEPS_LEFT], cwd=root / "tools", capture_output=True, text=True, check=True
    ).stdout.split()
    if left:  # the set-up would make it anew, under the tests that run in it
        pytest.skip(f"the environment is not complete ({', '.join(left)}): run `make setup`")
    before = state.stat().st_mtime_ns
    result = subprocess.run(
        ["sh", "tools/setup.sh", "dev"], cwd=root, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0
    assert result.stderr == ""
    assert state.stat().st_mtime_ns == before


def load(project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The set-up script as a module, with an interpreter in its environment and nothing to probe."""
    spec = importlib.util.spec_from_file_location(
        "setup_environment", project / "tools" / "setup_environment.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "setup_environment", module)  # dataclasses look their module up there
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(module)
    python = module.PROFILES["dev"].environment.python
    python.parent.mkdir(parents=True)
    python.symlink_to(base_python())
    module.PROBE = "import json"
    return module


class TestState:
    """Which steps are left, decided from the record in .venv."""

    @pytest.fixture
    def module(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        return load(project, monkeypatch)

    @staticmethod
    def complete(module: Any) -> dict[str, str]:
        return {step.name: module.digest(step) for step in module.PROFILES["dev"].steps}

    @staticmethod
    def names(steps: tuple[object, ...]) -> list[str]:
        return [step.name for step in steps]

    def test_nothing_is_left_when_all_is_recorded_and_works(self, module: Any) -> None:
        assert module.pending_steps(module.PROFILES["dev"], self.complete(module)) == ()

    def test_all_is_left_without_a_record(self, module: Any) -> None:
        assert module.pending_steps(module.PROFILES["dev"], {}) == module.PROFILES["dev"].steps

    def test_all_is_done_again_when_the_environment_lost_its_packages(self, module: Any) -> None:
        module.PROBE = "import a_package_that_is_gone"
        assert (
            module.pending_steps(module.PROFILES["dev"], self.complete(module))
            == module.PROFILES["dev"].steps
        )

    def test_an_interrupted_install_starts_over(self, module: Any) -> None:
        state = self.complete(module) | {"ros": "started"}
        assert module.pending_steps(module.PROFILES["dev"], state) == module.PROFILES["dev"].steps

    def test_an_interrupted_build_goes_on_from_there(self, module: Any) -> None:
        state = self.complete(module) | {"interfaces": "started"}
        assert self.names(module.pending_steps(module.PROFILES["dev"], state)) == [
            "interfaces",
            "project",
            "loops",
            "tools",
        ]

    def test_a_changed_lock_goes_on_from_there(self, module: Any, project: Path) -> None:
        state = self.complete(module)
        (project / "requirements" / "ros.lock.txt").write_text("changed")
        assert self.names(module.pending_steps(module.PROFILES["dev"], state))[0] == "ros"

    def test_a_moved_project_starts_over(
        self, module: Any, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The scripts in .venv/bin carry its path."""
        state = self.complete(module)
        shutil.rmtree(project / ".venv")
        moved = load(project.rename(project.with_name("elsewhere")), monkeypatch)
        assert moved.pending_steps(moved.PROFILES["dev"], state) == moved.PROFILES["dev"].steps

    def test_a_damaged_record_counts_as_none(self, module: Any) -> None:
        environment = module.PROFILES["dev"].environment
        environment.folder.mkdir(exist_ok=True)
        environment.state.write_text("{half")
        assert module.read_state(environment) == {}
