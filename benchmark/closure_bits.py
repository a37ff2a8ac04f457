"""Digests of loop closures, to prove that a change of the code leaves every bit of the results as it was.

python benchmark/closure_bits.py --write before.json        on the code before the change
python benchmark/closure_bits.py --compare before.json      on the code after it: exit code 1 where a digest differs

Registers 80 pairs of submaps, half of them of different places, with and without a prior pose, and drives a LoopCloser
around a loop with drifting odometry: closures, poses, covariances and trajectory, after a rejection, and after the
session was saved and loaded. One digest (SHA-256) per field over all pairs. Digests of two machines may differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from closure_terrain import Submap as Disc
from closure_terrain import Terrain, data_folder, terrains, true_pose
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gpgmap_ros.closure import ClosureConfig, ClosureDatabase, LoopCloser, PosePrior, Registration, register
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping.submaps import Submap, Track

Array = NDArray[np.float64]
Pair = tuple[Disc, Disc]

TERRAINS = ("blanca", "gabilan60", "davos", "jacksboro", "craters")
OVERLAPS = (1.0, 0.7, 0.5, 0.35)
PAIRS = 2
"""Per terrain and overlap, and as many of different places."""
FIELDS = (
    "T_target_source",
    "covariance",
    "probability",
    "score",
    "accepted",
    "reason",
    "overlap",
    "candidates",
)
STEPS = 14
"""Submaps of the loop."""
SECOND = 1_000_000_000


def digest(values: Iterable[Any]) -> str:
    """SHA-256 over the bits of numbers and arrays, and over texts."""
    total = hashlib.sha256()
    for value in values:
        data = value.encode() if isinstance(value, str) else np.ascontiguousarray(value).tobytes()
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()


def draw(terrain: Terrain, rng: np.random.Generator) -> list[Pair]:
    """Pairs of the same ground, then as many of discs that do not touch."""
    same = [terrain.positive(overlap, rng) for overlap in OVERLAPS for _ in range(PAIRS)]
    maps = [disc for pair in same for disc in pair]
    apart = [
        (a, b)
        for k, a in enumerate(maps)
        for b in maps[k + 1 :]
        if np.linalg.norm(a.centre - b.centre) > 2.0 * terrain.radius
    ]
    order = rng.permutation(len(apart))[: len(same)]
    return same + [apart[k] for k in order]


def registration_digests(name: str, found: list[Registration]) -> dict[str, str]:
    """One digest per field, of the residual statistics as well."""
    out = {f"{name}.{field}": digest(getattr(item, field) for item in found) for field in FIELDS}
    for part in ("evidence", "runner_up"):
        statistics = [getattr(item, part) for item in found]
        out[f"{name}.{part}"] = digest(
            value for item in statistics if item is not None for value in vars(item).values()
        )
    return out


def pair_digests(pairs: list[Pair], config: ClosureConfig) -> dict[str, str]:
    found = [register(source.map, target.map, config) for source, target in pairs]
    print(f"{len(pairs)} pairs, {sum(item.accepted for item in found)} accepted")
    spread = np.diag([3.0, 3.0, 3.0, 0.1, 0.1, 0.3]) ** 2
    near = [
        register(s.map, t.map, config, PosePrior(true_pose(s, t), s.map.grid.resolution**2 * spread))
        for s, t in pairs[::4]
    ]
    return registration_digests("pairs", found) | registration_digests("prior", near)


def database_digests(pairs: list[Pair], config: ClosureConfig) -> dict[str, str]:
    """A query of submaps of one terrain, and what comes of registering the best."""
    database = ClosureDatabase(config)
    for k, (_, target) in enumerate(pairs):
        database.add(str(k), target.map)
    matches = [match for source, _ in pairs[:4] for match in database.query(source.map)]
    closures = [found for source, _ in pairs[:4] for found in database.closures(source.map, 3)]
    return {
        "query": digest(v for m in matches for v in (m.name, m.likelihood, m.T_target_source)),
        "query.names": digest(name for name, _ in closures),
        **registration_digests("query", [found for _, found in closures]),
    }


def drive(terrain: Terrain, rng: np.random.Generator) -> list[Submap]:
    """Submaps around a loop, in the frame of an odometry that drifts."""
    middle = 0.5 * (terrain.low + terrain.high)
    submaps: list[Submap] = []
    T_odom, last = np.eye(4), np.eye(4)
    for k, angle in enumerate(np.linspace(0.0, 2.0 * np.pi, STEPS)):
        disc = terrain.submap(middle + 60.0 * np.array([np.cos(angle), np.sin(angle)]), 0, rng)
        assert disc is not None
        T_world = inverse(disc.T_map_world)
        drift = np.eye(4)
        drift[:3, :3] = Rotation.from_euler("z", 0.01).as_matrix()
        drift[:3, 3] = 0.15, 0.1, 0.05
        T_odom = T_odom @ inverse(last) @ T_world @ drift if k else T_world
        last = T_world
        stamp = (1 + 10 * k) * SECOND
        track = Track(np.array([stamp, stamp + 5 * SECOND]), np.array([np.eye(4), drift]))
        submaps.append(Submap(k, 7, T_odom, disc.map, stamp, stamp + 9 * SECOND, 25.0, "distance", track))
    return submaps


def state(name: str, closer: LoopCloser) -> dict[str, str]:
    """Digests of everything that a LoopCloser gives out."""
    closures = closer.closures
    return {
        f"{name}.closures": digest(
            v for c in closures for v in (c.a, c.b, c.accepted, c.probability, c.overlap)
        ),
        f"{name}.reasons": digest(c.reason for c in closures),
        f"{name}.T_a_b": digest(c.T_a_b for c in closures),
        f"{name}.covariance": digest(c.covariance for c in closures),
        f"{name}.poses": digest(v for item in closer.poses.items() for v in item),
        f"{name}.covariances": digest(v for item in closer.covariances().items() for v in item),
        f"{name}.trajectory": digest(v for item in closer.trajectory for v in item),
        f"{name}.T_map_odom": digest([closer.T_map_odom]),
    }


def closer_digests(submaps: list[Submap], folder: Path) -> dict[str, str]:
    config = ClosureConfig(threads=1, min_path=60.0, drift_position=0.1, drift_rotation=0.005)
    closer = LoopCloser(config)
    for submap in submaps:
        closer.add(submap)
        closer.keep(folder / "kept.npz")
    accepted = [c for c in closer.closures if c.accepted]
    print(f"a loop of {len(submaps)} submaps, {len(closer.closures)} comparisons, {len(accepted)} accepted")
    out = state("loop", closer)
    closer.write_g2o(folder / "graph.g2o")
    out["loop.g2o"] = digest([(folder / "graph.g2o").read_text()])
    closer.save(folder / "saved.npz")
    maps = {submap.id: submap.gpgmap for submap in submaps}
    kept = LoopCloser.load(folder / "kept.npz", config, maps.__getitem__)
    out |= state("saved", LoopCloser.load(folder / "saved.npz", config)) | state("kept", kept)
    kept.reject(accepted[0].a, accepted[0].b)
    out |= state("rejected", kept)
    other = LoopCloser(config)
    other.add(Submap(3, 9, np.eye(4), submaps[5].gpgmap, 1, 2, 3.0, "distance"))
    numbers = other.merge(closer)
    out["merged.numbers"] = digest(v for item in numbers.items() for v in item)
    return out | state("merged", other)


def all_digests(files: Path | None) -> dict[str, str]:
    folder = data_folder()
    if folder is None:
        raise SystemExit("no data folder: set GPGMAP_DATA")
    config = ClosureConfig(threads=1)
    places = terrains(folder, TERRAINS)
    draws = [draw(terrain, np.random.default_rng([15, k])) for k, terrain in enumerate(places)]
    out = pair_digests([pair for pairs in draws for pair in pairs], config)
    out |= database_digests(draws[1][:8], config)
    with tempfile.TemporaryDirectory() as temporary:
        where = files or Path(temporary)
        where.mkdir(parents=True, exist_ok=True)
        return out | closer_digests(drive(places[1], np.random.default_rng(16)), where)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, help="file for the digests")
    parser.add_argument("--compare", type=Path, help="digests that must be the same")
    parser.add_argument("--files", type=Path, help="folder in which the session's files stay")
    args = parser.parse_args()
    found = all_digests(args.files)
    if args.write:
        args.write.write_text(json.dumps(found, indent=1) + "\n")
    if not args.compare:
        print("\n".join(f"{value[:16]} {name}" for name, value in found.items()))
        return 0
    before = json.loads(args.compare.read_text())
    different = [name for name in before | found if before.get(name) != found.get(name)]
    print(
        f"{len(found) - len(different)} of {len(before)} digests are the same",
        *different,
        sep="\n  differs: ",
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
