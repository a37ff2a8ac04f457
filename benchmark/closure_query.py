"""A database of submaps of real terrain: time and memory of a query as it grows, and the rank of the right submap.

    python benchmark/closure_query.py [--submaps 100,1000,5000] [--threads 2] [--terrain gabilan60] [--overlap 0.7]

Submaps are made once and then added in mirrored copies until there are enough: to the search, which is blind to names,
each copy is one more different place to compare with. Beyond eight times the places, copies are repeated: a place that
outranks the right one then does so several times.
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
from gpgmap_ros.memory import resident_bytes

REFLECTIONS = (1, 2, 4, 7)  # odd ones only: a turned copy would be the same place
FIRST = 5  # submaps that are registered in full by default (closure.matches)


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


def fill(database: ClosureDatabase, pairs: list[tuple[Submap, Submap]], count: int) -> None:
    while len(database) < count:
        k = len(database)
        if k < len(pairs):
            database.add(f"{k}", pairs[k][1].map)
            continue
        source = pairs[k % len(pairs)][k // len(pairs) % 2].map
        database.add(f"other {k}", mirrored(source, REFLECTIONS[k // (2 * len(pairs)) % 4]))


def query_all(database: ClosureDatabase, pairs: list[tuple[Submap, Submap]], count: int) -> tuple:
    """Ranks of the right submaps, seconds of wall time and of CPU."""
    ranks, wall, cpu = [], [], []
    for k, (source, _) in enumerate(pairs):
        start, start_cpu = time.perf_counter(), time.process_time()
        names = [match.name for match in database.query(source.map, max_matches=count)]
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
        ranks.append(names.index(f"{k}") if f"{k}" in names else count)
    return np.array(ranks), wall, cpu


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--submaps", default="100,1000,5000")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--places", type=int, default=40, help="distinct places that are mapped")
    parser.add_argument("--terrain", default="gabilan60")
    parser.add_argument("--overlap", type=float, default=0.7)
    args = parser.parse_args()
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder; set GPGMAP_DATA")
        return 0
    rng = np.random.default_rng(4)
    (terrain,) = terrains(folder, (args.terrain,))
    pairs = [terrain.positive(args.overlap, rng) for _ in range(args.places)]
    database = ClosureDatabase(ClosureConfig(threads=args.threads))
    print(f"{args.terrain}, {args.overlap:.0%} shared, {args.places} queries, {args.threads} threads")
    for count in (int(text) for text in args.submaps.split(",")):
        before = resident_bytes()
        fill(database, pairs, count)
        filled = resident_bytes()
        database.query(pairs[0][0].map)  # what the search keeps of each submap is made with the first query
        kept = resident_bytes()
        ranks, wall, cpu = query_all(database, pairs, count)
        print(
            f"{len(database):5d} submaps: query {np.median(wall):.2f} s wall (least {np.min(wall):.2f}), "
            f"{np.median(cpu):.2f} s CPU; memory +{(filled - before) / 1e6:.0f} MB by the submaps, "
            f"+{(kept - filled) / 1e6:.0f} MB by the first query; right one first in {np.mean(ranks == 0):.0%}, "
            f"among {FIRST} in {np.mean(ranks < FIRST):.0%}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
