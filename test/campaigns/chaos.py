"""Make trouble for the real node over DDS, from a seed and for a bounded time, and check that nothing is lost.

    .venv/bin/python test/campaigns/chaos.py --seconds 900 --seed 1

Each round starts a node on the same map folder, does some things that happen in the field or that an attacker would do,
and ends the node: mostly by kill -9 at a random moment, else by SIGTERM. Checked after each step: the node lives on and
answers; after each end: every submap that was announced is on the disk and readable, and no process is left. Prints a
line of JSON for each finding and a summary; ends with code 1 if there was one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "ros"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from client import RosClient
from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import TransformStamped
from grid_map_msgs.srv import GetGridMap
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from limits import PATIENCE
from nav_msgs.msg import Odometry
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import PointCloud2, PointField
from std_srvs.srv import SetBool, Trigger
from tf2_msgs.msg import TFMessage

from gpgmap_ros.config import Config
from gpgmap_ros.mapping import SubmapStore
from gpgmap_ros.nodes.abandoned_memory import remove_abandoned_segments
from gpgmap_ros.processes import Child, isolated_ros_environment

NANOSECONDS = 1_000_000_000
NODE = "/mapping_node"
SETTINGS = {
    "mapping.size_x": 4.0, "mapping.size_y": 4.0, "mapping.resolution": 0.2, "submap.size": 8.0,
    "submap.max_distance": 1.5, "transform_timeout": 0.2,
}  # fmt: skip
TIMEOUT = PATIENCE  # for what the node is asked to do: it may compile first, on a machine that does other things too
ASK_AGAIN = 5.0  # seconds
DEAF = 90.0  # seconds without an answer after which another participant asks
OVERTIME = 3.0  # times the seconds that were asked for, for the kills that are still missing
MARK = "GPGMAP_CHAOS"  # in the environment of the node and of all that it starts
MEMORY_GROWTH = (
    100.0  # megabytes between two looks at a node that drives on: buffers fill, nothing may pile up
)
LATCHED = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)


class Broken(AssertionError):
    """Something that must never happen."""


class Robot:
    """Drives along x and publishes clouds of the ground around it, and its transform."""

    def __init__(self, client: RosClient, rng: np.random.Generator) -> None:
        self._client, self._rng = client, rng
        self._clouds = client.node.create_publisher(PointCloud2, "/points", qos_profile_sensor_data)
        self._transforms = client.node.create_publisher(TFMessage, "/tf", QoSProfile(depth=100))
        self._time = client.node.create_publisher(Clock, "/clock", 10)
        self.stamp = time.time_ns()
        self._x = 0.0

    def drive(self, clouds: int) -> None:
        for _ in range(clouds):
            self.stamp += NANOSECONDS // 10
            self._x += 0.15
            self.publish_transform("odom", "lidar", self._x)
            self.publish_cloud(400)
            self._client.spin_for(0.03)

    def publish_transform(self, parent: str, child: str, x: float = 0.0, w: float = 1.0) -> None:
        transform = TransformStamped(child_frame_id=child)
        transform.header.frame_id = parent
        transform.header.stamp.sec, transform.header.stamp.nanosec = divmod(self.stamp, NANOSECONDS)
        transform.transform.translation.x, transform.transform.translation.z = x, 1.0
        transform.transform.rotation.w = w
        self._transforms.publish(TFMessage(transforms=[transform]))

    def publish_cloud(self, points: int, stamp: int | None = None) -> None:
        xy = self._rng.uniform(-2.0, 2.0, (points, 2)).astype(np.float32)
        z = (0.2 * np.sin(xy[:, 0] + self._x) - 1.0).astype(np.float32)
        message = PointCloud2(height=1, width=points, point_step=12, row_step=12 * points, is_dense=True)
        message.header.frame_id = "lidar"
        stamp = self.stamp if stamp is None else stamp
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp, NANOSECONDS)
        message.fields = [PointField(name=n, offset=4 * i, datatype=7, count=1) for i, n in enumerate("xyz")]
        message.data = np.column_stack([xy, z]).tobytes()
        self._clouds.publish(message)

    def publish_clock(self, stamp: int) -> None:
        message = Clock()
        message.clock.sec, message.clock.nanosec = divmod(stamp, NANOSECONDS)
        self._time.publish(message)


class Campaign:
    """One folder, one node at a time, and everything that is done to it."""

    def __init__(self, folder: Path, seed: int, huge: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.folder, self._huge = folder / "maps", huge
        self._environment = isolated_ros_environment(folder / "logs")
        self._token = uuid.uuid4().hex
        self._environment[MARK] = self._token
        for name in ("ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_LOG_DIR", "FASTRTPS_DEFAULT_PROFILES_FILE"):
            os.environ[name] = self._environment[name]
        self._listen()
        self.announced: set[int] = set()
        self.node: Child | None = None
        self.counts: Counter[str] = Counter()
        self._values: dict[str, str] = {}
        self._log = folder / "logs"

    def _listen(self) -> None:
        """Begin to take part, or begin again."""
        self.client = RosClient(int(self._environment["ROS_DOMAIN_ID"]))
        self.robot = Robot(self.client, self.rng)
        self.client.node.create_subscription(Odometry, f"{NODE}/submap_pose", self._on_submap, LATCHED)
        self.client.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)

    # ------------------------------------------------ the node

    def start(self, folder: Path | None = None, **settings: Any) -> None:
        remove_abandoned_segments()
        executable = str(Path(sys.executable).with_name("mapping_node"))
        arguments = [
            item
            for name, value in {**SETTINGS, "map_folder": folder or self.folder, **settings}.items()
            for item in ("-p", f"{name}:={str(value).lower() if isinstance(value, bool) else value}")
        ]
        self.counts["starts"] += 1
        log = self._log / f"node.{self.counts['starts']}.log"
        self._values = {}
        self.node = Child("mapping_node", [executable, "--ros-args", *arguments], self._environment, log)
        try:
            self._wait_until_active(DEAF)
        except AssertionError:
            if not self.node.running():
                raise
            # Whoever is killed while it writes into the shared memory of another process can leave that one deaf
            # (Fast DDS): here, this one. The node is at fault if a new participant gets no answer either.
            self.counts["deaf after a kill"] += 1
            self.client.close()
            self._listen()
            self._wait_until_active(TIMEOUT)

    def _wait_until_active(self, timeout: float) -> None:
        self.client.spin_until(
            lambda: self._alive() and self._state(timeout) == "active", "the node to be active", timeout
        )

    def kill(self) -> None:
        assert self.node is not None
        self.node.signal(signal.SIGKILL)
        self.node.wait(TIMEOUT)
        self.counts["kills"] += 1
        self.check_end()

    def stop(self) -> None:
        assert self.node is not None
        self.node.signal(signal.SIGTERM)
        if code := self.node.wait(TIMEOUT):
            raise Broken(f"the node ended with code {code}:\n{self.node.tail(40)}")
        self.counts["orderly ends"] += 1
        self.check_end()

    def check_end(self) -> None:
        """Nothing lost, nobody left."""
        self.node = None
        self.check_submaps(self.folder)
        deadline = time.monotonic() + TIMEOUT
        while left := self.processes():
            if time.monotonic() > deadline:
                raise Broken(f"processes that outlived the node: {left}")
            time.sleep(0.1)

    def check_submaps(self, folder: Path) -> None:
        store = SubmapStore(folder / "submaps", Config())
        if store.damaged:
            raise Broken(f"damaged submaps: {store.damaged}")
        stored = {info.id for info in store.infos()}
        for id in stored:
            store.load(id)
        if missing := self.announced - stored:
            raise Broken(f"submaps {sorted(missing)} were announced and are not on the disk")
        self.counts["submaps"] = len(stored)

    def processes(self, name: str = "") -> dict[int, str]:
        """Processes that the node and its children are, by their environment."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                # a zombie has no command line: it has ended
                if command and name in command and self._token.encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = command
            except OSError:
                continue
        return found

    def _alive(self) -> bool:
        assert self.node is not None
        if not self.node.running():
            raise Broken(f"the node ended by itself ({self.node.wait(1.0)}):\n{self.node.tail(40)}")
        return True

    def _state(self, timeout: float = TIMEOUT) -> str:
        answer = self.call(GetState, "get_state", GetState.Request(), timeout)
        return str(answer.current_state.label)

    def call(self, kind: Any, name: str, request: Any, timeout: float = TIMEOUT) -> Any:
        """The answer; Broken where none comes."""
        client = self.client.node.create_client(kind, f"{NODE}/{name}")
        asked: list[Any] = []
        at = -ASK_AGAIN

        def answered() -> bool:
            nonlocal at
            self._alive()
            # DDS goes on showing the services of a killed node for a while: a request may have gone to that
            if client.service_is_ready() and time.monotonic() - at > ASK_AGAIN:
                at = time.monotonic()
                asked.append(client.call_async(request))
            return any(future.done() for future in asked)

        try:
            self.client.spin_until(answered, f"an answer of {name}", timeout)
            return next(future.result() for future in asked if future.done())
        finally:
            self.client.node.destroy_client(client)

    def check_mapping(self) -> None:
        """The node still maps: clouds are used."""
        self.call(SetBool, "pause", SetBool.Request(data=False))
        if self._state() == "unconfigured":
            self._transition(Transition.TRANSITION_CONFIGURE)
        if self._state() == "inactive":
            self._transition(Transition.TRANSITION_ACTIVATE)
        before = int(self._values.get("clouds used", 0))

        def used() -> bool:
            self.robot.drive(1)
            self._alive()
            return int(self._values.get("clouds used", 0)) > before

        self.client.spin_until(used, "clouds to be used again", TIMEOUT)

    def memory(self) -> float:
        return float(self._values.get("resident memory (MB)", 0.0))

    def _on_submap(self, message: Odometry) -> None:
        self.announced.add(int(message.child_frame_id.removeprefix("submap_")))

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.name.endswith(": mapping"):
                self._values = {item.key: item.value for item in status.values}

    # ------------------------------------------------ trouble

    def drive(self) -> None:
        self.robot.drive(int(self.rng.integers(5, 60)))

    def kill_child(self) -> None:
        self.client.spin_until(
            lambda: self.robot.drive(2) or self.processes("slam.closure_child"), "the process of the closures"
        )
        for pid in self.processes("slam.closure_child"):
            os.kill(pid, signal.SIGKILL)
            self.counts["child kills"] += 1
        self.check_mapping()

    def service_storm(self) -> None:
        trigger = Trigger.Request()
        for _ in range(30):
            match int(self.rng.integers(7)):
                case 0:
                    self.call(Trigger, "save_map", trigger)
                case 1:
                    self.call(Trigger, "load_map", trigger)
                case 2:
                    self.call(Trigger, "reset", trigger)
                case 3:
                    self.call(SetBool, "pause", SetBool.Request(data=bool(self.rng.integers(2))))
                case 4:
                    names = ("submap_0", "submap_" + "9" * 5000, "", "odom")
                    frame = names[int(self.rng.integers(len(names)))]
                    self.call(GetGridMap, "get_submap", GetGridMap.Request(frame_id=frame))
                case 5:
                    texts = ("", "1-2", "9" * 5000 + "-1", "\n", "../../x", "map")
                    name = ("closure.reject", "map_name", "no.such")[int(self.rng.integers(3))]
                    self._set(name, texts[int(self.rng.integers(len(texts)))])
                    self.call(Trigger, "reject_closure", trigger)
                case _:
                    self.robot.drive(3)
            self.counts["service calls"] += 1
        self._set("map_name", "map")
        self.check_mapping()

    def lifecycle_storm(self) -> None:
        for _ in range(12):
            self._transition(int(self.rng.choice([1, 2, 3, 4, 77])))
            self.robot.drive(int(self.rng.integers(4)))
        self.check_mapping()

    def strange_stamps(self) -> None:
        before = int(self._values.get("resets", 0))
        for _ in range(20):
            self.robot.drive(1)
            off = int(self.rng.choice([-3, -1000, 3600])) * NANOSECONDS
            self.robot.publish_cloud(50, int(self.rng.choice([0, max(self.robot.stamp + off, 0)])))
        self.check_mapping()
        if int(self._values.get("resets", 0)) > before:
            raise Broken("strays among good clouds have reset the map")

    def strange_transforms(self) -> None:
        """Loops, changing parents, thousands of frames, rotations that are none."""
        for k in range(int(self.rng.integers(500, 3000))):
            self.robot.publish_transform(f"frame_{k}", f"frame_{k + 1}")
            if k % 50 == 0:
                self.client.spin_once()
        for parent, child in (("lidar", "odom"), ("a", "lidar"), ("b", "a"), ("a", "b"), ("lidar", "lidar")):
            self.robot.publish_transform(parent, child)
        self.robot.publish_transform("odom", "lidar", x=float("nan"))
        self.robot.publish_transform("odom", "lidar", w=0.0)
        self.robot.drive(5)
        self.check_mapping()

    def huge_cloud(self) -> None:
        self.robot.publish_transform("odom", "lidar", x=0.0)
        self.robot.publish_cloud(self._huge)
        self.client.spin_for(1.0)
        self.check_mapping()

    def full_disk(self) -> None:
        """No file may grow: submaps cannot be written, mapping goes on, and later ones are written again."""
        self._limited(resource.RLIMIT_FSIZE, 0, "submaps not stored")

    def no_descriptors(self) -> None:
        assert self.node is not None
        used = len(list(Path(f"/proc/{self.node.pid}/fd").iterdir()))
        self._limited(resource.RLIMIT_NOFILE, used, None)

    def no_memory(self) -> None:
        assert self.node is not None
        pages = int(Path(f"/proc/{self.node.pid}/statm").read_text().split()[0])
        self._limited(resource.RLIMIT_AS, pages * os.sysconf("SC_PAGE_SIZE") + (64 << 20), None)

    def _limited(self, what: int, limit: int, expected: str | None) -> None:
        """Drive with a limit on the node, then lift it: what was announced meanwhile need not be on the disk."""
        assert self.node is not None
        soft, hard = resource.prlimit(self.node.pid, what)
        safe = set(self.announced)
        resource.prlimit(self.node.pid, what, (limit, hard))
        try:
            if expected is None:
                self.robot.drive(25)
            else:
                before = int(self._values.get(expected, 0))
                self.client.spin_until(
                    lambda: self.robot.drive(2) or int(self._values.get(expected, 0)) > before,
                    f"'{expected}' in the diagnostics",
                    TIMEOUT,
                )
            self._alive()
        finally:
            resource.prlimit(self.node.pid, what, (soft, hard))
        self.check_mapping()
        stored = {info.id for info in SubmapStore(self.folder / "submaps", Config()).infos()}
        self.announced &= safe | stored

    def second_node(self) -> None:
        """Another node on the same folder is refused."""
        executable = str(Path(sys.executable).with_name("mapping_node"))
        result = subprocess.run(
            [executable, "--ros-args", "-p", f"map_folder:={self.folder}", "-r", "__node:=second"],
            env=self._environment, capture_output=True, text=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip
        if result.returncode != 1 or "is in use by" not in result.stderr + result.stdout:
            raise Broken(f"a second node was not refused: {result.returncode}\n{result.stderr[-2000:]}")
        self.check_mapping()

    def flat_memory(self) -> None:
        """Half a minute of driving and resets, after a warm-up: memory stays."""
        self.robot.drive(100)
        self.client.spin_until(lambda: self.memory() > 0.0, "the memory in the diagnostics")
        before = self.memory()
        for _ in range(10):
            self.robot.drive(50)
            self.call(Trigger, "reset", Trigger.Request())
        self._values = {}
        self.client.spin_until(lambda: self.memory() > 0.0, "the memory in the diagnostics")
        self.counts["largest growth (MB)"] = max(
            self.counts["largest growth (MB)"], round(self.memory() - before)
        )
        if self.memory() > before + MEMORY_GROWTH:
            raise Broken(f"memory grew from {before:.0f} to {self.memory():.0f} MB")

    def _transition(self, id: int) -> bool:
        self.counts["transitions"] += 1
        request = ChangeState.Request(transition=Transition(id=id))
        return bool(self.call(ChangeState, "change_state", request).success)

    def _set(self, name: str, text: str) -> None:
        value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=text)
        request = SetParameters.Request(parameters=[Parameter(name=name, value=value)])
        self.call(SetParameters, "set_parameters", request)

    # ------------------------------------------------ rounds

    def simulated_time(self) -> None:
        """A round of its own: the clock jumps back and forth while the robot drives."""
        self.start(use_sim_time=True)
        for _ in range(6):
            jump = int(self.rng.choice([-100, -5, 0, 50]))
            self.robot.stamp += jump * NANOSECONDS
            for _ in range(8):
                self.robot.publish_clock(self.robot.stamp)
                self.robot.drive(1)
        self._alive()
        self.stop()
        self.robot.stamp = time.time_ns()

    def round(self, troubles: list[Callable[[], None]], kill: bool) -> None:
        self.start()
        for trouble in troubles:
            self.counts[trouble.__name__] += 1
            trouble()
        self.drive()
        if kill:
            self.kill()
        else:
            self.stop()

    def abandon(self) -> None:
        """End whatever is left, so that the next round starts from nothing but the folder."""
        if self.node is not None:
            self.node.stop()
        self.node = None
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.announced.clear()

    def close(self) -> None:
        self.abandon()
        self.client.close()
        remove_abandoned_segments()


