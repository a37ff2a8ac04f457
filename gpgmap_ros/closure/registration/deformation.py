"""How maps are bent: the error of a pose that comes from the drift of the odometry inside the two submaps.

A submap is made while odometry drifts. What was seen after a part m of the way is turned about where the robot was then
and shifted, against the submap's frame, which stands where the way began. With c_m(p) the share of cell p that was seen
after that part (a sensor sees as 1 / distance^3), a drift (turn, shift) there displaces the map by

    d_m(p) = c_m(p) (turn x (p - w_m) + shift),        turn ~ N(0, s_r^2 D),  shift ~ N(0, s_p^2 D)

for D metres of way. A displacement d changes the residual of a height by J d (covariance.py). One part of it moves the
pose, and leaves no residual; the other part bends one surface against the other, and shows. Both have one amplitude:

    residuals = X pose + tau U theta + noise,     theta ~ N(0, I),     U = (what the pose can't follow of) J d

`closure.drift_*` only say how turns compare with shifts, and what to expect; tau^2 is estimated from the residuals of
the pair, by its posterior mean over a grid, against the noise of the patterns U that the autocovariance of the other
residuals implies. The covariance of the pose is then tau^2 P P', with P the pose that the fit makes of each d.

A map without a way may come from anything that georeferences slowly varying errors. It is taken as driven through its
middle, along both axes, from a frame that stands as far away as it reaches; the amplitude is relative to its size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gp_core.arrays import Array
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration.overlay import Overlay
from gpgmap_ros.closure.registration.refinement import INDEPENDENT_STRIDE, NU, Alignment
from gpgmap_ros.closure.registration.registration_map import RegistrationMap

NEAR = 0.1
"""Of the way: nearer than this a sensor sees everything alike."""
PARTS = 3
"""Of the way of a map that has none."""
USUAL_WAY = 25.0
"""Metres driven in a submap: the drift of a map of unknown scale and way is what is stated for this."""
PATTERNS = 8
"""Of residuals that bent maps leave, at most."""
USUAL_DRIFT, DRIFT_SPREAD = 0.35, 0.6
"""tau of odometry, its median and the standard deviation of its logarithm: who states a drift leaves some room."""
SHIFT = 1.6
"""Of `drift_position`: over the few metres of a submap a factor of scale outweighs what comes and goes."""
LARGEST_DRIFT = 1.0
"""tau with which bending is fitted before it is known."""
STEPS = 4
"""Of that fit, each with new weights of the cells."""
STILL, STILL_WITHOUT_WAY = 0.03, 0.01
"""tau below which a map counts as not bent."""
BENT, BENT_WITHOUT_WAY = 0.9, 0.1
"""Share of the maps with and without a way that are bent."""
NOISE, NOISE_WITHOUT_WAY = 1.0, 2.0
"""Factors on the variance of the patterns' noise: where hardly any map is bent, less is taken for bending."""
AMPLITUDES = np.exp(np.linspace(np.log(1e-3), np.log(4.0), 60))
"""tau, standard deviations of drift over the stated ones."""


@dataclass(frozen=True)
class Drive:
    """Way of a map in cells of the target: where its drift happens.

    points: (K, 2); step: metres between them; before: drift before the first that counts as well, in steps
    """

    points: Array
    step: float
    before: float = 0.0


def drives_of(alignment: Alignment, source: RegistrationMap, target: RegistrationMap) -> list[list[Drive]]:
    """For each map the ways that it may have been made on, in cells of the target."""

    def to_target(points: Array) -> Array:
        return np.asarray((points - source.centre) @ alignment.R[:2, :2].T + alignment.t[:2])

    return [
        [Drive(to_target(d.points), d.step, d.before) for d in ways(source)],
        ways(target),
    ]


