"""A database of 1,000 submaps of real terrain: time of a query, and the rank of the right submap.

python benchmark/closure_query.py [--submaps 1000] [--threads 2]

Submaps are made once and then added in mirrored and turned copies until there are enough: to the search, which is blind
to names, each copy is one more different place to compare with.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time

import numpy as np
from closure_terrain import Submap, data_folder, terrains

from gp_core.grid import Grid
from gpgmap_ros.closure import ClosureConfig, ClosureDatabase
from gpgmap_ros.mapping import GPGMap


def mirrored(map_: GPGMap, flip: int) -> GPGMap:
    """Another place that looks as real: reflected in x (bit 0), y (bit 1), transposed (bit 2)."""
    layers = {name: layer.copy() for name, layer in map_.layers.items()}
    if flip & 4:
        layers = {name: np.ascontiguousarray(layer.T) for name, layer in layers.items()}
        for one, two in (("gradient_x", "gradient_y"), ("gradient_x_variance", "gradient_y_variance")):
            layers[one], layers[two] = layers[two], layers[one]
    for bit, axis, name in ((1, 1, "gradient_x"), (2, 0, "gradient_y")):
        if flip & bit:
            layers = {key: np.ascontiguousarray(np.flip(layer, axis)) for key, layer in layers.items()}
            layers[name] = -layers[name]
    shape = layers["elevation"].shape
    return dataclasses.replace(map_, grid=Grid(map_.grid.origin, shape, map_.grid.resolution), layers=layers)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--submaps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--places", type=int, default=40, help="distinct places that are mapped")
    args = parser.parse_args()
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder; set GPGMAP_DATA")
        return 0
    rng = np.random.default_rng(4)
    (terrain,) = terrains(folder, ("gabilan60",))
    pairs: list[tuple[Submap, Submap]] = [terrain.positive(0.7, rng) for _ in range(args.places)]
    database = ClosureDatabase(ClosureConfig(threads=args.threads))
    reflections = (1, 2, 4, 7)  # odd ones only: a turned copy would be the same place
    for k, (_, target) in enumerate(pairs):
        database.add(f"{k}", target.map)
    while len(database) < args.submaps:
        k = len(database)
        source = pairs[k % len(pairs)][k // len(pairs) % 2].map
        database.add(f"other {k}", mirrored(source, reflections[k // (2 * len(pairs)) % 4]))
    database.query(pairs[0][0].map)  # the spectra are made with the first query
    ranks, wall, cpu = [], [], []
    for k, (source, _) in enumerate(pairs):
        start, start_cpu = time.perf_counter(), time.process_time()
        names = [match.name for match in database.query(source.map, max_matches=args.submaps)]
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
        ranks.append(names.index(f"{k}") if f"{k}" in names else args.submaps)
    rank = np.array(ranks)
    print(
        f"{len(database)} submaps of 60 x 60 cells, {args.threads} threads: query {np.median(wall):.2f} s wall "
        f"(least {np.min(wall):.2f}), {np.median(cpu):.2f} s CPU; the right one, 70 % shared, is first in "
        f"{np.mean(rank == 0):.0%}, among ten in {np.mean(rank < 10):.0%}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
