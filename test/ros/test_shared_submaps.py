"""Two robots over DDS: the real nodes share submaps, close loops between them, and refuse what is no submap."""

from __future__ import annotations

import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from child_text import wait_for_text
from client import LATCHED, RosClient
from grid_map_msgs.msg import GridMap
from nav_msgs.msg import Odometry
from rclpy.qos import DurabilityPolicy, QoSProfile
from returning_drive import PARAMETERS, SECOND, ReturningDrive, Step
from robot import Robot, reliable
from std_msgs.msg import UInt8MultiArray

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping import SubmapStore
from gpgmap_ros.mapping.submap_store import SubmapInfo
from gpgmap_ros.processes import Child
from gpgmap_ros.sensing.messages import pose_of
from gpgmap_ros.slam.shared_submaps import session_here

ALL = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
TOPIC = "/robot_b/mapping_node/submap"
FAST = {**PARAMETERS, "mapping.kernel": "rbf", "mapping.learn_noise": False}


def arguments(namespace: str, **extra: object) -> list[str]:
    text = {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in {**FAST, **extra}.items()}
    remaps = ["-r", f"__ns:={namespace}", "-r", f"/tf:={namespace}/tf"]
    return (
        remaps
        + reliable(namespace)
        + [part for name, value in text.items() for part in ("-p", f"{name}:={value}")]
    )


def true_pose(steps: list[Step], stamp: int, T_odom_submap: np.ndarray) -> np.ndarray:
    """Where a submap's frame is in the world, by the step at which it began."""
    step = min(steps, key=lambda item: abs(item.stamp - stamp))
    return step.T_world_robot @ inverse(step.T_odom_robot) @ T_odom_submap


def test_robots_join_their_maps(start_node: Callable[..., Child], client: RosClient, tmp_path: Path) -> None:
    drive = ReturningDrive(laps=0.6)
    ours, theirs = list(drive), list(replace(drive, start=drive.start + 1000 * SECOND, drift_yaw=-0.004))
    start_node(*arguments("/robot_b"))
    poses = client.listen(Odometry, "/robot_b/mapping_node/submap_pose", ALL)
    Robot(client, "/robot_b").drive(theirs)
    client.spin_until(lambda: len(poses) >= 2, "two submaps of the other robot")

    # it comes later, and gets what was made before
    folder = tmp_path / "maps"
    node = start_node(*arguments("/robot_a", map_folder=folder, submaps=f"[{TOPIC}]"))
    garbage = client.node.create_publisher(UInt8MultiArray, f"{TOPIC}/archive", 10)
    client.spin_until(lambda: garbage.get_subscription_count() > 0, "the node that receives")
    message = UInt8MultiArray(data=array.array("B", b"PK\x03\x04 no archive"))
    refused = f"a submap on '{TOPIC}' is refused: damaged, or not a map file"
    while refused not in node.tail(200):
        garbage.publish(message)
        client.spin_for(1.0)  # not so many that they drive out what the other robot sends
        node.check()
    closures = client.listen(Odometry, "/robot_a/mapping_node/loop_closure", ALL)
    maps = client.listen(GridMap, "/robot_a/mapping_node/global_map", LATCHED)
    Robot(client, "/robot_a").drive(ours)
    wait_for_text(node, f"this drive is joined to that of the robot on '{TOPIC}'")
    client.spin_until(lambda: closures and maps, "a closure and a global map")

    session = session_here(TOPIC, theirs[0].stamp)

    def stored() -> dict[int, SubmapInfo]:
        store = SubmapStore(folder / "submaps", with_settings(Config(), FAST))
        return {info.id: info for info in store.infos()}

    def of_others() -> set[int]:
        return {id for id, info in stored().items() if info.session == session}

    client.spin_until(lambda: len(of_others()) >= 2, "both submaps of the other robot")
    infos, shared = stored(), of_others()
    assert {info.session for info in infos.values()} == {session, ours[0].stamp}
    between = 0
    for message in closures:
        a, b = (int(name.rpartition("_")[2]) for name in (message.header.frame_id, message.child_frame_id))
        if (a in shared) == (b in shared):
            continue
        between += 1
        T_world = [
            true_pose(theirs if id in shared else ours, infos[id].first_stamp, infos[id].T_map_submap)
            for id in (a, b)
        ]
        error = inverse(inverse(T_world[0]) @ T_world[1]) @ pose_of(message.pose.pose)
        assert np.linalg.norm(error[:2, 3]) < 0.5
    assert between
    assert node.running()
