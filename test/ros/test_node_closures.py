"""A drive with drift over DDS: the real node closes the loop, says so on every topic, and takes a closure back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_text import wait_for_text
from client import LATCHED, RosClient
from diagnostic_msgs.msg import DiagnosticArray
from fast_mapping import FAST, fast_config
from grid_map_msgs.msg import GridMap
from nav_msgs.msg import Odometry
from nav_msgs.msg import Path as PathMessage
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.qos import DurabilityPolicy, QoSProfile
from returning_drive import PARAMETERS, ReturningDrive, Step
from robot import Robot, reliable
from std_srvs.srv import Trigger
from tf2_msgs.msg import TFMessage
from visualization_msgs.msg import Marker, MarkerArray

from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping import SubmapStore
from gpgmap_ros.processes import Child, isolated_ros_environment
from gpgmap_ros.sensing.messages import nanoseconds, pose_of, transform_of
from gpgmap_ros.slam.mapping_pipeline import MappingPipeline

ALL = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
CALLED = "/mapping_node"
STEP = ReturningDrive().step


def ros_arguments(**extra: object) -> list[str]:
    values = {
        **FAST,
        **PARAMETERS,
        **{name.replace("__", "."): v for name, v in extra.items()},
    }
    text = {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in values.items()}
    return reliable() + [part for name, value in text.items() for part in ("-p", f"{name}:={value}")]


def correction_error(T_map_odom: np.ndarray, steps: list[Step], step: Step) -> float:
    """Metres between where the corrected odometry puts the robot and where it was, from where it began."""
    T_world_odom = steps[0].T_world_robot @ inverse(steps[0].T_odom_robot)
    return float(np.linalg.norm((T_world_odom @ T_map_odom @ step.T_odom_robot - step.T_world_robot)[:2, 3]))


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    return list(ReturningDrive())


@dataclass(frozen=True, eq=False)
class ClosedLoop:
    """What the node sent while it closed a loop, and after its closures were rejected.

    closures, anchors: all messages on loop_closure and submap_pose; finished: submaps at the end of the drive
    path, markers, global_map: the last messages before a closure was rejected
    T_map_odom, T_map_odom_rejected: from /tf, with the closures and without them
    unnamed: answer of reject_closure while closure.reject names no closure; rejections: answers for each closure
    running, log: of the node at the end; folder: its map folder
    """

    closures: list[Odometry]
    anchors: list[Odometry]
    finished: int
    path: PathMessage
    markers: list[Marker]
    global_map: GridMap
    T_map_odom: np.ndarray
    T_map_odom_rejected: np.ndarray
    unnamed: Trigger.Response
    rejections: list[Trigger.Response]
    running: bool
    log: str
    folder: Path


def corrections(transforms: list[TFMessage]) -> list[np.ndarray]:
    """map -> odom, as it was sent on /tf."""
    sent = [t for message in transforms for t in message.transforms if t.child_frame_id == "odom"]
    assert {t.header.frame_id for t in sent} <= {"map"}
    return [transform_of(t.transform) for t in sent]


def reject(client: RosClient, closure: Odometry) -> Trigger.Response:
    """Name a closure in closure.reject and call reject_closure."""
    a, b = (frame.rpartition("_")[2] for frame in (closure.header.frame_id, closure.child_frame_id))
    value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=f"{a}-{b}")
    request = SetParameters.Request(parameters=[Parameter(name="closure.reject", value=value)])
    assert client.call(SetParameters, f"{CALLED}/set_parameters", request).results[0].successful
    return client.call(Trigger, f"{CALLED}/reject_closure", Trigger.Request())


def observe_closed_loop(client: RosClient, node: Child, steps: list[Step], folder: Path) -> ClosedLoop:
    """Drive with drift, wait for the closures, then reject them one by one."""
    closures = client.listen(Odometry, f"{CALLED}/loop_closure", ALL)
    anchors = client.listen(Odometry, f"{CALLED}/submap_pose", ALL)
    paths = client.listen(PathMessage, f"{CALLED}/path", LATCHED)
    markers = client.listen(MarkerArray, f"{CALLED}/closure_markers", LATCHED)
    diagnostics = client.listen(DiagnosticArray, "/diagnostics", 10)
    transforms = client.listen(TFMessage, "/tf", 100)

    def status() -> dict[str, str]:
        found = [s for message in diagnostics for s in message.status if s.name.endswith("loop closure")]
        return {item.key: item.value for item in found[-1].values} if found else {}

    def map_from_odom() -> np.ndarray:
        """As it is sent from now on."""
        transforms.clear()
        client.spin_until(lambda: corrections(transforms), "map -> odom on /tf")
        return corrections(transforms)[-1]

    def all_is_told() -> bool:
        """Of the way, only an unfinished submap is left, and every topic shows the same graph."""
        if not anchors or not markers or not paths:
            return False
        way_left = sum(step.stamp > nanoseconds(anchors[-1].header.stamp) for step in steps) * STEP
        dots, lines = (named(markers[-1].markers, name).points for name in ("submaps", "closures"))
        return (
            way_left < 2.0 * (PARAMETERS["submap.max_distance"] + STEP)
            and int(status().get("submaps in the graph", 0)) == len(anchors) == len(dots)
            and len(lines) == 2 * len(closures)
        )

    Robot(client).drive(steps)
    client.spin_until(all_is_told, "every submap to be in the graph")
    finished = len(anchors)
    T_map_odom = map_from_odom()
    path, drawn, found = paths[-1], markers[-1].markers, list(closures)
    # made only while somebody listens
    maps = client.listen(GridMap, f"{CALLED}/global_map", LATCHED)
    client.spin_until(lambda: maps, "the global map")
    unnamed = client.call(Trigger, f"{CALLED}/reject_closure", Trigger.Request())
    rejections = [reject(client, closure) for closure in found]
    client.spin_until(lambda: status().get("closures in the graph") == "0", "a graph without closures")
    return ClosedLoop(
        closures=found,
        anchors=anchors[:finished],
        finished=finished,
        path=path,
        markers=drawn,
        global_map=maps[0],
        T_map_odom=T_map_odom,
        T_map_odom_rejected=map_from_odom(),
        unnamed=unnamed,
        rejections=rejections,
        running=node.running(),
        log=node.tail(200),
        folder=folder,
    )


@pytest.fixture(scope="module")
def closed_loop(
    steps: list[Step], executables: Path, domain_ids: Iterator[int], tmp_path_factory: pytest.TempPathFactory
) -> ClosedLoop:
    """One run of the node that all tests of the closed loop look at."""
    folder = tmp_path_factory.mktemp("closed_loop")
    environment = isolated_ros_environment(folder / "logs", domain_id=next(domain_ids))
    arguments = ros_arguments(map_folder=folder / "maps", closure__publish_tf=True)
    command = [str(executables / "mapping_node"), "--ros-args", *arguments]
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for name in ("ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_LOG_DIR", "FASTRTPS_DEFAULT_PROFILES_FILE"):
            patch.setenv(name, environment[name])
        client = RosClient(int(environment["ROS_DOMAIN_ID"]))
        stack.callback(client.close)
        node = Child("mapping_node", command, environment, folder / "logs" / "mapping_node.log")
        stack.callback(node.stop)
        return observe_closed_loop(client, node, steps, folder / "maps")


@pytest.fixture(scope="module")
def by_stamp(steps: list[Step]) -> dict[int, Step]:
    return {step.stamp: step for step in steps}


def world_from_odom(steps: list[Step]) -> np.ndarray:
    """Where the odometry begins, in the true frame."""
    return steps[0].T_world_robot @ inverse(steps[0].T_odom_robot)


def named(markers: list[Marker], namespace: str) -> Marker:
    return next(marker for marker in markers if marker.ns == namespace)


def test_a_drive_that_returns_is_divided_into_submaps_and_closed(closed_loop: ClosedLoop) -> None:
    assert closed_loop.finished >= 10
    assert closed_loop.closures


def test_a_closure_is_the_true_pose_of_the_later_submap_in_the_earlier(
    closed_loop: ClosedLoop, by_stamp: dict[int, Step]
) -> None:
    true = {
        anchor.child_frame_id: by_stamp[nanoseconds(anchor.header.stamp)].T_world_robot
        for anchor in closed_loop.anchors
    }
    for closure in closed_loop.closures:
        truth = inverse(true[closure.header.frame_id]) @ true[closure.child_frame_id]
        assert np.linalg.norm((pose_of(closure.pose.pose) - truth)[:2, 3]) < 0.15


def test_a_closure_has_a_positive_definite_covariance_of_centimetres(closed_loop: ClosedLoop) -> None:
    for closure in closed_loop.closures:
        covariance = np.array(closure.pose.covariance).reshape(6, 6)
        assert np.linalg.eigvalsh(covariance)[0] > 0.0
        assert np.sqrt(covariance[0, 0]) < 0.2


def test_a_closure_has_a_stamp_of_the_data(closed_loop: ClosedLoop, by_stamp: dict[int, Step]) -> None:
    assert {nanoseconds(closure.header.stamp) for closure in closed_loop.closures} <= set(by_stamp)


def test_the_transform_from_map_to_odom_removes_the_drift(
    closed_loop: ClosedLoop, steps: list[Step], by_stamp: dict[int, Step]
) -> None:
    last = by_stamp[nanoseconds(closed_loop.anchors[-1].header.stamp)]
    assert correction_error(np.eye(4), steps, last) > 1.5
    assert correction_error(closed_loop.T_map_odom, steps, last) < 0.15


def test_the_path_has_the_stamps_of_the_data_in_order(
    closed_loop: ClosedLoop, by_stamp: dict[int, Step]
) -> None:
    stamps = [nanoseconds(pose.header.stamp) for pose in closed_loop.path.poses]
    assert stamps == sorted(stamps)
    assert set(stamps) <= set(by_stamp)


def test_the_path_is_corrected_and_in_the_map_frame(
    closed_loop: ClosedLoop, steps: list[Step], by_stamp: dict[int, Step]
) -> None:
    path = closed_loop.path
    end = by_stamp[nanoseconds(path.poses[-1].header.stamp)]
    T_world_robot = world_from_odom(steps) @ pose_of(path.poses[-1].pose)
    assert path.header.frame_id == "map"
    assert np.linalg.norm((T_world_robot - end.T_world_robot)[:2, 3]) < 0.4


def test_the_markers_are_a_dot_per_submap_and_a_line_per_closure(closed_loop: ClosedLoop) -> None:
    lines = named(closed_loop.markers, "closures")
    assert len(named(closed_loop.markers, "submaps").points) == closed_loop.finished
    assert len(lines.points) == 2 * len(closed_loop.closures)
    assert lines.header.frame_id == "map"


def test_the_markers_replace_those_of_earlier_messages(closed_loop: ClosedLoop) -> None:
    assert closed_loop.markers[0].action == Marker.DELETEALL


def test_the_global_map_shows_the_true_relief(closed_loop: ClosedLoop, steps: list[Step]) -> None:
    assert closed_loop.global_map.header.frame_id == "map"
    assert relief_error(closed_loop.global_map, world_from_odom(steps)) < 0.15


def test_reject_closure_fails_where_no_closure_is_named(closed_loop: ClosedLoop) -> None:
    assert not closed_loop.unnamed.success


def test_each_named_closure_is_rejected(closed_loop: ClosedLoop) -> None:
    assert [answer.message for answer in closed_loop.rejections if not answer.success] == []


def test_without_its_closures_the_graph_is_the_odometry_again(closed_loop: ClosedLoop) -> None:
    np.testing.assert_allclose(closed_loop.T_map_odom_rejected, np.eye(4), atol=1e-6)


def test_rejections_are_kept_in_the_map_folder(closed_loop: ClosedLoop) -> None:
    assert (closed_loop.folder / "closures.npz").exists()


def test_the_node_runs_on_without_an_error(closed_loop: ClosedLoop) -> None:
    assert closed_loop.running
    assert "Traceback" not in closed_loop.log


def relief_error(message: GridMap, T_world_map: np.ndarray) -> float:
    """Root mean square of the elevation against the true relief, in metres."""
    rows = message.data[0].layout.dim
    layer = np.array(message.data[message.layers.index("elevation")].data).reshape(rows[0].size, rows[1].size)
    info = message.info
    # column-major from the +x, +y corner: the first index of this array runs along -y, the second along -x
    y = info.pose.position.y + 0.5 * info.length_y - info.resolution * (np.arange(layer.shape[0]) + 0.5)
    x = info.pose.position.x + 0.5 * info.length_x - info.resolution * (np.arange(layer.shape[1]) + 0.5)
    xx, yy = np.meshgrid(x, y)
    known = np.isfinite(layer)
    assert known.sum() > 1000
    points = (
        np.column_stack([xx[known], yy[known], layer[known]]) @ T_world_map[:3, :3].T + T_world_map[:3, 3]
    )
    return float(np.sqrt(np.mean((points[:, 2] - ReturningDrive().relief(points[:, :2])) ** 2)))


def test_it_finds_itself_in_yesterdays_map(
    client: RosClient, start_node: Any, steps: list[Step], tmp_path: Path
) -> None:
    """Submaps of an earlier run are in the folder; today's drive has a frame of its own and is found in them."""
    folder = tmp_path / "maps"
    config = fast_config({**PARAMETERS, "map_folder": str(folder)})
    pipeline = MappingPipeline(config)
    for step in steps[:60]:
        pipeline.add_cloud(step.points, step.T_odom_robot, step.stamp)
    pipeline.finish_submap("shutdown")
    yesterday = len(SubmapStore(folder / "submaps", config))
    assert yesterday >= 5

    start_node(*ros_arguments(map_folder=folder, closure__publish_tf=True))
    diagnostics = client.listen(DiagnosticArray, "/diagnostics", 10)
    closures = client.listen(Odometry, f"{CALLED}/loop_closure", ALL)
    transforms = client.listen(TFMessage, "/tf", 100)
    robot = Robot(client)
    # today: it starts a third of the way along, and its odometry begins there
    begin = steps[30]
    shift = 86_400_000_000_000
    today = [
        Step(
            step.stamp + shift,
            step.points,
            inverse(begin.T_odom_robot) @ step.T_odom_robot,
            step.T_world_robot,
        )
        for step in steps[30:60]
    ]
    robot.drive(today)
    client.spin_until(lambda: closures, "a closure with yesterday's map")
    a, b = (int(f.rpartition("_")[2]) for f in (closures[0].header.frame_id, closures[0].child_frame_id))
    assert a < yesterday <= b

    def messages() -> list[str]:
        return [s.message for m in diagnostics for s in m.status if s.name.endswith("loop closure")]

    client.spin_until(
        lambda: any("closures over" in text and "not found" not in text for text in messages()), "its place"
    )
    transforms.clear()
    client.spin_until(lambda: corrections(transforms), "map -> odom on /tf")
    T_map_odom = corrections(transforms)[-1]
    # yesterday's odometry frame is the map: there it stood then, with the drift of then
    expected = begin.T_odom_robot
    assert np.linalg.norm((T_map_odom - expected)[:2, 3]) < 0.4


