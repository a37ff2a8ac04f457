"""What a fault outside may cost: strange stamps, files, parameters, and a second node in the same folder."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import socket
import sys
import threading
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_text import wait_for_text
from client import RosClient
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from geometry_msgs.msg import TransformStamped
from grid_map_msgs.msg import GridMap
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from limits import PATIENCE
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.qos import DurabilityPolicy, QoSProfile
from scene import CloudSource
from sensor_msgs.msg import Image
from std_msgs.msg import String
from std_srvs.srv import SetBool, Trigger
from tf2_msgs.msg import TFMessage

from gpgmap_ros.config import Config
from gpgmap_ros.mapping import SubmapStore
from gpgmap_ros.nodes import map_services
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS
from gpgmap_ros.storage.archive import ArchiveError, read_archive, write_archive

SMALL = ("-p", "mapping.size_x:=2.0", "-p", "mapping.size_y:=2.0", "-p", "mapping.resolution:=0.2")
KEEPING = (*SMALL, "-p", "submap.size:=4.0", "-p", "closure.enabled:=false")


class Diagnostics:
    """The newest diagnostics of the node."""

    def __init__(self, client: RosClient) -> None:
        self._received = client.listen(DiagnosticArray, "/diagnostics", 10)

    def mapping(self) -> DiagnosticStatus | None:
        found = [s for message in self._received for s in message.status if s.name.endswith(": mapping")]
        return found[-1] if found else None

    def value(self, key: str) -> int:
        status = self.mapping()
        values = {item.key: item.value for item in status.values} if status else {}
        return int(values.get(key, 0))


def call(client: RosClient, name: str) -> Any:
    return client.call(Trigger, f"/mapping_node/{name}", Trigger.Request())


def set_text(client: RosClient, name: str, text: str) -> Any:
    value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=text)
    request = SetParameters.Request(parameters=[Parameter(name=name, value=value)])
    return client.call(SetParameters, "/mapping_node/set_parameters", request).results[0]


def change_state(client: RosClient, transition: int) -> bool:
    request = ChangeState.Request(transition=Transition(id=transition))
    return bool(client.call(ChangeState, "/mapping_node/change_state", request).success)


def submaps_in(folder: Path) -> list[str]:
    store = SubmapStore(folder / "submaps", Config())
    assert not store.damaged
    return [store.load(info.id).ended_by for info in store.infos()]


# ------------------------------------------------ stamps


@pytest.fixture
def mapped(client: RosClient, start_node: Any, tmp_path: Path) -> tuple[Any, Diagnostics, CloudSource, Path]:
    """A node that has made a map and is making a submap."""
    folder = tmp_path / "maps"
    node = start_node(*KEEPING, "-p", f"map_folder:={folder}")
    diagnostics = Diagnostics(client)
    images = client.listen(Image, "/mapping_node/elevation")
    source = CloudSource(client, start=2_000)
    client.spin_until(lambda: source.publish() or images, "a map")
    return node, diagnostics, source, folder


@pytest.mark.parametrize("stamp", [0, 2_000 * NANOSECONDS - 3 * NANOSECONDS, 5_600 * NANOSECONDS])
def test_stray_clouds_cost_themselves_and_nothing_else(
    client: RosClient, mapped: tuple[Any, Diagnostics, CloudSource, Path], stamp: int
) -> None:
    node, diagnostics, source, _ = mapped

    def dropped() -> int:
        now, source.stamp = source.stamp, stamp
        source.publish_cloud()
        source.stamp = now
        source.publish()
        return diagnostics.value("clouds dropped: late") + diagnostics.value("clouds dropped: ahead")

    client.spin_until(lambda: dropped() >= 8, "the strays to be counted")
    assert diagnostics.value("resets") == 0
    assert "map reset" not in node.tail(200)


def test_a_recording_that_skips_an_hour_goes_on(
    client: RosClient, mapped: tuple[Any, Diagnostics, CloudSource, Path]
) -> None:
    """Each cloud comes a little before its transform, as it often does."""
    node, diagnostics, source, _ = mapped
    used = diagnostics.value("clouds used")
    source.stamp += 3_600 * NANOSECONDS

    def step() -> bool:
        source.stamp += NANOSECONDS // 10
        source.publish_cloud()
        client.spin_for(0.05)
        source.publish_transform()
        client.spin_for(0.05)
        return diagnostics.value("clouds used") > used + 5

    client.spin_until(step, "clouds that are mapped after the gap")
    assert diagnostics.value("clouds dropped: ahead") >= 1
    assert "map reset" not in node.tail(200)


def test_two_clocks_are_named_and_the_map_stays(
    client: RosClient, mapped: tuple[Any, Diagnostics, CloudSource, Path]
) -> None:
    """Two publishers of one topic; static transforms, so that clouds of both have poses."""
    node, diagnostics, source, _ = mapped
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    static = client.node.create_publisher(TFMessage, "/tf_static", latched)
    transform = TransformStamped(child_frame_id="lidar")
    transform.header.frame_id = "odom"
    transform.transform.translation.z = 1.0
    transform.transform.rotation.w = 1.0
    static.publish(TFMessage(transforms=[transform]))
    other = CloudSource(client, start=1_000)

    def named() -> bool:
        for one in (source, other):
            one.stamp += NANOSECONDS // 10
            one.publish_cloud()
            client.spin_for(0.05)
        status = diagnostics.mapping()
        return status is not None and "two clocks" in status.message

    client.spin_until(named, "two clocks in the diagnostics")
    status = diagnostics.mapping()
    assert status is not None
    assert status.level == DiagnosticStatus.WARN
    assert "'/points' (frame 'lidar') is " in status.message
    assert diagnostics.value("resets") == 0
    assert "map reset" not in node.tail(200)


def test_what_a_reset_throws_away_is_kept_as_a_submap(
    client: RosClient, mapped: tuple[Any, Diagnostics, CloudSource, Path]
) -> None:
    node, _, _, folder = mapped
    assert call(client, "reset").success
    wait_for_text(node, "the unfinished submap is kept as number 0 (reset)")
    assert submaps_in(folder) == ["reset"]


def test_a_recording_that_begins_again_starts_a_new_map_and_keeps_the_old_submap(
    client: RosClient, mapped: tuple[Any, Diagnostics, CloudSource, Path]
) -> None:
    node, diagnostics, source, folder = mapped
    source.stamp = 1_000 * NANOSECONDS
    client.spin_until(lambda: source.publish() or diagnostics.value("resets"), "the reset")
    used = diagnostics.value("clouds used")
    client.spin_until(lambda: source.publish() or diagnostics.value("clouds used") > used, "a new map")
    wait_for_text(node, "the unfinished submap is kept as number 0 (reset)")
    assert diagnostics.value("resets") == 1
    assert submaps_in(folder) == ["reset"]


def test_cleanup_keeps_the_unfinished_submap_and_gives_the_folder_free(
    client: RosClient, mapped: tuple[Any, Diagnostics, CloudSource, Path], start_node: Any
) -> None:
    _, _, _, folder = mapped
    assert change_state(client, Transition.TRANSITION_DEACTIVATE)
    assert change_state(client, Transition.TRANSITION_CLEANUP)
    assert submaps_in(folder) == ["cleanup"]
    second = start_node(*KEEPING, "-p", f"map_folder:={folder}", "-r", "__node:=second")
    wait_for_text(second, "mapping '/points' into")


# ------------------------------------------------ one folder, two nodes


def test_a_folder_has_one_owner(client: RosClient, start_node: Any, tmp_path: Path) -> None:
    folder = tmp_path / "maps"
    first = start_node(*KEEPING, "-p", f"map_folder:={folder}")
    wait_for_text(first, "mapping '/points' into")
    second = start_node(*KEEPING, "-p", f"map_folder:={folder}", "-r", "__node:=second")
    assert second.wait(PATIENCE) == 1
    told = second.tail(50)
    assert (
        f"{folder} is in use by mapping_node '/mapping_node' (process {first.pid} on {socket.gethostname()}"
        in told
    )
    assert "set map_folder to another folder" in told
    os.kill(first.pid, signal.SIGKILL)
    first.wait(PATIENCE)
    third = start_node(*KEEPING, "-p", f"map_folder:={folder}", "-r", "__node:=third")
    wait_for_text(third, "mapping '/points' into")


def test_two_nodes_with_folders_of_their_own_lose_nothing(
    client: RosClient, start_node: Any, tmp_path: Path
) -> None:
    names = ("one", "two")
    quick = ("-p", "submap.max_area:=1.0")
    heard = {}
    for name in names:
        start_node(*KEEPING, *quick, "-p", f"map_folder:={tmp_path / name}", "-r", f"__node:={name}")
        heard[name] = client.listen(GridMap, f"/{name}/submap", QoSProfile(depth=100))
    source = CloudSource(client)
    client.spin_until(
        lambda: source.publish() or all(len(heard[name]) >= 3 for name in names), "submaps of both"
    )
    for name in names:
        announced = {message.header.frame_id for message in heard[name]}
        stored = {f"submap_{info.id}" for info in SubmapStore(tmp_path / name / "submaps", Config()).infos()}
        assert announced <= stored


def test_submaps_that_cannot_be_written_are_a_warning_until_they_can(
    client: RosClient, start_node: Any, tmp_path: Path
) -> None:
    """Files that may not grow stand for the full disk."""
    folder = tmp_path / "maps"
    node = start_node(*KEEPING, "-p", "submap.max_area:=1.0", "-p", f"map_folder:={folder}")
    diagnostics, source = Diagnostics(client), CloudSource(client)

    def level() -> bytes | None:
        status = diagnostics.mapping()
        return status.level if status is not None else None

    client.spin_until(
        lambda: source.publish() or (level() == DiagnosticStatus.OK and submaps_in(folder)), "a stored submap"
    )
    before = resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    client.spin_until(lambda: source.publish() or level() == DiagnosticStatus.WARN, "a warning")
    told, used = diagnostics.mapping(), diagnostics.value("clouds used")
    assert told is not None
    assert f"a finished submap could not be written to {folder} (File too large): make room" in told.message
    client.spin_until(lambda: source.publish() or diagnostics.value("clouds used") > used + 5, "mapping")
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, before)
    stored = len(submaps_in(folder))
    client.spin_until(lambda: source.publish() or level() == DiagnosticStatus.OK, "the end of the warning")
    assert len(submaps_in(folder)) > stored


# ------------------------------------------------ services and parameters


def damaged_maps(path: Path) -> dict[str, bytes]:
    """Files with a right checksum, as far as that can be, that ended a node once."""
    values, arrays = read_archive(path, "map")
    found: dict[str, bytes] = {}
    for name, change in {
        "far": {"centre": [1e300, 0.0]},
        "endless": {"stamp": float("inf")},
        "nan": {"reference": float("nan")},
        "late": {"stamp": 10**30},
    }.items():
        write_archive(path, "map", {**values, **change}, arrays)
        found[name] = path.read_bytes()
    nested = io.BytesIO()
    np.savez(nested, header=np.frombuffer(b"[" * 100_000, dtype=np.uint8))
    found["nested"] = nested.getvalue()
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        header = np.frombuffer(json.dumps({"kind": "map"}).encode(), dtype=np.uint8)
        packed = io.BytesIO()
        np.save(packed, header)
        file.writestr("header.npy", packed.getvalue())
        file.writestr("weights.npy", bytes(100 << 20))
    found["bomb"] = bomb.getvalue()
    return found


def test_no_file_ends_the_node(client: RosClient, mapped: tuple[Any, Diagnostics, CloudSource, Path]) -> None:
    node, _, _, folder = mapped
    assert call(client, "save_map").success
    good = (folder / "map.npz").read_bytes()
    for name, content in damaged_maps(folder / "map.npz").items():
        (folder / f"{name}.npz").write_bytes(content)
        assert set_text(client, "map_name", name).successful
        answer = call(client, "load_map")
        assert not answer.success, name
        assert f"{name}.npz" in answer.message
        assert len(answer.message) < 1_000
    (folder / "map.npz").write_bytes(good)
    assert set_text(client, "map_name", "map").successful
    answer = call(client, "load_map")
    assert answer.success, answer.message
    wait_for_text(node, "the unfinished submap is kept as number 0 (load_map)")
    assert "callback" not in node.tail(200)


def test_a_fifo_in_place_of_a_map_is_refused_at_once(
    client: RosClient, mapped: tuple[Any, Diagnostics, CloudSource, Path]
) -> None:
    node, _, _, folder = mapped
    os.mkfifo(folder / "pipe.npz")
    assert set_text(client, "map_name", "pipe").successful
    answer = call(client, "load_map")
    assert not answer.success
    assert "pipe.npz: cannot be read: it is not a regular file" in answer.message
    os.kill(node.pid, signal.SIGTERM)
    assert node.wait(PATIENCE) == 0, node.tail()


def test_a_reader_that_does_not_come_back_is_not_waited_for(
    client: RosClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a network disk that is gone."""
    monkeypatch.setattr(map_services, "LOAD_WITHIN", 0.2)
    services = map_services.MapServices(client.node, lambda: nullcontext(None), str, lambda: None)
    gone = threading.Event()
    first = services._read(gone.wait)
    client.spin_until(first.done, "the end of waiting")
    assert isinstance(first.exception(), ArchiveError)
    assert "could not be read within" in str(first.exception())
    with pytest.raises(ArchiveError, match="another map is being loaded"):
        services._read(gone.wait)
    gone.set()
    services._reader.join(PATIENCE)
    last = services._read(lambda: 7)
    client.spin_until(last.done, "the file")
    assert last.result() == 7


