"""The node under load, between real processes over DDS: what arrives, what is used, how old a map is when it arrives.

python benchmark/node_load.py                  one scan a second, 10 Hz, 30 Hz and a slow subscriber, 20 s each
python benchmark/node_load.py --set mapping.kernel:=matern32     with other settings of the node
python benchmark/node_load.py --soak 30        30 minutes of driving, three times as fast: resident memory
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpgmap_ros.processes import Child, isolated_ros_environment

NODE = "/mapping_node"
DDS_PROFILES = "FASTRTPS_DEFAULT_PROFILES_FILE"
SETTLED = 1.5  # seconds: diagnostics, which come once a second, that arrive later know of the last cloud
PATIENCE = 30.0  # seconds that the node may take for the clouds that wait at the end


@dataclass(frozen=True)
class Result:
    """One scenario. Latency: from a cloud's stamp to the arrival of its first map at the subscriber.

    The same map may come a second time, with its variances renewed: see maps_per_second.
    """

    sent: int
    received: int
    used: int
    shed: int
    maps_per_second: float
    latency_median: float
    latency_p95: float
    memory: list[float]
    cpu: float
    """Seconds of processor time that the node took, its start not counted."""


@dataclass(frozen=True)
class Scenario:
    """What is sent to the node, and how it is set."""

    name: str
    rate: float
    points: int
    slow_subscriber: bool = False
    publish_rate: float = 10.0


def run(
    rate: float,
    points: int,
    seconds: float,
    slow_subscriber: bool,
    speed: float = 0.5,
    parameters: tuple[str, ...] = (),
    publisher: tuple[str, ...] = (),
) -> Result:
    """publisher: more options of _cloud_publisher.py"""
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder)
        environment = isolated_ros_environment(logs)
        # of all processes only a driver needs Fast DDS's memory for large messages (docs/ros.md)
        without = {name: value for name, value in environment.items() if name != DDS_PROFILES}
        module = [sys.executable, "-m"]
        node = Child(
            "node",
            [
                str(Path(sys.executable).with_name("mapping_node")),
                "--ros-args",
                "-p",
                f"map_folder:={logs / 'maps'}",
                *(word for parameter in parameters for word in ("-p", parameter)),
            ],
            without,
            logs / "node.log",
        )
        recorder = Child(
            "recorder", [*module, "gpgmap_ros.nodes.map_recorder", NODE, "--out", str(logs / "map.npz")],
            without, logs / "recorder.log",
        )  # fmt: skip
        sender = None
        try:
            recorder.next_event(60.0)
            wait_for_node(recorder)
            before = processor_time(node.pid)
            sender = Child(
                "publisher", [*module, "benchmark._cloud_publisher", "--rate", str(rate), "--points", str(points),
                              "--seconds", str(seconds), "--speed", str(speed), *publisher],
                environment, logs / "publisher.log",
            )  # fmt: skip
            maps, diagnostics, memory = follow(node, recorder, sender, seconds, slow_subscriber)
            sent = sender.next_event(60.0)["sent"]
            cpu = processor_time(node.pid) - before
        finally:
            for child in (sender, recorder, node):
                if child is not None:
                    child.stop()
    first: dict[int, float] = {}
    for stamp, wall in maps[len(maps) // 10 :]:  # after warming up
        first.setdefault(stamp, wall)
    latency = [wall - stamp / 1e9 for stamp, wall in first.items()]
    return Result(
        sent,
        int(diagnostics.get("clouds received", 0)),
        int(diagnostics.get("clouds used", 0)),
        int(diagnostics.get("clouds dropped: queue_full", 0)),
        (len(maps) - 1) / (maps[-1][1] - maps[0][1]) if len(maps) > 1 else 0.0,
        float(np.median(latency)) if latency else float("nan"),
        float(np.percentile(latency, 95)) if latency else float("nan"),
        memory,
        cpu,
    )


def wait_for_node(recorder: Child) -> None:
    """Until its diagnostics say that it maps: what it compiles and reads before is not its load."""
    while "poses from" not in recorder.next_event(120.0).get("diagnostics", {}):
        pass


def processor_time(pid: int) -> float:
    """Seconds of processor time of a process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def follow(
    node: Child, recorder: Child, publisher: Child, seconds: float, slow_subscriber: bool
) -> tuple[list[tuple[int, float]], dict[str, str], list[float]]:
    """Maps as (stamp, arrival), the node's diagnostics when it had nothing left to do, its memory once a second."""
    maps: list[tuple[int, float]] = []
    diagnostics: dict[str, str] = {}
    memory: list[float] = []
    deadline, next_nap = time.monotonic() + seconds + PATIENCE, time.monotonic() + 2.0
    ended, done = None, False
    while time.monotonic() < deadline and not done:
        node.check()
        if ended is None and not publisher.running():
            ended = time.time()
        if slow_subscriber and ended is None and time.monotonic() > next_nap:
            # a subscriber that does not read for two seconds out of four
            recorder.signal(signal.SIGSTOP)
            time.sleep(2.0)
            recorder.signal(signal.SIGCONT)
            next_nap = time.monotonic() + 2.0
        while not recorder.events.empty():
            event: dict[str, Any] = recorder.events.get()
            if event.get("image") == "gradient":
                maps.append((event["stamp"], event["wall"]))
            elif "clouds received" in event.get("diagnostics", {}):
                diagnostics = event["diagnostics"]
                done = ended is not None and event["wall"] > ended + SETTLED and all_accounted(diagnostics)
                memory.append(float(diagnostics["resident memory (MB)"]))
        time.sleep(0.02)
    return maps, diagnostics, memory


