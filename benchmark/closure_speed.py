"""Time of one registration, by size of the maps and number of threads.

python benchmark/closure_speed.py [--repeats 20]

Wall and CPU time of `register`, median over the pairs of the least of `repeats` runs of each: the least, because other
work on the machine only ever adds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import numpy as np
from closure_terrain import data_folder, terrains

from gpgmap_ros.closure import ClosureConfig, register

PAIRS = 5


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
        for threads in (1, 2):
            config = ClosureConfig(threads=threads)
            least = []
            for source, target in pairs:
                times = []
                for _ in range(args.repeats + 1):  # the first compiles
                    wall, cpu = time.perf_counter(), time.process_time()
                    register(source.map, target.map, config)
                    times.append((time.perf_counter() - wall, time.process_time() - cpu))
                least.append(np.min(times[1:], axis=0))
            wall, cpu = np.median(least, axis=0) * 1e3
            rows, columns = pairs[0][0].map.grid.shape
            print(
                f"{rows} x {columns} cells, {threads} threads: {wall:.0f} ms wall, {cpu:.0f} ms CPU "
                f"(load of the machine {os.getloadavg()[0]:.1f})",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
