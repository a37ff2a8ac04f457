"""Localisation in a saved run: way to the first fix, wrong fixes off the map, error while tracking.

    python benchmark/localization.py davos --starts 200 --off 2000 --folder results
    python benchmark/localization.py blanca --starts 100
    python benchmark/localization.py nclt

With `--folder`, map and results are kept there, and the same call goes on where the last one was interrupted. Starts
and drives off the map are numbered draws: `--first` and `--first-off` begin at another one than 0.

davos: the Alps at rover size (10 m cells shrunk to 0.2 m, slopes halved), a map of lanes on one half of it, starts on
that half and on the other, which the map does not show (localization_off_map.py). blanca: the map is driven over flight
line 1, the starts over line 2 (localization_blanca.py); there is no ground beside the map. Both with simulated rings of
a 32-beam LiDAR and odometry that drifts by 1 % and 0.06 degrees on each metre, with random walks beside. A pose is
right within three cells and three degrees of where the map has that ground: the truth is taken relative to the nearest
submap of the map, whose own error is another matter. Submaps bend with the odometry: the next one has the same ground
elsewhere, and so has the nearest one a few metres from where it began. So two more figures are printed: how far apart
two submaps have that ground, and the error against where the map shows the ground around the robot, as the mean of all
clouds of the map that saw it. nclt: the second half of a real loop in a map of the first.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from closure_terrain import data_folder
from kept_results import KeptResults, kept_folder, make_once, share_text
from localization_blanca import HIGH, LOW, measured_grounds, offset_between
from localization_drives import Array, Drive, lanes, rover_relief, save_run, wander
from localization_off_map import WAY, drive_off_map
from scipy.spatial.transform import Rotation

from gpgmap_ros.config import Config, with_settings
from gpgmap_ros.demo.lidar import SpinningLidar
from gpgmap_ros.demo.terrain import Terrain
from gpgmap_ros.geometry import inverse
from gpgmap_ros.mapping.submaps import align_with_gravity, yaw_of
from gpgmap_ros.slam import MappingPipeline
from gpgmap_ros.slam.localization import Localization
from gpgmap_ros.slam.session import Session
from gpgmap_ros.slam.work_queue import InlineExecutor

TRUTH = "truth.npz"
NEXT = 0.2
"""Of the range of the LiDAR: a cloud of the map from nearer to the robot saw all of the ground around it."""
ROVER = {
    "submap.size": 16.0, "submap.max_distance": 8.0, "submap.resolution": 0.2, "submap.length_scale": 0.6,
    "mapping.resolution": 0.2, "mapping.size_x": 12.0, "mapping.size_y": 12.0, "filter.max_range": 8.0,
    "filter.max_height": 20.0, "gate.enabled": False, "closure.threads": 1, "localization.step": 4.0,
}  # fmt: skip
CATCHMENT = {
    "submap.size": 48.0, "submap.max_distance": 20.0, "submap.resolution": 0.5, "submap.length_scale": 1.5,
    "mapping.resolution": 0.5, "mapping.size_x": 40.0, "mapping.size_y": 40.0, "filter.max_range": 25.0,
    "filter.min_height": -30.0, "filter.max_height": 30.0, "gate.enabled": False, "closure.threads": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where drives are simulated. mapped, driven: the ground for the map and for the starts, which may be measured
    apart; offset: (3,) metres from where one driven on is to where the map has it; low, high: corners of the map's
    area; beside: of the area beside it, if there is one"""

    mapped: Terrain
    driven: Terrain
    offset: Array
    low: Array
    high: Array
    beside: tuple[Array, Array] | None
    spacing: float
    step: float
    lidar: SpinningLidar
    config: Config


def davos(folder: Path) -> Place:
    z = np.load(folder / "dem_small_pack.npz")["davos_z"]
    ground = rover_relief(z, 0.2, 0.5 * 0.2 / 10.0, 2)
    width, height = ground.size
    return Place(
        ground, ground, np.zeros(3), np.array([10.0, 10.0]), np.array([46.0, height - 10.0]),
        (np.array([64.0, 10.0]), np.array([width - 10.0, height - 10.0])), 6.0, 1.0,
        SpinningLidar(turns=360, max_range=10.0), with_settings(Config(), ROVER),
    )  # fmt: skip


def blanca(folder: Path) -> Place:
    mapped, driven = measured_grounds(folder)
    return Place(
        mapped, driven, offset_between(mapped, driven), LOW, HIGH, None, 20.0, 2.0,
        SpinningLidar(turns=360, max_range=30.0), with_settings(Config(), CATCHMENT),
    )  # fmt: skip


