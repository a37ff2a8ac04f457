"""Long drives over real relief with a 32-beam LiDAR and an odometry that drifts: what benchmark/long_drive.py replays.

The ground is a DEM, shrunk to a robot's size and flattened, with roughness finer than its cells. A route is driven in
order: laps of a ring, a figure eight through it, and laps in the opposite direction. Clouds are rings of a spinning
LiDAR whose beams stop at the first ground they meet, so that ridges hide what is behind them. Odometry errs by a slowly
varying scale and side slip, a random walk and a slowly varying bias of the heading, and a climb; roll and pitch err by
a part of a degree, as with an accelerometer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, zoom
from scipy.spatial.transform import Rotation

from gpgmap_ros.demo.drive import Frame, sensor_mount
from gpgmap_ros.demo.lidar import SpinningLidar
from gpgmap_ros.demo.terrain import Terrain
from gpgmap_ros.geometry import inverse

Array = NDArray[np.float64]
Rng = np.random.Generator

CELL = 0.3
"""Metres: of the ground that beams meet."""
ROUGHNESS = 0.03
"""Metres: standard deviation of what is finer than the DEM, over three octaves."""
SPEED = 2.0
WHEEL_BASE = 2.0


@dataclass(frozen=True)
class Relief:
    """A DEM in shared/data: its file and array, metres of a cell once shrunk, and factor on its heights."""

    file: str
    array: str
    cell: float
    height: float


RELIEFS = {
    "gabilan": Relief("dem_gabilan_1m.npz", "z", 1.0, 0.5),
    "davos": Relief("dem_small_pack.npz", "davos_z", 1.2, 0.05),
    "jacksboro": Relief("dem_small_pack.npz", "jacksboro_z", 1.8, 0.01),
}


@dataclass(frozen=True)
class Drift:
    """Errors of the odometry, per metre or per root of a metre.

    scale, slip, climb: standard deviations of slowly varying shares of the way; walk: metres per root of a metre
    turn: radians per root of a metre; bias: of a slowly varying radians per metre; tilt: radians
    memory: metres over which the slowly varying ones change
    """

    scale: float = 0.004
    slip: float = 0.002
    climb: float = 0.001
    walk: float = 0.005
    turn: float = 0.0025
    bias: float = 1e-4
    tilt: float = 0.002
    memory: float = 150.0


def make_ground(name: str, folder: Path, rng: Rng) -> Terrain:
    """The relief of a DEM, on cells of `CELL`, with roughness."""
    relief = RELIEFS[name]
    z = np.asarray(np.load(folder / relief.file)[relief.array], np.float64) * relief.height
    fine = zoom(z, relief.cell / CELL, order=3).astype(np.float32)
    for cells in (1.0, 2.0, 4.0):
        noise = gaussian_filter(rng.normal(size=fine.shape).astype(np.float32), cells)
        fine += ROUGHNESS / np.sqrt(3.0) * noise / noise.std()
    return Terrain(np.asarray(fine - fine.mean()), CELL)


def plan_route(length: float, centre: Array, radius: float, step: float) -> Array:
    """(N, 3) x, y and heading every `step` metres: a ring, an eight through it, the ring backwards, and again.

    Each part is driven before the next begins; the route ends where `length` is reached.
    """
    eight = 0.6 * radius
    parts: list[Array] = []

    def arc(middle: Array, r: float, start: float, turn: float) -> None:
        count = max(int(abs(turn) * r / 0.5), 2)
        angle = start + np.linspace(0.0, turn, count, endpoint=False)
        parts.append(middle + r * np.column_stack([np.cos(angle), np.sin(angle)]))

    driven, lap = 0.0, 0
    while driven < length:
        ring = radius * (1.0 + 0.25 * (lap % 3))  # later rounds see new ground as well
        gate, half = centre + np.array([ring, 0.0]), np.array([eight, 0.0])
        arc(centre, ring, 0.0, 4.0 * np.pi)
        arc(gate - half, eight, 0.0, 2.0 * np.pi)
        arc(gate + half, eight, np.pi, -2.0 * np.pi)
        parts.append(turn_back(centre, ring, 1.0))
        arc(centre, ring, -np.pi / 3.0, -2.0 * np.pi + np.pi / 3.0)
        parts.append(turn_back(centre, ring * (1.0 + 0.25 * ((lap + 1) % 3)), -1.0, ring))
        lap += 1
        driven = float(np.linalg.norm(np.diff(np.concatenate(parts), axis=0), axis=1).sum())
    return resample(np.concatenate(parts), step, length)


def turn_back(centre: Array, ring: float, side: float, start: float | None = None) -> Array:
    """Half a turn at the gate of a ring, and back onto the ring that is driven next.

    side: 1 from counter-clockwise to clockwise, -1 the other way; start: radius of the ring that is left
    """
    start = ring if start is None else start
    angle = np.linspace(0.0, np.pi, 60, endpoint=False)
    reach = 12.0
    bow = centre + np.column_stack([start + reach * (1.0 - np.cos(angle)), side * reach * np.sin(angle)])
    share = np.linspace(0.0, 1.0, 200, endpoint=False)
    if side > 0.0:
        r = ring + 2.0 * reach * (1.0 - smooth(share))
        phi = -share * np.pi / 3.0
    else:
        r = start + 2.0 * reach + (ring - start - 2.0 * reach) * smooth(share)
        phi = share * 2.0 * np.pi  # a whole round to get onto the next ring
    return np.concatenate([bow, centre + r[:, None] * np.column_stack([np.cos(phi), np.sin(phi)])])


def smooth(share: Array) -> Array:
    return share**2 * (3.0 - 2.0 * share)


def resample(xy: Array, step: float, length: float) -> Array:
    """(N, 3) at equal steps, with headings along the way, smoothed over a car's length."""
    way = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(xy, axis=0), axis=1))])
    at = np.arange(0.0, min(length, way[-1]), step)
    dense = np.column_stack([np.interp(at, way, xy[:, k]) for k in (0, 1)])
    dense = gaussian_filter(dense, (1.5 / step, 0.0), mode="nearest")
    heading = np.unwrap(np.arctan2(*np.gradient(dense, axis=0).T[::-1]))
    return np.column_stack([dense, heading])


