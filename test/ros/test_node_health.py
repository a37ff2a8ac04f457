"""What keeps a node running and a user informed: diagnostics, mismatched QoS, several sensors, sudden ends."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_text import wait_for_text
from client import RosClient
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import TransformStamped
from limits import PATIENCE
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from scene import CloudSource
from sensor_msgs.msg import Image, PointCloud2
from std_srvs.srv import SetBool, Trigger
from tf2_msgs.msg import TFMessage

from gpgmap_ros.config import Config
from gpgmap_ros.mapping import SubmapStore
from gpgmap_ros.processes import Child
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS
from gpgmap_ros.storage.archive import read_archive

SMALL = ("-p", "mapping.size_x:=2.0", "-p", "mapping.size_y:=2.0", "-p", "mapping.resolution:=0.2")


def values_of(messages: list[Any], name: str = "mapping") -> dict[str, str]:
    found = [s for message in messages for s in message.status if s.name.endswith(f": {name}")]
    return {item.key: item.value for item in found[-1].values} if found else {}


def test_diagnostics_hold_what_an_operator_asks_for(client: RosClient, start_node: Any) -> None:
    start_node(*SMALL)
    diagnostics = client.listen(DiagnosticArray, "/diagnostics", 10)
    images = client.listen(Image, "/mapping_node/elevation")
    source = CloudSource(client, start=int(time.time()))
    client.spin_until(lambda: source.publish() or len(images) > 3, "maps")

    def now() -> dict[str, str]:
        source.stamp = time.time_ns()
        source.publish()
        return values_of(diagnostics)

    client.spin_until(lambda: float(now().get("maps published per second", 0.0)) > 0.5, "a rate of maps")
    client.spin_until(lambda: float(now().get("clouds received per second", 0.0)) > 1.0, "a rate of clouds")
    client.spin_until(lambda: "latency, stamp to map (ms)" in now(), "the latency")
    values = now()
    for name in ("latency, stamp to map", "fusing", "solving"):
        assert re.fullmatch(r"median -?[\d.]+, p95 -?[\d.]+", values[f"{name} (ms)"]), values
    assert float(values["resident memory (MB)"]) > 20.0
    assert 0.0 < float(values["map coverage (%)"]) <= 100.0
    assert int(values["solver fallbacks"]) == 0
    assert int(values["clouds waiting"]) >= 0
    assert abs(float(values["age of the newest pose (s)"])) < 60.0
    assert int(values["points used"]) > 0
    # drops, by reason
    assert client.call(SetBool, "/mapping_node/pause", SetBool.Request(data=True)).success
    client.spin_until(lambda: int(now().get("clouds dropped: paused", 0)) > 0, "a dropped cloud")
    assert "no submap has been compared yet" in [
        s.message for m in diagnostics for s in m.status if s.name.endswith("loop closure")
    ]


def test_a_publisher_whose_qos_does_not_match_is_named_with_the_remedy(
    client: RosClient, start_node: Any
) -> None:
    node = start_node(*SMALL)
    wait_for_text(node, "mapping '/points'")
    unreliable = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
    client.node.create_publisher(TFMessage, "/tf", unreliable)
    client.spin_for(0.5)
    wait_for_text(node, "a publisher of '/tf' offers an incompatible RELIABILITY")
    assert "transforms must be sent reliably" in node.tail(50)
    assert node.running()


def test_the_first_start_says_that_it_compiles(
    client: RosClient, start_node: Any, ros_environment: dict[str, str], tmp_path: Path
) -> None:
    ros_environment["NUMBA_CACHE_DIR"] = str(tmp_path / "empty")
    node = start_node(*SMALL)
    wait_for_text(node, "compiling the inner loops for this CPU")
    # whoever presses Ctrl-C does not wait for the rest
    node.signal(signal.SIGINT)
    assert node.wait(PATIENCE) == 0
    assert "mapping '/points'" not in node.tail(100)
    assert "Traceback" not in node.tail(100)


class Sensor:
    """One of two sensors: flat ground beside the robot, in a frame of its own."""

    def __init__(self, client: RosClient, name: str, x: float) -> None:
        self.source = CloudSource(client, topic=f"/{name}")
        self.source._points[:, :2] *= 0.4
        self._clouds = client.node.create_publisher(PointCloud2, f"/{name}", qos_profile_sensor_data)
        self._transforms = client.node.create_publisher(TFMessage, "/tf", QoSProfile(depth=100))
        self._name, self._x = name, x

    def publish(self, stamp: int) -> None:
        self.source.stamp = stamp
        transform = TransformStamped(child_frame_id=self._name)
        transform.header.frame_id = "odom"
        transform.header.stamp.sec, transform.header.stamp.nanosec = divmod(stamp, NANOSECONDS)
        transform.transform.translation.x, transform.transform.translation.z = self._x, 1.0
        transform.transform.rotation.w = 1.0
        self._transforms.publish(TFMessage(transforms=[transform]))
        cloud = self.source.cloud()
        cloud.header.frame_id = self._name
        self._clouds.publish(cloud)


def test_several_sensors_make_one_map_and_a_silent_one_is_named(client: RosClient, start_node: Any) -> None:
    node = start_node(*SMALL, "-p", "points_topics:=[front, rear]", "-p", "mapping.rolling:=false")
    images = client.listen(Image, "/mapping_node/elevation")
    front, rear = Sensor(client, "front", 0.5), Sensor(client, "rear", -0.4)
    stamp = 1_000 * NANOSECONDS

    def known(half: slice) -> bool:
        if not images:
            return False
        elevation = np.frombuffer(images[-1].data, "<f4").reshape(images[-1].height, images[-1].width)
        return bool(np.isfinite(elevation[3:7, half]).any(axis=0).all())

    def both() -> bool:
        nonlocal stamp
        stamp += NANOSECONDS // 10
        front.publish(stamp)
        rear.publish(stamp - NANOSECONDS // 20)  # sensors need not agree about the time
        client.spin_for(0.1)
        # the map's middle is where the first cloud was seen from
        return known(slice(3, 6))

    client.spin_until(both, "ground in front and behind")
    assert "mapping '/front', '/rear' into 'odom'" in node.tail(50)

    def front_only() -> bool:
        nonlocal stamp
        stamp += NANOSECONDS // 10
        front.publish(stamp)
        client.spin_for(0.1)
        return "no cloud on '/rear' for" in node.tail(50)

    client.spin_until(front_only, "a warning that names the silent sensor")
    assert "no cloud on '/front'" not in node.tail(50)


# ------------------------------------------------ sudden ends

LARGE = ("-p", "mapping.size_x:=30.0", "-p", "mapping.size_y:=30.0", "-p", "filter.max_range:=100.0")


class WideSource(CloudSource):
    """Ground of 24 m by 24 m: a map whose file takes a while to write."""

    def __init__(self, client: RosClient, start: int = 1_000) -> None:
        super().__init__(client, start=start)
        xy = np.random.default_rng(1).uniform(-12.0, 12.0, (40_000, 2))
        self._points = np.column_stack([xy, np.full(len(xy), -1.0)]).astype(np.float32)

    def cloud(self) -> PointCloud2:
        message = super().cloud()
        message.width, message.row_step = len(self._points), 12 * len(self._points)
        return message


def publishers_of(client: RosClient, topic: str) -> set[bytes]:
    """The identities of those who publish there."""
    return {bytes(info.endpoint_gid) for info in client.node.get_publishers_info_by_topic(topic)}


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.06])
def test_kill_9_while_saving_leaves_the_old_map_or_the_new_one(
    client: RosClient, start_node: Any, tmp_path: Path, delay: float
) -> None:
    folder = tmp_path / "maps"
    node = start_node(*LARGE, "-p", f"map_folder:={folder}")
    images = client.listen(Image, "/mapping_node/variance")
    source = WideSource(client)
    client.spin_until(lambda: source.publish() or images, "a map")
    client.spin_until_quiet(images)
    assert client.call(Trigger, "/mapping_node/save_map", Trigger.Request()).success
    path = folder / "map.npz"
    old, _ = read_archive(path, "map")
    seen = len(images)
    client.spin_until(lambda: source.publish() or len(images) > seen, "a newer map")
    client.spin_until_quiet(images)

    saving = client.node.create_client(Trigger, "/mapping_node/save_map")
    client.spin_until(saving.service_is_ready, "the service")
    saving.call_async(Trigger.Request())
    deadline = time.monotonic() + PATIENCE
    while (
        not any(folder.glob(".map.npz.*.new"))
        and read_archive(path, "map")[0] == old
        and time.monotonic() < deadline
    ):
        client.spin_once()
    time.sleep(delay)
    killed = publishers_of(client, "/diagnostics")
    node.signal(signal.SIGKILL)
    assert node.wait(PATIENCE) == -signal.SIGKILL
    values, arrays = read_archive(path, "map")  # whole: its checksum is right
    assert values["stamp"] >= old["stamp"]
    assert len(arrays["index"]) > 1000

    # and the next node goes on with it, leftovers or not
    second = start_node(*LARGE, "-p", f"map_folder:={folder}")
    wait_for_text(second, "mapping '/points'")
    # the killed node's services count as ready until its lease is over, which may come before the new ones are found
    client.spin_until(lambda: publishers_of(client, "/diagnostics") - killed, "the new node")
    answer = client.call(Trigger, "/mapping_node/load_map", Trigger.Request(), repeat=2.0)
    assert answer.success, answer.message
    assert client.call(Trigger, "/mapping_node/save_map", Trigger.Request()).success
    assert not list(folder.glob(".map.npz.*.new"))
    assert second.running()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_end_it_keeps_the_unfinished_submap_and_ends_with_0(
    client: RosClient, start_node: Any, tmp_path: Path, number: signal.Signals
) -> None:
    """Full size, in the middle of work, with clouds in the queue and one that waits for a pose that never comes."""
    folder = tmp_path / "maps"
    node: Child = start_node(*LARGE, "-p", f"map_folder:={folder}", "-p", "transform_timeout:=60.0")
    images = client.listen(Image, "/mapping_node/elevation")
    source = WideSource(client)
    client.spin_until(lambda: source.publish() or images, "a map")
    for _ in range(4):
        source.stamp += NANOSECONDS // 10
        source.publish_transform()
        source.publish_cloud()
    source.stamp += NANOSECONDS
    source.publish_cloud()
    client.spin_for(0.1)
    os.kill(node.pid, number)
    assert node.wait(PATIENCE) == 0, node.tail()
    # it did not sit out the wait for the pose: that would have ended with a dropped cloud
    assert "too_late" not in node.tail(100)
    assert "Traceback" not in node.tail(100)
    assert "context is invalid" not in node.tail(100)
    store = SubmapStore(folder / "submaps", Config())
    assert [info.ended_by for info in store.infos()] == ["shutdown"]
    submap = store.load(0)
    assert submap.gpgmap.known.sum() * submap.gpgmap.grid.resolution**2 > 100.0  # square metres
    assert submap.points is not None


def test_the_doctor_follows_the_transforms_of_a_robot_in_its_namespace(
    client: RosClient, start: Any, executables: Path, tmp_path: Path
) -> None:
    source = CloudSource(client, topic="/rover/points", start=int(time.time()))
    source._transforms = client.node.create_publisher(TFMessage, "/rover/tf", QoSProfile(depth=100))
    for seconds in ("4", "60"):  # as long as discovery may take on a busy machine
        doctor = start("doctor", str(executables / "gpgmap"), "doctor", "--live", "--seconds", seconds)
        client.spin_until(lambda doctor=doctor: source.publish() or not doctor.running(), "the doctor to end")
        if "odom <- lidar" in doctor.tail(50):
            break
    assert "odom <- lidar" in doctor.tail(50)