class Map:
    """A saved run of lanes over a place, and where the world is in it."""

    def __init__(self, place: Place, folder: Path) -> None:
        way = lanes(place.mapped, place.low, place.high, place.spacing, place.step)

        def drive(part: Path) -> None:
            made = save_run(part, Drive(place.mapped, way, 1, lidar=place.lidar), place.config)
            np.savez(
                part / TRUTH, ids=list(made.anchors), anchors=list(made.anchors.values()), drift=made.drift,
                lengths=[len(world) for world, _ in made.tracks.values()],
                world=np.concatenate([world for world, _ in made.tracks.values()]),
                local=np.concatenate([local for _, local in made.tracks.values()]),
            )  # fmt: skip

        self.offset, self.range = place.offset, place.config.filter.max_range
        make_once(folder, drive)
        with np.load(folder / TRUTH) as kept:
            ids, drift = kept["ids"], float(kept["drift"])
            self.truth = dict(zip(ids.tolist(), kept["anchors"], strict=True))
            owners, self.world, local = np.repeat(ids, kept["lengths"]), kept["world"], kept["local"]
        self.session = Session.load(folder)
        self.poses = self.session.poses
        self.mapped = np.array([self.poses[int(id)] for id in owners]) @ local
        closures = sum(closure.accepted for closure in self.session.closer.closures)
        print(f"map: {len(way) * place.step:.0f} m of lanes, {len(self.poses)} submaps, {closures} closures,")
        print(f"     odometry off by up to {drift:.1f} m", flush=True)

    def places_of(self, T_world_robot: Array) -> tuple[Array, Array]:
        """T_map_robot, as the nearest submap of the map has it, and as the next one does."""
        T = T_world_robot.copy()
        T[:3, 3] += self.offset
        near = sorted(self.poses, key=lambda id: float(np.hypot(*(self.truth[id][:2, 3] - T[:2, 3]))))
        first, second = (self.poses[id] @ inverse(align_with_gravity(self.truth[id])) @ T for id in near[:2])
        return first, second

    def place_by_ground(self, T_world_robot: Array) -> Array:
        """T_map_robot, as the map has the ground around the robot: the mean of all clouds of the map that saw it.

        A spinning LiDAR has fewer points on ground by the cube of its distance. Those that stood next to the robot
        count alike.
        """
        T = T_world_robot.copy()
        T[:3, 3] += self.offset
        away = np.hypot(*(self.world[:, :2, 3] - T[:2, 3]).T)
        weight = np.where(away <= self.range, (away**2 + (NEXT * self.range) ** 2) ** -1.5, 0.0)
        seen = weight > 0.0
        found = self.mapped[seen] @ np.linalg.inv(self.world[seen]) @ T
        out = np.eye(4)
        out[:3, :3] = Rotation.from_matrix(found[:, :3, :3]).mean(weight[seen]).as_matrix()
        out[:3, 3] = np.average(found[:, :3, 3], axis=0, weights=weight[seen])
        return out


@dataclass
class Outcome:
    """Of one start. first_fix: metres, None where there was none; errors: (N, 6) metres, degrees, NEES over 3, metres
    that the map's own submaps are apart there, metres and degrees against the ground around; seconds: of CPU; reason:
    of the last status"""

    first_fix: float | None
    errors: Array
    fixes: int
    seconds: float
    reason: str

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Outcome:
        return cls(**(kept | {"errors": np.array(kept["errors"]).reshape(-1, 6)}))


def start(place: Place, map_: Map, seed: int) -> dict[str, object]:
    """Drive from a random start on the map without a guess: an Outcome, and seconds of CPU."""
    began = time.process_time()
    way = wander(place.driven, place.low, place.high, WAY, place.step, np.random.default_rng([seed, 0]))
    config = place.config
    localization = Localization(
        map_.session.localizer(config.localization), config.localization, InlineExecutor(fail)
    )
    pipeline, errors = MappingPipeline(config), []
    for stamp, points, T_odom, T_world in Drive(place.driven, way, seed, lidar=place.lidar):
        pipeline.add_cloud(points, T_odom, stamp)
        localization.add(1, T_odom, pipeline)
        found = localization.pose()
        if found is not None:
            (truth, other), ground = map_.places_of(T_world), map_.place_by_ground(T_world)
            error, turn = errors_of(found.T, truth)
            nees = float(error @ np.linalg.solve(found.covariance[:3, :3], error)) / 3.0
            apart = float(np.linalg.norm((other - truth)[:3, 3]))
            beside, beside_turn = errors_of(found.T, ground)
            errors.append(
                [float(np.linalg.norm(error)), turn, nees, apart, float(np.linalg.norm(beside)), beside_turn]
            )
    localizer = localization.localizer
    seconds = time.process_time() - began
    return {
        "first_fix": localizer.first_fix, "errors": errors, "fixes": localizer.fixes, "seconds": seconds,
        "reason": localizer.reason,
    }  # fmt: skip


