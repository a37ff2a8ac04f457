"""What the live run left in its folder: the map of the whole drive, by odometry alone and with the loops closed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpgmap_ros.closure import LoopCloser, LoopClosure
from gpgmap_ros.closure.graph.drift import Drift
from gpgmap_ros.config import Config
from gpgmap_ros.demo.scene import Scene
from gpgmap_ros.geometry import Array
from gpgmap_ros.io.trajectory import Trajectory
from gpgmap_ros.mapping import GPGMap, SubmapStore
from gpgmap_ros.mapping.stitching import stitch

CLOSURES_FILE = "closures.npz"


@dataclass(frozen=True)
class Outcome:
    """The pose graph that the node left, and the submaps in it.

    odometry_poses, corrected_poses: T_map_submap (4, 4) by number, before and after loop closing
    path: the corrected trajectory that was received on ~/path
    """

    config: Config
    store: SubmapStore
    closer: LoopCloser
    odometry_poses: dict[int, Array]
    corrected_poses: dict[int, Array]
    path: Trajectory

    @property
    def closures(self) -> list[LoopClosure]:
        return self.closer.closures

    def map_of(self, number: int) -> GPGMap:
        return self.store.load(number).gpgmap

    def stitch(self, poses: dict[int, Array], resolution: float | None = None) -> GPGMap:
        """One map of all submaps under these poses."""
        return stitch(self.store, poses, self.config, self.config.closure.frame, resolution)

    def stitch_corrected(self) -> GPGMap:
        """The map with the loops closed, with the variance that uncertain poses add (layer `pose_variance`)."""
        covariances = self.closer.covariances()
        if self.closer.newest is not None:  # later submaps hang on it by odometry alone
            newest = covariances[self.closer.newest]
            drift = Drift.from_config(self.config.closure)
            for number in self.corrected_poses.keys() - covariances.keys():
                way = sum(self.store.load(k).distance for k in range(self.closer.newest, number))
                covariances[number] = newest + drift.covariance(way)
        frame = self.config.closure.frame
        return stitch(self.store, self.corrected_poses, self.config, frame, covariances=covariances)

    def correct(self, odometry: Trajectory) -> Trajectory:
        """The whole drive with the loops closed: between submaps the correction is interpolated."""
        poses = self.closer.correct(odometry.stamps, odometry.poses)
        return Trajectory(odometry.stamps, np.array(poses))


def read_outcome(folder: Path, config: Config) -> Outcome:
    """What a node with `map_folder` set to this folder has left, and what map_recorder received."""
    store = SubmapStore(folder / "submaps", config)
    closer = LoopCloser.load(folder / CLOSURES_FILE, config.closure, lambda number: store.load(number).gpgmap)
    odometry = {info.id: info.T_map_submap for info in store.infos()}
    # the node finishes its last submap when it ends: too late to be compared, so the correction of the newest holds
    corrected = {number: closer.T_map_odom @ T for number, T in odometry.items()} | closer.poses
    with np.load(folder / "last_map.npz") as received:
        path = Trajectory(received["path_stamps"], received["path_poses"])
    return Outcome(config, store, closer, odometry, corrected, path)


def final_drift(scene: Scene, outcome: Outcome) -> tuple[float, float]:
    """Position error in metres at the last pose of the received path: by odometry, and with the loops closed."""
    last = outcome.path.stamps[-1:]
    index = np.searchsorted(scene.odometry.stamps, last)
    before = scene.position_error(Trajectory(last, scene.odometry.poses[index]))
    after = scene.position_error(Trajectory(last, outcome.path.poses[-1:]))
    return float(before.sum()), float(after.sum())


def submap_outline(number: int, gpgmap_bounds: tuple[float, float, float, float], T: Array) -> dict[str, Any]:
    """A submap's outline for the report, in the frame of the map."""
    x_min, y_min, x_max, y_max = gpgmap_bounds
    corners = np.array([[x_min, y_min], [x_max, y_min], [x_max, y_max], [x_min, y_max]])
    return {
        "id": number,
        "x": round(float(T[0, 3]), 3),
        "y": round(float(T[1, 3]), 3),
        "outline": np.round(corners @ T[:2, :2].T + T[:2, 3], 2).tolist(),
    }
