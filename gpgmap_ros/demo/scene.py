"""What the demo drives over, where it goes and what it records: the recording, and the truth to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpgmap_ros.demo.drift import Drift, add_drift
from gpgmap_ros.demo.drive import Frame, Route, drive, start_pose
from gpgmap_ros.demo.lidar import SpinningLidar
from gpgmap_ros.demo.recording import START, drive_messages
from gpgmap_ros.demo.terrain import Terrain, rover_terrain
from gpgmap_ros.geometry import Array, apply
from gpgmap_ros.io.bags import write_bag
from gpgmap_ros.io.trajectory import Trajectory
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.layers import POSE_VARIANCE
from gpgmap_ros.progress import ProgressBar

SEED = 7
TERRAIN_SIZE = 44.0  # metres
DURATION, RATE = 80.0, 1.0  # seconds, clouds per second
ROUTE = Route(radius=12.0, laps=1.2)
"""Back at its start after 80 m, and on over known ground, so that submaps of the second visit are finished."""
LIDAR = SpinningLidar(turns=480, max_range=9.0)
LAST_STAMP = START + round(DURATION * 1e9)


@dataclass(frozen=True)
class Scene:
    """A recorded drive. odometry: as recorded, with drift; truth: in the same frame, where the drive begins"""

    terrain: Terrain
    bag: Path
    odometry: Trajectory
    truth: Trajectory

    def position_error(self, trajectory: Trajectory) -> Array:
        """Metres (N,) between the poses of a trajectory and the true ones at the same stamps."""
        index = np.searchsorted(self.truth.stamps, trajectory.stamps)
        return np.asarray(np.linalg.norm(trajectory.positions - self.truth.positions[index], axis=1))

    def height_errors(self, gpgmap: GPGMap) -> tuple[Array, Array]:
        """Errors of the known cells' elevations in metres, and the map's own standard deviations there.

        The standard deviation includes what uncertain poses of the submaps add, where the map has that layer.
        """
        known = gpgmap.known
        iy, ix = np.nonzero(known)
        T_world_odom = start_pose(self.terrain, ROUTE.radius)
        cells = np.column_stack([gpgmap.grid.x[ix], gpgmap.grid.y[iy], gpgmap["elevation"][known]])
        x, y, z = apply(T_world_odom, cells.astype(np.float64)).T
        variance = gpgmap["variance"][known].astype(np.float64)
        if POSE_VARIANCE in gpgmap.layers:
            variance += gpgmap[POSE_VARIANCE][known]
        return z - self.terrain.height_at(x, y), np.sqrt(variance)


def record_scene(bag: Path) -> Scene:
    """Drive over the terrain and write the recording, with drifting odometry on /tf."""
    terrain = rover_terrain(np.random.default_rng(SEED), TERRAIN_SIZE)
    truth: list[Array] = []
    odometry: list[Array] = []
    with ProgressBar("driving over the terrain", DURATION * RATE + 1) as bar:

        def true_frames() -> Iterator[Frame]:
            for frame in drive(terrain, np.random.default_rng(SEED + 1), DURATION, RATE, ROUTE, LIDAR):
                truth.append(frame.T_odom_base)
                yield frame

        def recorded_frames() -> Iterator[Frame]:
            for frame in add_drift(true_frames(), Drift()):
                odometry.append(frame.T_odom_base)
                bar.advance(1, f"{len(frame.points)} points per cloud")
                yield frame

        write_bag(bag, drive_messages(recorded_frames()))
    stamps = START + np.round(np.arange(len(truth)) / RATE * 1e9).astype(np.int64)
    return Scene(
        terrain, bag, Trajectory(stamps, np.array(odometry)), Trajectory(stamps.copy(), np.array(truth))
    )
