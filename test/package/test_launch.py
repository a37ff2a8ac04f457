"""The launch file, run for real: `ros2 launch` does with it what these tests do.

launch and launch_ros are not on PyPI; where they are not importable these tests are skipped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from limits import PATIENCE

pytest.importorskip(
    "launch_ros", reason="launch_ros is not installed (not on PyPI; a ROS installation has it)"
)

from gpgmap_ros.processes import Child, isolated_ros_environment

LAUNCH = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
path, *pairs = sys.argv[1:]
include = IncludeLaunchDescription(
    PythonLaunchDescriptionSource(path), launch_arguments=[tuple(pair.split(":=", 1)) for pair in pairs]
)
service = LaunchService()
service.include_launch_description(LaunchDescription([include]))
sys.exit(service.run())
"""


@pytest.fixture
def launch(
    workspace: Path, environment_after_sourcing: dict[str, str], tmp_path: Path
) -> Iterator[Callable[..., Child]]:
    """Launches the installed file with arguments, as `ros2 launch gpgmap_ros gpgmap.launch.py ...` would."""
    ros = isolated_ros_environment(tmp_path)
    kept = ("ROS_DOMAIN_ID", "ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_LOG_DIR", "PYTHONUNBUFFERED")
    environment = environment_after_sourcing | {name: ros[name] for name in kept}
    path = workspace / "install/gpgmap_ros/share/gpgmap_ros/launch/gpgmap.launch.py"
    children: list[Child] = []

    def start(*arguments: str) -> Child:
        command = [sys.executable, "-c", LAUNCH, str(path), *arguments]
        child = Child("launch", command, environment, tmp_path / f"launch.{len(children)}.log")
        children.append(child)
        return child

    yield start
    for child in children:
        child.stop()


def wait_for_text(child: Child, text: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while text not in child.tail(200):
        assert child.running(), child.tail(50)
        assert time.monotonic() < deadline, child.tail(50)
        time.sleep(0.05)


def test_every_argument_has_a_description(root: Path) -> None:
    from launch import LaunchContext
    from launch.launch_description_sources import PythonLaunchDescriptionSource

    source = PythonLaunchDescriptionSource(str(root / "launch" / "gpgmap.launch.py"))
    arguments = source.get_launch_description(LaunchContext()).get_launch_arguments()
    expected = (
        "points odometry pose_source map_frame params_file sensor use_sim_time namespace rviz log_level"
    )
    assert {item.name for item in arguments} == set(expected.split())
    assert all(len(item.description) > 10 for item in arguments)


def test_the_node_starts_with_the_shipped_parameters(launch: Callable[..., Child]) -> None:
    child = launch("points:=/lidar/points")
    wait_for_text(child, "mapping '/lidar/points' into 'odom', poses from tf")
    assert child.stop(20.0) == 0, child.tail(50)


def test_arguments_reach_the_node(launch: Callable[..., Child]) -> None:
    child = launch(
        "namespace:=rover", "map_frame:=world", "pose_source:=odometry", "odometry:=/wheel/odometry"
    )
    wait_for_text(child, "mapping '/rover/points' into 'world', poses from odometry")


def test_an_argument_left_out_leaves_the_setting_to_the_file(
    launch: Callable[..., Child], tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("/**:\n  ros__parameters:\n    pose_source: odometry\n    map_frame: world\n")
    child = launch(f"params_file:={path}", "use_sim_time:=true", "log_level:=info")
    wait_for_text(child, "into 'world', poses from odometry")


@pytest.mark.parametrize("sensor", ["spinning_lidar", "solid_state_lidar", "stereo"])
def test_every_sensor_has_its_settings(launch: Callable[..., Child], sensor: str) -> None:
    wait_for_text(launch(f"sensor:={sensor}"), "mapping '/points' into 'odom'")


def test_a_wrong_argument_is_named(launch: Callable[..., Child]) -> None:
    child = launch("use_sim_time:=maybe")
    child.wait(PATIENCE)
    assert "use_sim_time:=maybe is neither 'true' nor 'false'" in child.tail(50)
