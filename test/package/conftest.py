"""The package as colcon installs it, shared by the tests that use the installation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDERS = ("gp_core", "gpgmap_ros", "launch", "config", "rviz", "resource", "requirements")
FILES = ("setup.py", "setup.cfg", "package.xml", "pyproject.toml", "README.md")


def copy_sources(root: Path, target: Path) -> None:
    """Copy what a build reads, and nothing that a build has left."""
    for name in FOLDERS:
        shutil.copytree(root / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(root / name, target / name)


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A copy of the sources, for builds that write beside them."""
    folder = tmp_path_factory.mktemp("sources")
    copy_sources(root, folder)
    return folder


def clean_environment(root: Path) -> dict[str, str]:
    """The environment as it is, with its own tools first and without the sources on the module path."""
    environment = dict(os.environ)
    modules = [
        entry for entry in environment.get("PYTHONPATH", "").split(":") if entry and Path(entry) != root
    ]
    environment["PYTHONPATH"] = ":".join(modules)
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["COLCON_HOME"] = str(root / ".cache" / "colcon")
    return environment


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A colcon workspace with a copy of the sources in src/, built, in a path with a space and an umlaut."""
    if " " in sys.executable:
        pytest.skip(
            "colcon and setuptools write scripts in which the path of their Python may have no spaces"
        )
    folder = tmp_path_factory.mktemp("Öde Gegend")
    source = folder / "src" / "gpgmap_ros"
    source.mkdir(parents=True)
    copy_sources(root, source)
    # next to them, as in a clone: colcon must not take the interface definitions for packages
    shutil.copytree(root / "interfaces", source / "interfaces")
    built = subprocess.run(
        ["colcon", "build", "--event-handlers", "console_direct+"],
        cwd=folder,
        env=clean_environment(root),
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert "1 package finished" in built.stdout + built.stderr
    return folder


@pytest.fixture(scope="session")
def environment_after_sourcing(workspace: Path, root: Path) -> dict[str, str]:
    """What `source install/setup.bash` leaves in the environment."""
    shell = subprocess.run(
        ["bash", "-c", "source install/setup.bash && env -0"],
        cwd=workspace,
        env=clean_environment(root),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in shell.stdout.split("\0") if "=" in line)


@pytest.fixture(scope="session")
def run_installed(
    workspace: Path, environment_after_sourcing: dict[str, str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command as a user of the installation would."""

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=workspace,
            env=environment_after_sourcing,
            capture_output=True,
            text=True,
            check=False,
        )

    return run
