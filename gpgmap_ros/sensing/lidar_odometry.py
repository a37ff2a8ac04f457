"""LiDAR odometry: each scan is registered to the Gaussian voxels of the scans before it (small_gicp).

A scan starts where constant velocity puts it. If too few of its points find a voxel there, several turns about the
sensor's vertical axis are tried from the last pose, and the start with the most partners wins: hand-held and turning
sensors rotate by up to 50 degrees between two scans at 2 Hz.

How well a pose is known follows from the surfaces seen, not from the registration's own Hessian, whose regularised
covariances claim knowledge along planes. A point p with unit normal n fixes the motion (t, w) only along n:

    information = sum over points on surfaces of a a' / s^2,    a = (n, p x n),

with s^2 the mean squared distance along the normals, and without what the noise of the normals adds to the sum. A
corridor, a wall or a level field leave directions open, and the covariance says so.

Its scale is measured while driving: distances of neighbouring points are alike, scan lines and rough ground do not
repeat, and by how much that counts differs from scene to scene by a factor of fifty. A scan is split in cubes, half of
which, by a hash, are registered by themselves, and so are the others. The difference d between the two poses has the
sum C of their covariances, so the mean of d' C^-1 d / 6 over the last scans is the factor by which they are too small.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from gpgmap_ros.geometry import Array, inverse
from gpgmap_ros.optional_packages import explain_missing

TURNS: Final = (0.0, 15.0, -15.0, 30.0, -30.0, 45.0, -45.0, 60.0, -60.0)
"""Degrees about the sensor's z axis that are tried when the first start fails."""
WELL_MATCHED: Final = 0.9
"""Share of the points with a partner above which no other start is tried."""
TRACKED: Final = 0.6
"""Share of the points with a partner below which track is lost."""
MAX_STD: Final = 0.5
"""Standard deviation of a position, in voxels, above which it is not known: track is lost."""
MIN_POINTS: Final = 100
"""Points of a thinned scan below which it cannot be registered."""
HALVES_BLOCK: Final = 3.0
"""Edge of the cubes in which a scan is split, in voxels: errors of neighbouring voxels are alike."""
HALVES_EVERY, HALVES_FIRST = 2, 6
"""Scans from one that is split to the next, after the first few, all of which are."""
FIRST_SCALE: Final = 10.0
"""Scale of the covariance before any scan was split."""
SCALE_MEMORY: Final = 6
"""Split scans over which the scale is averaged."""
MAX_SURPRISE: Final = 10.0
"""Times the scale so far for which one split scan counts at most."""
NEIGHBOURS: Final = 10
MAX_SURFACES: Final = 1500
"""Points at which the surface is looked at for the covariance."""
MAX_THICKNESS: Final = 0.1
"""Variance across a surface over the smaller one along it above which it is none: an edge, or foliage."""
NOISE_MARGIN: Final = 4.0
"""Factor on the noise of the normals that is taken out of the information: a level field must not fix anything."""
HORIZON: Final = 1000
"""Scans after which a voxel that was not seen is forgotten."""
RANGE_PER_VOXEL: Final = 8.0
MIN_VOXEL, MAX_VOXEL = 0.2, 1.5
"""Metres; the edge of a voxel is the median range over RANGE_PER_VOXEL."""
THINNING: Final = 0.4
"""Edge of the cubes in which a scan is thinned, in voxels."""


class LostTrack(Exception):
    """A scan whose pose is not known: why."""


@dataclass(frozen=True)
class OdometryStep:
    """The pose of one scan.

    T_odom_sensor: (4, 4); covariance: (6, 6) of (x, y, z, rotations about x, y, z) against the scans before it, in the
        axes of the odometry frame
    matched: share of the points with a partner; restarted: other starts than constant velocity were tried
    """

    T_odom_sensor: Array
    covariance: Array = field(repr=False)
    matched: float
    restarted: bool


