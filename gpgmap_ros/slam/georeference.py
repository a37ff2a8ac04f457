"""Where a map lies on the earth: one similarity from its frame to UTM, fitted to GPS fixes along the trajectory.

    (east, north) = (E, N) + s R(yaw) (x, y),      height = H + z

s is that of the projection and known; yaw, E, N and H are fitted after all loop closures. The map as a whole is moved:
no fix can bend it. Fixes are compared with the positions of the antenna at their stamps, each residual in its stated
standard deviation, with a Geman-McClure kernel: weights 1 / (1 + (r / c)^2)^2. The fit starts at the pose, of those
that two fixes give, which most others agree with (RANSAC), so that jumps of whole stretches count as outliers too.

Errors of fixes last: those within `CORRELATION` seconds count as one in the covariance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gpgmap_ros.geometry import Array
from gpgmap_ros.mapping import GPGMap
from gpgmap_ros.mapping.placement import place_map
from gpgmap_ros.sensing.gps import UNKNOWN_STD
from gpgmap_ros.sensing.messages import GpsFix
from gpgmap_ros.sensing.transform_buffer import NANOSECONDS
from gpgmap_ros.slam.geodesy import GeodesyError, UtmZone, earth_from_enu
from gpgmap_ros.slam.trajectory import Trajectory

MIN_FIXES: Final = 8
MIN_SHARE: Final = 0.5
"""Of the fixes that must agree with one pose of the map."""
MAX_GAP: Final = 2.0
"""Seconds between two poses across which a position at the stamp of a fix is interpolated."""
TRAJECTORY_STD: Final = 0.1
"""Metres: no fix counts as nearer than the trajectory is known."""
KERNEL: Final = 2.5
"""Standard deviations at which a residual has a quarter of its weight; half as many again and it is an outlier."""
OUTLIER: Final = 4.0
"""Standard deviations."""
TRIALS: Final = 400
MAX_SAMPLED: Final = 2000
"""Fixes that the poses to start from are judged by."""
INFLATIONS: Final = (1.0, 2.0, 4.0, 8.0)
"""Factors on the stated standard deviations, tried until enough fixes agree: receivers promise too much."""
CORRELATION: Final = 30.0
"""Seconds."""
MAX_YAW_STD: Final = np.deg2rad(5.0)
"""A map whose heading is known less well is not georeferenced."""


class GeoreferenceError(ValueError):
    """The map can't be georeferenced: why, and what to do."""


@dataclass(frozen=True)
class Georeference:
    """The pose of a map's frame in UTM.

    epsg, name: of the zone; scale: s above; yaw: radians from east to the map's x axis, counterclockwise
    origin: (3,) E, N and H, metres; covariance: (4, 4) of E, N, H and yaw
    used, outliers: fixes that agree with it and that do not; rms: of the used ones, horizontally, metres
    inflation: factor on the stated standard deviations that the fixes needed
    """

    epsg: int
    name: str
    scale: float
    yaw: float
    origin: Array = field(repr=False)
    covariance: Array = field(repr=False)
    used: int
    outliers: int
    rms: float
    inflation: float
    _zone: UtmZone = field(repr=False)

    @property
    def T_aligned_map(self) -> Array:  # noqa: N802
        """(4, 4) the turn that makes the axes of the map those of the grid."""
        T = np.eye(4)
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        T[:2, :2] = [[c, -s], [s, c]]
        return T

    @property
    def label(self) -> str:
        return f"EPSG:{self.epsg}"

    def move(self, poses: Array) -> Array:
        """(..., 4, 4) poses in the map's frame -> in UTM, metres of the grid."""
        out = self.T_aligned_map @ poses
        out[..., :2, 3] = self.origin[:2] + self.scale * out[..., :2, 3]
        out[..., 2, 3] += self.origin[2]
        return np.asarray(out)

    def place(self, aligned: GPGMap) -> GPGMap:
        """A map whose axes are those of the grid (`T_aligned_map`), in UTM."""
        return place_map(aligned, self.origin, self.scale, self.label)

    def T_earth_map(self) -> Array:  # noqa: N802
        """(4, 4) from the map's frame to earth-centred coordinates."""
        latitude, longitude = self._zone.inverse(*self.origin[:2])
        T = np.eye(4)
        c, s = np.cos(self.yaw - self._zone.convergence), np.sin(self.yaw - self._zone.convergence)
        T[:2, :2] = [[c, -s], [s, c]]
        return np.asarray(earth_from_enu(latitude, longitude, float(self.origin[2])) @ T)

    def position(self, T_map_robot: Array) -> tuple[float, float, float]:
        """Latitude, longitude (degrees) and height above the ellipsoid of a pose in the map's frame."""
        east, north, height = self.move(T_map_robot)[:3, 3]
        return (*self._zone.inverse(float(east), float(north)), float(height))

    def summary(self) -> dict[str, Any]:
        std = np.sqrt(np.diag(self.covariance))
        return {
            "epsg": self.epsg,
            "name": self.name,
            "east": round(float(self.origin[0]), 4),
            "north": round(float(self.origin[1]), 4),
            "height": round(float(self.origin[2]), 4),
            "yaw_deg": round(float(np.degrees(self.yaw)), 5),
            "scale": round(self.scale, 8),
            "std_m": [round(float(value), 4) if np.isfinite(value) else None for value in std[:3]],
            "yaw_std_deg": round(float(np.degrees(std[3])), 4),
            "fixes_used": self.used,
            "fixes_outliers": self.outliers,
            "rms_m": round(self.rms, 3),
        }


