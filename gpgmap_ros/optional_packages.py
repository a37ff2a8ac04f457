"""Packages that only some commands need and that a robot lacks after `rosdep install`: what to say without them."""

from __future__ import annotations

PURPOSES = {
    "rosbags": "to read and write recordings",
    "apsw": "to read recordings",
    "small_gicp": "for LiDAR odometry (pose_source: lidar)",
    "rko_lio": "for LiDAR-inertial odometry (pose_source: lidar_inertial, the extra `lidar_inertial`)",
    "pyproj": "to georeference maps by GPS",
    "dask": "for surveys on several processes or machines (the extra `survey`)",
    "distributed": "for surveys on several processes or machines (the extra `survey`)",
}
"""Top-level module, and what it is needed for. laspy, gtsam and rerun are not here: their one importer names them."""

DISTRIBUTIONS = {"apsw": "rosbags", "rko_lio": "rko-lio", "dask": "distributed"}
"""Where the package that brings a module has another name."""


def explain_missing(error: ImportError) -> str | None:
    """What is missing and how to install it; None where the module is no optional one."""
    module = (error.name or "").partition(".")[0]
    if module not in PURPOSES:
        return None
    package = DISTRIBUTIONS.get(module, module)
    return (
        f"the Python package {package} is needed {PURPOSES[module]} and is not installed: pip install {package}"
        " (where pip is refused, as on Ubuntu 24.04: in an environment made by"
        " python3 -m venv --system-site-packages)"
    )