@dataclass(frozen=True)
class _Surfaces:
    """Places at which a scan lies on a surface.

    points, normals: (N, 3) from the sensor, in the axes of the odometry frame
    noise: (N,) variance of a normal along each tangent; weight: points of the scan for each of these
    """

    points: Array
    normals: Array
    noise: Array
    weight: float

    def of(self, chosen: NDArray[np.bool_]) -> _Surfaces:
        return _Surfaces(self.points[chosen], self.normals[chosen], self.noise[chosen], self.weight)

    def covariance(self, variance: float) -> Array:
        """(6, 6) of a pose, in the axes of the odometry frame, but for its scale. variance: along the normals, m^2"""
        information = self.weight / variance * _information(self.points, self.normals, self.noise)
        # a direction that nothing fixes is known to a kilometre and a turn
        information[np.diag_indices(6)] += [1e-6] * 3 + [1e-1] * 3
        return np.asarray(np.linalg.inv(information), dtype=np.float64)


class ScanRegistration(Protocol):
    """What `LidarSource` needs of LiDAR odometry, here or in a process of its own."""

    def restart(self, T_odom_sensor: Array | None = None) -> None:
        """Forget the map: the next scan is at the given pose, the origin unless given."""

    def register(self, points: Array, stamp: int, turn: Array | None = None) -> OdometryStep:
        """The pose of a scan."""

    def follow(self, points: Array, stamp: int, T_odom_sensor: Array) -> OdometryStep:
        """A scan whose pose is given."""


def import_small_gicp() -> Any:
    """The package; ValueError that says how to install it where it is missing."""
    try:
        import small_gicp
    except ImportError as error:
        raise ValueError(explain_missing(error)) from error
    return small_gicp


