"""Starts on ground that a map does not show: every submap of a long drive is one, and none may be placed.

What a start costs is the search of the whole map, and its result depends on the submap alone. So the starts of a drive
share it: a localizer begins at each submap without knowing the others, sees what a robot that is switched on there
would see for `WAY` metres, and a search that one of them has made is not made again for the next. Starts share ground
with their neighbours on the drive: they say less than as many on ground of their own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from localization_drives import Array, Drive, pose_at

from gpgmap_ros.closure import Registration
from gpgmap_ros.closure.retrieval.database import ClosureDatabase, Priors
from gpgmap_ros.closure.types import SubmapKey
from gpgmap_ros.config import Config
from gpgmap_ros.demo.lidar import SpinningLidar
from gpgmap_ros.demo.terrain import Terrain
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.slam import MappingPipeline
from gpgmap_ros.slam.localizer import Localizer
from gpgmap_ros.slam.session import Session

WAY = 30.0
"""Metres of a start."""
LENGTH = 200.0
"""Metres of a drive."""

Found = list[tuple[SubmapKey, Registration]]


class SharedSearch:
    """A database that answers a question without priors once. The last submap's answers are kept."""

    def __init__(self, database: ClosureDatabase) -> None:
        self._database = database
        self._map: GPGMap | None = None
        self._kept: dict[tuple[int, tuple[SubmapKey, ...]], Found] = {}

    def closures(
        self, map_: GPGMap, max_matches: int, *, priors: Priors | None = None, among: Iterable[SubmapKey]
    ) -> Found:
        """As of ClosureDatabase."""
        names = tuple(among)
        if priors:
            return self._database.closures(map_, max_matches, priors=priors, among=names)
        if map_ is not self._map:
            self._map, self._kept = map_, {}
        key = (max_matches, names)
        if key not in self._kept:
            self._kept[key] = self._database.closures(map_, max_matches, among=names)
        return self._kept[key]


@dataclass
class Start:
    """One robot that was switched on at `began` metres of the drive."""

    localizer: Localizer
    began: float


def roam(
    terrain: Terrain, low: Array, high: Array, way: float, step: float, rng: np.random.Generator
) -> list[Array]:
    """A curved way of so many metres between two corners: it turns back where it would leave them."""
    xy, yaw, bend = rng.uniform(low, high), rng.uniform(-np.pi, np.pi), 0.0
    middle, room = (low + high) / 2.0, (high - low) / 2.0
    out = []
    for _ in range(int(way / step) + 1):
        out.append(pose_at(terrain, *xy, yaw))
        bend += 0.1 * (rng.normal(scale=0.06) - bend) * step
        yaw += bend * step
        ahead = xy + 6.0 * step * np.array([np.cos(yaw), np.sin(yaw)])
        if (np.abs(ahead - middle) > room).any():
            home = np.arctan2(*(middle - xy)[::-1])
            yaw += float(np.clip((home - yaw + np.pi) % (2.0 * np.pi) - np.pi, -0.35 * step, 0.35 * step))
        xy = np.clip(xy + step * np.array([np.cos(yaw), np.sin(yaw)]), low, high)
    return out


def drive_off_map(
    terrain: Terrain,
    corners: tuple[Array, Array],
    step: float,
    lidar: SpinningLidar,
    config: Config,
    session: Session,
    seed: int,
) -> Mapping[str, object]:
    """Drive beside the map: how many starts that were, after how many metres which were placed, seconds of CPU."""
    before = time.process_time()
    way = roam(terrain, *corners, LENGTH, step, np.random.default_rng([seed, 1]))
    shared = SharedSearch(session.closer.database)
    pipeline = MappingPipeline(config)
    active: list[Start] = []
    done, placed = 0, []
    driven, due, begins, T_before = 0.0, 0.0, True, None
    for stamp, points, T_odom, _ in Drive(terrain, way, seed, lidar=lidar):
        report = pipeline.add_cloud(points, T_odom, stamp)
        driven += float(np.linalg.norm((T_odom - T_before)[:3, 3])) if T_before is not None else 0.0
        T_before = T_odom
        ended = [item for item in active if driven - item.began > WAY]
        done += len(ended)
        placed += [item.localizer.first_fix for item in ended if item.localizer.first_fix is not None]
        active = [item for item in active if item not in ended]
        if report.submap is not None:  # the next cloud begins another one
            begins = True
            continue
        if not begins and driven < due:
            continue
        builder = pipeline.copy_submap()
        submap = builder.finish(0, "compared") if builder is not None else None
        if submap is None:
            continue
        if begins and driven + WAY <= LENGTH:
            localizer = session.localizer(config.localization)
            localizer._database = shared  # type: ignore[assignment]
            active.append(Start(localizer, driven))
        begins, due = False, driven + config.localization.step
        for item in active:
            item.localizer.observe(submap, driven - item.began)
    return {"starts": done, "placed": placed, "way": driven, "seconds": time.process_time() - before}
