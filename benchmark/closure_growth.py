"""What does a new submap cost when there are many already, and nothing to compare it with?

python benchmark/closure_growth.py [--submaps 5000] [--cells 24]

Drives straight ahead and hands each submap to what the process of the loop closures does with it: place it, look for
candidates, write it to the folder, tell the node. No submap is compared (closure.min_path), so that the cost of a
comparison, which is that of the terrain, is left out. Prints milliseconds of processor time per submap, kilobytes told
and written per submap, resident memory, and what is on the disk at the end. `--cells 200` has submaps of the default
size, 60 m in cells of 0.3 m.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.mapping import GPGMap, gpgmap_from_points
from gpgmap_ros.mapping.submaps import Submap, Track
from gpgmap_ros.memory import largest_bytes, limit_malloc_arenas, resident_bytes
from gpgmap_ros.slam.closure_messages import Add, Start, Update
from gpgmap_ros.slam.closure_server import ClosureServer
from gpgmap_ros.slam.graph_view import GraphView

SECOND = 1_000_000_000
STEP, POSES = 10.0, 50


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--submaps", type=int, default=5000)
    parser.add_argument("--cells", type=int, default=24, help="across a submap")
    args = parser.parse_args()
    count = args.submaps
    config = with_settings(
        Config(), {"closure.min_path": 1e6, "mapping.resolution": 1.0, "submap.resolution": 1.0}
    )
    ground = hills(args.cells)
    limit_malloc_arenas()
    told: list[object] = []
    view, edges = GraphView(), windows(count)
    with tempfile.TemporaryDirectory() as folder:
        closing = ClosureServer(Start(config, Path(folder), 0), told.append)
        print(" submaps  ms each  kB told  kB written  MB resident")
        number = 0
        for end in edges:
            times, sent, before = [], 0, written()
            start = number
            while number < end:
                submap = submap_of(number, ground)
                began = time.process_time()
                closing.serve(Add(number, submap))
                message = pickle.dumps(told[-1])
                update = pickle.loads(message)
                assert isinstance(update, Update), update
                view.whole(update)
                times.append(time.process_time() - began)
                sent += len(message)
                told.clear()
                number += 1
            many = end - start
            print(
                f"{end:8d}{1e3 * float(np.mean(times)):9.2f}{sent / many / 1e3:9.1f}"
                f"{(written() - before) / many / 1e3:12.1f}{resident_bytes() / 1e6:13.0f}"
            )
        kept = sum(path.stat().st_size for path in Path(folder).glob("closures.*"))
    print(f"on the disk at the end: {kept / 1e6:.2f} MB; written in all: {written() / 1e6:.2f} MB")
    print(f"memory: {largest_bytes() / 1e6:.0f} MB at most")
    return 0


def windows(count: int) -> list[int]:
    ends = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    return [end for end in ends if end < count] + [count]


def hills(cells: int) -> GPGMap:
    rng = np.random.default_rng(0)
    xy = rng.uniform(-0.5 * cells, 0.5 * cells, (5 * cells**2, 2))
    z = np.sin(xy[:, 0] / 3.0) + np.cos(xy[:, 1] / 4.0) + rng.normal(scale=0.01, size=len(xy))
    return gpgmap_from_points(np.column_stack([xy, z]), 1.0)


def submap_of(number: int, ground: GPGMap) -> Submap:
    T = np.eye(4)
    T[0, 3] = STEP * number
    stamps = number * 10 * SECOND + np.arange(POSES) * (10 * SECOND // POSES)
    poses = np.tile(np.eye(4), (POSES, 1, 1))
    poses[:, 0, 3] = np.linspace(0.0, STEP, POSES, endpoint=False)
    track = Track(stamps.astype(np.int64), poses)
    return Submap(number, 1, T, ground, int(stamps[0]), int(stamps[-1]), STEP, "distance", track)


def written() -> int:
    """Bytes that this process has handed to the system for writing."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
