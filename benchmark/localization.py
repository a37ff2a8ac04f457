"""Localisation in a saved run: way to the first fix, wrong fixes off the map, error while tracking.

    python benchmark/localization.py davos --starts 200 --off 2000 --folder results
    python benchmark/localization.py blanca --starts 100
    python benchmark/localization.py nclt

With `--folder`, map and results are kept there, and the same call goes on where the last one was interrupted.

davos: the Alps at rover size (10 m cells shrunk to 0.2 m, slopes halved), a map of lanes on one half of it, starts on
that half and on the other, which the map does not show (localization_off_map.py). blanca: the map is driven over flight
line 1, the starts over line 2 (localization_blanca.py); there is no ground beside the map. Both with simulated rings of
a 32-beam LiDAR and odometry that drifts by 1 % and 0.06 degrees on each metre, with random walks beside. A pose is
right within three cells and three degrees of where the map has that ground: the truth is taken relative to the nearest
submap of the map, whose own error is another matter. Submaps bend with the odometry, so that the next one has the same
ground elsewhere: by how much is printed beside the error. nclt: the second half of a real loop in a map of the first.
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
            truth, drift = save_run(part, Drive(place.mapped, way, 1, lidar=place.lidar), place.config)
            np.savez(part / TRUTH, ids=list(truth), poses=list(truth.values()), drift=drift)

        self.offset = place.offset
        make_once(folder, drive)
        with np.load(folder / TRUTH) as kept:
            self.truth = dict(zip(kept["ids"].tolist(), kept["poses"], strict=True))
            drift = float(kept["drift"])
        self.session = Session.load(folder)
        self.poses = self.session.poses
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


@dataclass
class Outcome:
    """Of one start. first_fix: metres, None where there was none; errors: (N, 4) metres, degrees, NEES over 3,
    and metres that the map's own submaps are apart there; seconds: of CPU; reason: of the last status"""

    first_fix: float | None
    errors: Array
    fixes: int
    seconds: float
    reason: str

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Outcome:
        return cls(**(kept | {"errors": np.array(kept["errors"]).reshape(-1, 4)}))


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
            truth, other = map_.places_of(T_world)
            error = (found.T - truth)[:3, 3]
            turn = np.rad2deg(abs(yaw_of(truth[:3, :3].T @ found.T[:3, :3])))
            nees = float(error @ np.linalg.solve(found.covariance[:3, :3], error)) / 3.0
            apart = float(np.linalg.norm((other - truth)[:3, 3]))
            errors.append([float(np.linalg.norm(error)), turn, nees, apart])
    localizer = localization.localizer
    seconds = time.process_time() - began
    return {
        "first_fix": localizer.first_fix, "errors": errors, "fixes": localizer.fixes, "seconds": seconds,
        "reason": localizer.reason,
    }  # fmt: skip


def fail(error: Exception) -> None:
    raise error


def report(place: Place, map_: Map, starts: int, off: int, kept: KeptResults) -> None:
    limit = 3.0 * place.config.submap.resolution
    found = []
    for seed in range(starts):
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
            apart = np.quantile(errors[:, 3], [0.5, 0.95])
            print(f"    two submaps of the map have that ground {apart[0]:.3f} m apart, {apart[1]:.3f} m p95")
        print(f"    {np.mean([item.seconds for item in found]):.1f} s of CPU each", flush=True)
    if place.beside is not None:
        report_off_map(place, place.beside, map_, off, kept)


def report_off_map(
    place: Place, corners: tuple[Array, Array], map_: Map, off: int, kept: KeptResults
) -> None:
    """At least `off` starts beside the map, on as many drives as that takes."""
    done, drives, metres, seconds, placed = 0, 0, 0.0, 0.0, []
    while done < off:
        made = partial(
            drive_off_map, place.driven, corners, place.step, place.lidar, place.config,
            map_.session, 10_000 + drives,
        )  # fmt: skip
        found = kept.get(f"off drive {drives}", made)
        drives, done, metres = drives + 1, done + found["starts"], metres + found["way"]
        seconds, placed = seconds + found["seconds"], placed + found["placed"]
        for way in found["placed"]:
            print(f"    WRONG: drive {drives - 1} off the map: placed after {way:.1f} m", flush=True)
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
        report(place, map_, args.starts, args.off, KeptResults(kept / f"starts_{args.ground}.jsonl"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