@dataclass(frozen=True)
class _Matches:
    """Fixes with the antenna's positions at their stamps.

    xyz: (N, 3) in the map's frame; enh: (N, 3) east and north in metres on the ground, and height, NaN where unknown
    std: (N, 2) stated, horizontal and vertical; seconds: (N,) that the fixes were taken
    """

    xyz: Array
    enh: Array
    std: Array
    seconds: Array


def fit_georeference(
    fixes: Sequence[GpsFix], trajectory: Trajectory, lever: Array | None = None
) -> Georeference:
    """The georeference of a trajectory in the map's frame. GeoreferenceError where the fixes do not give one.

    lever: (3,) the antenna in the robot's frame, at its origin unless given
    """
    if len(fixes) < MIN_FIXES:
        raise GeoreferenceError(f"there are {len(fixes)} usable GPS fixes, {MIN_FIXES} are needed")
    latitude, longitude, altitude = np.array([(f.latitude, f.longitude, f.altitude) for f in fixes]).T
    middle = (float(np.median(latitude)), float(np.median(longitude)))
    known = altitude[np.isfinite(altitude)]
    try:
        zone = UtmZone.around(*middle, float(np.median(known)) if len(known) else np.nan)
    except GeodesyError as error:
        raise GeoreferenceError(str(error)) from error
    centre = zone.forward(np.array(middle[:1]), np.array(middle[1:]))[0]
    ground = (zone.forward(latitude, longitude) - centre) / zone.scale
    matches = _match(fixes, np.column_stack([ground, altitude]), trajectory, lever)
    fit = _fit_plane(matches)
    heights, height_variance = _fit_height(matches, fit)
    covariance = np.zeros((4, 4))
    covariance[np.ix_([0, 1, 3], [0, 1, 3])] = fit.covariance
    covariance[2, 2] = height_variance
    if covariance[3, 3] > MAX_YAW_STD**2:
        raise GeoreferenceError(
            f"the GPS fixes give the heading of the map to {np.degrees(np.sqrt(covariance[3, 3])):.0f} deg only: the"
            " trajectory is too short for their noise"
        )
    origin = np.array([*(centre + zone.scale * fit.shift), heights])
    inside = fit.ratio <= OUTLIER
    return Georeference(
        zone.epsg, zone.name, zone.scale, fit.yaw, origin, covariance, int(inside.sum()), int((~inside).sum()),
        float(np.sqrt(np.mean(fit.distance[inside] ** 2))), fit.inflation, zone,
    )  # fmt: skip


