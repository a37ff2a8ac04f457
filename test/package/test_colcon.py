"""`colcon build` makes a proper ament_python package: what a robot's user gets after `source install/setup.bash`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

FOLDERS = ("gp_core", "gpgmap_ros", "launch", "config", "rviz", "resource", "requirements")
FILES = ("setup.py", "setup.cfg", "package.xml", "pyproject.toml", "README.md")


def clean_environment(root: Path) -> dict[str, str]:
    """The environment's own tools, and none of the variables that would let the sources leak into the install."""
    hidden = ("PYTHONPATH", "AMENT_PREFIX_PATH", "COLCON_PREFIX_PATH")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["COLCON_HOME"] = str(root / ".cache" / "colcon")
    return environment


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A colcon workspace with a copy of the sources in src/, built."""
    folder = tmp_path_factory.mktemp("workspace")
    source = folder / "src" / "gpgmap_ros"
    source.mkdir(parents=True)
    for name in FOLDERS:
        shutil.copytree(root / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(root / name, source / name)
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


def after_sourcing(workspace: Path, root: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"source install/setup.bash && {command}"],
        cwd=workspace,
        env=clean_environment(root),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_installed_layout(workspace: Path, root: Path) -> None:
    prefix = workspace / "install" / "gpgmap_ros"
    share = prefix / "share" / "gpgmap_ros"
    for executable in ("mapping_node", "gpgmap"):
        path = prefix / "lib" / "gpgmap_ros" / executable
        assert path.is_file(), path
        assert os.access(path, os.X_OK)
    assert (prefix / "share/ament_index/resource_index/packages/gpgmap_ros").is_file()
    assert (share / "package.xml").is_file()
    for folder in ("launch", "config", "rviz"):
        names = {path.name for path in (root / folder).iterdir() if path.is_file()}
        assert {path.name for path in (share / folder).iterdir()} == names


def test_the_package_is_found_and_runs_from_the_installation(workspace: Path, root: Path) -> None:
    """The ament index knows it, and its modules come from install/, not from the sources."""
    script = (
        "import gpgmap_ros, gp_core; from ament_index_python.packages import get_package_share_directory as f;"
        "from gpgmap_ros.share import share_file;"
        "print(f('gpgmap_ros')); print(gpgmap_ros.__file__); print(gp_core.__file__);"
        "print(share_file('config', 'gpgmap.yaml'))"
    )
    found = after_sourcing(workspace, root, f'{sys.executable} -c "{script}"')
    assert found.returncode == 0, found.stderr
    lines = found.stdout.split()
    assert len(lines) == 4
    assert all(line.startswith(str(workspace / "install")) for line in lines), found.stdout


def test_the_installed_command_runs(workspace: Path, root: Path) -> None:
    run = after_sourcing(workspace, root, "install/gpgmap_ros/lib/gpgmap_ros/gpgmap config")
    assert run.returncode == 0, run.stderr
    assert run.stdout == (root / "config" / "gpgmap.yaml").read_text()


def test_every_package_of_the_sources_is_installed(workspace: Path, root: Path) -> None:
    version = f"python{sysconfig.get_python_version()}"
    installed = workspace / "install" / "gpgmap_ros" / "lib" / version / "site-packages"
    for package in ("gp_core", "gpgmap_ros"):
        expected = {path.relative_to(root).as_posix() for path in (root / package).rglob("*.py")}
        found = {path.relative_to(installed).as_posix() for path in (installed / package).rglob("*.py")}
        assert found == expected