def test_a_closure_of_too_many_digits_is_refused(client: RosClient, start_node: Any, tmp_path: Path) -> None:
    node = start_node(*SMALL, "-p", f"map_folder:={tmp_path / 'maps'}")
    for text in ("9" * 5_000 + "-1", "1-" + "9" * 5_000):
        assert set_text(client, "closure.reject", text).successful
        answer = call(client, "reject_closure")
        assert not answer.success
        assert answer.message
    assert node.running()
    assert client.call(SetBool, "/mapping_node/pause", SetBool.Request(data=False)).success


# ------------------------------------------------ the wrapper itself

CRASHING = """
import rclpy, sys
from rclpy.executors import SingleThreadedExecutor
from std_msgs.msg import String
from std_srvs.srv import Trigger
from gpgmap_ros.nodes.guarded_node import GuardedNode

def fail(*_):
    def deeper(): deeper()
    deeper()

async def fail_later(*_):
    fail()

rclpy.init()
node = GuardedNode("crashing")
node.create_service(Trigger, "~/fail", fail)
node.create_service(Trigger, "~/fail_later", fail_later)
node.create_service(Trigger, "~/count", lambda request, response: Trigger.Response(
    success=True, message=str(node.failed_callbacks)))
node.create_subscription(String, "~/text", fail, 10)
node.create_timer(0.05, fail)
node.declare_parameter("a", 1)
node.add_on_set_parameters_callback(fail)
executor = SingleThreadedExecutor()
executor.add_node(node)
while True:
    executor.spin_once(timeout_sec=0.1)
"""


def test_every_kind_of_callback_may_fail(client: RosClient, start: Any) -> None:
    node = start("crashing", sys.executable, "-c", CRASHING)
    for name in ("fail", "fail_later"):
        answer = client.call(Trigger, f"/crashing/{name}", Trigger.Request())
        assert not answer.success
        assert f"{name} failed: RecursionError" in answer.message
    request = SetParameters.Request(
        parameters=[Parameter(name="a", value=ParameterValue(type=2, integer_value=2))]
    )
    (result,) = client.call(SetParameters, "/crashing/set_parameters", request).results
    assert not result.successful
    assert "RecursionError" in result.reason
    publisher = client.node.create_publisher(String, "/crashing/text", 10)
    client.spin_until(publisher.get_subscription_count, "the subscription")
    publisher.publish(String(data="x"))
    wait_for_text(node, "~/text failed: RecursionError")
    assert "Traceback" in node.tail(2_000)
    answer = client.call(Trigger, "/crashing/count", Trigger.Request())
    assert int(answer.message) >= 5
    assert node.running()
