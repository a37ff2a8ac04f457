"""The real node over DDS finds the robot in a saved run, publishes where it is, and lets the run grow if asked to."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_text import wait_for_text
from client import LATCHED, RosClient
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseWithCovarianceStamped
from limits import PATIENCE
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from robot import Robot, reliable
from saved_runs import SETTINGS, StraightDrive, save_run
from std_msgs.msg import String
from tf2_msgs.msg import TFMessage

from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping.submaps import align_with_gravity
from gpgmap_ros.processes import Child
from gpgmap_ros.sensing.messages import nanoseconds, pose_of, transform_of
from gpgmap_ros.slam import Session

MAP = StraightDrive((60.0, 60.0), 0.0, 33.0, seed=1)
DAY = 86_400 * 1_000_000_000
WAY = replace(MAP, start=(90.0, 62.0), heading=np.pi, length=24.0, seed=5, first_stamp=MAP.first_stamp + DAY)


def ros_arguments(**extra: object) -> list[str]:
    values = {**SETTINGS, **{name.replace("__", "."): v for name, v in extra.items()}}
    text = {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in values.items()}
    return reliable() + [part for name, value in text.items() for part in ("-p", f"{name}:={value}")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "run"
    folder.mkdir()
    save_run(folder, MAP)
    return folder


def test_the_node_localises_in_a_run_that_grows(
    client: RosClient, start_node: Callable[..., Child], run: Path
) -> None:
    earlier = {path: path.read_bytes() for path in (run / "submaps").iterdir()}
    poses = client.listen(PoseWithCovarianceStamped, "/mapping_node/pose", 100)
    statuses = client.listen(String, "/mapping_node/localization", LATCHED)
    transforms = client.listen(TFMessage, "/tf", 100)
    diagnostics = client.listen(DiagnosticArray, "/diagnostics", 10)
    node = start_node(*ros_arguments(localization__map=run, localization__update=True))
    robot = Robot(client)
    rate = ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=4.0)
    request = SetParameters.Request(parameters=[Parameter(name="publish_rate", value=rate)])
    (result,) = client.call(SetParameters, "/mapping_node/set_parameters", request).results
    assert result.successful, result.reason
    initial = client.node.create_publisher(PoseWithCovarianceStamped, "/initialpose", 10)
    client.spin_until(initial.get_subscription_count, "the subscription to initialpose")
    elsewhere = PoseWithCovarianceStamped()
    elsewhere.header.frame_id = "utm"
    initial.publish(elsewhere)

    def localization() -> Any:
        return [s for m in diagnostics for s in m.status if s.name.endswith(": localization")]

    wrong = PoseWithCovarianceStamped()  # a prior before the first cloud, and never a must: it is 20 m off
    wrong.header.frame_id = "map"
    wrong.pose.pose.position.x, wrong.pose.pose.orientation.w = 10.0, 1.0
    wrong.pose.covariance = [float(value) for value in np.diag([0.25, 0.25, 0.0, 0.0, 0.0, 0.07]).ravel()]
    initial.publish(wrong)
    client.spin_until(
        lambda: any("an initial pose was given" in s.message for s in localization()), "the initial pose"
    )

    def has_compared() -> bool:
        values = {item.key: item.value for status in localization()[-1:] for item in status.values}
        return values.get("comparisons under way") == "0"

    steps = list(WAY)
    for k in range(0, len(steps), 4):  # a comparison is made every four metres, unless one is under way
        robot.drive(steps[k : k + 4])
        diagnostics.clear()
        client.spin_until(has_compared, "the comparison with the map")
    client.spin_until(lambda: statuses and statuses[-1].data == "tracking", "the robot to be found")
    client.spin_until(lambda: poses, "a pose")
    wait_for_text(node, "in frame 'utm' is ignored: the map stands in 'map'")

    truth = {step.stamp: inverse(align_with_gravity(MAP.pose(0.0))) @ step.T_world_robot for step in steps}
    for message in poses:
        assert message.header.frame_id == "map"
        error = pose_of(message.pose.pose) - truth[nanoseconds(message.header.stamp)]
        assert np.hypot(*error[:2, 3]) < 2.0  # both odometries bend
        assert np.linalg.eigvalsh(np.reshape(message.pose.covariance, (6, 6)))[0] > 0.0

    def map_to_odom() -> list[np.ndarray]:
        found = [t for message in transforms for t in message.transforms if t.child_frame_id == "odom"]
        assert {t.header.frame_id for t in found} <= {"map"}
        return [transform_of(t.transform) for t in found]

    client.spin_until(map_to_odom, "map -> odom on /tf")
    last = map_to_odom()[-1] @ steps[-1].T_odom_robot
    assert np.hypot(*(last - truth[steps[-1].stamp])[:2, 3]) < 2.0

    client.spin_until(lambda: any(s.message.startswith("tracking: ") for s in localization()), "diagnostics")
    wait_for_text(node, "this drive has joined the session of 2023-11-14 22:13:20 UTC")
    node.signal(signal.SIGKILL)
    node.wait(PATIENCE)
    grown = Session.load(run)
    assert len(grown.submaps) > len(earlier)
    assert {path: path.read_bytes() for path in earlier} == earlier  # the old ones are as they were


def test_a_run_that_does_not_fit_is_refused(
    start_node: Callable[..., Child], run: Path, tmp_path: Path
) -> None:
    coarse = start_node(
        *ros_arguments(localization__map=run, submap__resolution=1.0, mapping__resolution=1.0)
    )
    assert coarse.wait(PATIENCE) == 1
    assert "set submap.resolution to 0.5" in coarse.tail(20)
    none = start_node(*ros_arguments(localization__map=tmp_path))
    assert none.wait(PATIENCE) == 1
    assert "not a run" in none.tail(20)
