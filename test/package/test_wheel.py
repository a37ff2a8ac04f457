"""`pip install .` in a plain virtual environment: gp_core and the offline commands, without ROS and without make."""

from __future__ import annotations

import importlib.metadata as metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fast_mapping import options
from packaging.requirements import Requirement

PACKAGES = ("gp_core", "gpgmap_ros")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, sources: Path) -> Path:
    """The wheel that pip builds from the sources."""
    for module in ("pip", "wheel"):
        pytest.importorskip(module, reason=f"{module} is not installed: no wheel can be built")
    folder = tmp_path_factory.mktemp("wheel")
    # no isolation: it would download setuptools
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        folder,
        sources,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, wheel: Path, root: Path) -> Path:
    """A fresh environment with the wheel and links to the packages that the wheel requires: nothing else, no ROS."""
    folder = tmp_path_factory.mktemp("plain") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    try:
        required = requirements_of("gpgmap_ros")
    except metadata.PackageNotFoundError as error:
        pytest.skip(f"a requirement of the wheel is not installed: {error}")
    for package in required:
        for entry in top_level(package):
            if not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python")
    run(*pip, "install", "--no-deps", "--no-index", wheel)
    take_compiled_loops(root, site)
    return folder


def take_compiled_loops(root: Path, site: Path) -> None:
    """Give the installed packages the machine code of the same sources, which would take some ten seconds to compile.

    Numba takes it for that of a file with the same time and size.
    """
    for code in [path for package in PACKAGES for path in (root / package).rglob("__pycache__/*.nb[ci]")]:
        source = code.parent.parent / f"{code.name.split('.')[0]}.py"
        installed = site / source.relative_to(root)
        if not source.exists():  # code of a file that has gone
            continue
        os.utime(installed, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
        target = site / code.relative_to(root)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(code, target)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Standard output of a command that must succeed, with no module path but its own."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ROS_"))
    }
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def requirements_of(package: str) -> set[str]:
    """Names of the packages that `pip install package` brings, without extras."""
    found: set[str] = set()
    open_ends = [package]
    while open_ends:
        for line in metadata.requires(open_ends.pop()) or []:
            requirement = Requirement(line)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if wanted and requirement.name not in found:
                found.add(requirement.name)
                open_ends.append(requirement.name)
    return found


def top_level(package: str) -> Iterator[Path]:
    """The files and folders of an installed package that lie directly in site-packages."""
    distribution = metadata.distribution(package)
    names = {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}
    return (Path(str(distribution.locate_file(name))) for name in sorted(names))


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path, root: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        path.relative_to(root).as_posix()
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert any(name.endswith("/page.html") for name in sources)
    assert sources - held == set()
    shared = {name.split(".data/data/share/gpgmap_ros/")[1] for name in held if "/share/gpgmap_ros/" in name}
    expected = {path.relative_to(root).as_posix() for path in (root / "config").iterdir() if path.is_file()}
    assert expected <= shared


def test_the_wheel_names_its_extras(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [item for item in archive.namelist() if item.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    extras = set(re.findall(r"^Provides-Extra: (\S+)$", text, re.MULTILINE))
    assert extras >= {"docs", "graph", "open3d", "viewer"}
    assert "open3d" in "".join(re.findall(r"^Requires-Dist: (open3d.*)$", text, re.MULTILINE))


@pytest.mark.slow
class TestPlainEnvironment:
    def test_it_has_no_ros(self, plain: Path) -> None:
        code = "import importlib.util as u; print([n for n in ('rclpy', 'sensor_msgs', 'open3d') if u.find_spec(n)])"
        assert run(plain / "bin" / "python", "-P", "-c", code).strip() == "[]"

    def test_gp_core_runs(self, plain: Path, tmp_path: Path) -> None:
        code = (
            "import gp_core, sys; from gp_core.kernels import RBF;"
            "gp = gp_core.GaussianProcessRegressor(RBF(1.0)).fit([[0.0], [1.0]], [0.0, 1.0]);"
            "assert gp_core.__file__.startswith(sys.prefix); print(gp_core.__version__)"
        )
        said = run(plain / "bin" / "python", "-P", "-c", code, cwd=tmp_path)
        assert said.strip() == metadata.version("gpgmap_ros")

    def test_the_command_has_a_version(self, plain: Path, tmp_path: Path) -> None:
        said = run(plain / "bin" / "gpgmap", "--version", cwd=tmp_path)
        assert said == f"gpgmap {metadata.version('gpgmap_ros')}\n"

    @pytest.mark.parametrize("command", ["map", "replay", "register", "tune", "evaluate", "export", "doctor"])
    def test_the_offline_commands_start(self, command: str, plain: Path, tmp_path: Path) -> None:
        assert run(plain / "bin" / "gpgmap", command, "--help", cwd=tmp_path).startswith("usage: gpgmap")

    def test_the_sensor_files_are_found(self, plain: Path, tmp_path: Path) -> None:
        said = run(plain / "bin" / "gpgmap", "config", "--sensor", "stereo", cwd=tmp_path)
        assert "stereo" in said

    def test_a_point_file_becomes_a_map_and_a_report(self, plain: Path, tmp_path: Path) -> None:
        xy = np.random.default_rng(3).uniform(0.0, 10.0, (2000, 2))
        np.savez(tmp_path / "points.npz", xyz=np.column_stack([xy, np.sin(xy[:, 0])]))
        run(plain / "bin" / "gpgmap", "map", "points.npz", "--out", "out", *options(), cwd=tmp_path)
        assert list((tmp_path / "out").rglob("elevation.tif"))
        assert "<script" in (tmp_path / "out" / "report.html").read_text()  # made from page.*
