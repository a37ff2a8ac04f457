"""How long the node takes to end when it is asked to in the middle of work, and whether the unfinished submap is kept.

python benchmark/node_shutdown.py [--times 3]

Default settings, 131,072-point clouds at 10 Hz, a map folder; SIGINT and SIGTERM in turn.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpgmap_ros.config import Config
from gpgmap_ros.mapping import SubmapStore
from gpgmap_ros.processes import Child, isolated_ros_environment

ROOT = Path(__file__).resolve().parent.parent
WORK = 8.0  # seconds of driving before the signal


def run(number: signal.Signals) -> tuple[int, float, list[str]]:
    """Exit code, seconds, and how the submaps on the disk ended."""
    with tempfile.TemporaryDirectory() as folder:
        logs, maps = Path(folder) / "logs", Path(folder) / "maps"
        environment = isolated_ros_environment(logs)
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
        command = [
            str(Path(sys.executable).with_name("mapping_node")),
            "--ros-args",
            "-p",
            f"map_folder:={maps}",
        ]
        node = Child("node", command, environment, logs / "node.log")
        publisher = Child(
            "publisher",
            [sys.executable, "-m", "benchmark._cloud_publisher", "--seconds", "600"],
            environment,
            logs / "publisher.log",
        )
        try:
            deadline = time.monotonic() + 60.0
            while "mapping '/points'" not in node.tail(50) and time.monotonic() < deadline:
                node.check()
                time.sleep(0.1)
            time.sleep(WORK)
            began = time.monotonic()
            node.signal(number)
            code = node.wait(60.0)
            seconds = time.monotonic() - began
        finally:
            node.stop()
            publisher.stop()
        return code, seconds, [info.ended_by for info in SubmapStore(maps / "submaps", Config()).infos()]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how fast the node ends.")
    parser.add_argument("--times", type=int, default=3)
    good = True
    for _ in range(parser.parse_args().times):
        for number in (signal.SIGINT, signal.SIGTERM):
            code, seconds, ended = run(number)
            kept = ended[-1:] == ["shutdown"]
            good &= code == 0 and kept
            load = os.getloadavg()[0]
            print(
                f"{number.name}: code {code} after {seconds:.2f} s, unfinished submap kept: {kept} (load {load:.1f})"
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
