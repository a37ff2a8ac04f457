"""One source tree, two ways to install: `colcon build` (ament_python) on a robot, pip elsewhere."""

from pathlib import Path

from setuptools import find_packages, setup

PACKAGE = "gpgmap_ros"
HERE = Path(__file__).resolve().parent


def requirements(name: str) -> list[str]:
    lines = (line.split(" #")[0].strip() for line in (HERE / "requirements" / name).read_text().splitlines())
    return [line for line in lines if line and not line.startswith(("#", "-"))]


def version() -> str:
    for line in (HERE / "gp_core" / "__init__.py").read_text().splitlines():
        if line.startswith("__version__"):
            return line.split('"')[1]
    raise SystemExit("setup.py: no __version__ in gp_core/__init__.py")


def share_files() -> list[tuple[str, list[str]]]:
    """What ROS looks for under share/: index entry, manifest, launch files, parameters, views for RViz and Foxglove."""
    share = f"share/{PACKAGE}"
    files = [("share/ament_index/resource_index/packages", [f"resource/{PACKAGE}"]), (share, ["package.xml"])]
    for folder, pattern in (("launch", "*.launch.py"), ("config", "*"), ("rviz", "*")):
        found = sorted(path.relative_to(HERE).as_posix() for path in (HERE / folder).glob(pattern))
        files.append((f"{share}/{folder}", found))
    return files


# docs/dependencies.md says what each is for. Open3D without CUDA is built for Linux on x86_64 only.
X86_LINUX = "sys_platform == 'linux' and platform_machine == 'x86_64'"
OTHER = "sys_platform != 'linux' or platform_machine != 'x86_64'"
EXTRAS = {
    "open3d": [f"open3d-cpu>=0.19; {X86_LINUX}", f"open3d>=0.19; {OTHER}"],
    "lidar": ["small-gicp>=1.0"],
    "lidar_inertial": ["rko-lio>=0.4", "small-gicp>=1.0"],
    "gps": ["pyproj>=3.6"],
    "survey": ["dask>=2024.8", "distributed>=2024.8"],
    "e57": ["pye57>=0.4"],
    "graph": ["gtsam>=4.3"],
    "viewer": ["rerun-sdk>=0.20"],
    "docs": requirements("docs.in"),
    "test": ["pytest>=7.4"],  # tells `colcon test` to run pytest
}

setup(
    name=PACKAGE,
    version=version(),
    description="Gaussian-process gradient maps for loop closure on bare ground, live in ROS 2",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    maintainer="gpgmap_ros maintainers",
    maintainer_email="maintainers@gpgmap-ros.example.org",
    packages=find_packages(include=["gp_core", "gp_core.*", "gpgmap_ros", "gpgmap_ros.*"]),
    package_data={
        "gp_core": ["py.typed"],
        "gpgmap_ros": ["py.typed", "data/*", "report/page.*", "report/change.*", "report/script/*.js"],
    },
    data_files=share_files(),
    python_requires=">=3.11",
    install_requires=requirements("runtime.in"),
    extras_require=EXTRAS,
    zip_safe=True,
    entry_points={
        "console_scripts": [
            "gpgmap = gpgmap_ros.cli:main",
            "mapping_node = gpgmap_ros.nodes.mapping_node:main",
        ]
    },
)