def all_accounted(diagnostics: dict[str, str]) -> bool:
    """Whether each cloud that the node has received is used or dropped."""
    ends = [int(diagnostics.get("clouds used", 0))]
    ends += [int(value) for name, value in diagnostics.items() if name.startswith("clouds dropped")]
    return sum(ends) >= int(diagnostics.get("clouds received", 0))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--points", type=int, default=131_072)
    parser.add_argument("--only", default="", help="scenarios whose names contain this")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME:=VALUE", help="parameters of the node")
    parser.add_argument(
        "--soak", type=float, help="minutes of driving at 10 Hz and 0.5 m/s, replayed three times as fast"
    )
    arguments = parser.parse_args()
    if arguments.soak:
        result = run(30.0, arguments.points, 20.0 * arguments.soak, False, speed=1.5)
        fifth = len(result.memory) // 5  # until then heaps and caches fill
        warm, last = np.median(result.memory[fifth : fifth + 30]), np.median(result.memory[-30:])
        print(
            f"{result.used} of {result.sent} clouds, {arguments.soak:.0f} minutes of driving: resident"
            f" {warm:.0f} MB after warm-up, {last:.0f} MB at the end ({last / warm - 1:+.1%})"
        )
        return
    print(
        f"200 x 200 cells, {arguments.seconds:.0f} s each, publisher and subscriber on the same cores\n"
        "scenario                 points  sent  used  shed  maps/s  latency median, p95 (ms)"
        "  node: CPU per cloud (ms)  memory (MB)"
    )
    for scenario in (
        Scenario("one scan per second", 1.0, 15_000),
        Scenario("10 Hz", 10.0, arguments.points),
        Scenario("10 Hz, slow subscriber", 10.0, arguments.points, slow_subscriber=True),
        Scenario("30 Hz", 30.0, arguments.points, publish_rate=5.0),
    ):
        if arguments.only not in scenario.name:
            continue
        given = (f"publish_rate:={scenario.publish_rate}", *arguments.set)
        r = run(scenario.rate, scenario.points, arguments.seconds, scenario.slow_subscriber, parameters=given)
        print(f"{scenario.name:<23} {scenario.points:7d} {r.sent:5d} {r.used:5d} {r.shed:5d} {r.maps_per_second:7.1f}"
              f" {1e3 * r.latency_median:15.0f} {1e3 * r.latency_p95:9.0f} {1e3 * r.cpu / max(r.used, 1):24.0f}"
              f" {max(r.memory, default=0.0):12.0f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
