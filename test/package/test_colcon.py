"""`colcon build` makes a proper ament_python package: what a robot's user gets after `source install/setup.bash`."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any


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


def test_the_package_is_found_and_runs_from_the_installation(workspace: Path, run_installed: Any) -> None:
    """The ament index knows it, and its modules come from install/, not from the sources."""
    script = (
        "import gpgmap_ros, gp_core; from ament_index_python.packages import get_package_share_directory as f;"
        "from gpgmap_ros.share import share_file;"
        "print(f('gpgmap_ros')); print(gpgmap_ros.__file__); print(gp_core.__file__);"
        "print(share_file('config', 'gpgmap.yaml'))"
    )
    found = run_installed(sys.executable, "-c", script)
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert len(lines) == 4
    assert all(line.startswith(str(workspace / "install")) for line in lines), found.stdout


def test_the_installed_command_runs(run_installed: Any, root: Path) -> None:
    run = run_installed("install/gpgmap_ros/lib/gpgmap_ros/gpgmap", "config")
    assert run.returncode == 0, run.stderr
    assert run.stdout == (root / "config" / "gpgmap.yaml").read_text()


def test_every_package_of_the_sources_is_installed(workspace: Path, root: Path) -> None:
    version = f"python{sysconfig.get_python_version()}"
    installed = workspace / "install" / "gpgmap_ros" / "lib" / version / "site-packages"
    for package in ("gp_core", "gpgmap_ros"):
        expected = {path.relative_to(root).as_posix() for path in (root / package).rglob("*.py")}
        found = {path.relative_to(installed).as_posix() for path in (installed / package).rglob("*.py")}
        assert found == expected
