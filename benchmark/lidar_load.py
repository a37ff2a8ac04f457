"""LiDAR odometry and mapping at 10 Hz: CPU time by stage in one process, then the node over DDS, and what it sheds.

python benchmark/lidar_load.py                         60,000 points; about a minute on two idle cores
python benchmark/lidar_load.py --points 131072 --set mapping.kernel:=rbf
python benchmark/lidar_load.py --live-seconds 0        the stages only

A sensor goes through a simulated hall, 0.1 m and 1 degree a cloud. CPU time is that of all threads: at 10 Hz, 100 ms a
cloud are one core. Live, publisher and subscriber run on the same cores; latency is from the stamp of a cloud to the
arrival of the map that has it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmark.hall_clouds import hall_cloud, hall_scan
from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.sensing import Cloud, SourceSetup, decode_cloud, make_source
from gpgmap_ros.sensing.lidar_odometry import LidarOdometry
from gpgmap_ros.sensing.waiting import LocatedCloud, PoseQueue
from gpgmap_ros.slam import Executors, Slam

WARM_UP = 5
STAGES = {
    "_thin": "  thinning, normals",
    "_align": "  registration, both halves included",
    "_find_surfaces": "  surfaces, for the covariance",
    "_compare_halves": "  halves of a scan",
}


class Stopwatch:
    """CPU seconds by name, for each cloud."""

    def __init__(self) -> None:
        self.clouds: list[dict[str, float]] = []

    def begin(self) -> None:
        self.clouds.append(defaultdict(float))

    def add(self, name: str, seconds: float) -> None:
        if self.clouds:
            self.clouds[-1][name] += seconds

    def median(self, name: str) -> float:
        """Milliseconds."""
        return 1e3 * float(np.median([cloud.get(name, 0.0) for cloud in self.clouds[WARM_UP:]]))

    def mean(self, name: str) -> float:
        """Milliseconds; for what is not done for every cloud."""
        return 1e3 * float(np.mean([cloud.get(name, 0.0) for cloud in self.clouds[WARM_UP:]]))

    def watch(self, owner: type, name: str) -> None:
        """Count the time within a method."""
        method = getattr(owner, name)

        def timed(*arguments: Any, **named: Any) -> Any:
            begin = time.process_time()
            try:
                return method(*arguments, **named)
            finally:
                self.add(name, time.process_time() - begin)

        setattr(owner, name, timed)


def measure_stages(points: int, clouds: int, settings: dict[str, Any]) -> None:
    watch = Stopwatch()
    for name in STAGES:
        watch.watch(LidarOdometry, name)
    source = make_source("lidar", SourceSetup.recorded("odom", "base_link", "lidar"))
    poses = PoseQueue(source, 1.0, lambda: 0)
    slam = Slam(with_settings(Config(), {"submap.enabled": False, **settings}), poses, Executors.inline())
    rng = np.random.default_rng(0)
    for k in range(clouds):
        message = hall_cloud(hall_scan(k, points, rng), 1 + k * 100_000_000)
        watch.begin()
        marks = [time.process_time()]
        cloud: Cloud = decode_cloud(message)
        marks.append(time.process_time())
        poses.put(cloud)
        found = poses.poll()
        marks.append(time.process_time())
        assert isinstance(found, LocatedCloud), found
        slam.register(found)
        marks.append(time.process_time())
        slam.mapping.gpgmap()
        marks.append(time.process_time())
        for name, seconds in zip(("decode", "odometry", "fuse", "solve"), np.diff(marks), strict=True):
            watch.add(name, float(seconds))
    print(f"{points:,} points, CPU per cloud, median of {clouds - WARM_UP} (halves: mean):")
    print(f"decoding {watch.median('decode'):42.1f} ms")
    print(f"LiDAR odometry {watch.median('odometry'):36.1f} ms")
    for name, text in STAGES.items():
        value = watch.mean(name) if name == "_compare_halves" else watch.median(name)
        print(f"{text:38} {value:12.1f} ms")
    print(f"mapping a cloud {watch.median('fuse'):35.1f} ms")
    print(f"solving the map, once per published map {watch.median('solve'):11.1f} ms", flush=True)


def measure_live(points: int, seconds: float, parameters: tuple[str, ...]) -> None:
    from benchmark.node_load import run

    given = ("pose_source:=lidar", *parameters)
    r = run(10.0, points, seconds, False, parameters=given, publisher=("--hall",))
    print(
        f"live: {r.sent} clouds sent at 10 Hz, {r.received} received, {r.used} used, {r.shed} shed (queue full)"
    )
    print(
        f"      {r.maps_per_second:.1f} maps/s, latency {1e3 * r.latency_median:.0f} ms in the median,"
        f" {1e3 * r.latency_p95:.0f} ms at 95 %; node {1e3 * r.cpu / max(r.used, 1):.0f} ms of CPU per cloud"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--points", type=int, default=60_000)
    parser.add_argument("--clouds", type=int, default=25)
    parser.add_argument("--live-seconds", type=float, default=20.0, help="0 leaves the node out")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME:=VALUE", help="settings")
    options = parser.parse_args()
    settings = dict(item.split(":=", 1) for item in options.set)
    measure_stages(options.points, options.clouds, settings)
    if options.live_seconds > 0.0:
        measure_live(options.points, options.live_seconds, tuple(options.set))


if __name__ == "__main__":
    main()