def ways(map_: RegistrationMap) -> list[Drive]:
    """The way of a map; where there is none, two through its middle."""
    if len(map_.way) > 1:
        step = float(np.hypot(*(map_.way[1] - map_.way[0]))) * map_.resolution
        return [Drive(map_.way, step)]
    reach = 0.7 * map_.radius
    at = np.linspace(-reach, reach, PARTS + 1)[:, None]
    return [
        Drive(map_.centre + at * np.array(axis), USUAL_WAY / PARTS, 0.5 * PARTS)
        for axis in ((1.0, 0.0), (0.0, 1.0))
    ]


def height_changes(drive: Drive, points: Array, slope: Array, config: ClosureConfig) -> list[Array]:
    """Changes of the residuals, each (...), by one standard deviation of every drift on the way, in cells.

    points, slope: (2, ...) of the cells, in the target
    """
    w = drive.points
    length = float(np.sum(np.hypot(*np.diff(w, axis=0).T)))
    away = points[None] - w.reshape(-1, 2, *([1] * (points.ndim - 1)))
    seen = (np.sum(away**2, axis=1) + (NEAR * length) ** 2) ** -1.5
    seen /= seen.sum(axis=0)
    after = list(np.cumsum(seen[::-1], axis=0)[::-1][1:])  # share that was seen after each part
    turn, shift = (
        config.drift_rotation * np.sqrt(drive.step),
        SHIFT * config.drift_position * np.sqrt(drive.step),
    )
    shift *= max(length, 1e-9) / (drive.step * (len(w) - 1))  # metres to cells
    pivots, times = list(w[:-1]), [1.0] * len(after)
    if drive.before:
        after, pivots, times = [np.ones(points.shape[1:]), *after], [w[0], *pivots], [drive.before, *times]
    out = []
    for share, (x, y), many in zip(after, pivots, times, strict=True):
        part = np.sqrt(many) * share
        out.append(turn * part * (slope[0] * (points[1] - y) - slope[1] * (points[0] - x)))
        out += [-shift * part * slope[0], -shift * part * slope[1], shift * part]
    # an error that stays the same along the way, as of a wheel's radius, as large at its end as those that come and go
    return out + [np.sum(out[kind::4], axis=0) / np.sqrt(len(after)) for kind in range(4)]


def bend_residuals(
    alignment: Alignment,
    source: RegistrationMap,
    target: RegistrationMap,
    over: Overlay,
    config: ClosureConfig,
) -> Array:
    """(M, rows, columns) changes of the height residuals by drift inside the maps, each of one standard deviation."""
    slope = 0.5 * (over.source_slope + over.target_slope)
    out: list[Array] = []
    for of_map in drives_of(alignment, source, target):
        for drive in of_map:
            found = height_changes(drive, over.points[:2], slope, config)
            out += [change / np.sqrt(len(of_map)) for change in found]
    return np.array(out)


def compute_jacobians(points: Array, slope: Array, centre: Array) -> Array:
    """J (6, ...) of the residual of every cell over the pose about `centre`, for a surface of these slopes (2, ...)."""
    gx, gy = slope
    d = points - centre.reshape(3, *[1] * gx.ndim)
    return np.stack([-gx, -gy, np.ones_like(gx), d[1] + gy * d[2], -d[0] - gx * d[2], gx * d[1] - gy * d[0]])


@dataclass(frozen=True)
class Patterns:
    """What bent maps leave in the residuals of a fitted pose.

    P: (6, M) the pose that the fit makes of each displacement
    E: (k, rows, columns) orthonormal patterns of what the pose can't follow; sizes: (k,) of each at tau = 1
    """

    P: Array
    E: Array
    sizes: Array


def trust(u: Array) -> Array:
    """Weights of normalised residuals by Student's t."""
    return np.asarray((NU + 1.0) / (NU + u * u))


