"""The drive: a rover on a loop over the terrain, its poses and what its LiDAR sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from gpgmap_ros.arrays import Array
from gpgmap_ros.demo.lidar import SpinningLidar
from gpgmap_ros.demo.terrain import Terrain
from gpgmap_ros.geometry import inverse

WHEEL_BASE = 0.8  # metres: the ground under the rover is levelled over this distance
MAST_HEIGHT = 1.2  # metres from the ground to the sensor
LOOP_RADIUS = 4.0  # metres


@dataclass(frozen=True)
class Route:
    """A loop around the middle of the terrain. radius: mean, metres; laps: how often around it"""

    radius: float = LOOP_RADIUS
    laps: float = 1.0


@dataclass(frozen=True)
class Frame:
    """One moment of the drive. `odom` is where the rover started, level with gravity.

    T_odom_base: pose of the rover; points: what the sensor saw (N, 3), in its own frame.
    """

    time: float
    T_odom_base: Array
    points: Array


def sensor_mount() -> Array:
    """T_base_sensor: on a mast, above the middle of the rover."""
    T = np.eye(4)
    T[2, 3] = MAST_HEIGHT
    return T


def drive(
    terrain: Terrain,
    rng: np.random.Generator,
    duration: float,
    rate: float,
    route: Route | None = None,
    lidar: SpinningLidar | None = None,
) -> Iterator[Frame]:
    """Frames at `rate` Hz for `duration` seconds along a route (once around a loop unless given), poses exact."""
    route, lidar = route or Route(), lidar or SpinningLidar()
    centre = np.array(terrain.size) / 2.0
    T_odom_world = inverse(start_pose(terrain, route.radius))
    count = round(duration * rate) + 1
    for index in range(count):
        angle = 2.0 * np.pi * route.laps * index / (count - 1)
        T_world_base = base_pose(terrain, centre, angle, route.radius)
        points = lidar.scan(terrain, T_world_base @ sensor_mount(), rng)
        yield Frame(index / rate, T_odom_world @ T_world_base, points)


def start_pose(terrain: Terrain, loop_radius: float = LOOP_RADIUS) -> Array:
    """T_world_odom: where the drive starts, level with gravity."""
    return upright(base_pose(terrain, np.array(terrain.size) / 2.0, 0.0, loop_radius))


def base_pose(terrain: Terrain, centre: Array, angle: float, loop_radius: float = LOOP_RADIUS) -> Array:
    """T_world_base on the loop: heading along it, pitched and rolled as the ground under the wheels demands."""
    # a loop that is not a circle, so that the heading turns both ways
    radius = loop_radius * (1.0 + 0.15 * np.sin(3.0 * angle))
    growth = loop_radius * 0.45 * np.cos(3.0 * angle)
    outwards = np.array([np.cos(angle), np.sin(angle)])
    along = np.array([-np.sin(angle), np.cos(angle)])
    x, y = centre + radius * outwards
    tangent = growth * outwards + radius * along
    heading = np.arctan2(tangent[1], tangent[0])
    forward, left = (
        np.array([np.cos(heading), np.sin(heading)]),
        np.array([-np.sin(heading), np.cos(heading)]),
    )
    half = WHEEL_BASE / 2.0
    front, back = (float(terrain.height_at(*(np.array([x, y]) + sign * half * forward))) for sign in (1, -1))
    port, starboard = (float(terrain.height_at(*(np.array([x, y]) + sign * half * left))) for sign in (1, -1))
    pitch = -np.arctan2(front - back, WHEEL_BASE)
    roll = np.arctan2(port - starboard, WHEEL_BASE)
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("ZYX", [heading, pitch, roll]).as_matrix()
    T[:3, 3] = x, y, (front + back + port + starboard) / 4.0
    return T


def upright(T: Array) -> Array:
    """The same position and heading without roll and pitch."""
    level = T.copy()
    heading = np.arctan2(T[1, 0], T[0, 0])
    level[:3, :3] = Rotation.from_euler("Z", heading).as_matrix()
    return level