def errors_of(T: Array, truth: Array) -> tuple[Array, float]:
    """(3,) metres, and degrees of yaw."""
    return (T - truth)[:3, 3], float(np.rad2deg(abs(yaw_of(truth[:3, :3].T @ T[:3, :3]))))


def fail(error: Exception) -> None:
    raise error


def report(place: Place, map_: Map, first: int, starts: int, kept: KeptResults) -> None:
    limit = 3.0 * place.config.submap.resolution
    found = []
    for seed in range(first, first + starts):
        made = partial(start, place, map_, seed)
        found.append(Outcome.of(kept.get(f"start {seed}", made)))
    if found:
        ways = np.array([item.first_fix if item.first_fix is not None else np.inf for item in found])
        errors = np.concatenate([item.errors for item in found])
        wrong = sum(bool(len(e.errors) and (e.errors[:, :2] > [limit, 3.0]).any()) for e in found)
        fixed = share_text(int(np.sum(ways < WAY)), starts)
        print(f"{starts} starts on the map: fixed within {WAY:.0f} m: {fixed},")
        print(f"    first fix after {np.median(ways):.1f} m (median), {np.quantile(ways, 0.9):.1f} m (90 %)")
        print(f"    wrong (beyond {limit:g} m or 3 deg) at any cloud: {share_text(wrong, starts)}")
        p50, p95 = np.quantile(errors[:, 0], [0.5, 0.95]) if len(errors) else (np.nan, np.nan)
        largest = errors[:, 0].max(initial=0.0)
        print(
            f"    tracking, {len(errors)} clouds: {p50:.3f} m median, {p95:.3f} m p95, largest {largest:.3f} m;"
        )
        if len(errors):
            print(f"    yaw {np.quantile(errors[:, 1], 0.95):.2f} deg p95;", end=" ")
            print(f"NEES / 3 {errors[:, 2].mean():.2f} (1 is right)")
            metres = np.quantile(errors[:, 4], [0.5, 0.95])
            print(f"    against the ground around, {metres[0]:.3f} m median, {metres[1]:.3f} m p95,", end=" ")
            print(
                f"largest {errors[:, 4].max():.3f} m; yaw {np.quantile(errors[:, 5], 0.95):.2f} deg p95,",
                end=" ",
            )
            print(f"largest {errors[:, 5].max():.2f} deg")
            apart = np.quantile(errors[:, 3], [0.5, 0.95])
            print(f"    two submaps of the map have that ground {apart[0]:.3f} m apart, {apart[1]:.3f} m p95")
        print(f"    {np.mean([item.seconds for item in found]):.1f} s of CPU each", flush=True)


def report_off_map(
    place: Place, corners: tuple[Array, Array], map_: Map, first: int, off: int, kept: KeptResults
) -> None:
    """At least `off` starts beside the map, on as many drives as that takes. first: number of the first drive"""
    done, drives, metres, seconds, placed = 0, 0, 0.0, 0.0, []
    while done < off:
        made = partial(
            drive_off_map, place.driven, corners, place.step, place.lidar, place.config,
            map_.session, 10_000 + first + drives,
        )  # fmt: skip
        found = kept.get(f"off drive {first + drives}", made)
        drives, done, metres = drives + 1, done + found["starts"], metres + found["way"]
        seconds, placed = seconds + found["seconds"], placed + found["placed"]
        for way in found["placed"]:
            print(f"    WRONG: drive {first + drives - 1} off the map: placed after {way:.1f} m", flush=True)
        if done >= off or drives % 5 == 0:
            print(
                f"{done} starts off the map on {drives} drives of {metres:.0f} m in all, placed:"
                f" {share_text(len(placed), done)}; {seconds / done:.1f} s of CPU each",
                flush=True,
            )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ground", choices=("davos", "blanca", "nclt"))
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--off", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first start")
    parser.add_argument("--first-off", type=int, default=0, help="number of the first drive off the map")
    parser.add_argument("--folder", type=Path, help="where the map and the results are kept")
    args = parser.parse_args()
    folder = data_folder()
    if folder is None:
        print("skipped: no data folder; set GPGMAP_DATA")
        return 0
    with kept_folder(args.folder) as kept:
        if args.ground == "nclt":
            from localization_nclt import report_nclt

            report_nclt(folder / "bag_nclt_loop", kept)
            return 0
        place = davos(folder) if args.ground == "davos" else blanca(folder)
        map_ = Map(place, kept / f"map_{args.ground}")
        results = KeptResults(kept / f"starts_{args.ground}.jsonl")
        report(place, map_, args.first, args.starts, results)
        if place.beside is not None:
            report_off_map(place, place.beside, map_, args.first_off, args.off, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
