"""What is installed, and what of it is missing: for `gpgmap doctor`. Runs wherever the package does."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from gp_core.compiled import cache_folder
from gpgmap_ros import __version__
from gpgmap_ros.config import Config, settings
from gpgmap_ros.diagnostics import GOOD, NOTE, WRONG, Finding

MIN_DISK = 1.0
"""GB that should be free where results are written."""
NEEDED = ("numpy", "scipy", "numba", "PyYAML", "matplotlib")
OPTIONAL = {
    "rosbags": "reads and writes recordings; the node needs none: pip install rosbags",
    "laspy": "reads LAS and LAZ for `gpgmap map`: pip install laspy lazrs",
    "gtsam": "a second solver for the pose graph (closure.solver: gtsam): pip install 'gtsam>=4.3'",
    "rerun-sdk": "shows `gpgmap replay --rerun`: pip install rerun-sdk",
}
ROS_MODULES = ("rclpy", "sensor_msgs.msg", "nav_msgs.msg", "tf2_msgs.msg", "grid_map_msgs.msg")


def installation() -> Iterator[Finding]:
    yield Finding("gpgmap", GOOD, f"{__version__}, in {Path(__file__).resolve().parent.parent}")
    yield _machine()
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info >= (3, 11)
    yield Finding(
        "Python",
        GOOD if good else WRONG,
        f"{version} on {platform.platform()}",
        "" if good else "use 3.11 or newer",
    )
    for name in NEEDED:
        yield _package(name, WRONG, f"pip install {name}")
    for name, what in OPTIONAL.items():
        yield _package(name, NOTE, what)
    yield _cache()
    yield from _ros()


def _machine() -> Finding:
    """What decides how fast it is and how large a map may become."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = (
        f"{platform.machine()}, {cores} cores, {gigabytes:.1f} GB of memory, {free:.1f} GB free on this disk"
    )
    if free < MIN_DISK:
        return Finding("machine", NOTE, text, "make room: a run takes up to some hundred MB")
    return Finding("machine", GOOD, text)


def _package(name: str, otherwise: str, remedy: str) -> Finding:
    try:
        return Finding(name, GOOD, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, otherwise, "not installed", remedy)


def _cache() -> Finding:
    """Where compiled loops are kept: without a folder for them every start compiles anew."""
    importlib.import_module("gp_core.grid")  # loops that no module has made yet have no folder
    folder = cache_folder()
    if folder is not None:
        return Finding("compiled loops", GOOD, f"kept in {folder}; `gpgmap compile` makes them")
    return Finding(
        "compiled loops",
        NOTE,
        "not cached: neither the package's folder nor the user's cache is writable, so every start compiles again",
        "set NUMBA_CACHE_DIR to a writable folder",
    )


def _ros() -> Iterator[Finding]:
    missing = [name for name in ROS_MODULES if not _importable(name)]
    if missing:
        remedy = "`make setup`, or source your ROS 2 installation; the offline commands need none of it"
        yield Finding("ROS 2", NOTE, f"not importable: {', '.join(missing)}", remedy)
        return
    distribution = os.environ.get("ROS_DISTRO", "from wheels")
    domain, reach = (
        os.environ.get("ROS_DOMAIN_ID", "0"),
        os.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET"),
    )
    yield Finding("ROS 2", GOOD, f"{distribution}; ROS_DOMAIN_ID {domain}, discovery range {reach}")
    if os.environ.get("ROS_LOCALHOST_ONLY") == "1":
        yield Finding(
            "ROS 2",
            NOTE,
            "ROS_LOCALHOST_ONLY=1: other machines are not seen",
            "unset it for a robot's network",
        )


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def changed_settings(config: Config) -> Iterator[Finding]:
    """The settings that differ from their defaults."""
    for item in settings(config):
        if item.value != item.default:
            text = f"{item.name} = {item.value} {item.unit}".rstrip()
            yield Finding("setting", GOOD, f"{text} (default {item.default})")