def pose_on(ground: Terrain, x: float, y: float, heading: float) -> Array:
    """T_world_base: pitched and rolled as the ground under the wheels."""
    forward = np.array([np.cos(heading), np.sin(heading)])
    left = np.array([-forward[1], forward[0]])
    ends = [np.array([x, y]) + sign * WHEEL_BASE / 2.0 * d for d in (forward, left) for sign in (1.0, -1.0)]
    front, back, port, starboard = (float(ground.height_at(*end)) for end in ends)
    T = np.eye(4)
    angles = [heading, -np.arctan2(front - back, WHEEL_BASE), np.arctan2(port - starboard, WHEEL_BASE)]
    T[:3, :3] = Rotation.from_euler("ZYX", angles).as_matrix()
    T[:3, 3] = x, y, (front + back + port + starboard) / 4.0
    return T


def slow_noise(count: int, step: float, memory: float, rng: Rng) -> Array:
    """(count,) of unit variance, correlated over `memory` metres."""
    keep = np.exp(-step / memory)
    out = rng.normal(size=count)
    for k in range(1, count):
        out[k] = keep * out[k - 1] + np.sqrt(1.0 - keep**2) * out[k]
    return out


def add_drift(true: Array, step: float, drift: Drift, rng: Rng) -> Array:
    """(N, 4, 4) what odometry says of true poses (N, 4, 4) that are `step` metres apart; the first is exact."""
    n = len(true)
    scale, slip, climb, bias = (slow_noise(n, step, drift.memory, rng) for _ in range(4))
    tilt = np.stack([slow_noise(n, step, drift.memory, rng) for _ in range(2)], axis=1) * drift.tilt
    turn = drift.bias * bias * step + drift.turn * np.sqrt(step) * rng.normal(size=n)
    turn[0] = 0.0
    yaw = np.cumsum(turn)
    moves = np.einsum(
        "nji,nj->ni", true[:-1, :3, :3], np.diff(true[:, :3, 3], axis=0)
    )  # in the robot's frame
    moves[:, 0] += step * drift.scale * scale[1:] + drift.walk * np.sqrt(step) * rng.normal(size=n - 1)
    moves[:, 1] += step * drift.slip * slip[1:]
    out = np.tile(np.eye(4), (n, 1, 1))
    R = Rotation.from_euler("Z", yaw[:, None]) * Rotation.from_matrix(true[:, :3, :3])
    upright = np.einsum("nij,nj->ni", R.as_matrix()[:-1], moves)
    upright[:, 2] += step * drift.climb * climb[1:]
    out[:, :3, 3] = true[0, :3, 3] + np.concatenate([np.zeros((1, 3)), np.cumsum(upright, axis=0)])
    out[:, :3, :3] = (R * Rotation.from_euler("xy", tilt - tilt[:1])).as_matrix()
    return out


@dataclass(frozen=True, eq=False)
class Drive:
    """A drive with its truth: (N, 4, 4) poses of the robot, `step` metres apart, in the frame where odometry began."""

    ground: Terrain
    T_world_odom: Array
    true: Array
    odometry: Array
    step: float

    def frames(self, lidar: SpinningLidar, rng: Rng) -> Iterator[Frame]:
        """What the robot recorded."""
        for k, (T_true, T_odom) in enumerate(zip(self.true, self.odometry, strict=True)):
            points = lidar.scan(self.ground, self.T_world_odom @ T_true @ sensor_mount(), rng)
            yield Frame(k * self.step / SPEED, T_odom, points)


def make_drive(ground: Terrain, length: float, radius: float, step: float, drift: Drift, rng: Rng) -> Drive:
    route = plan_route(length, np.array(ground.size) / 2.0, radius, step)
    world = np.array([pose_on(ground, *row) for row in route])
    T_world_odom = np.eye(4)
    T_world_odom[:3, :3] = Rotation.from_euler("Z", route[0, 2]).as_matrix()
    T_world_odom[:3, 3] = world[0, :3, 3]
    true = inverse(T_world_odom) @ world
    return Drive(ground, T_world_odom, true, add_drift(true, step, drift, rng), step)


LIDAR = SpinningLidar(beams=32, turns=240, lowest=-30.0, highest=10.0, max_range=35.0, noise=0.02)
"""A third of a real one's firings: what a submap of 0.3 m cells can use."""