def _match(fixes: Sequence[GpsFix], enh: Array, trajectory: Trajectory, lever: Array | None) -> _Matches:
    stamps = np.array([fix.stamp for fix in fixes], dtype=np.int64)
    positions, known = _positions_at(stamps, trajectory, np.zeros(3) if lever is None else lever)
    count = int(known.sum())
    if count < MIN_FIXES:
        raise GeoreferenceError(
            f"{count} of {len(fixes)} usable GPS fixes were taken during the trajectory, {MIN_FIXES} are needed: do"
            " both have the same clock?"
        )
    std = np.array([_stated_std(fix) for fix in fixes])
    seconds = np.asarray(stamps[known] * 1e-9, dtype=np.float64)
    return _Matches(positions[known], enh[known], std[known], seconds)


def _positions_at(
    stamps: NDArray[np.int64], trajectory: Trajectory, lever: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """(N, 3) the antenna at the stamps, interpolated; whether it is known there, (N,)."""
    if len(trajectory) < 2:
        return np.zeros((len(stamps), 3)), np.zeros(len(stamps), dtype=bool)
    antenna = trajectory.positions + trajectory.poses[:, :3, :3] @ lever
    after = np.clip(np.searchsorted(trajectory.stamps, stamps), 1, len(trajectory) - 1)
    begin, end = trajectory.stamps[after - 1], trajectory.stamps[after]
    gap = np.maximum(end - begin, 1)
    share = ((stamps - begin) / gap)[:, None]
    known = (share[:, 0] >= 0.0) & (share[:, 0] <= 1.0) & (gap <= MAX_GAP * NANOSECONDS)
    return (1.0 - share) * antenna[after - 1] + share * antenna[after], known


def _stated_std(fix: GpsFix) -> tuple[float, float]:
    if fix.covariance is None:
        return UNKNOWN_STD, 2.0 * UNKNOWN_STD
    east, north, up = np.diag(fix.covariance)
    return float(np.hypot(np.sqrt(0.5 * (east + north)), TRAJECTORY_STD)), float(
        np.hypot(np.sqrt(up), TRAJECTORY_STD)
    )


@dataclass(frozen=True)
class _PlaneFit:
    """covariance: (3, 3) of shift and yaw at the map's origin; distance: (N,) metres; ratio: in standard deviations"""

    yaw: float
    shift: Array
    covariance: Array
    distance: Array
    ratio: Array
    inflation: float
    weights: Array


def _fit_plane(matches: _Matches) -> _PlaneFit:
    """yaw and shift of the map's x and y."""
    p, q, seconds = matches.xyz[:, :2], matches.enh[:, :2], matches.seconds
    inflation, yaw, shift = _start(p, q, matches.std[:, 0])
    std = inflation * matches.std[:, 0]
    weights = np.ones(len(p))
    for _ in range(50):
        distance = np.linalg.norm(q - _moved(p, yaw, shift), axis=1)
        weights = (1.0 + (distance / (KERNEL * std)) ** 2) ** -2
        before = (yaw, *shift)
        yaw, shift = _align(p, q, weights / std**2)
        if np.allclose(before, (yaw, *shift), rtol=0.0, atol=1e-9):
            break
    distance = np.linalg.norm(q - _moved(p, yaw, shift), axis=1)
    ratio = distance / std
    inside = ratio <= OUTLIER
    # J of (shift, yaw): a turn moves a point by its distance from the origin
    c, s = np.cos(yaw), np.sin(yaw)
    turned = np.column_stack([-s * p[:, 0] - c * p[:, 1], c * p[:, 0] - s * p[:, 1]])
    information = np.zeros((3, 3))
    for axis in range(2):
        J = np.zeros((len(p), 3))
        J[:, axis], J[:, 2] = 1.0, turned[:, axis]
        information += (J * (inside / std**2)[:, None]).T @ J
    spread = float(np.mean(ratio[inside] ** 2)) / 2.0
    correlated = _correlated(seconds[inside])
    covariance = np.asarray(np.linalg.pinv(information) * max(spread, 0.1) * correlated, dtype=np.float64)
    return _PlaneFit(yaw, shift, covariance, distance, ratio, inflation, weights)


def _start(p: Array, q: Array, std: Array) -> tuple[float, float, Array]:
    """Inflation, yaw and shift at which most fixes agree, of those that two of them give."""
    rng = np.random.default_rng(0)
    if len(p) > MAX_SAMPLED:
        chosen = rng.choice(len(p), MAX_SAMPLED, replace=False)
        p, q, std = p[chosen], q[chosen], std[chosen]
    first, second = rng.integers(0, len(p), (2, TRIALS))
    apart = np.linalg.norm(p[first] - p[second], axis=1)
    good = apart >= 0.5 * np.median(apart)
    first, second = first[good], second[good]
    directions = [np.arctan2(*(x[second] - x[first]).T[::-1]) for x in (p, q)]
    yaws = directions[1] - directions[0]
    middles = [0.5 * (x[first] + x[second]) for x in (p, q)]
    c, s = np.cos(yaws), np.sin(yaws)
    turned = np.stack(
        [np.outer(c, p[:, 0]) - np.outer(s, p[:, 1]), np.outer(s, p[:, 0]) + np.outer(c, p[:, 1])], -1
    )
    middle = np.column_stack(
        [c * middles[0][:, 0] - s * middles[0][:, 1], s * middles[0][:, 0] + c * middles[0][:, 1]]
    )
    shifts = middles[1] - middle
    distance = np.linalg.norm(turned + shifts[:, None] - q, axis=-1)
    for inflation in INFLATIONS:
        agree = (distance < KERNEL * inflation * std).sum(axis=1)
        best = int(np.argmax(agree)) if len(agree) else 0
        if len(agree) and agree[best] >= MIN_SHARE * len(p):
            return inflation, float(yaws[best]), shifts[best]
    most = int(agree[best]) if len(agree) else 0
    raise GeoreferenceError(
        f"the GPS fixes do not agree with the trajectory: at most {most} of {len(p)} lie"
        f" on it within {KERNEL * INFLATIONS[-1]:.0f} of their stated standard deviations"
    )


def _fit_height(matches: _Matches, fit: _PlaneFit) -> tuple[float, float]:
    """Height of the map's origin and its variance; 0 where no fix has a height."""
    known = np.isfinite(matches.enh[:, 2]) & (fit.ratio <= OUTLIER)
    if known.sum() < MIN_FIXES:
        return 0.0, np.inf
    off, std = matches.enh[known, 2] - matches.xyz[known, 2], matches.std[known, 1]
    height = float(np.median(off))
    scale = max(1.4826 * float(np.median(np.abs(off - height))), TRAJECTORY_STD)
    std = np.maximum(std, scale)
    for _ in range(20):
        weights = (1.0 + ((off - height) / (KERNEL * std)) ** 2) ** -2 / std**2
        height = float(weights @ off / weights.sum())
    return height, float(_correlated(matches.seconds[known]) / weights.sum())


def _correlated(seconds: Array) -> float:
    """Fixes that count as one."""
    independent = max(float(len(np.unique(np.floor(seconds / CORRELATION)))), 1.0)
    return max(len(seconds) / independent, 1.0)


def _moved(p: Array, yaw: float, shift: Array) -> Array:
    c, s = np.cos(yaw), np.sin(yaw)
    return np.column_stack([c * p[:, 0] - s * p[:, 1], s * p[:, 0] + c * p[:, 1]]) + shift


def _align(p: Array, q: Array, weights: Array) -> tuple[float, Array]:
    """The rotation and shift that take p (N, 2) to q with the least weighted squares."""
    w = weights / weights.sum()
    a, b = w @ p, w @ q
    x, y = p - a, q - b
    yaw = float(
        np.arctan2(w @ (x[:, 0] * y[:, 1] - x[:, 1] * y[:, 0]), w @ (x[:, 0] * y[:, 0] + x[:, 1] * y[:, 1]))
    )
    return yaw, b - _moved(a[None], yaw, np.zeros(2))[0]
