"""Time of a pair: both maps from their points, and the registration, by size of the maps and number of threads.

python benchmark/closure_speed.py [--repeats 20]

Wall and CPU time of both maps, made as submaps are, and of `register`, median over the pairs of the least of
`repeats` runs of each: the least, because other work on the machine only ever adds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from closure_terrain import Array, data_folder, map_as_submap, terrains

from gpgmap_ros.closure import ClosureConfig, Registration, register
from gpgmap_ros.mapping import GPGMap

PAIRS = 5


def least_time(run: Callable[..., GPGMap | Registration], arguments: tuple[Any, ...], repeats: int) -> Array:
    """(2,) wall and CPU time, milliseconds, of the quickest of some runs."""
    times = []
    for _ in range(repeats + 1):  # the first compiles
        wall, cpu = time.perf_counter(), time.process_time()
        run(*arguments)
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    return np.min(times[1:], axis=0) * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder; set GPGMAP_DATA")
        return 0
    for terrain in terrains(folder, ("gabilan60", "gabilan")):
        rng = np.random.default_rng(6)
        pairs = [terrain.positive(overlap, rng) for overlap in np.linspace(1.0, 0.35, PAIRS)]
        rows, columns = pairs[0][0].map.grid.shape
        clouds = [
            terrain.sample(m.centre, terrain.radius, k, rng) for pair in pairs for k, m in enumerate(pair)
        ]
        wall, cpu = np.median(
            [least_time(map_as_submap, (cloud, terrain.resolution), args.repeats) for cloud in clouds],
            axis=0,
        )
        print(f"{rows} x {columns} cells, a map: {wall:.0f} ms wall, {cpu:.0f} ms CPU", flush=True)
        maps = 2.0 * cpu
        for threads in (1, 2):
            config = ClosureConfig(threads=threads)
            wall, cpu = np.median(
                [least_time(register, (s.map, t.map, config), args.repeats) for s, t in pairs], axis=0
            )
            print(
                f"{rows} x {columns} cells, registration, {threads} threads: {wall:.0f} ms wall, {cpu:.0f} ms CPU "
                f"(load of the machine {os.getloadavg()[0]:.1f}); with both maps {maps + cpu:.0f} ms CPU",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
