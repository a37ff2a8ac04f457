"""Closures under the conditions of drives: how many are found, and whether covariance and probability hold.

python benchmark/closure_conditions.py                                 the table, 5 pairs per ground and overlap
python benchmark/closure_conditions.py --conditions rings drift --pairs 15 --seed 7
python benchmark/closure_conditions.py --negatives 400                 more pairs of different places, per condition
python benchmark/closure_conditions.py --peers                         peers that are installed, on the same pairs
python benchmark/closure_conditions.py --stated                        odometry states how much it drifts

    rings       32 beams on a way of 20 m, two passes in one direction
    drift_low, drift, drift_high    the same with an odometry that drifts while a submap is made: 0.5 / 1 / 2 % of the
                way, 0.2 / 0.5 / 1 degrees per 10 m
    reverse     the second pass in the other direction, both with `drift`
    stereo      64 beams against a stereo camera with a noise of 0.002 r^2
    snow10, snow20    the second pass on 10, 20 cm of snow, which fills hollows
    gravel      river gravel in cells of 0.05 m, two samples of one cloud
    mound       a smooth mound (lone_star) as filter.lowest_surface finds it under its trees, two samples of a scan
    lines, sparse     two flight lines (blanca); thinned to a quarter of a point per cell and line
    discs       filled discs of DEMs, as in closure_pairs.py

Rings are cast over blanca, gabilan, davos (1 : 10), lone_star (with what the lower quarter of the returns in a cell
leaves of its trees) and the terrain of the demo. The frame of a submap is the robot's pose where it began; what was
driven in it is known where a drive made it. Right: within 1.5 cells and 2 degrees at the middle of the source. Maps and
results are kept in --out; a run that was interrupted goes on. Where closure_negatives.py has compared different places
of the same draw, they count in the table of probabilities. Peers get the maps, and small_gicp also a prior pose that
is off by five cells and five degrees (standard deviations).
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from closure_pairs import WITHIN, Result, mahalanobis, reliability
from closure_peer_rows import run_peers
from closure_terrain import (
    OVERLAPS,
    Submap,
    Terrain,
    data_folder,
    from_lines,
    map_as_submap,
    pose_error,
    terrains,
)
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from simulated_lidar import Ground, Sensor, drifting, drive, lidar, resample, scan, stereo

from gpgmap_ros.closure import ClosureConfig, register
from gpgmap_ros.config import FilterConfig
from gpgmap_ros.demo.terrain import rover_terrain
from gpgmap_ros.geometry import apply, inverse
from gpgmap_ros.mapping.filters import lowest_surface

Array = NDArray[np.float64]
Rng = np.random.Generator
Pair = tuple[Submap, Submap]

WAY, STEP = 20.0, 1.5  # metres driven in a submap, and between two scans
TILT = np.deg2rad(0.5)  # of roll and pitch of each submap
NEARLY_NONE = 1e-10  # m^2 and rad^2: what an odometry without drift states, because 0 is no statement


@dataclass(frozen=True)
class Area:
    """Ground to drive on. cell: of the submaps, metres; reach: of the LiDAR; way: driven in a submap."""

    ground: Ground
    cell: float
    reach: float
    way: float

    @property
    def apart(self) -> float:
        """Distance of the middles of two submaps that share nothing."""
        return 2.0 * self.reach + self.way


@dataclass(frozen=True)
class Pass:
    """How one of the two submaps is made. drift: share of the way and degrees per 10 m; snow: metres."""

    sensor: Callable[[float], Sensor] = lambda reach: lidar(32, reach, 1.5)
    drift: tuple[float, float] = (0.0, 0.0)
    reverse: bool = False
    snow: float = 0.0


DRIFT = (0.01, 0.5)
PLAIN = Pass()
PASSES: dict[str, tuple[Pass, Pass]] = {
    "rings": (PLAIN, PLAIN),
    "drift_low": (Pass(drift=(0.005, 0.2)), Pass(drift=(0.005, 0.2))),
    "drift": (Pass(drift=DRIFT), Pass(drift=DRIFT)),
    "drift_high": (Pass(drift=(0.02, 1.0)), Pass(drift=(0.02, 1.0))),
    "reverse": (Pass(drift=DRIFT), Pass(drift=DRIFT, reverse=True)),
    "stereo": (Pass(lambda reach: lidar(64, reach, 1.5)), Pass(lambda reach: stereo(0.75 * reach))),
    "snow10": (PLAIN, Pass(snow=0.10)),
    "snow20": (PLAIN, Pass(snow=0.20)),
}


# ------------------------------------------------ places


@cache
def areas(folder: Path) -> dict[str, Area]:
    rng = np.random.default_rng(20)
    small = np.load(folder / "dem_small_pack.npz")
    gabilan = np.load(folder / "dem_gabilan_1m.npz")["z"]
    davos = small["davos_z"] / 10.0
    rover = rover_terrain(rng, 90.0, 0.1)
    return {
        "gabilan": Area(resample(gabilan[:500, :500], 1.0, 0.33, rng), 0.5, 25.0, WAY),
        "davos": Area(resample(davos, 1.0, 0.33, rng), 0.5, 25.0, WAY),
        "blanca": Area(
            resample(grid_points(folder / "als_blanca.npz", 1.0), 1.0, 0.25, rng), 0.5, 20.0, 15.0
        ),
        "lone_star": Area(
            resample(grid_points(folder / "lone_star.npz", 0.25), 0.25, 0.1, rng, 0.01), 0.25, 8.0, 6.0
        ),
        "demo": Area(Ground(rover.heights.astype(np.float32), rover.resolution), 0.25, 10.0, 8.0),
    }


def grid_points(path: Path, cell: float) -> Array:
    """The lower quarter of the points of each cell, holes filled from around."""
    xyz = np.asarray(np.load(path)["xyz"], float)
    xyz = xyz - xyz.min(axis=0)
    column, row = (xyz[:, :2] / cell).astype(int).T
    shape = row.max() + 1, column.max() + 1
    flat = row * shape[1] + column
    order = np.lexsort((xyz[:, 2], flat))
    first = np.searchsorted(flat[order], np.arange(shape[0] * shape[1]))
    count = np.bincount(flat, minlength=shape[0] * shape[1])
    z = xyz[order, 2][np.minimum(first + count // 4, len(xyz) - 1)].reshape(shape)
    known = (count > 0).reshape(shape).astype(float)
    filled, width = np.where(known > 0, z, 0.0), 1.0
    while not known.all():
        weight = gaussian_filter(known, width)
        near = (known == 0) & (weight > 1e-3)
        filled[near] = (gaussian_filter(filled * known, width)[near]) / weight[near]
        known = np.where(near, 1.0, known)
        width *= 1.5
    return filled


def under_snow(ground: Ground, depth: float) -> Ground:
    """Snow of this depth in hollows of 1.5 m, less in shallow ones, none on crests."""
    z = np.asarray(ground.heights, float)
    hollow = gaussian_filter(z, 1.5 / ground.resolution) - z
    snow = depth * np.clip(hollow / hollow.std(), 0.0, 1.0)
    return Ground((z + gaussian_filter(snow, 0.3 / ground.resolution)).astype(np.float32), ground.resolution)


# ------------------------------------------------ submaps of a drive


def curve(start: Array, heading: float, length: float, bend: float) -> Array:
    """(K, 2) positions every STEP, or a twentieth of a shorter way, on an arc."""
    s = np.arange(0.0, length + 1e-9, min(STEP, length / 15.0))
    angle = heading + bend * s
    ds = s[1] - s[0]
    steps = ds * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return start + np.vstack([np.zeros(2), np.cumsum(steps[:-1], axis=0)])


def with_statement(submap: Submap, how: Pass) -> Submap:
    """The submap of an odometry that states its drift, as drawn by `drifting`: the variance at the end of the way."""
    length = float(np.hypot(*np.diff(submap.map.way[:, :2], axis=0).T).sum())
    share, turn = how.drift[0], np.deg2rad(how.drift[1])
    position = 0.5 * share**2 * (length**2 + 10.0 * length)
    rotation = 0.5 * turn**2 * ((length / 10.0) ** 2 + length / 10.0)
    rates = (position + NEARLY_NONE) / length, (rotation + NEARLY_NONE) / length
    return replace(submap, map=replace(submap.map, drift_rates=rates))


def make_submap(area: Area, how: Pass, xy: Array, rng: Rng) -> Submap:
    """A submap in the frame of its first pose, tilted a little."""
    ground = under_snow(area.ground, how.snow) if how.snow else area.ground
    if how.reverse:
        xy = xy[::-1]
    poses = drive(ground, xy, 1.5 if area.cell > 0.3 else 0.8)
    stated = drifting(poses, *how.drift, rng)
    sensor = how.sensor(area.reach)
    clouds = [apply(T, scan(ground, true, sensor, rng)) for true, T in zip(poses, stated, strict=True)]
    start = poses[0].copy()
    tilt = rng.normal(scale=TILT, size=2)
    turn = np.array([[1.0, 0.0, tilt[1]], [0.0, 1.0, -tilt[0]], [-tilt[1], tilt[0], 1.0]])
    u, _, vt = np.linalg.svd(turn)
    start[:3, :3] = start[:3, :3] @ (u @ vt)
    T_map_world = inverse(start)
    points = np.concatenate(clouds)
    made = map_as_submap(apply(T_map_world, points), area.cell)
    return Submap(replace(made, way=apply(T_map_world, stated[:, :3, 3])), T_map_world, xy.mean(axis=0))


def drive_pair(area: Area, how: tuple[Pass, Pass], overlap: float, rng: Rng) -> Pair:
    """Two passes; the second begins as much later as the overlap says, a little beside the first."""
    seen = 0.7 * area.reach  # beyond, rings are too far apart
    later = (1.0 - overlap) * (0.5 * np.pi * seen + area.way)
    margin = 0.25 * area.reach
    while True:
        start, heading = rng.uniform(0.0, area.ground.size), rng.uniform(-np.pi, np.pi)
        bend = rng.normal(scale=0.2 / area.way)
        whole = curve(start, heading, area.way + later, bend)
        if np.any(whole < margin) or np.any(whole > area.ground.size - margin):
            continue
        count = len(curve(start, heading, area.way, bend))
        beside = rng.uniform(-0.04, 0.04) * area.way * np.array([-np.sin(heading), np.cos(heading)])
        return (
            make_submap(area, how[0], whole[:count], rng),
            make_submap(area, how[1], whole[-count:] + beside + rng.uniform(0.0, 0.5 * area.cell, 2), rng),
        )


# ------------------------------------------------ other conditions


def cloud_terrain(name: str, path: Path, radius: float, cell: float, noise: float, trees: bool) -> Terrain:
    """Discs of a cloud, of its lowest surface where it has trees; the two views take different halves of the points."""
    xyz = np.asarray(np.load(path)["xyz"], float)
    if trees:
        xyz = xyz[lowest_surface(xyz, FilterConfig())]
    view_of = np.random.default_rng(5).integers(0, 2, len(xyz))

    def sample(centre: Array, within: float, view: int, rng: Rng) -> Array:
        near = (np.hypot(*(xyz[:, :2] - centre).T) < within) & (view_of == view)
        some = xyz[near]
        most = int(6.0 * np.pi * (within / cell) ** 2)
        if len(some) > most:
            some = some[rng.choice(len(some), most, replace=False)]
        return some + rng.normal(scale=noise, size=some.shape)

    return Terrain(
        name, radius, cell, xyz[:, :2].min(0) + 0.7 * radius, xyz[:, :2].max(0) - 0.7 * radius, sample
    )


def sparse_lines(folder: Path, density: float = 0.25) -> Terrain:
    """Flight lines with so many points per cell of each line."""
    dense = from_lines("sparse", folder / "als_blanca.npz", 30.0, 1.0)

    def sample(centre: Array, within: float, view: int, rng: Rng) -> Array:
        points = dense.sample(centre, within, view, rng)
        count = min(len(points), int(density * np.pi * within**2))
        return points[rng.choice(len(points), count, replace=False)] if count else points

    return replace(dense, sample=sample)


def condition_places(name: str, folder: Path) -> dict[str, Callable[[float, Rng], Pair]]:
    """Ground by name: makes a pair of this overlap."""
    if name in PASSES:
        return {
            ground: lambda overlap, rng, area=area: drive_pair(area, PASSES[name], overlap, rng)  # type: ignore[misc]
            for ground, area in areas(folder).items()
        }
    if name == "gravel":
        made = [cloud_terrain("gravel", folder / "gravel_otira_1cm.npz", 1.5, 0.05, 0.003, False)]
    elif name == "mound":
        made = [cloud_terrain("mound", folder / "lone_star.npz", 8.0, 0.25, 0.01, True)]
    elif name == "sparse":
        made = [sparse_lines(folder)]
    else:
        made = terrains(folder, {"lines": ("blanca",), "discs": ("gabilan60", "davos", "hirise")}[name])
    return {terrain.name: terrain.positive for terrain in made}


CONDITIONS = (*PASSES, "gravel", "mound", "lines", "sparse", "discs")


# ------------------------------------------------ runs


def draw_pairs(name: str, folder: Path, args: argparse.Namespace) -> list[tuple[str, float, Pair]]:
    """The pairs of a condition, kept in a file."""
    path = args.out / f"pairs_{name}_{args.seed}_{args.pairs}.pkl"
    if path.exists():
        return pickle.loads(path.read_bytes())  # type: ignore[no-any-return]
    rng = np.random.default_rng([args.seed, zlib.crc32(name.encode())])
    places = condition_places(name, folder)
    single = len(places) == 1
    made = [
        (ground, overlap, make(overlap, rng))
        for ground, make in places.items()
        for overlap in OVERLAPS
        for _ in range(args.pairs * (3 if single else 1))
    ]
    path.write_bytes(pickle.dumps(made))
    return made


def pairs_apart(maps: list[Submap]) -> list[tuple[int, int]]:
    """Numbers of all pairs of maps of one ground that share nothing."""
    reach = [np.max(np.ptp(np.argwhere(m.map.known), axis=0)) * m.map.grid.resolution for m in maps]
    return [
        (i, j)
        for i, a in enumerate(maps)
        for j, b in enumerate(maps[i + 1 :], i + 1)
        if np.linalg.norm(a.centre - b.centre) > 0.5 * (reach[i] + reach[j])
    ]


def different_places(pairs: list[tuple[str, float, Pair]], count: int, seed: int) -> list[tuple[str, Pair]]:
    """Pairs of submaps of one ground that share nothing."""
    out = []
    for ground in dict.fromkeys(name for name, _, _ in pairs):
        maps = [submap for name, _, pair in pairs if name == ground for submap in pair]
        out += [(ground, (maps[i], maps[j])) for i, j in pairs_apart(maps)]
    order = np.random.default_rng([seed, 1]).permutation(len(out))[:count]
    return [out[k] for k in order]


def run(ground: str, overlap: float, pair: Pair, config: ClosureConfig) -> Result:
    source, target = pair
    start = time.process_time()
    found = register(source.map, target.map, config)
    seconds = time.process_time() - start
    error = (
        pose_error(found.T_target_source, source, target) if overlap and found.evidence else (np.inf, np.inf)
    )
    distance = mahalanobis(found, source, target) if overlap and found.evidence else np.nan
    return Result(ground, overlap, found.accepted, found.probability, error, distance, seconds, found)


def interval_of_mean(values: Array) -> tuple[float, float]:
    """95 % interval of the mean, by drawing pairs again."""
    drawn = np.random.default_rng(0).choice(values, (4000, len(values))).mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)


def summarise(name: str, found: list[Result]) -> str:
    """A row of the table."""
    same, different = [r for r in found if r.overlap], [r for r in found if not r.overlap]
    shares = sorted({r.overlap for r in same}, reverse=True)
    each = [[r for r in same if r.overlap == share] for share in shares]
    accepted = " ".join(str(sum(r.accepted and r.same_place for r in rs)) for rs in each)
    right = " ".join(str(sum(r.same_place for r in rs)) for rs in each)
    distances = np.array([r.distance for r in same if r.accepted and r.near])
    nees = "-"
    if distances.size:
        low, high = interval_of_mean(distances / 6.0)
        nees = f"{distances.mean() / 6.0:.2f} ({low:.2f} to {high:.2f})"
    count = len(each[0]) if each else 0
    wrong = sum(r.accepted and not r.near for r in same)
    highest = max((r.confidence for r in different), default=0.0)
    return (
        f"| {name} | {accepted} of {count} | {right} | {wrong} | {nees} | "
        f"{int(np.sum(distances > WITHIN))} of {distances.size} | "
        f"{sum(r.accepted for r in different)} of {len(different)} | {highest:.2g} |"
    )


def compared_before(args: argparse.Namespace) -> list[Result]:
    """Pairs of different places that closure_negatives.py has compared on this draw."""
    return [
        Result(ground, 0.0, False, pair["probability"], (np.inf, np.inf), np.nan, 0.0)
        for path in args.out.glob(f"different_{args.seed}_{args.pairs}_*.jsonl")
        for line in path.read_text().splitlines()
        for ground, _, _, pair in json.loads(line)["evidence"]
    ]


def parse_draw(
    parser: argparse.ArgumentParser, seed: int, pairs: int
) -> tuple[argparse.Namespace, Path | None]:
    """The arguments, with those that say which maps are drawn; and the data folder, if there is one."""
    parser.add_argument("--seed", type=int, default=seed, help="of the draw")
    parser.add_argument(
        "--pairs", type=int, default=pairs, help="per ground and overlap; thrice where there is one ground"
    )
    parser.add_argument("--conditions", nargs="*", default=CONDITIONS, choices=CONDITIONS)
    parser.add_argument(
        "--out", type=Path, default=Path("out/conditions"), help="folder for maps and results"
    )
    args = parser.parse_args()
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder; set GPGMAP_DATA")
    else:
        args.out.mkdir(parents=True, exist_ok=True)
    return args, folder


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--negatives", type=int, default=40, help="pairs of different places per condition")
    parser.add_argument("--peers", action="store_true", help="also a row per peer that is installed")
    parser.add_argument("--draw", action="store_true", help="only make the maps")
    parser.add_argument("--stated", action="store_true", help="the odometry of drives states its drift")
    parser.add_argument("--by-ground", action="store_true", help="also a row per ground")
    args, folder = parse_draw(parser, seed=1, pairs=5)
    if folder is None:
        return 0
    config = ClosureConfig(threads=1)
    print(
        "| condition | accepted and right | right pose found | wrong accepted | NEES / 6 | beyond 99.9 % "
        "| false of different places | highest stated there |\n|---|---|---|---|---|---|---|---|"
    )
    everything: list[Result] = []
    for name in args.conditions:
        pairs = draw_pairs(name, folder, args)
        if args.draw:
            continue
        if args.stated and name in PASSES:
            pairs = [
                (ground, overlap, tuple(map(with_statement, pair, PASSES[name])))  # type: ignore[misc]
                for ground, overlap, pair in pairs
            ]
        found = [run(ground, overlap, pair, config) for ground, overlap, pair in pairs]
        found += [run(g, 0.0, pair, config) for g, pair in different_places(pairs, args.negatives, args.seed)]
        print(summarise(name, found), flush=True)
        if args.by_ground:
            for ground in dict.fromkeys(r.terrain for r in found):
                print(summarise(f"- {ground}", [r for r in found if r.terrain == ground]), flush=True)
        if args.peers:
            print("\n".join(run_peers(pairs, args.seed)), flush=True)
        (args.out / f"results_{name}_{args.seed}_{args.pairs}.pkl").write_bytes(pickle.dumps(found))
        everything += found
    if args.draw:
        return 0
    print(f"CPU of a registration: {1e3 * np.median([r.seconds for r in everything]):.0f} ms")
    reliability(everything + compared_before(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
