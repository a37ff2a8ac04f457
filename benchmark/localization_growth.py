"""Time and memory of a fix in maps of 100 to 5,000 submaps: while a robot is tracked, and while it is searched for.

    python benchmark/localization_growth.py [--submaps 100,1000,5000] [--threads 2] [--places 20]

Submaps of real terrain (gabilan, 60 x 60 cells of 1 m) beside each other; beyond the first places they are mirrored
copies, so that each is another place. None shares ground with another: the search is over all of them, as it is over
the ground of a site that was mapped many times. Each query shares 70 % of its ground with one submap.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from closure_query import fill
from closure_terrain import Submap as Sample
from closure_terrain import data_folder, terrains, true_pose

from gpgmap_ros.closure import ClosureConfig, ClosureDatabase
from gpgmap_ros.config import Config
from gpgmap_ros.geometry import Array
from gpgmap_ros.mapping.submaps import Submap
from gpgmap_ros.memory import resident_bytes
from gpgmap_ros.slam.footprints import Footprints
from gpgmap_ros.slam.localizer import TRACKING, Localizer

SPACING, BOUNDS = 200.0, (-60.0, -60.0, 60.0, 60.0)
PRIOR = np.diag([0.5**2, 0.5**2, 0.5**2, 0.02**2, 0.02**2, 0.05**2])


def place_of(number: int) -> Array:
    T = np.eye(4)
    T[:2, 3] = SPACING * (number % 100), SPACING * (number // 100)
    return T


def observe(localizer: Localizer, query: Sample, number: int) -> float:
    """Seconds of CPU of one observation."""
    submap = Submap(number, 1, np.eye(4), query.map, 1 + number, 2 + number, 10.0, "distance")
    began = time.process_time()
    localizer.observe(submap, 10.0)
    return time.process_time() - began


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--submaps", default="100,1000,5000")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--places", type=int, default=20, help="distinct places that are mapped, each a query"
    )
    args = parser.parse_args()
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder; set GPGMAP_DATA")
        return 0
    rng = np.random.default_rng(5)
    (terrain,) = terrains(folder, ("gabilan60",))
    pairs = [terrain.positive(0.7, rng) for _ in range(args.places)]
    config, database = Config(), ClosureDatabase(ClosureConfig(threads=args.threads))
    names: list[int] = []
    print("submaps  tracking: ms of CPU, confirmed  searching: ms of CPU, wall ms  resident MB")
    for count in (int(text) for text in args.submaps.split(",")):
        fill(database, pairs, count)
        known = list(database)
        database.rename({name: number for number, name in enumerate(known)})
        names = list(range(count))
        poses = {number: place_of(number) for number in names}
        footprints = Footprints.of(names, list(poses.values()), [BOUNDS] * count)
        tracked, confirmed, searched, wall = [], 0, [], []
        for number, (query, target) in enumerate(pairs):
            localizer = Localizer(database, poses, footprints, database.config, config.localization)
            localizer.set_prior(poses[number] @ true_pose(query, target), PRIOR, np.eye(4), 10.0)
            localizer._track, localizer.status = localizer._hypotheses[0], TRACKING
            observe(localizer, query, number)  # a fix takes two that agree
            tracked.append(observe(localizer, query, number))
            confirmed += localizer.fixes > 0
        for number, (query, _) in enumerate(pairs):
            localizer = Localizer(database, poses, footprints, database.config, config.localization)
            began = time.perf_counter()
            searched.append(observe(localizer, query, number))
            wall.append(time.perf_counter() - began)
        print(
            f"{count:7d}{1e3 * np.median(tracked):26.0f}{confirmed:6d} of {len(pairs)}"
            f"{1e3 * np.median(searched):20.0f}{1e3 * np.median(wall):10.0f}{resident_bytes() / 1e6:13.0f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