def residual_patterns(H: Array, X: Array, weight: Array, prior: Array) -> Patterns:
    """H: (M, rows, columns) residuals by the displacements; X: (6, rows, columns) by the pose, both normalised
    weight: of the cells in the fit; prior: (6, 6) information on the pose
    """
    M, N = len(H), X[0].size
    flat, x, w = H.reshape(M, N), X.reshape(6, N), weight.reshape(N)
    A = (w * x) @ x.T
    P = np.linalg.solve(A + prior + 1e-9 * np.diag(np.diag(A)), (w * x) @ flat.T)
    left = flat - P.T @ x
    values, vectors = np.linalg.eigh(left @ left.T)
    order = np.argsort(values)[::-1][:PATTERNS]
    order = order[values[order] > 1e-4 * max(float(values[order[0]]), 1e-300)]
    sizes = np.sqrt(values[order])
    E = (vectors[:, order] / sizes).T @ left
    return Patterns(np.asarray(P, dtype=np.float64), E.reshape(len(order), *X.shape[1:]), sizes)


@dataclass(frozen=True)
class BendingFit:
    """rest: residuals less the bending; scale: their variance; amplitudes: (k,) of the patterns"""

    rest: Array
    scale: float
    amplitudes: Array


def fit_bending(u: Array, X: Array, patterns: Patterns, mask: NDArray[np.bool_], tau: float) -> BendingFit:
    """Normalised residuals (rows, columns) as a small motion of the pose, patterns of bent maps, and a rest.

    tau: of the drift that the patterns are expected to have; neighbouring cells count as one
    """
    cells = INDEPENDENT_STRIDE**2
    Z = np.concatenate([X, patterns.E])[:, mask]
    values = u[mask]
    information = np.concatenate([np.zeros(6), (max(tau, 1e-6) * patterns.sizes) ** -2.0])
    rest, scale = values, 1.0
    for _ in range(STEPS):
        scale = max(float(np.mean(trust(rest / np.sqrt(scale)) * rest**2)), 1e-12)
        w = trust(rest / np.sqrt(scale))
        K = (w * Z) @ Z.T
        ridge = cells * scale * np.diag(information) + 1e-9 * np.diag(np.diag(K))
        amplitudes = np.linalg.solve(K + ridge, (w * Z) @ values)
        rest = values - amplitudes @ Z
    out = np.zeros(u.shape)
    out[mask] = rest
    return BendingFit(out, scale, amplitudes[6:])


def estimate_amplitude(scores: Array, noise: Array, sizes: Array, driven: bool) -> float:
    """tau^2, its posterior mean. scores: (k,) of the patterns; noise: (k, k) covariance of their errors."""
    noise = (NOISE if driven else NOISE_WITHOUT_WAY) * noise
    L = np.linalg.cholesky(noise + 1e-12 * np.trace(noise) * np.eye(len(noise)))
    u, s, _ = np.linalg.svd(np.linalg.solve(L, np.diag(sizes)))
    squared = (u.T @ np.linalg.solve(L, scores)) ** 2
    spread = 1.0 + AMPLITUDES[:, None] ** 2 * s**2
    log_posterior = log_prior(driven) - 0.5 * np.sum(np.log(spread) + squared / spread, axis=1)
    weight = np.exp(log_posterior - log_posterior.max())
    return float(weight @ AMPLITUDES**2 / weight.sum())


def log_prior(driven: bool) -> Array:
    """Of tau on the grid: about USUAL_DRIFT of the stated drift, unless the maps are not bent."""
    share, still = (BENT, STILL) if driven else (BENT_WITHOUT_WAY, STILL_WITHOUT_WAY)
    bent = -0.5 * (np.log(AMPLITUDES / USUAL_DRIFT) / DRIFT_SPREAD) ** 2
    bent += np.log(share / (DRIFT_SPREAD * np.sqrt(2.0 * np.pi)))
    low = np.where(still > AMPLITUDES, np.log((1.0 - share) / np.log(still / AMPLITUDES[0])), -np.inf)
    return np.logaddexp(bent, low)
