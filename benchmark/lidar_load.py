"""CPU time of LiDAR odometry and mapping per cloud, in one process without ROS.

python benchmark/lidar_load.py                         60,000 points
python benchmark/lidar_load.py --points 131072 --clouds 50

A sensor goes through a simulated hall, 0.1 m and 1 degree a cloud. CPU time is that of all threads. At 10 Hz, 100 ms
are one core. The live node has DDS and the solver of published maps besides:
`python benchmark/node_load.py --points 60000 --only "10 Hz" --set pose_source:=lidar`.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from lidar_calibration import hall, visible
from scipy.spatial.transform import Rotation

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.sensing import Cloud, SourceSetup, make_source
from gpgmap_ros.sensing.waiting import LocatedCloud, PoseQueue
from gpgmap_ros.slam import Executors, Slam

WARM_UP = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--points", type=int, default=60_000)
    parser.add_argument("--clouds", type=int, default=30)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    scan = visible(np.concatenate([hall(np.random.default_rng(1)) for _ in range(8)]), reach=25.0)
    source = make_source("lidar", SourceSetup.recorded("odom", "base_link", "lidar"))
    poses = PoseQueue(source, 1.0, lambda: 0)
    slam = Slam(with_settings(Config(), {"submap.enabled": False}), poses, Executors.inline())
    located, mapped = [], []
    for k in range(options.clouds):
        T = np.eye(4)
        T[:3, :3] = Rotation.from_euler("z", k, degrees=True).as_matrix()
        T[:3, 3] = -4.0 + 0.1 * k, 0.0, 1.5
        points = scan(T, rng).astype(np.float32)
        chosen = rng.choice(len(points), options.points, replace=len(points) < options.points)
        begin = time.process_time()
        poses.put(Cloud(1 + k * 100_000_000, "lidar", points[chosen]))
        found = poses.poll()
        middle = time.process_time()
        assert isinstance(found, LocatedCloud)
        slam.register(found)
        located.append(middle - begin)
        mapped.append(time.process_time() - middle)
    print(f"{options.points:,} points, CPU per cloud, median of {options.clouds - WARM_UP}:")
    print(f"  LiDAR odometry {1e3 * np.median(located[WARM_UP:]):6.1f} ms")
    print(f"  mapping        {1e3 * np.median(mapped[WARM_UP:]):6.1f} ms")


if __name__ == "__main__":
    main()