def run(seconds: float, kills: int, seed: int, huge: int, folder: Path) -> int:
    """Every kind of trouble once, then at random until time and kills are reached; the number of findings."""
    campaign = Campaign(folder, seed, huge)
    kinds: list[Callable[[], None]] = [
        campaign.service_storm, campaign.kill_child, campaign.strange_stamps, campaign.strange_transforms,
        campaign.full_disk, campaign.lifecycle_storm, campaign.no_descriptors, campaign.second_node,
        campaign.huge_cloud, campaign.no_memory, campaign.flat_memory,
    ]  # fmt: skip
    first_pass = [kinds[k : k + 2] for k in range(0, len(kinds), 2)]
    first_pass.insert(1, [campaign.simulated_time])
    begin, findings = time.monotonic(), 0
    try:
        while (spent := time.monotonic() - begin) < seconds or (
            campaign.counts["kills"] < kills and spent < OVERTIME * seconds
        ):
            if first_pass:
                troubles = first_pass.pop(0)
            elif campaign.rng.random() < 0.05:
                troubles = [campaign.simulated_time]
            else:
                # most rounds are short, so that kills come at many moments
                count = int(campaign.rng.choice(3, p=(0.6, 0.3, 0.1)))
                troubles = [kinds[int(k)] for k in campaign.rng.integers(len(kinds), size=count)]
            names = [trouble.__name__ for trouble in troubles]
            try:
                if troubles == [campaign.simulated_time]:
                    campaign.counts["simulated_time"] += 1
                    campaign.simulated_time()
                else:
                    campaign.round(troubles, kill=bool(campaign.rng.random() < 0.85))
            except Exception as error:
                findings += 1
                text = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
                log = campaign.node.tail(30) if campaign.node is not None else ""
                print(json.dumps({"finding": names, "seed": seed, "what": text, "log": log}), flush=True)
                campaign.abandon()
    finally:
        campaign.close()
    summary = {"seed": seed, "seconds": round(time.monotonic() - begin), **campaign.counts}
    print(json.dumps({**summary, "findings": findings}), flush=True)
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=900.0, help="duration, as far as kills are enough")
    parser.add_argument("--kills", type=int, default=100, help="at least; takes up to three times as long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--points", type=int, default=10_000_000, help="in the largest cloud")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpgmap_chaos_") as folder:
        return (
            1
            if run(arguments.seconds, arguments.kills, arguments.seed, arguments.points, Path(folder))
            else 0
        )


if __name__ == "__main__":
    sys.exit(main())