def test_a_restarted_node_says_what_it_found_and_what_can_be_rejected(
    client: RosClient, start_node: Any, steps: list[Step], tmp_path: Path
) -> None:
    """No cloud comes: the folder alone is enough for the path, the markers and the closures."""
    folder = tmp_path / "maps"
    config = fast_config({**PARAMETERS, "map_folder": str(folder)})
    pipeline = MappingPipeline(config)
    for step in steps:
        pipeline.add_cloud(step.points, step.T_odom_robot, step.stamp)
    pipeline.finish_submap("shutdown")
    count = len(SubmapStore(folder / "submaps", config))
    node = start_node(*ros_arguments(map_folder=folder))
    paths = client.listen(PathMessage, f"{CALLED}/path", LATCHED)
    markers = client.listen(MarkerArray, f"{CALLED}/closure_markers", LATCHED)
    diagnostics = client.listen(DiagnosticArray, "/diagnostics", 10)
    wait_for_text(node, f"{count} submaps of earlier runs are in the map folder")
    client.spin_until(lambda: paths and markers, "the path of the earlier drive")
    assert f"found {count} submaps of 1 earlier drives" in node.tail(200)
    dots = next(m for m in markers[-1].markers if m.ns == "submaps")
    lines = next(m for m in markers[-1].markers if m.ns == "closures")
    assert len(dots.points) == count
    assert len(lines.points) >= 2 * 3
    # the end of the path is where the robot was, not where its odometry put it
    start = steps[0].T_world_robot @ inverse(steps[0].T_odom_robot)
    by_stamp = {step.stamp: step for step in steps}
    end = by_stamp[nanoseconds(paths[-1].poses[-1].header.stamp)]
    assert np.linalg.norm((start @ pose_of(paths[-1].poses[-1].pose) - end.T_world_robot)[:2, 3]) < 0.4
    client.spin_until(
        lambda: any("of earlier drives" in s.message for m in diagnostics for s in m.status),
        "diagnostics of the earlier drives",
    )
    for name, expected in (
        ("500-501", "there is no closure between submaps 500 and 501; there are "),
        ("9" * 5000 + "-1", "set it to the numbers of two submaps"),
    ):
        value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=name)
        request = SetParameters.Request(parameters=[Parameter(name="closure.reject", value=value)])
        assert client.call(SetParameters, f"{CALLED}/set_parameters", request).results[0].successful
        answer = client.call(Trigger, f"{CALLED}/reject_closure", Trigger.Request())
        assert not answer.success
        assert expected in answer.message
    assert node.running()


def test_without_a_folder_there_is_no_global_map_and_it_says_why(
    client: RosClient, start_node: Any, steps: list[Step]
) -> None:
    node = start_node(*ros_arguments())
    maps = client.listen(GridMap, f"{CALLED}/global_map", LATCHED)
    Robot(client).drive(steps[:12])
    wait_for_text(node, "no global map: no submaps are kept to stitch: set map_folder")
    assert not maps


def test_closures_can_be_switched_off(client: RosClient, start_node: Any, steps: list[Step]) -> None:
    start_node(*ros_arguments(closure__enabled=False))
    diagnostics = client.listen(DiagnosticArray, "/diagnostics", 10)
    Robot(client).drive(steps[:12])
    client.spin_until(lambda: diagnostics, "diagnostics")
    assert not [s for m in diagnostics for s in m.status if s.name.endswith("loop closure")]
    assert client.node.count_publishers(f"{CALLED}/loop_closure") == 0
