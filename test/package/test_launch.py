"""The launch file, run for real: `ros2 launch` does with it what these tests do.

launch and launch_ros are not on PyPI; where they are not importable these tests are skipped.
"""

from __future__ import annotations

import shutil
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


@pytest.fixture
def stand_in_for_rviz(environment_after_sourcing: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    """A package rviz2 whose program writes the arguments it was started with to a file; yields that."""
    prefix = tmp_path / "rviz"
    (prefix / "share/ament_index/resource_index/packages").mkdir(parents=True)
    (prefix / "share/ament_index/resource_index/packages/rviz2").touch()
    (prefix / "lib/rviz2").mkdir(parents=True)
    program = prefix / "lib/rviz2/rviz2"
    program.write_text('#!/bin/sh\necho "$*" > "$0.new" && mv "$0.new" "$0.arguments"\n')
    program.chmod(0o755)
    before = environment_after_sourcing["AMENT_PREFIX_PATH"]
    environment_after_sourcing["AMENT_PREFIX_PATH"] = f"{prefix}:{before}"
    yield program.with_name("rviz2.arguments")
    environment_after_sourcing["AMENT_PREFIX_PATH"] = before


def wait_for_text(child: Child, text: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while text not in child.tail(100_000):  # with log_level:=debug there are hundreds of lines a second
        assert child.running(), child.tail(50)
        assert time.monotonic() < deadline, child.tail(50)
        time.sleep(0.05)


def test_every_argument_has_a_description(root: Path) -> None:
    from launch import LaunchContext
    from launch.launch_description_sources import PythonLaunchDescriptionSource

    source = PythonLaunchDescriptionSource(str(root / "launch" / "gpgmap.launch.py"))
    arguments = source.get_launch_description(LaunchContext()).get_launch_arguments()
    expected = (
        "points odometry imu gps pose_source map_frame params_file sensor tf publish_tf use_sim_time namespace rviz "
        "log_level"
    )
    assert {item.name for item in arguments} == set(expected.split())
    assert all(len(item.description) > 10 for item in arguments)


def test_the_node_starts_with_the_shipped_parameters(launch: Callable[..., Child]) -> None:
    child = launch("points:=/lidar/points")
    wait_for_text(child, "mapping '/lidar/points' into 'odom', poses from /tf")
    assert child.stop(PATIENCE) == 0, child.tail(50)


def test_arguments_reach_the_node(launch: Callable[..., Child]) -> None:
    child = launch(
        "namespace:=rover", "map_frame:=world", "pose_source:=odometry", "odometry:=/wheel/odometry"
    )
    wait_for_text(child, "mapping '/rover/points' into 'world', poses from the odometry topic")


def test_an_argument_left_out_leaves_the_setting_to_the_file(
    launch: Callable[..., Child], tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("/**:\n  ros__parameters:\n    pose_source: odometry\n    map_frame: world\n")
    child = launch(f"params_file:={path}", "use_sim_time:=true", "log_level:=info")
    wait_for_text(child, "into 'world', poses from the odometry topic")


@pytest.mark.parametrize("sensor", ["spinning_lidar", "solid_state_lidar", "stereo"])
def test_every_sensor_has_its_settings(launch: Callable[..., Child], sensor: str) -> None:
    wait_for_text(launch(f"sensor:={sensor}"), "mapping '/points' into 'odom'")


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("use_sim_time:=maybe", "use_sim_time:=maybe is none of true, false"),
        ("rviz:=perhaps", "rviz:=perhaps is none of true, false"),
        ("publish_tf:=yes", "publish_tf:=yes is none of true, false"),
        ("sensor:=velodyne", "sensor:=velodyne is none of spinning_lidar, solid_state_lidar, stereo"),
        ("sensor:=nav2_costmap", "sensor:=nav2_costmap is none of spinning_lidar"),
        ("log_level:=chatty", "log_level:=chatty is none of debug, info, warn, error, fatal"),
        ("params_file:=/nope.yaml", "params_file:=/nope.yaml is no file; in "),
    ],
)
def test_a_wrong_argument_is_refused_and_nothing_started(
    launch: Callable[..., Child], argument: str, text: str
) -> None:
    child = launch(argument)
    assert child.wait(PATIENCE) != 0
    assert text in child.tail(50)
    assert "process started" not in child.tail(50)


def test_a_missing_params_file_names_those_that_are_there(launch: Callable[..., Child]) -> None:
    child = launch("params_file:=/nope.yaml")
    assert child.wait(PATIENCE) != 0
    assert "gpgmap.yaml" in child.tail(50)
    assert "stereo.yaml" in child.tail(50)


@pytest.mark.skipif(bool(shutil.which("rviz2")), reason="rviz2 is installed")
def test_rviz_that_is_not_installed_is_refused_and_nothing_started(launch: Callable[..., Child]) -> None:
    child = launch("rviz:=true")
    assert child.wait(PATIENCE) != 0
    assert "rviz:=true needs rviz2, which is not installed" in child.tail(50)
    assert "process started" not in child.tail(50)


def test_rviz_shows_the_frame_of_the_map_and_says_what_the_view_needs(
    stand_in_for_rviz: Path, launch: Callable[..., Child]
) -> None:
    child = launch("rviz:=true", "map_frame:=/world", "tf:=/rover/tf")
    wait_for_text(child, "they are shown where /tf connects it with map_frame: publish_tf:=true")
    wait_for_text(child, "into 'world'")
    wait_for_text(child, "[rviz2-2]: process has finished cleanly")
    arguments = stand_in_for_rviz.read_text()
    assert "-f world" in arguments
    assert "/tf:=/rover/tf" in arguments
    assert "/tf_static:=/rover/tf_static" in arguments


def test_a_slash_before_the_frame_is_left_out(launch: Callable[..., Child]) -> None:
    wait_for_text(launch("map_frame:=/map_of_the_yard"), "into 'map_of_the_yard', poses from /tf")


def test_transforms_come_from_another_topic(launch: Callable[..., Child]) -> None:
    """Relative to the namespace, as with several robots."""
    child = launch("namespace:=rover", "tf:=tf", "log_level:=debug")
    wait_for_text(child, "mapping '/rover/points'")
    wait_for_text(child, "'/rover/tf'")


def test_publish_tf_reaches_the_node(launch: Callable[..., Child]) -> None:
    """Where it cannot be done, the node says why."""
    child = launch("publish_tf:=true", "map_frame:=map")
    wait_for_text(child, "closure.publish_tf needs two frames")