class LidarOdometry:
    """Registers scans in order; the first is the origin.

    voxel_size: metres; 0 chooses it by the first scan
    threads: of the registration. A scan is too small for two: waiting for each other, they take four times the CPU time
    """

    def __init__(self, voxel_size: float = 0.0, threads: int = 1) -> None:
        self._gicp = import_small_gicp()
        self._given, self._threads = voxel_size, threads
        self.restart()

    def restart(self, T_odom_sensor: Array | None = None) -> None:
        """Forget the map: the next scan is at the given pose, the origin unless given."""
        self._map: Any = None
        self._start = np.eye(4) if T_odom_sensor is None else T_odom_sensor
        self._pose, self._velocity = self._start, np.eye(4)
        self._stamp = 0
        self._scale, self._splits, self._scans = FIRST_SCALE, 0, 0
        self.voxel_size = self._given

    def register(self, points: Array, stamp: int, turn: Array | None = None) -> OdometryStep:
        """The pose of a scan (N, 3); stamp: nanoseconds. LostTrack, and nothing changes, where it is not known.

        turn: (3, 3) rotation since the last scan by a gyroscope, where there is one
        """
        if self._map is None:
            return self._begin(points, stamp)
        scan = self._thin(points)
        best, restarted = self._align(scan, self._pose @ self._predict(stamp, turn)), False
        if best.num_inliers < WELL_MATCHED * scan.size():
            restarted = True
            starts = [self._pose @ _turn(angle) for angle in TURNS]
            best = max(
                [best, *(self._align(scan, start) for start in starts)], key=lambda item: item.num_inliers
            )
        return self._accept(scan, stamp, np.array(best.T_target_source), best, restarted)

    def follow(self, points: Array, stamp: int, T_odom_sensor: Array) -> OdometryStep:
        """A scan whose pose is given by another program, as `register`: judged by this map, and put into it."""
        if self._map is None:
            return self._begin(points, stamp)
        scan = self._thin(points)
        return self._accept(scan, stamp, T_odom_sensor, self._align(scan, T_odom_sensor, 1), False)

    def _accept(self, scan: Any, stamp: int, T: Array, best: Any, restarted: bool) -> OdometryStep:
        """Put a scan at T into the map, if enough of its points match and they fix its position. best: of `align`"""
        matched = best.num_inliers / scan.size()
        if matched < TRACKED:
            raise LostTrack(
                f"{100.0 * matched:.0f} % of the points match the scans before, {100.0 * TRACKED:.0f} % needed"
            )
        surfaces = self._find_surfaces(scan, T)
        variance = self._residual(float(best.error) / max(best.num_inliers, 1)) ** 2
        if self._scans < HALVES_FIRST or self._scans % HALVES_EVERY == 0:
            self._compare_halves(scan, T, surfaces, variance)
        self._scans += 1
        covariance = self._scale * surfaces.covariance(variance)
        std = float(np.sqrt(np.linalg.eigvalsh(covariance[:3, :3])[-1]))
        if std > MAX_STD * self.voxel_size:
            raise LostTrack(
                f"the scan fixes its position to {std:.2f} m only: too few surfaces face one of the directions"
            )
        seconds = (stamp - self._stamp) * 1e-9
        self._velocity, self._seconds = inverse(self._pose) @ T, seconds
        self._pose, self._stamp = T, stamp
        self._map.insert(scan, T)
        return OdometryStep(T, covariance, matched, restarted)

    def _begin(self, points: Array, stamp: int) -> OdometryStep:
        if len(points) < MIN_POINTS:
            raise LostTrack(f"the scan has {len(points)} points, {MIN_POINTS} needed")
        self.voxel_size = self._given or voxel_size_for(points)
        scan = self._thin(points)
        self._map = self._gicp.GaussianVoxelMap(self.voxel_size)
        self._map.set_lru(horizon=HORIZON, clear_cycle=10)
        self._map.insert(scan, self._start)
        self._pose, self._velocity, self._stamp, self._seconds = self._start, np.eye(4), stamp, 0.0
        return OdometryStep(self._start, np.zeros((6, 6)), 1.0, False)

    def _predict(self, stamp: int, turn: Array | None) -> Array:
        """The motion since the last scan, at the velocity of the step before; its turn as given, where it is."""
        T = np.eye(4)
        if self._seconds > 0.0:
            share = np.clip((stamp - self._stamp) * 1e-9 / self._seconds, 0.0, 2.0)
            w = share * Rotation.from_matrix(self._velocity[:3, :3]).as_rotvec()
            T[:3, :3] = Rotation.from_rotvec(w).as_matrix()
            T[:3, 3] = share * self._velocity[:3, 3]
        if turn is not None:
            T[:3, :3] = turn
        return T

    def _thin(self, points: Array) -> Any:
        # One thread: with several the number of points differs from run to run.
        scan = self._gicp.voxelgrid_sampling(
            np.asarray(points, dtype=np.float64), THINNING * self.voxel_size, 1
        )
        if scan.size() < MIN_POINTS:
            raise LostTrack(f"the scan has {scan.size()} points after thinning, {MIN_POINTS} needed")
        self._gicp.estimate_normals_covariances(scan, num_neighbors=NEIGHBOURS, num_threads=self._threads)
        return scan

    def _align(self, scan: Any, start: Array, iterations: int = 30) -> Any:
        return self._gicp.align(
            self._map, scan, start, max_correspondence_distance=2.0 * self.voxel_size,
            num_threads=self._threads, max_iterations=iterations,
        )  # fmt: skip

    def _find_surfaces(self, scan: Any, T: Array) -> _Surfaces:
        points = scan.points()[:, :3]
        chosen = points[:: max(1, len(points) // MAX_SURFACES)]
        near, _ = self._gicp.KdTree(points).batch_knn_search(chosen, NEIGHBOURS, self._threads)
        values, vectors = np.linalg.eigh(_covariances(points[np.asarray(near, dtype=np.int64)]))
        planar = values[:, 0] < MAX_THICKNESS * values[:, 1]
        return _Surfaces(
            chosen[planar] @ T[:3, :3].T,
            vectors[planar, :, 0] @ T[:3, :3].T,
            np.maximum(values[planar, 0], 0.0)
            / (NEIGHBOURS * values[planar, 1]),  # rounding, on exact planes
            len(points) / len(chosen),
        )

    def _compare_halves(self, scan: Any, T: Array, surfaces: _Surfaces, variance: float) -> None:
        """Learn the scale of the covariance from the poses of both halves of a scan."""
        points = scan.points()[:, :3]
        odd, odd_surfaces = (
            self._is_odd(points @ T[:3, :3].T + T[:3, 3]),
            self._is_odd(surfaces.points + T[:3, 3]),
        )
        if min(int(odd.sum()), int((~odd).sum())) < MIN_POINTS:
            return
        poses = []
        for half in (points[odd], points[~odd]):
            part = self._gicp.PointCloud(half)
            self._gicp.estimate_normals_covariances(part, num_neighbors=NEIGHBOURS, num_threads=self._threads)
            poses.append(np.array(self._align(part, T).T_target_source))
        turn = Rotation.from_matrix(poses[0][:3, :3] @ poses[1][:3, :3].T).as_rotvec()
        d = np.append(poses[0][:3, 3] - poses[1][:3, 3], turn)
        expected = surfaces.of(odd_surfaces).covariance(variance) + surfaces.of(~odd_surfaces).covariance(
            variance
        )
        found = float(d @ np.linalg.solve(expected, d)) / 6.0
        self._splits = min(self._splits + 1, SCALE_MEMORY)
        self._scale += (min(found, MAX_SURPRISE * self._scale) - self._scale) / self._splits

    def _is_odd(self, points: Array) -> NDArray[np.bool_]:
        """Half of the cubes, chosen by a hash: does a point (N, 3) of the odometry frame lie in one of them?

        No chessboard: pillars, furrows and windows repeat, and all of them could lie in one half.
        """
        cubes = np.floor(points / (HALVES_BLOCK * self.voxel_size)).astype(np.int64)
        mixed = (cubes[:, 0] * 73856093) ^ (cubes[:, 1] * 19349669) ^ (cubes[:, 2] * 83492791)
        return np.asarray((mixed * 2654435761 >> 13) & 1, dtype=bool)

    def _residual(self, error: float) -> float:
        """Metres along the normals, from the mean cost of a pair.

        The cost is half the squared distance over the sum of two covariances, which are 1e-3 along the normal.
        """
        return float(np.sqrt(max(2.0 * error * 2e-3, 1e-6)))


def voxel_size_for(points: Array) -> float:
    """Metres, by the ranges of a scan (N, 3)."""
    ranges = float(np.median(np.linalg.norm(points, axis=1)))
    return float(np.clip(ranges / RANGE_PER_VOXEL, MIN_VOXEL, MAX_VOXEL))


def _covariances(points: Array) -> Array:
    """(N, 3, 3) of N groups of points (N, k, 3)."""
    centred = points - points.mean(axis=1, keepdims=True)
    return np.asarray(np.einsum("nki,nkj->nij", centred, centred) / points.shape[1])


def _information(points: Array, normals: Array, noise: Array) -> Array:
    """Sum of a a', a = (n, p x n), without what the noise of the normals adds to it.

    points, normals: (N, 3); noise: (N,) variance of a normal along each tangent
    """
    a = np.hstack([normals, np.cross(points, normals)])
    found = a.T @ a
    scale = np.sqrt(NOISE_MARGIN * noise)[:, None]
    added = -(a * scale).T @ (a * scale)
    for axis in np.eye(3):
        g = np.hstack([np.broadcast_to(axis, points.shape), np.cross(points, axis)]) * scale
        added += g.T @ g
    values, vectors = np.linalg.eigh(found - added)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def _turn(degrees: float) -> Array:
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("z", degrees, degrees=True).as_matrix()
    return T
